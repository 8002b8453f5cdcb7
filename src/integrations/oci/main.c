/* carve-hook: an OCI hook of the stage createRuntime. Containers that ask for a slice by an
 * annotation, by a label of their image or by this hook's own arguments get one, for as long as
 * their first process lives; all others start as ever. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "container/layout.h"
#include "container/limits.h"
#include "container/wanted.h"
#include "integrations/oci/daemon.h"
#include "integrations/oci/enter.h"
#include "integrations/oci/labels.h"
#include "integrations/oci/runtime.h"
#include "integrations/oci/state.h"
#include "slice/driver_files.h"
#include "slice/driver_find.h"
#include "slice/places.h"

/* A runtime waits for its hooks, and its user for the runtime. */
#define TIMEOUT_S 20

// clang-format off
static const char help[] =
	"carve-hook - gives containers the slices that they or their images ask for\n"
	"\n"
	"usage: carve-hook [--host SOCKET] [--label NAME=VALUE]... < STATE\n"
	"\n"
	"A hook of OCI runtimes (stage createRuntime); carve hook install has podman run it.\n"
	"It reads the annotations carve.vram, carve.gpu, carve.gpu-memory, carve.mig-profile,\n"
	"carve.gpu-compute, carve.gpu-ids, carve.vram-strict and carve.session of the container, then\n"
	"the labels of its image, then CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_SM_LIMIT of its\n"
	"environment, which also lower what the others say. Without any of them it does nothing.\n"
	"\n"
	"  --host SOCKET        carved's socket (also CARVE_HOST)\n"
	"  --label NAME=VALUE   counts before annotations and labels: carve.vram=8GiB\n"
	"  --register ID        the container's slice is session ID already: only tell the daemon\n"
	"  --required           a container that asks for no slice does not start\n"
	"  --runtime RUNC [--default NAME] [--env NAME=VALUE]... -- ARGUMENT...\n"
	"                       be the runtime RUNC, with this hook for each new container: for docker\n"
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
	struct container_limits limits; /* that its variables name */
	struct oci_daemon daemon;
	json_t *session; /* owned */
	bool one_off;
};

static void on_alarm(int number)
{
	static const char text[] = "carve-hook: gave up after 20 s\n";

	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(EXIT_CODE_FAILED);
}

/* ---- what is asked for ------------------------------------------------------------------- */

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

/* 0 with *ret NULL: nothing is. */
static int wanted_find(struct hook *hook, json_t **ret, struct error *err)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/config.json", hook->container.bundle);
	json_t *config = oci_json_read(path, OCI_CONFIG_MAX);
	int rc = config ? oci_config_parse(config, &hook->container, err)
			: error_set(err, EXIT_CODE_FAILED, "%.300s cannot be read", path);
	/* A container of carve podman run has the size that its user chose. */
	if (rc == 0 && (hook->registered || !hook->container.in_slice))
		rc = container_limits_read(hook->container.environment, &hook->limits, err);
	/* carve podman run made it, or a CDI device of a session. */
	if (rc == 0 && !hook->container.in_slice && !hook->registered) {
		json_t *labels = oci_labels_find(&hook->container, config);
		const json_t *sources[] = {hook->given, hook->container.annotations, labels};

		rc = container_wanted(sources, ARRAY_SIZE(sources), ret, err);
		json_decref(labels);
		if (rc == 0 && !*ret && hook->limits.any &&
		    !container_limits_no_gpu(hook->limits.visible))
			*ret = json_object();
		if (rc == 0 && (hook->stand_in || hook->required) && !*ret) {
			rc = error_set(err, EXIT_CODE_USAGE,
				       "%s: this container names no slice, and carve gives no "
				       "whole GPUs",
				       hook->stand_in ? "--gpus" : "carve.dev/slice=image");
			error_hint(err,
				   "`carve docker run --vram 8 IMAGE`, or an image with a label: "
				   "carve image build --from IMAGE --vram 8GiB -t NAME");
		}
		/* The container's other hook, of carve's runtime or of a device, makes the slice.
		 */
		bool other = hook->stand_in ? oci_config_has_hook(config)
					    : !hook->given && !hook->required &&
						      oci_config_has_device_hook(config);
		if (other) {
			json_decref(*ret);
			*ret = NULL;
		}
	}
	json_decref(config);
	return rc;
}

/* ---- the session ------------------------------------------------------------------------- */

static const char *session_id(const struct hook *hook)
{
	const char *id = json_string_value(json_object_get(hook->session, "id"));

	return id ? id : "";
}

static int session_join(struct hook *hook, const char *id, struct error *err)
{
	char path[128] = "/v1/sessions/";

	/* It becomes a part of a path. */
	if (strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
		    strlen(id) ||
	    strlen(id) > CONTAINER_LABEL_MAX)
		return error_set(err, EXIT_CODE_FAILED, "there is no session %.64s", id);
	strcat(path, id);
	int rc = oci_daemon_call(&hook->daemon, "GET", path, NULL, &hook->session, err);
	const char *state = json_string_value(json_object_get(hook->session, "state"));
	if (rc < 0 || (state && !strcmp(state, "active")))
		return rc;
	return error_set(err, EXIT_CODE_FAILED, "session %.64s is not active", id);
}

