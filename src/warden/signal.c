/* Signals by the kernel's own rule: the warden takes the session's user for the moment in which it
 * sends, and the kernel decides. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "base/process.h"
#include "proto/attach.h"
#include "warden/message.h"
#include "warden/run.h"

/* As the kernel bounds it for a program with the usual stack. */
#define ENVIRONMENT_MOST (2u << 20)

static bool variable_is_there(const char *text, size_t size)
{
	static const char name[] = ATTACH_ENV_SESSION "=";

	for (const char *at = text; at < text + size;
	     at += strnlen(at, size - (size_t)(at - text)) + 1)
		if (!strncmp(at, name, sizeof(name) - 1))
			return true;
	return false;
}

static bool environment_says_so(pid_t pid)
{
	cleanup_free char *text = malloc(ENVIRONMENT_MOST + 1);
	char path[64];

	if (!text)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	ssize_t n = file_read(path, text, ENVIRONMENT_MOST + 1);
	return n > 0 && variable_is_there(text, (size_t)n);
}

static bool namespace_says_so(pid_t pid)
{
	static const char *const dirs[] = {ATTACH_SLICE_DIRS};
	char path[128];
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "/proc/%d/root%s/" ATTACH_SLICE_FILE, (int)pid,
			 dirs[i]);
		if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == 0)
			return true;
	}
	return false;
}

int warden_slice_check(pid_t pid)
{
	return environment_says_so(pid) || namespace_says_so(pid) ? 0 : -EPERM;
}

/* As which user root signals a process: as the process's own. A process whose real or saved user
 * is root is root's. */
static int user_of(pid_t pid, uid_t *ret)
{
	char path[64], text[4096];
	unsigned real, effective, saved;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	ssize_t n = file_read(path, text, sizeof(text));
	const char *line = n < 0 ? NULL : strstr(text, "\nUid:");
	// NOLINTNEXTLINE(cert-err34-c): the kernel's numbers
	if (!line || sscanf(line, "\nUid: %u %u %u", &real, &effective, &saved) != 3)
		return -ESRCH;
	*ret = real == 0 || saved == 0 ? 0 : real;
	return 0;
}

/* Root may signal everybody: what a worker asks in root's name is bounded here. Only the status of
 * an ordinary user's process is read: other files could make the warden wait for that user. */
static int root_acts_as(pid_t pid, uid_t *ret)
{
	int rc = user_of(pid, ret);

	return rc < 0 || *ret ? rc : warden_slice_check(pid);
}

/* The C library's functions would do it for all threads; here there is one, and no time to lose. */
static int users_set(uid_t real, uid_t effective)
{
	return syscall(SYS_setresuid, real, effective, 0) < 0 ? -errno : 0;
}

static int signal_as(uid_t real_uid, uid_t uid, int pidfd, int signal)
{
	int rc = users_set(real_uid, uid);

	if (rc == 0 && syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0)
		rc = -errno;
	if (users_set(0, 0) < 0)
		abort(); /* it would go on as somebody else */
	return rc;
}

int warden_run_signal(struct warden_place *place, const struct warden_message *request,
		      struct warden_result *ret)
{
	const struct warden_signal *r = (const void *)request->data;
	const struct process_id process = {.pid = r->pid, .birth = r->birth};
	uid_t uid = r->uid;
	/* The kernel lets every process signal itself. */
	if (r->pid == getpid())
		return -EPERM;
	cleanup_close int pidfd = process_open(process);
	int rc = pidfd < 0 ? pidfd : uid == 0 ? root_acts_as(r->pid, &uid) : 0;

	/* The kernel compares users. The warden's real user is one that has no process which it may
	 * be asked about. No process of the session's user may signal the warden meanwhile: for
	 * that the warden's real and saved user count. */
	return rc < 0 ? rc : signal_as(place->real_uid, uid, pidfd, r->signal);
}
