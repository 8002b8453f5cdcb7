/* A process of a session whose first thread and so many others have ended, and are kept by a
 * tracer. Its last thread asks the daemon without end for the memory of processes that are ending.
 *
 *   ended_threads ATTACH_SOCKET SESSION COUNT */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/attach.h"

#define STACK_SIZE 16384

static int made[2], end[2], seized[2]; /* pipes, by which one part tells the next */
static int attach_fd;

static void fail(const char *what)
{
	perror(what);
	_exit(1);
}

static void take(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		fail("read");
}

static void give(int fd)
{
	if (write(fd, "x", 1) != 1)
		fail("write");
}

static void ask(enum attach_kind kind, const char *session)
{
	struct attach_request request = {
		.magic = ATTACH_MAGIC, .version = ATTACH_VERSION, .kind = (uint16_t)kind};
	struct attach_reply reply;

	snprintf(request.session, sizeof(request.session), "%s", session);
	if (send(attach_fd, &request, sizeof(request), 0) != sizeof(request) ||
	    recv(attach_fd, &reply, sizeof(reply), 0) != sizeof(reply) || reply.status != ATTACH_OK)
		fail("ask");
}

static void *end_when_told(void *arg)
{
	take(end[0]);
	return NULL;
}

static void *ask_without_end(void *arg)
{
	take(seized[0]);
	puts("asking");
	fflush(stdout);
	while (attach_fd >= 0)
		ask(ATTACH_SWEEP, "");
	return NULL;
}

static _Noreturn void run(const char *socket_path, const char *session, int count)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	pthread_attr_t attributes;
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
	attach_fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (connect(attach_fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		fail("connect");
	ask(ATTACH_WORKLOAD, session);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_SIZE);
	for (int i = 0; i < count; i++)
		if (pthread_create(&thread, &attributes, end_when_told, NULL))
			fail("pthread_create");
	if (pthread_create(&thread, NULL, ask_without_end, NULL))
		fail("pthread_create");
	give(made[1]);
	pthread_exit(NULL);
}

/* All but the first thread and the last one. */
static void seize(pid_t pid, int count)
{
	const struct dirent *entry;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *dir = opendir(path);
	while (dir && count && (entry = readdir(dir))) {
		pid_t thread = (pid_t)atoi(entry->d_name);

		if (thread <= 0 || thread == pid)
			continue;
		if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) < 0)
			fail("ptrace");
		count--;
	}
	if (!dir || count)
		fail("readdir");
	closedir(dir);
}

int main(int argc, char **argv)
{
	int count = argc < 4 ? 0 : atoi(argv[3]);

	if (!count || pipe(made) < 0 || pipe(end) < 0 || pipe(seized) < 0)
		return 2;
	pid_t pid = fork();
	if (pid == 0)
		run(argv[1], argv[2], count);
	take(made[0]);
	seize(pid, count);
	for (int i = 0; i < count; i++)
		give(end[1]);
	give(seized[1]);
	for (;;)
		pause();
}