/* The size that nothing but the container's variables names. 0, or negative with *err set. */
static int wanted_of_limits(const struct hook *hook, json_t *wanted, struct error *err)
{
	char ids[CONTAINER_GPU_IDS_SIZE], percent[16];
	json_t *gpus = NULL;
	size_t count;
	int rc = oci_daemon_call(&hook->daemon, "GET", "/v1/gpus", NULL, &gpus, err);

	if (rc == 0)
		rc = container_limits_gpus(hook->limits.visible, gpus, ids, &count, err);
	json_decref(gpus);
	if (rc < 0)
		return rc;
	uint64_t memory = container_limits_memory(&hook->limits, count ? count : 1);
	unsigned share = container_limits_percent(&hook->limits, count ? count : 1);
	if (!memory) {
		error_set(err, EXIT_CODE_USAGE,
			  "the variables of this container limit no memory of its GPU");
		error_hint(err, "right would be CUDA_DEVICE_MEMORY_LIMIT=2027m");
		return -EXIT_CODE_USAGE;
	}
	json_object_set_new(wanted, "vram_bytes", json_integer((json_int_t)memory));
	json_object_set_new(wanted, "vram_strict", json_true());
	if (count) {
		json_object_set_new(wanted, "gpu_ids", json_string(ids));
		json_object_set_new(wanted, "gpus", json_integer((json_int_t)count));
	}
	snprintf(percent, sizeof(percent), "%u%%", share);
	if (share)
		json_object_set_new(wanted, "gpu_compute", json_string(percent));
	return 0;
}

/* `wanted` is empty where only variables name a size. */
static int session_get(struct hook *hook, json_t *wanted, struct error *err)
{
	const char *joined = json_string_value(json_object_get(wanted, "session"));

	if (joined)
		return session_join(hook, joined, err);
	int rc = json_object_size(wanted) ? 0 : wanted_of_limits(hook, wanted, err);
	if (rc < 0)
		return rc;
	hook->one_off = true;
	json_object_set_new(wanted, "ephemeral", json_true());
	return oci_daemon_call(&hook->daemon, "POST", "/v1/sessions", wanted, &hook->session, err);
}

/* The session has no more than the container's variables say. It may have less already. */
static int session_lower(const struct hook *hook, const char *id, struct error *err)
{
	char path[128], percent[16];
	json_t *session = NULL;

	if (!hook->limits.any)
		return 0;
	snprintf(path, sizeof(path), "/v1/sessions/%.100s", id);
	int rc = oci_daemon_call(&hook->daemon, "GET", path, NULL, &session, err);
	size_t gpus = json_array_size(json_object_get(session, "gpus"));
	json_int_t has = json_integer_value(json_object_get(session, "vram_bytes"));
	uint64_t memory = container_limits_memory(&hook->limits, gpus);
	unsigned share = container_limits_percent(&hook->limits, gpus);

	json_decref(session);
	if (rc < 0 || (!memory && !share))
		return rc;
	json_t *body = json_pack("{s:I, s:b}", "vram_bytes", memory ? (json_int_t)memory : has,
				 "lower", 1);
	snprintf(percent, sizeof(percent), "%u%%", share);
	if (share)
		json_object_set_new(body, "gpu_compute", json_string(percent));
	rc = oci_daemon_call(&hook->daemon, "PATCH", path, body, NULL, err);
	json_decref(body);
	return rc;
}

/* The session lives as long as the container's first process, and all users in there are in it. */
static int session_register(const struct hook *hook, const char *id, struct error *err)
{
	json_t *body = json_pack("{s:s, s:i}", "session", id, "pid", (int)hook->container.pid);
	int rc = oci_daemon_call(&hook->daemon, "POST", "/v1/commands", body, NULL, err);

	json_decref(body);
	return rc;
}

static void session_give(const struct hook *hook)
{
	char path[128];
	struct error ignored;

	if (!hook->one_off || !*session_id(hook))
		return;
	snprintf(path, sizeof(path), "/v1/sessions/%.100s", session_id(hook));
	(void)oci_daemon_call(&hook->daemon, "DELETE", path, NULL, NULL, &ignored);
}

/* ---- the container ----------------------------------------------------------------------- */

static int driver_locate(struct driver_libs *ret, const struct places *places, struct error *err)
{
	struct driver_files files = {0};
	const struct driver_libs none = {0};
	int rc = driver_files_find(&files, &none, places, err);

	*ret = none;
	for (size_t i = files.count; rc == 0 && i-- > 0;)
		snprintf(files.file[i].nvml ? ret->nvml : ret->cuda, PATH_MAX, "%s",
			 files.file[i].path);
	driver_files_clear(&files);
	return rc;
}

