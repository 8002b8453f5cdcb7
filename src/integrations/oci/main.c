/* carve-hook: an OCI hook of the stage createRuntime. Containers that ask for a slice get one, for
 * as long as their first process lives. They ask by an annotation, by a label of their image or by
 * this hook's own arguments. All others start as ever. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/options.h"
#include "container/layout.h"
#include "container/wanted.h"
#include "integrations/oci/again.h"
#include "integrations/oci/config.h"
#include "integrations/oci/devices.h"
#include "integrations/oci/enter.h"
#include "integrations/oci/helper.h"
#include "integrations/oci/labels.h"
#include "integrations/oci/libc.h"
#include "integrations/oci/message.h"
#include "integrations/oci/precreate.h"
#include "integrations/oci/runtime.h"
#include "integrations/oci/session.h"
#include "integrations/oci/slice_mounts.h"
#include "integrations/oci/state.h"

/* A runtime waits for its hooks, and its user for the runtime. */
#define TIMEOUT_S 20
/* The other stages have no helper. A file system that does not answer keeps a signal from being
 * handled, but not from killing, as long as its server has not read the request. */
#define KILL_S (TIMEOUT_S + 2)

/* A session that was made has a daemon. The daemon starts again where it is away: on a node of
 * Kubernetes, as its pod is replaced. */
#define AWAY_S 9

// clang-format off
static const char help[] =
	"carve-hook - gives containers the slices that they or their images ask for\n"
	"\n"
	"usage: carve-hook [--host SOCKET] [--label NAME=VALUE]... < STATE\n"
	"\n"
	"A hook of OCI runtimes (stage createRuntime); carve hook install has podman run it.\n"
	"It reads the annotations carve.vram, carve.gpu, carve.gpu-memory, carve.mig-profile,\n"
	"carve.gpu-compute, carve.gpu-ids, carve.vram-strict and carve.session of the container, then\n"
	"the labels of its image, which name no session, then CUDA_DEVICE_MEMORY_LIMIT and\n"
	"CUDA_DEVICE_SM_LIMIT of its environment, which also lower what the others say. Without any\n"
	"of them it does nothing.\n"
	"\n"
	"  --host SOCKET        carved's socket (also CARVE_HOST)\n"
	"  --label NAME=VALUE   counts before annotations and labels: carve.vram=8GiB\n"
	"  --register ID        the container's slice is session ID already: only tell the daemon\n"
	"  --stamp STAMP        the session's stamp when the container was made; the container does\n"
	"                       not start if the session has another one now\n"
	"  --required           a container that asks for no slice does not start\n"
	"  --runtime RUNC [--default NAME] [--env NAME=VALUE]... -- ARGUMENT...\n"
	"                       be the runtime RUNC, with this hook for each new container: for docker\n"
	"  --precreate          a hook of podman's stage precreate: adds device nodes to the container's\n"
	"                       configuration, from standard input to standard output\n"
	"  --help, --version\n"
	"\n"
	"example: carve-hook --label carve.vram=8GiB < state.json\n";
// clang-format on

struct hook {
	const char *host;
	const char *registered; /* session ID; NULL: see labels */
	bool stand_in;          /* for NVIDIA's, as docker's --gpus has it */
	bool required;          /* no slice is an error */
	json_t *given;          /* labels of the command line; owned */
	struct oci_container container;
	struct oci_slice slice; /* that the container is in already */
	json_t *config;         /* the container's; owned */
	struct oci_session session;
};

static void on_alarm(int number)
{
	static const char text[] = "carve-hook: gave up after 20 s\n";

	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(EXIT_CODE_FAILED);
}

static void timeout_begin(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
	const struct itimerspec at = {.it_value.tv_sec = KILL_S};
	timer_t killer; /* an exec ends it */

	signal(SIGALRM, on_alarm);
	alarm(TIMEOUT_S);
	if (timer_create(CLOCK_MONOTONIC, &event, &killer) == 0)
		(void)timer_settime(killer, 0, &at, NULL);
}

/* ---- the request ------------------------------------------------------------------------- */

static int state_read(struct hook *hook, struct error *err)
{
	cleanup_free char *text = malloc(OCI_STATE_MAX);
	size_t used = 0;
	ssize_t n;

	if (!text)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	while (used < OCI_STATE_MAX &&
	       ((n = read(STDIN_FILENO, text + used, OCI_STATE_MAX - used)) > 0 ||
		(n < 0 && errno == EINTR)))
		used += n > 0 ? (size_t)n : 0;
	return oci_state_parse(text, used, &hook->container, err);
}

