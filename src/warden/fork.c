/* The warden as a process: a child of its worker's, or a service of its own. */
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "warden/jobs.h"
#include "warden/process.h"
#include "warden/warden.h"

/* SETUID to be a session's user for a moment, SYS_PTRACE to open mount namespaces, the rest
 * for children (operations.c). No KILL: whom a user may signal the kernel decides. */
#define CAPABILITIES                                                                              \
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

	struct jobs_place *jobs = place.jobs;
	int none = -1;
	int *const kept[] = {&link_fd, &place.dir_fd, jobs ? &jobs->jobs_fd : &none,
			     jobs ? &jobs->rights.fd : &none};

	signals_ignore();
	signal(SIGCHLD, SIG_IGN); /* shims are nobody's to wait for */
	warden_process_name(WARDEN_NAME);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != worker)
		return EXIT_FAILURE; /* it has ended meanwhile */
	if (warden_process_keep(kept, jobs ? 4 : 2) < 0)
		return EXIT_FAILURE;
	/* A job may have every right that its user has. */
	if ((!jobs && warden_rights_keep(CAPABILITIES) < 0) || warden_open(&place, &warden) < 0)
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

/* ---- a service ---------------------------------------------------------------------------- */

/* The file of the socket is looked for this often while there is no worker. */
#define LOOK_MS 1000

/* A worker that connects while another is served waits in the socket until that one has hung up. */
static int worker_await(struct warden *warden, const struct warden_listener *listener,
			int *listen_fd)
{
	int rc = listener->listen(listener->arg, listen_fd), timeout_ms = LOOK_MS;
	struct pollfd fds[WARDEN_POLLS_MAX + 1];

	if (rc < 0)
		return rc;
	unsigned count = warden_poll_fill(warden, fds, &timeout_ms);
	fds[count] = (struct pollfd){.fd = *listen_fd, .events = POLLIN};
	if (poll(fds, count + 1, timeout_ms) < 0)
		return 0; /* EINTR */
	warden_poll_run(warden, fds, count);
	if (!fds[count].revents)
		return 0;
	int fd = accept4(*listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return errno == EINTR || errno == ECONNABORTED || errno == EAGAIN ? 0 : -errno;
	if (listener->may_link(listener->arg, fd))
		warden_link(warden, fd);
	else
		close(fd);
	return 0;
}

int warden_serve(const struct warden_place *place, const struct warden_listener *listener)
{
	cleanup_close int listen_fd = -1;
	struct warden *warden;
	int rc = warden_open(place, &warden);

	warden_process_name(WARDEN_NAME);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* shims are nobody's to wait for */
	while (rc == 0) {
		serve(warden);
		rc = worker_await(warden, listener, &listen_fd);
	}
	return rc;
}
