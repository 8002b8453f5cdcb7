/* The warden as a child process of its worker's. */
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "warden/process.h"
#include "warden/warden.h"

/* SETUID to be a session's user for a moment, SYS_PTRACE to open mount namespaces, the rest
 * for children (operations.c). No KILL: whom a user may signal the kernel decides. */
#define CAPABILITIES                                                                    \
	(1u << CAP_SETUID | 1u << CAP_SYS_PTRACE | 1u << CAP_SYS_ADMIN | 1u << CAP_DAC_OVERRIDE | \
	 1u << CAP_DAC_READ_SEARCH)

/* Signals that are meant for the daemon go to its worker, which ends, and the warden with it. */
static void signals_ignore(void)
{
	static const int numbers[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGQUIT};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		signal(numbers[i], SIG_IGN);
}

static void serve(struct warden *warden)
{
	struct pollfd fds[WARDEN_POLLS_MAX];

	while (warden_is_linked(warden)) {
		int timeout_ms = -1;
		unsigned count = warden_poll_fill(warden, fds, &timeout_ms);

		if (poll(fds, count, timeout_ms) < 0)
			continue; /* EINTR */
		warden_poll_run(warden, fds, count);
	}
}

static int run(struct warden_place place, int link_fd, pid_t worker)
{
	struct warden *warden;

	signals_ignore();
	warden_process_name(WARDEN_NAME);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != worker)
		return EXIT_FAILURE; /* it has ended meanwhile */
	if (warden_process_keep((int *const[]){&link_fd, &place.dir_fd}, 2) < 0 ||
	    warden_rights_keep(CAPABILITIES) < 0 || warden_open(&place, &warden) < 0)
		return EXIT_FAILURE;
	warden_link(warden, link_fd);
	serve(warden);
	warden_close(warden);
	return EXIT_SUCCESS;
}

int warden_fork(const struct warden_place *place, int *ret_link_fd)
{
	int ends[2];
	pid_t worker = getpid();

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid == 0)
		_exit(run(*place, ends[1], worker));
	int rc = pid < 0 ? -errno : 0;
	close(ends[1]);
	if (rc < 0)
		close(ends[0]);
	else
		*ret_link_fd = ends[0];
	return rc;
}