static int required_check(const struct hook *hook, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE,
		  "%s: this container names no slice, and carve gives no whole GPUs",
		  hook->stand_in ? "--gpus" : "carve.dev/slice=image");
	error_hint(err, "`carve docker run --vram 8 IMAGE`, or an image with a label: carve image "
			"build --from IMAGE --vram 8GiB -t NAME");
	return -err->code;
}

/* The container's other hook, of carve's runtime or of a device, makes the slice. */
static bool other_makes(const struct hook *hook)
{
	if (hook->stand_in)
		return oci_config_has_hook(hook->config);
	if (!hook->given && !hook->required)
		return oci_config_has_device_hook(hook->config);
	return !json_object_get(hook->given, CONTAINER_LABEL_SESSION) &&
	       oci_config_has_session(hook->config);
}

/* 0 with *ret NULL: nothing is. */
static int wanted_find(struct hook *hook, json_t **ret, struct error *err)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/config.json", hook->container.bundle);
	hook->config = oci_config_read(path);
	if (!hook->config)
		return error_set(err, EXIT_CODE_FAILED, "%.300s cannot be read", path);
	int rc = oci_config_parse(hook->config, &hook->container, err);
	/* The hook of carve podman run, or of a CDI device of a session, does it. */
	if (rc < 0 || (!hook->registered && oci_config_is_registered(hook->config)))
		return rc;
	rc = oci_slice_find(hook->config, oci_is_pods(&hook->container), &hook->slice, err);
	/* A container of carve docker run has the size that its user chose. */
	if (rc == 0 && (hook->registered || !*hook->slice.session))
		rc = container_limits_read(hook->container.environment, &hook->session.limits, err);
	if (rc < 0 || *hook->slice.session || hook->registered)
		return rc;
	rc = oci_session_wanted(&hook->session, &hook->container, hook->config, hook->given, ret,
				err);
	if (rc == 0 && (hook->stand_in || hook->required) && !*ret)
		rc = required_check(hook, err);
	if (other_makes(hook)) {
		json_decref(*ret);
		*ret = NULL;
	}
	return rc;
}

/* ---- the container ----------------------------------------------------------------------- */

/* Not every runtime shows what a hook says: crun drops it. */
static void error_print(const struct error *err)
{
	char line[OCI_ERROR_LINE_SIZE];

	oci_error_line(err, line);
	syslog(LOG_ERR, "%s", line);
	fprintf(stderr, "carve-hook: %s\n", line);
}

static int slice_mount(const struct hook *hook, struct error *err)
{
	char environment[ATTACH_SLICE_FILE_SIZE];
	json_t *edits = NULL;
	int rc = oci_session_edits(&hook->session, &edits, err);

	if (rc == 0)
		rc = oci_devices_allow(&hook->container, hook->config, edits, err);
	container_environment_text(oci_session_id(&hook->session),
				   oci_session_stamp(&hook->session), environment,
				   sizeof(environment));
	if (rc == 0)
		rc = oci_enter(&hook->container, edits, environment, err);
	json_decref(edits);
	return rc;
}

/* It may have been started again after its slice has ended. Pods' containers never are, and a pod
 * could name another's session in a variable. */
static int slice_again(struct hook *hook, struct error *err)
{
	int rc = oci_process_check(&hook->container, err);

	if (rc == 0)
		rc = oci_slice_check(&hook->slice, &hook->container, err);
	if (rc < 0 || oci_is_pods(&hook->container))
		return rc;
	hook->session.host = hook->host;
	rc = oci_again(&hook->session, &hook->container, &hook->slice, err);
	if (rc < 0)
		oci_session_give(&hook->session);
	return rc;
}

/* Two CDI devices, as of two requests of a claim, each have a slice. The second one's variables and
 * mounts take the place of the first one's, so the container would have that one alone. */
static int one_slice_check(const struct hook *hook, struct error *err)
{
	const char *other = oci_config_registered_beside(hook->config, hook->registered);

	if (!other)
		return 0;
	error_set(err, EXIT_CODE_USAGE,
		  "the container has two slices, sessions %.64s and %.64s, and can use one only",
		  hook->registered, other);
	error_hint(err, "give it one device; in a pod name one request of one claim in the "
			"container's resources.claims");
	return -EXIT_CODE_USAGE;
}

