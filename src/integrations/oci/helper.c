#include "integrations/oci/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/process_share.h"

/* The child's word when it has done its work. */
struct outcome {
	int rc;
	struct error err;
};

/* The kernel ends the child, whatever the caller does. A change of its user, as in make_as_owner(),
 * takes back that it is killed with the caller: then the timer does it. */
static void end_set(pid_t caller, unsigned most_s)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
	const struct itimerspec at = {.it_value.tv_sec = (time_t)most_s};
	timer_t killer;

	if (timer_create(CLOCK_MONOTONIC, &event, &killer) < 0 ||
	    timer_settime(killer, 0, &at, NULL) < 0)
		_exit(EXIT_CODE_FAILED);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	/* One that ended before that line sends no signal. */
	if (getppid() != caller)
		_exit(EXIT_CODE_FAILED);
}

/* A runtime reads the hook's output to the end, which is when nobody holds it any more. */
static void descriptors_leave(int null, int kept)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (dup2(null, fd) < 0)
			_exit(EXIT_CODE_FAILED);
	if ((kept > STDERR_FILENO + 1 &&
	     close_range(STDERR_FILENO + 1, (unsigned)kept - 1, 0) < 0) ||
	    close_range((unsigned)kept + 1, ~0u, 0) < 0)
		_exit(EXIT_CODE_FAILED);
}

/* Waits for the child's word, and for its end. One that a file system keeps is waited for no
 * longer. */
static int outcome_take(int fd, pid_t child, unsigned patience_s, struct error *err)
{
	struct pollfd word = {.fd = fd, .events = POLLIN};
	struct outcome outcome;
	int ready = poll(&word, 1, (int)patience_s * 1000);

	if (ready <= 0) {
		(void)kill(child, SIGKILL);
		return error_set(err, EXIT_CODE_FAILED, "gave up after %u s", patience_s);
	}
	bool said = read_all(fd, &outcome, sizeof(outcome)) == sizeof(outcome);

	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	if (!said)
		return error_set(err, EXIT_CODE_FAILED, "the process that does its work was ended");
	if (outcome.rc < 0)
		*err = outcome.err;
	return outcome.rc;
}

struct job {
	int (*work)(void *arg, struct error *err);
	void *arg;
	unsigned patience_s;
	pid_t caller;
	int null, out;
};

static int job_run(void *arg)
{
	const struct job *job = arg;
	struct outcome outcome = {0};

	end_set(job->caller, job->patience_s + 2); /* the caller is first */
	descriptors_leave(job->null, job->out);
	outcome.rc = job->work(job->arg, &outcome.err);
	(void)write_all(job->out, &outcome, sizeof(outcome));
	_exit(EXIT_CODE_OK);
}

int oci_helper_run(int (*work)(void *arg, struct error *err), void *arg, unsigned patience_s,
		   struct error *err)
{
	struct job job = {.work = work, .arg = arg, .patience_s = patience_s, .caller = getpid()};
	int fds[2] = {-1, -1};

	/* Above the standard descriptors, also where the caller has none of these. */
	standard_descriptors_hold();
	cleanup_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int rc = null >= 0 && pipe2(fds, O_CLOEXEC) == 0 ? 0 : -errno;
	cleanup_close int in = fds[0], out = fds[1];

	job.null = null;
	job.out = out;
	pid_t child = rc < 0 ? rc : process_share(job_run, &job, false);
	if (child < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot start a process: %s",
				 strerrordesc_np(-child));
	close_fd(&out);
	return outcome_take(in, child, patience_s, err);
}
