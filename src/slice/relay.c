#include "slice/relay.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"

/* Signals that others send. Not those that a fault of this process makes, and not TTIN and TTOU,
 * which the terminal sends to the whole job. The real-time signals come on top. */
static const int handed_on[] = {
	SIGINT,  SIGTERM, SIGHUP,    SIGQUIT, SIGUSR1,  SIGUSR2, SIGALRM, SIGPIPE, SIGPROF,
	SIGABRT, SIGURG,  SIGVTALRM, SIGPOLL, SIGWINCH, SIGPWR,  SIGXCPU, SIGCONT, SIGTSTP,
};

static const struct sigaction normal = {.sa_handler = SIG_DFL};
/* The handling of SIGCHLD before relay_prepare(). */
static struct sigaction inherited;
static bool prepared;

void relay_prepare(void)
{
	prepared = sigaction(SIGCHLD, &normal, &inherited) == 0;
}

int relay_begin(struct relay *ret, struct error *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < ARRAY_SIZE(handed_on); i++)
		sigaddset(&set, handed_on[i]);
	for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
		sigaddset(&set, number);
	ret->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (ret->fd < 0)
		return error_set(err, EXIT_CODE_RUN_FAILED, "cannot wait for signals: %s",
				 strerrordesc_np(errno));
	pthread_sigmask(SIG_BLOCK, &set, &ret->mask);
	/* The program that started us may ignore SIGCHLD, and then children vanish without a
	 * status. */
	sigaction(SIGCHLD, &normal, &ret->child);
	if (prepared)
		ret->child = inherited;
	return 0;
}

void relay_end(struct relay *relay)
{
	sigaction(SIGCHLD, &relay->child, NULL);
	pthread_sigmask(SIG_SETMASK, &relay->mask, NULL);
	close_fd(&relay->fd);
}

/* Only what was sent to this process alone. The terminal sends its own to the whole foreground
 * group, which the command is in. */
static void signal_hand_on(const struct signalfd_siginfo *info, pid_t command)
{
	int number = (int)info->ssi_signo;

	if (info->ssi_code == SI_QUEUE)
		sigqueue(command, number, (union sigval){.sival_ptr = (void *)info->ssi_ptr});
	else if (info->ssi_code <= 0)
		kill(command, number);
}

/* True: the command has ended, with *ret_status. If the job was told to stop, this process stops
 * when the command has, which may put its terminal in order first. That may be known before the
 * signal is read. A command that somebody else stops is left to them: if they let only it go on,
 * this process would stay behind. */
static bool command_ended(pid_t command, bool *stopping, int *ret_status)
{
	int status;

	if (waitpid(command, &status, WNOHANG | (*stopping ? WUNTRACED : 0)) != command)
		return false;
	if (!WIFSTOPPED(status)) {
		*ret_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
		return true;
	}
	*stopping = false;
	raise(SIGSTOP);
	return false;
}

int relay_wait(const struct relay *relay, pid_t command)
{
	struct pollfd fd = {.fd = relay->fd, .events = POLLIN};
	struct signalfd_siginfo info;
	bool stopping = false;
	int status;

	for (;;) {
		if (poll(&fd, 1, -1) < 0)
			continue;
		if (read(relay->fd, &info, sizeof(info)) != sizeof(info))
			continue;
		if (info.ssi_signo == SIGTSTP || info.ssi_signo == SIGCONT)
			stopping = info.ssi_signo == SIGTSTP;
		if (info.ssi_signo != SIGCHLD)
			signal_hand_on(&info, command);
		if (command_ended(command, &stopping, &status))
			return status;
	}
}
