/* Signals to processes that are in a slice or use a GPU, by the kernel's own rule. The sender takes
 * the session's user for the moment in which it sends, and the kernel decides. All of it runs in a
 * child, as the proofs may take their time. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/gpus.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/process.h"
#include "core/outside.h"
#include "proto/ledger.h"
#include "proto/warden_outside.h"
#include "warden/message.h"
#include "warden/run.h"

/* The kernel gives its first PID namespace this number (PROC_PID_INIT_INO). */
#define PID_NAMESPACE_OF_HOST 0xEFFFFFFCu

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

/* The C library's functions would do it for all threads; here there is one, and no time to lose. */
static int users_set(uid_t real, uid_t effective)
{
	return syscall(SYS_setresuid, real, effective, 0) < 0 ? -errno : 0;
}

/* The kernel compares the sender's real and effective user with the real and saved user of the
 * process. Meanwhile nobody may signal this process: its real user is one that nobody is, and its
 * saved user is root. */
static int signal_as(uid_t uid, int pidfd, int signal)
{
	int rc = users_set(WARDEN_ID_SIGNALS, uid);

	if (rc == 0 && syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0)
		rc = -errno;
	if (users_set(0, 0) < 0)
		abort(); /* it would go on as somebody else */
	return rc;
}

/* In root's name an ordinary user's process is signalled as that user; one of root's, only if it is
 * in a slice. */
static int signal_if(const struct warden_message *request,
		     int (*may)(const struct warden_message *request, pid_t pid, uid_t uid))
{
	const struct warden_signal *r = (const void *)request->data;
	cleanup_close int pidfd =
		process_open((struct process_id){.pid = r->pid, .birth = r->birth});
	uid_t owner, sender;
	int rc = pidfd < 0 ? pidfd : user_of(r->pid, &owner);

	/* The kernel lets every process signal itself. */
	if (r->pid == getpid() || r->pid == getppid())
		return -EPERM;
	if (rc < 0)
		return rc;
	sender = r->uid ? r->uid : owner;
	rc = signal_as(sender, pidfd, 0);
	if (rc == 0)
		rc = may(request, r->pid, owner);
	return rc < 0 ? rc : signal_as(sender, pidfd, r->signal);
}

static int is_in_slice(const struct warden_message *request, pid_t pid, uid_t uid)
{
	return warden_slice_has(pid, uid) ? 0 : -EACCES;
}

int warden_run_signal(struct warden_place *place, const struct warden_message *request,
		      struct warden_result *ret)
{
	return signal_if(request, is_in_slice);
}

static int is_peer(const struct warden_message *request, pid_t pid, uid_t uid)
{
	return warden_slice_peer(request->fd[0], pid) ? 0 : -EACCES;
}

int warden_run_signal_peer(struct warden_place *place, const struct warden_message *request,
			   struct warden_result *ret)
{
	return signal_if(request, is_peer);
}

/* ---- processes on GPUs -------------------------------------------------------------------- */

static bool lists(const struct gpu_sample *sample, pid_t pid, bool computes)
{
	for (size_t i = 0; i < sample->process_count; i++)
		if (sample->processes[i].pid == pid &&
		    (!computes || !sample->processes[i].graphics))
			return true;
	return false;
}

/* The driver's numbers are of the host's PID namespace. A simulated one's are of this one. */
static bool numbers_are_ours(const struct gpus *gpus)
{
	struct stat st;

	return gpus_are_simulated(gpus) ||
	       (stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == PID_NAMESPACE_OF_HOST);
}

/* Asks the driver: whether the process is on a GPU, or `computes` there. */
static bool gpu_has(pid_t pid, bool computes)
{
	static struct gpus *gpus; /* a child's, for as long as it lives */
	struct gpu_info info[LEDGER_GPUS_MAX];
	struct error ignored = {0};
	size_t count = 0;
	bool found = false;

	if (gpus)
		gpus_take_up(gpus);
	else if (gpus_open(&gpus, &ignored) < 0)
		return false;
	if (gpus_list(gpus, info, ARRAY_SIZE(info), &count) < 0)
		count = 0;
	if (computes && !numbers_are_ours(gpus))
		count = 0;
	for (size_t i = 0; i < count && !found; i++) {
		struct gpu_sample sample = {0};

		gpus_sample(gpus, info[i].index, false, GPU_UNLISTED_ANY, false, &sample);
		found = lists(&sample, pid, computes);
		gpu_sample_clear(&sample);
	}
	/* A change of a GPU's mode needs the driver closed. */
	gpus_let_go(gpus);
	return found;
}

/* Root's processes are let be. */
static int is_on_gpu(const struct warden_message *request, pid_t pid, uid_t uid)
{
	return uid != 0 && gpu_has(pid, false) ? 0 : -EACCES;
}

int warden_run_signal_on_gpu(struct warden_place *place, const struct warden_message *request,
			     struct warden_result *ret)
{
	return signal_if(request, is_on_gpu);
}

/* The marks are read last: the driver may take its time, and a process may join a slice meanwhile.
 */
static int is_outside(const struct warden_message *request, pid_t pid, uid_t uid)
{
	const struct warden_outside *r = (const void *)request->data;
	struct warden_marks now;

	if (uid != r->marks.uid || !outside_user_is_ordinary(uid))
		return -EPERM;
	if (!gpu_has(pid, true))
		return -EACCES;
	warden_slice_marks(pid, &now);
	if (now.marks & WARDEN_MARKS_SPARED)
		return -EPERM;
	return memcmp(&now, &r->marks, sizeof(now)) == 0 ? 0 : -EAGAIN;
}

int warden_run_signal_outside(struct warden_place *place, const struct warden_message *request,
			      struct warden_result *ret)
{
	return signal_if(request, is_outside);
}
