/* Processes that a job left whose shim was killed. The shim knew them as its descendants; after its
 * death they are known by the session in their environment, as every process of a job has it from
 * the shim. A process that took it out is not found, and a job that has a cgroup leaves none.
 *
 * The look goes through all processes of the host. Only a daemon that runs jobs of its own user
 * looks, and only after that user killed a shim, so the time that it takes is that user's. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "daemon/queue/job.h"
#include "daemon/queue/job_left.h"
#include "daemon/queue/queue_context.h"
#include "proto/attach.h"

/* As the kernel bounds it for a program with the usual stack. */
#define ENVIRONMENT_MOST (2u << 20)

struct look {
	char variable[sizeof(ATTACH_ENV_SESSION) + STORE_ID_SIZE];
	struct stat daemon, shim; /* programs of carve's */
	char *environment;
};

static bool is_program(const struct stat *program, const struct stat *found)
{
	return program->st_ino == found->st_ino && program->st_dev == found->st_dev;
}

/* A daemon that a job had to start has the job's environment, and so have its shims. */
static bool is_carves(const struct look *look, pid_t pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return stat(path, &st) < 0 || is_program(&look->daemon, &st) ||
	       is_program(&look->shim, &st);
}

/* That of a process that has ended, and is not waited for yet, is empty. */
static bool has_variable(const struct look *look, pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	ssize_t size = file_read(path, look->environment, ENVIRONMENT_MOST + 1);
	for (const char *at = look->environment; at < look->environment + size;
	     at += strlen(at) + 1)
		if (!strcmp(at, look->variable))
			return true;
	return false;
}

/* Whether the process is the job's; then it has the signal. The descriptor names it from before the
 * look on: whoever has its number later gets none. */
static bool signal_one(const struct look *look, pid_t pid, int signal)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st) < 0 || st.st_uid != geteuid())
		return false;
	cleanup_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	return fd >= 0 && has_variable(look, pid) && !is_carves(look, pid) &&
	       syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0) == 0;
}

unsigned job_left_signal(const struct queues *q, const struct job_record *record, int signal)
{
	struct look look;
	unsigned count = 0;
	DIR *proc = opendir("/proc");
	const struct dirent *entry;

	snprintf(look.variable, sizeof(look.variable), "%s=%s", ATTACH_ENV_SESSION,
		 record->session);
	look.environment = malloc(ENVIRONMENT_MOST + 1);
	if (proc && look.environment && *record->session && record->uid == geteuid() &&
	    stat("/proc/self/exe", &look.daemon) == 0 && stat(q->places.shim, &look.shim) == 0)
		// NOLINTNEXTLINE(concurrency-mt-unsafe): its own list
		while ((entry = readdir(proc))) {
			pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

			count += pid > 1 && signal_one(&look, pid, signal);
		}
	if (proc)
		closedir(proc);
	free(look.environment);
	return count;
}