/* All that opens files of the runtime's and of the image's, in the helper. */
static int work(void *arg, struct error *err)
{
	struct hook *hook = arg;
	json_t *wanted = NULL;
	int rc = wanted_find(hook, &wanted, err);

	if (rc < 0)
		return rc;
	if (!wanted && !hook->registered)
		return *hook->slice.session ? slice_again(hook, err) : 0;
	rc = hook->registered ? one_slice_check(hook, err) : 0;
	if (rc == 0)
		rc = oci_process_check(&hook->container, err);
	if (rc == 0 && *hook->slice.session)
		rc = oci_slice_check(&hook->slice, &hook->container, err);
	if (rc == 0)
		rc = oci_libc_check(hook->container.root, err);
	if (rc < 0) {
		json_decref(wanted);
		return rc;
	}
	struct oci_session *session = &hook->session;
	const struct oci_container *container = &hook->container;

	if (hook->registered && !*session->stamp)
		memcpy(session->stamp, hook->slice.stamp, sizeof(session->stamp));
	rc = oci_daemon_find(hook->host, &session->daemon, err);
	if (rc == 0 && hook->registered) {
		session->daemon.away_s = AWAY_S;
		rc = oci_session_lower(session, hook->registered, err);
		return rc < 0 ? rc
			      : oci_session_register(session, hook->registered, container, err);
	}
	if (rc == 0)
		rc = oci_session_get(session, wanted, err);
	if (rc == 0)
		rc = oci_session_register(session, oci_session_id(session), container, err);
	if (rc == 0)
		rc = slice_mount(hook, err);
	if (rc < 0)
		oci_session_give(session);
	json_decref(wanted);
	return rc;
}

static int hook_run(struct hook *hook, struct error *err)
{
	int rc = state_read(hook, err);

	if (rc < 0)
		return rc;
	alarm(0);
	return oci_helper_run(work, hook, TIMEOUT_S, err);
}

/* ---- the command line -------------------------------------------------------------------- */

static int label_given(struct hook *hook, const char *text, struct error *err)
{
	if (!hook->given)
		hook->given = json_object();
	if (oci_label_add(hook->given, text))
		return 0;
	return error_set(err, EXIT_CODE_USAGE, "--label: '%.64s' is not NAME=VALUE", text);
}

static int stamp_given(struct hook *hook, const char *text, struct error *err)
{
	size_t length = strlen(text);

	if (!length || length >= sizeof(hook->session.stamp))
		return error_set(err, EXIT_CODE_USAGE, "--stamp: '%.64s' is no session's stamp",
				 text);
	memcpy(hook->session.stamp, text, length + 1);
	return 0;
}

/* 0: go on; 1: done. */
static int options_read(struct hook *hook, int argc, char **argv, struct error *err)
{
	static const struct option options[] = {
		{"host", required_argument, NULL, 'h'},     {"label", required_argument, NULL, 'l'},
		{"register", required_argument, NULL, 'r'}, {"stamp", required_argument, NULL, 's'},
		{"help", no_argument, NULL, '?' + 1},       {"version", no_argument, NULL, 'v'},
		{"required", no_argument, NULL, 'q'},       {0},
	};
	int option, rc = 0;

	while (rc == 0 && (option = options_next(argc, argv, options, err)) != -1) {
		if (option == 'h')
			hook->host = optarg;
		else if (option == 'r')
			hook->registered = optarg;
		else if (option == 's')
			rc = stamp_given(hook, optarg, err);
		else if (option == 'q')
			hook->required = true;
		else if (option == 'l')
			rc = label_given(hook, optarg, err);
		else if (option == 'v')
			return puts("carve-hook " CARVE_VERSION), 1;
		else if (option == '?')
			return error_hint(err, "see carve-hook --help"), -err->code;
		else
			return fputs(help, stdout), 1;
	}
	return rc;
}

/* docker takes --gpus where a program of this name is in its PATH, and runs that as a hook
 * (`prestart`). */
static bool is_nvidias_name(const char *name)
{
	const char *slash = strrchr(name, '/');

	return !strcmp(slash ? slash + 1 : name, "nvidia-container-runtime-hook");
}

int main(int argc, char **argv)
{
	struct hook hook = {.stand_in = argc > 0 && is_nvidias_name(argv[0])};
	struct error err = {0};

	timeout_begin();
	if (argc > 1 && !strcmp(argv[1], OCI_RUNTIME_OPTION))
		return oci_runtime(argc, argv);
	if (argc == 2 && !strcmp(argv[1], OCI_PRECREATE_OPTION))
		return oci_precreate();
	int rc = options_read(&hook, argc, argv, &err);

	openlog("carve-hook", LOG_PID, LOG_USER);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	if (rc == 0)
		rc = hook_run(&hook, &err);
	if (rc < 0 && *err.message)
		error_print(&err);
	json_decref(hook.given);
	oci_container_clear(&hook.container);
	return rc >= 0 ? EXIT_CODE_OK : err.code > 0 ? err.code : EXIT_CODE_FAILED;
}
