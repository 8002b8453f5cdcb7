/* carve-keeper: holds the descriptors of a daemon's ledgers, so that these outlive the daemon's
 * death. It is a program of its own, of few lines and without libraries, so that what ends the
 * daemon does not end it, too. A daemon starts it (daemon/host/keep.c). */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/keeper.h"

static const char help[] =
	"carve-keeper - holds the descriptors of ledgers for carved, and outlives it\n"
	"\n"
	"usage: carve-keeper DIR     started by carved, with a listening socket as descriptor 3\n"
	"       carve-keeper --help | --version\n"
	"\n"
	"example: pgrep -a carve-keeper     lists the keepers that run\n";

static int usage(void)
{
	fputs("carve-keeper: it is started by carved; see carve-keeper --help\n", stderr);
	return 2;
}

static int is_listening(int fd)
{
	int listens = 0;
	socklen_t size = sizeof(listens);

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens;
}

/* Each session has some descriptors. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--help"))
		return fputs(help, stdout) < 0;
	if (argc == 2 && !strcmp(argv[1], "--version"))
		return puts("carve-keeper " CARVE_VERSION) < 0;
	if (argc != 2 || argv[1][0] != '/' || !is_listening(KEEP_LISTEN_FD))
		return usage();
	/* Nobody's child, so that no daemon has to wait for it, nor a later one to know of it. */
	pid_t pid = fork();
	if (pid)
		return pid < 0;
	setsid();
	(void)close_range(KEEP_LISTEN_FD + 1, ~0u, 0);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* ulimit -f may bound the log's file */
	/* Its descriptors are the daemon's: processes of the same user do not get at it by ptrace.
	 */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	raise_descriptor_limit();
	(void)!chdir("/");
	fcntl(KEEP_LISTEN_FD, F_SETFL, O_NONBLOCK);
	keeper_serve(KEEP_LISTEN_FD, argv[1]);
	return 0;
}
