#include "daemon/supervisor/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/host/runtime.h"
#include "daemon/host/supervisor.h"
#include "daemon/supervisor/hoard.h"

// NOLINTBEGIN(concurrency-mt-unsafe): the supervisor has one thread.

#define LISTEN_FDS_FIRST 3
/* RLIMIT_NICE for WORKER_NICE. */
#define NICE_LIMIT 30

static int fds_move(int *fds, size_t count)
{
	int above = LISTEN_FDS_FIRST + (int)count;

	/* Out of the way of one another first. */
	for (size_t i = 0; i < count; i++)
		if (fds[i] < above && (fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, above)) < 0)
			return -errno;
	for (size_t i = 0; i < count; i++) {
		if (dup2(fds[i], LISTEN_FDS_FIRST + (int)i) < 0)
			return -errno;
		close(fds[i]);
	}
	return 0;
}

int worker_descriptors_pass(const struct worker_descriptor *first, size_t count,
			    const struct hoard *hoard)
{
	size_t all = count + hoard->count, size = hoard->bytes + count * SUPERVISOR_NAME_SIZE;
	char *names = calloc(1, size + 1), *end = names, number[16];
	int *fds = calloc(all + 1, sizeof(*fds));

	if (!names || !fds)
		return -ENOMEM;
	for (size_t i = 0; i < all; i++) {
		const char *name = i < count ? first[i].name : hoard->held[i - count].name;

		fds[i] = i < count ? first[i].fd : hoard->held[i - count].fd;
		end += sprintf(end, "%s%s", i ? ":" : "", name);
	}
	int rc = fds_move(fds, all);
	snprintf(number, sizeof(number), "%zu", all);
	setenv("LISTEN_FDS", number, 1);
	setenv("LISTEN_FDNAMES", names, 1);
	snprintf(number, sizeof(number), "%d", (int)getpid());
	setenv("LISTEN_PID", number, 1);
	free(names);
	free(fds);
	return rc;
}

int worker_user_become(const struct worker_user *user)
{
	if (setgroups(user->group_count, user->groups) < 0 ||
	    setresgid(user->gid, user->gid, user->gid) < 0 ||
	    setresuid(user->uid, user->uid, user->uid) < 0)
		return -errno;
	return 0;
}

/* The program is executed without them, as systemd does it. */
static int rights_drop(const struct worker_user *user)
{
	struct rlimit nice = {NICE_LIMIT, NICE_LIMIT};

	/* Where the limit cannot be raised, as in a container, the lease thread inherits it. */
	if (setrlimit(RLIMIT_NICE, &nice) < 0)
		(void)setpriority(PRIO_PROCESS, 0, WORKER_NICE);
	for (unsigned capability = 0; capability <= CAP_LAST_CAP; capability++)
		(void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
	return worker_user_become(user);
}

_Noreturn static void worker_become(const struct worker_start *start)
{
	const struct worker_descriptor first[] = {
		{SUPERVISOR_LOCK, start->lock_fd},
		{SUPERVISOR_CONTROL, start->control_fd},
		{SUPERVISOR_ATTACH, start->runtime->attach_fd},
		{SUPERVISOR_HTTP, start->runtime->http_fd},
		{SUPERVISOR_WARDEN, start->warden_fd}, /* last: there may be none */
	};
	size_t count = ARRAY_SIZE(first) - (start->warden_fd < 0);
	char most[16];
	sigset_t none;

	/* Before it becomes another user: clients believe root's sockets. */
	runtime_name_as_own(start->runtime);
	if (start->user.uid && rights_drop(&start->user) < 0)
		_exit(EXIT_FAILURE);
	/* The kernel forgets it when the user changes. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != start->supervisor ||
	    worker_descriptors_pass(first, count, start->hoard) < 0)
		_exit(EXIT_FAILURE);
	snprintf(most, sizeof(most), "%zu", start->hoard->most);
	setenv("FDSTORE", most, 1);
	setenv("NOTIFY_SOCKET", start->notify, 1);
	unsetenv("WATCHDOG_USEC");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* The supervisor's own program, whatever has its path by now. */
	execv("/proc/self/exe", start->argv);
	_exit(EXIT_FAILURE);
}

pid_t worker_fork(const struct worker_start *start)
{
	pid_t pid = fork();

	if (pid == 0)
		worker_become(start);
	return pid < 0 ? -errno : pid;
}

// NOLINTEND(concurrency-mt-unsafe)
