#include "guard/part.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"

/* Signals that are meant for the daemon go to its worker, which ends, and its parts with it. */
static void signals_ignore(void)
{
	static const int numbers[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGQUIT};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		signal(numbers[i], SIG_IGN);
}

void part_begin(const char *name, pid_t worker)
{
	prctl(PR_SET_NAME, name, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (getppid() != worker)
		_exit(EXIT_FAILURE); /* it has ended meanwhile */
}

int part_fork(const char *name, int flags, part_run run, void *arg, int *ret_link_fd)
{
	int ends[2];
	pid_t worker = getpid();

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0, ends) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[0]);
		part_begin(name, worker);
		signals_ignore();
		_exit(run(arg, ends[1]) < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
	}
	int rc = pid < 0 ? -errno : 0;
	close(ends[1]);
	if (rc < 0)
		close(ends[0]);
	else
		*ret_link_fd = ends[0];
	return rc;
}

int part_descriptors_keep(int *const *fds, unsigned count)
{
	int above[PART_DESCRIPTORS_MAX], first_closed = PART_FD + (int)count;

	if (count > PART_DESCRIPTORS_MAX)
		return -EINVAL;
	/* Out of the way of one another first. */
	for (unsigned i = 0; i < count; i++)
		if ((above[i] = fcntl(*fds[i], F_DUPFD_CLOEXEC, first_closed)) < 0)
			return -errno;
	for (unsigned i = 0; i < count; i++) {
		*fds[i] = PART_FD + (int)i;
		if (dup3(above[i], *fds[i], O_CLOEXEC) < 0)
			return -errno;
	}
	return close_range((unsigned)first_closed, ~0u, 0) < 0 ? -errno : 0;
}
