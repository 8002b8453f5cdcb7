#include "slice/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/program.h"
#include "proto/attach.h"
#include "slice/driver_find.h"
#include "slice/places.h"
#include "slice/relay.h"
#include "slice/slice_env.h"
#include "slice/slice_register.h"

/* For how long a daemon that is busy is asked again: one second. */
#define REGISTER_TRIES 10
#define REGISTER_PAUSE_NS 100000000L

static int register_error(const char *why, struct error *err)
{
	error_set(err, EXIT_CODE_RUN_FAILED, "the daemon does not take the command up: %s", why);
	error_hint(err, "try again; `carve check` looks at the daemon");
	return -EXIT_CODE_RUN_FAILED;
}

/* Tells the daemon that this process, which becomes the command, is the session's. It keeps an
 * ephemeral session alive, as carve itself may be killed before its command ends. Its descendants,
 * and processes in its mount namespace, belong to the slice. */
static int command_register(const struct launch *launch, struct error *err)
{
	struct attach_reply reply = {0};
	int rc = slice_register(launch->attach, launch->session, 0, &reply);

	if (rc == -EAGAIN)
		return register_error("it does not answer", err);
	if (rc == -EPERM)
		return register_error("another user's listens in its place", err);
	if (rc == -EPROTO)
		return register_error("its answer is malformed", err);
	if (rc < 0)
		return register_error(strerrordesc_np(-rc), err);
	reply.message[sizeof(reply.message) - 1] = '\0';
	if (reply.status != ATTACH_OK)
		return register_error(reply.message, err);
	return 0;
}

/* Once more from within the namespace, so that the daemon knows that; again while it is busy. Where
 * it does not answer now, processes that become another user's are refused. */
static void namespace_register(const struct launch *launch)
{
	struct attach_reply reply;

	for (int tries = 0; launch->registers && tries < REGISTER_TRIES; tries++) {
		int rc = slice_register(launch->attach, launch->session, ATTACH_FLAG_NAMESPACE,
					&reply);
		if (rc < 0 || reply.status != ATTACH_BUSY)
			return;
		nanosleep(&(struct timespec){.tv_nsec = REGISTER_PAUSE_NS}, NULL);
	}
}

static int exec_error(const char *command, int error, struct error *err)
{
	char why[PROGRAM_WHY_SIZE];
	int code = program_why(command, error, why);

	error_set(err, code, "%.400s: %s", *command ? command : "''", why);
	if (code == EXIT_CODE_NOT_FOUND && !strchr(command, '/'))
		error_hint(err, "the command to run comes after carve's own options");
	return -code;
}

int launch_check(const char *command, struct error *err)
{
	struct stat st;

	if (!strchr(command, '/'))
		return 0;
	if (stat(command, &st) < 0)
		return exec_error(command, errno, err);
	return S_ISDIR(st.st_mode) ? exec_error(command, EACCES, err) : 0;
}

/* Why a child could not become the command. */
struct failure {
	struct error error;
	bool isolation; /* the namespace could not be made; nothing else was tried */
};

/* In the child: what makes its programs programs of the slice. */
static int slice_enter(const struct launch *launch, struct failure *failure)
{
	struct driver_libs driver = *launch->driver;
	struct places places = *launch->places;
	struct isolation_mount mount = {.user = launch->isolation_asked};
	bool mounts = launch->isolation == ISOLATION_MOUNT;
	int rc = mounts ? isolation_mount(&mount, &places, &driver, &failure->error) : 0;

	failure->isolation = rc < 0;
	if (rc < 0)
		return rc;
	rc = slice_env_enter(launch->session, launch->stamp, launch->attach, &places, &driver,
			     &failure->error);
	if (rc < 0 || !mounts)
		return rc;
	namespace_register(launch);
	return isolation_mount_environment(&mount, &failure->error);
}

/* In the child: becomes the command, or sends the error through `fd`. */
_Noreturn static void command_become(const struct launch *launch, struct relay *relay, int fd)
{
	struct failure failure = {0};

	/* First the daemon, which then knows of the command before that is in the slice. */
	if ((!launch->registers || command_register(launch, &failure.error) == 0) &&
	    slice_enter(launch, &failure) == 0) {
		relay_end(relay);
		execvp(launch->argv[0], launch->argv);
		exec_error(launch->argv[0], errno, &failure.error);
	}
	write_all(fd, &failure, sizeof(failure));
	_exit(EXIT_CODE_RUN_FAILED);
}

static int start_error(const struct launch *launch, struct error *err)
{
	return error_set(err, EXIT_CODE_RUN_FAILED, "cannot start %.400s: %s", launch->argv[0],
			 strerrordesc_np(errno));
}

static int command_start(const struct launch *launch, struct relay *relay, pid_t *ret_pid,
			 struct failure *failure)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return start_error(launch, &failure->error);
	cleanup_close int in = fds[0], out = fds[1];
	pid_t child = fork();
	if (child < 0)
		return start_error(launch, &failure->error);
	if (child == 0)
		command_become(launch, relay, out);
	close_fd(&out);
	/* Nothing but the end of the pipe comes where the command was started. */
	ssize_t n = read(in, failure, sizeof(*failure));
	if (n == sizeof(*failure)) {
		waitpid(child, NULL, 0);
		return -failure->error.code;
	}
	*ret_pid = child;
	return 0;
}

/* Where nobody asked for the namespace and none can be made here, the command starts without. */
static int command_start_isolated(const struct launch *launch, struct relay *relay, pid_t *ret_pid,
				  struct error *err)
{
	struct launch preloading = *launch;
	struct failure failure = {0};
	int rc = command_start(launch, relay, ret_pid, &failure);

	if (rc < 0 && failure.isolation && !launch->isolation_asked) {
		if (launch->verbose)
			fprintf(stderr, "carve: %s; preloading instead\n", failure.error.message);
		preloading.isolation = ISOLATION_PRELOAD;
		failure = (struct failure){0};
		rc = command_start(&preloading, relay, ret_pid, &failure);
	}
	if (rc < 0)
		*err = failure.error;
	return rc;
}

int launch_run(const struct launch *launch, struct error *err)
{
	struct relay relay;
	pid_t child = -1;
	int rc = relay_begin(&relay, err);

	if (rc < 0)
		return rc;
	rc = command_start_isolated(launch, &relay, &child, err);
	if (rc == 0 && launch->started)
		launch->started(launch->started_arg);
	if (rc == 0)
		rc = relay_wait(&relay, child);
	relay_end(&relay);
	return rc;
}