static int edits_make(const struct hook *hook, json_t **ret, struct error *err)
{
	struct places places;
	struct driver_libs driver;
	int rc = places_find(&places, err);

	if (rc < 0 || (rc = driver_locate(&driver, &places, err)) < 0)
		return rc;
	return container_slice_edits(
		&(struct container_slice){
			.session = session_id(hook),
			.gpus = json_object_get(hook->session, "gpus"),
			.front_cuda = places.front_cuda,
			.front_nvml = places.front_nvml,
			.cuda = driver.cuda,
			.nvml = driver.nvml,
			.attach = hook->daemon.attach,
			.simulated_host = secure_getenv("SIMGPU_HOST"),
		},
		ret, err);
}

/* Not every runtime shows what a hook says: crun drops it. */
static void error_print(const struct error *err)
{
	syslog(LOG_ERR, "%s%s%s", err->message, *err->hint ? "; " : "", err->hint);
	fprintf(stderr, "carve-hook: %s%s%s\n", err->message, *err->hint ? "; " : "", err->hint);
}

_Noreturn static void enter_child(const struct hook *hook, const json_t *edits)
{
	char environment[ATTACH_SLICE_FILE_SIZE];
	struct error err = {0};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	container_environment_text(session_id(hook), environment, sizeof(environment));
	int rc = oci_enter(&hook->container, edits, environment, &err);
	if (rc < 0)
		error_print(&err);
	_exit(rc < 0 ? EXIT_CODE_FAILED : EXIT_CODE_OK);
}

/* A child enters: this process goes on seeing the daemon. A failure is said already. */
static int slice_mount(const struct hook *hook, struct error *err)
{
	json_t *edits = NULL;
	int status = -1, rc = edits_make(hook, &edits, err);

	if (rc == 0)
		rc = oci_devices_allow(&hook->container, edits, err);
	if (rc < 0)
		return rc;
	pid_t child = fork();
	if (child == 0)
		enter_child(hook, edits);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	json_decref(edits);
	return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EXIT_CODE_FAILED;
}

static int hook_run(struct hook *hook, struct error *err)
{
	json_t *wanted = NULL;
	int rc = state_read(hook, err);

	if (rc < 0 || (rc = wanted_find(hook, &wanted, err)) < 0 || (!wanted && !hook->registered))
		return rc;
	rc = oci_daemon_find(hook->host, &hook->daemon, err);
	if (rc == 0 && hook->registered) {
		rc = session_lower(hook, hook->registered, err);
		return rc < 0 ? rc : session_register(hook, hook->registered, err);
	}
	if (rc == 0)
		rc = session_get(hook, wanted, err);
	if (rc == 0 && hook->one_off)
		rc = session_lower(hook, session_id(hook), err);
	if (rc == 0)
		rc = session_register(hook, session_id(hook), err);
	if (rc == 0)
		rc = slice_mount(hook, err);
	if (rc < 0)
		session_give(hook);
	json_decref(wanted);
	return rc;
}

/* ---- the command line -------------------------------------------------------------------- */

static int label_given(struct hook *hook, const char *text, struct error *err)
{
	const char *equals = strchr(text, '=');
	char name[64];

	if (!equals || (size_t)(equals - text) >= sizeof(name))
		return error_set(err, EXIT_CODE_USAGE, "--label: '%.64s' is not NAME=VALUE", text);
	snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
	if (!hook->given)
		hook->given = json_object();
	json_object_set_new(hook->given, name, json_string(equals + 1));
	return 0;
}

/* 0: go on; 1: done. */
static int options_read(struct hook *hook, int argc, char **argv, struct error *err)
{
	static const struct option options[] = {
		{"host", required_argument, NULL, 'h'},
		{"label", required_argument, NULL, 'l'},
		{"register", required_argument, NULL, 'r'},
		{"help", no_argument, NULL, '?' + 1},
		{"version", no_argument, NULL, 'v'},
		{"required", no_argument, NULL, 'q'},
		{0},
	};
	int option, rc = 0;

	// NOLINTNEXTLINE(concurrency-mt-unsafe): there are no threads
	while (rc == 0 && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'h')
			hook->host = optarg;
		else if (option == 'r')
			hook->registered = optarg;
		else if (option == 'q')
			hook->required = true;
		else if (option == 'l')
			rc = label_given(hook, optarg, err);
		else if (option == 'v')
			return puts("carve-hook " CARVE_VERSION), 1;
		else if (option == '?')
			return error_set(err, EXIT_CODE_USAGE, "see carve-hook --help");
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

	if (argc > 1 && !strcmp(argv[1], OCI_RUNTIME_OPTION))
		return oci_runtime(argc, argv);
	int rc = options_read(&hook, argc, argv, &err);

	openlog("carve-hook", LOG_PID, LOG_USER);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGALRM, on_alarm);
	alarm(TIMEOUT_S);
	if (rc == 0)
		rc = hook_run(&hook, &err);
	if (rc < 0 && *err.message)
		error_print(&err);
	json_decref(hook.session);
	json_decref(hook.given);
	oci_container_clear(&hook.container);
	return rc >= 0 ? EXIT_CODE_OK : err.code > 0 ? err.code : EXIT_CODE_FAILED;
}
