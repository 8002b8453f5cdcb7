/* The child that becomes the job's command, in the job's slice. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/kill_point.h"
#include "base/program.h"
#include "proto/attach.h"
#include "shim/container.h"
#include "shim/pod.h"
#include "shim/shim.h"
#include "slice/driver_find.h"
#include "slice/isolation.h"
#include "slice/places.h"
#include "slice/slice_env.h"
#include "slice/slice_register.h"

/* For this long a daemon that died is waited for, when a job begins. */
#define DAEMON_PATIENCE_NS (300ull * 1000000000)
#define BUSY_TRIES 20
#define BUSY_PAUSE_MS 100

static int fail(struct failure *failure, int code, const char *what, int error)
{
	failure->code = code;
	snprintf(failure->text, sizeof(failure->text), "%.300s: %s", what, strerrordesc_np(error));
	return -1;
}

static int fail_error(struct failure *failure, const struct error *err)
{
	failure->code = EXIT_CODE_RUN_FAILED;
	snprintf(failure->text, sizeof(failure->text), "%.500s", err->message);
	return -1;
}

/* The daemon may have died since it said go. The next one knows of the job: the shim starts it, as
 * this child may be in the slice's mounts already, where the driver is the front. */
static int register_patiently(const struct shim *shim, uint32_t flags, struct attach_reply *ret)
{
	uint64_t end = now_monotonic_ns() + DAEMON_PATIENCE_NS;
	int rc;

	do
		rc = slice_register(shim->spec.attach, shim->go.session, flags, ret);
	while (rc == -EAGAIN && now_monotonic_ns() < end);
	return rc;
}

static int register_judge(int rc, struct attach_reply *reply, struct failure *failure)
{
	if (rc < 0)
		return fail(failure, EXIT_CODE_RUN_FAILED, "the daemon does not take the job up",
			    -rc);
	reply->message[sizeof(reply->message) - 1] = '\0';
	if (reply->status == ATTACH_OK)
		return 0;
	failure->code = EXIT_CODE_RUN_FAILED;
	snprintf(failure->text, sizeof(failure->text), "%s", reply->message);
	return -1;
}

static int register_or_fail(const struct shim *shim, struct failure *failure)
{
	struct attach_reply reply = {0};
	int rc = register_patiently(shim, 0, &reply);

	return register_judge(rc, &reply, failure);
}

/* Tells the daemon once, from within the namespace where there is one. A daemon that is too busy to
 * look at that takes the command without it. */
static int enter_register(const struct shim *shim, bool mounted, struct failure *failure)
{
	struct attach_reply reply = {.status = ATTACH_BUSY};

	for (int i = 0; mounted && i < BUSY_TRIES; i++) {
		int rc = register_patiently(shim, ATTACH_FLAG_NAMESPACE, &reply);
		if (rc < 0 || reply.status != ATTACH_BUSY)
			return register_judge(rc, &reply, failure);
		(void)poll(NULL, 0, BUSY_PAUSE_MS);
	}
	return register_or_fail(shim, failure);
}

/* As `carve run` does it: root's jobs get a mount namespace where one can be made. */
static int slice_enter(const struct shim *shim, struct failure *failure)
{
	struct isolation_mount mount = {0};
	struct driver_libs driver;
	struct places places;
	struct error err = {0};
	enum isolation isolation;

	if (places_find(&places, &err) < 0 || driver_find(&driver, &err) < 0 ||
	    isolation_parse(NULL, &isolation, &err) < 0)
		return fail_error(failure, &err);
	if (isolation == ISOLATION_MOUNT &&
	    isolation_mount_or_not(&mount, &places, &driver, &err) < 0)
		isolation = ISOLATION_PRELOAD;
	if (enter_register(shim, isolation == ISOLATION_MOUNT, failure) < 0)
		return -1;
	if (slice_env_enter(shim->go.session, "", shim->spec.attach, &places, &driver, &err) < 0)
		return fail_error(failure, &err);
	if (isolation != ISOLATION_MOUNT)
		return 0;
	return isolation_mount_environment(&mount, &err) < 0 ? fail_error(failure, &err) : 0;
}

/* All but the exec itself. */
static int command_prepare(const struct shim *shim, char ***ret_argv, struct failure *failure)
{
	struct record_place place = shim->place;
	char path[PATH_MAX] = "";
	const char *what = "";

	int rc = shim_spec_enter(&shim->spec, &what);
	if (rc < 0)
		return fail(failure, EXIT_CODE_RUN_FAILED, what, -rc);
	if ((rc = shim_spec_files(&shim->spec, &place, path)) < 0)
		return fail(failure, EXIT_CODE_RUN_FAILED, path, -rc);
	if (shim->spec.pod) {
		struct error err = {0};

		*ret_argv = shim_pod_argv(&shim->spec, &shim->place, &err);
		return *ret_argv ? 0 : fail_error(failure, &err);
	}
	if (*shim->spec.text.image) {
		struct error err = {0};

		if (register_or_fail(shim, failure) < 0)
			return -1;
		*ret_argv = shim_container_argv(&shim->spec, &shim->place, shim->go.session, &err);
		return *ret_argv ? 0 : fail_error(failure, &err);
	}
	if (slice_enter(shim, failure) < 0)
		return -1;
	*ret_argv = shim_spec_argv(&shim->spec);
	return *ret_argv ? 0 : fail(failure, EXIT_CODE_RUN_FAILED, "the command", ENOMEM);
}

static void signals_restore(const struct shim *shim)
{
	for (int number = 1; number <= SIGRTMAX; number++)
		if (number != SIGKILL && number != SIGSTOP)
			(void)signal(number, SIG_DFL);
	pthread_sigmask(SIG_SETMASK, &shim->mask, NULL);
}

void shim_leave_unstarted(const struct shim *shim)
{
	int rc = record_add(shim->record, json_pack("{s:s}", "kind", SHIM_KIND_UNSTARTED), true);

	/* An empty record says the same, and needs no room on a full disk. The line of the start
	 * alone would say that the job ran. */
	if (rc < 0)
		record_clear(shim->record);
}

_Noreturn void shim_command_become(const struct shim *shim, int gate, int failures)
{
	struct failure failure = {0};
	char **argv = NULL, byte, why[PROGRAM_WHY_SIZE];

	setsid();
	int rc = command_prepare(shim, &argv, &failure);
	(void)!write(failures, "r", 1);
	/* The start is recorded before anything of the job can run. */
	if (read(gate, &byte, 1) != 1) {
		shim_leave_unstarted(shim);
		_exit(EXIT_CODE_RUN_FAILED);
	}
	kill_point("shim.released");
	if (rc == 0) {
		signals_restore(shim);
		execvp(argv[0], argv);
		failure.code = program_why(argv[0], errno, why);
		snprintf(failure.text, sizeof(failure.text), "%.250s: %.240s", argv[0], why);
	}
	dprintf(STDERR_FILENO, "carve: %s\n", failure.text);
	(void)write_all(failures, &failure, sizeof(failure));
	_exit(failure.code);
}
