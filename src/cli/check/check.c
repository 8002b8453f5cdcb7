/* carve check: what enforces slices on this host, how strongly, and what is missing. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/check/check_conditions.h"
#include "cli/check/check_functions.h"
#include "cli/check/check_isolation.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/gpu_holder.h"
#include "client/sessions.h"
#include "slice/driver_find.h"
#include "slice/places.h"
#include "slice/runtime_dir.h"

/* "held: " and what gpu_holder_text() says, or a state with its time. */
#define GPU_STATE_SIZE (GPU_HOLDER_SIZE + 256)

/* The means of enforcement behind a word in the answers of the daemon. */
struct means {
	const char *word;
	const char *by;
	const char *strength;
};

/* By a GPU's "backend". */
static const struct means memory_means[] = {
	{"front", "carve's library before the driver",
	 "binds the programs that isolation says it reaches; not one that means to bypass it"},
	{"cgroup", "the driver's limits on cgroups, and carve's library before the driver",
	 "the driver binds every process in a session's cgroup; `carve session show` says which "
	 "sessions have none, and are bound by the library alone"},
	{"mig", "a MIG instance", "binds every program, in hardware"},
};

/* By a GPU's "compute_mode". */
static const struct means compute_means[] = {
	{"off", "nothing", "slices share the GPU's time as the driver shares it, about equally"},
	{"fair", "leases given by carved", "binds programs that carve's library stands before"},
	{"strict", "leases given by carved", "binds programs that carve's library stands before"},
};

static const struct means *means_find(const struct means *table, size_t count, const char *word)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(table[i].word, word))
			return &table[i];
	return NULL;
}

static json_t *means_json(const struct means *means, const char *word)
{
	return json_pack("{s:s,s:s}", "enforced_by", means ? means->by : word, "strength",
			 means ? means->strength : "not known to this carve");
}

static const struct means means_none = {"mig", "nothing",
					"it is in MIG mode, in which no slices of it are granted"};

/* The instance's own multiprocessors. */
static const struct means means_instance = {"mig", "a MIG instance",
					    "binds every program, in hardware"};

/* The state of a GPU as `carve gpu list` names it, in words. */
static const char *gpu_state_text(const json_t *gpu, char buf[static GPU_STATE_SIZE])
{
	const char *state = session_text(gpu, "state");
	const json_t *holder = json_object_get(gpu, "held_by");
	const json_t *drain = json_object_get(gpu, "drain");
	char held[GPU_HOLDER_SIZE];

	snprintf(buf, GPU_STATE_SIZE, "%s", *state ? state : "unknown");
	if (!strcmp(state, "failing") || !strcmp(state, "unsupported"))
		snprintf(buf, GPU_STATE_SIZE, "%s since %s: %s", state,
			 session_text_or_dash(gpu, "state_since"),
			 session_text(gpu, "state_reason"));
	else if (json_is_object(drain) && (!strcmp(state, "draining") || !strcmp(state, "drained")))
		snprintf(buf, GPU_STATE_SIZE, "%s: drained by %s at %s: %s", state,
			 session_text(drain, "by"), session_text(drain, "since"),
			 session_text(drain, "reason"));
	else if (!strcmp(state, "lost") || !strcmp(state, "draining"))
		snprintf(buf, GPU_STATE_SIZE, "%s since %s", state,
			 session_text_or_dash(gpu, "state_since"));
	else if (!strcmp(state, "mig"))
		snprintf(buf, GPU_STATE_SIZE,
			 "mig: no slices of it are granted in MIG mode; carve node set-role "
			 "--dynamic-mig-enabled lets carve make instances of it");
	else if (json_is_object(holder))
		snprintf(buf, GPU_STATE_SIZE, "held: %s", gpu_holder_text(holder, held));
	return buf;
}

static json_t *or_null(json_t *value)
{
	return value ? json_incref(value) : json_null();
}

static json_t *gpu_check(const json_t *gpu)
{
	const char *backend = session_text(gpu, "backend");
	const char *mode = session_text(gpu, "compute_mode");
	const struct means *memory = means_find(memory_means, ARRAY_SIZE(memory_means), backend);
	const struct means *compute = means_find(compute_means, ARRAY_SIZE(compute_means), mode);

	/* A GPU may have the role and no MIG mode. */
	if (*session_text(gpu, "role") && !strcmp(backend, "mig"))
		compute = &means_instance;
	else if (json_is_true(json_object_get(gpu, "mig")))
		memory = compute = &means_none;
	char state[GPU_STATE_SIZE];
	json_t *found = json_pack(
		"{s:O,s:O,s:o,s:o,s:o,s:s,s:o,s:o}", "index", json_object_get(gpu, "index"), "name",
		json_object_get(gpu, "name"), "state", or_null(json_object_get(gpu, "state")),
		"state_since", or_null(json_object_get(gpu, "state_since")), "held_by",
		or_null(json_object_get(gpu, "held_by")), "state_text", gpu_state_text(gpu, state),
		"memory", means_json(memory, backend), "compute", means_json(compute, mode));
	if (*session_text(gpu, "limits_problem"))
		json_object_set_new(
			json_object_get(found, "memory"), "strength",
			json_sprintf("%s; the driver's own limits are not used: %s",
				     memory ? memory->strength : "not known to this carve",
				     session_text(gpu, "limits_problem")));
	if (!strcmp(backend, "cgroup") && *session_text(gpu, "limits_gap"))
		json_object_set_new(
			json_object_get(found, "memory"), "strength",
			json_sprintf(
				"the driver binds containers and jobs; the library alone binds "
				"commands of `carve run`: %s",
				session_text(gpu, "limits_gap")));
	return found;
}

static void missing_add(json_t *missing, const char *text)
{
	json_array_append_new(missing, json_string(text));
}

/* With the remedy, where one is known. */
static void missing_error(json_t *missing, const struct error *err)
{
	char line[sizeof(err->message) + sizeof(err->hint) + 2];

	snprintf(line, sizeof(line), "%s%s%s", err->message, *err->hint ? "; " : "", err->hint);
	missing_add(missing, line);
}

static json_t *driver_check(json_t *missing)
{
	struct driver_libs driver = {0};
	struct places places = {0};
	struct error err = {0}, ignored = {0};

	if (driver_find(&driver, &err) < 0)
		missing_error(missing, &err);
	else if (!driver.cuda[0])
		missing_add(missing, "libcuda.so.1 is not found: install the NVIDIA driver, or try "
				     "`carve sim`");
	else if (!driver.nvml[0])
		missing_add(missing, "libnvidia-ml.so.1 is not found: carve cannot see the GPUs");
	(void)places_find(&places, &ignored);
	return json_pack("{s:s,s:s,s:o}", "cuda", driver.cuda, "nvml", driver.nvml,
			 "unknown_functions", check_functions(&driver, &places));
}

static json_t *front_check(json_t *missing)
{
	struct places places = {0};
	struct error err = {0};

	if (places_find(&places, &err) < 0)
		missing_error(missing, &err); // NOLINT(bugprone-branch-clone): in this order
	else if (access(places.front_cuda, R_OK) < 0 || access(places.front_nvml, R_OK) < 0)
		missing_add(missing, "carve's front libraries are not where they should be: slices "
				     "cannot be enforced");
	else if (places_check(&places, &err) < 0)
		missing_error(missing, &err);
	return json_pack("{s:s,s:s}", "cuda", places.front_cuda, "nvml", places.front_nvml);
}

/* No slices of a GPU in MIG mode is how somebody wants it; those that were granted before are not.
 */
static void mig_check(const json_t *gpu, json_t *missing)
{
	uint64_t index = session_number(gpu, "index"), sessions = session_number(gpu, "sessions");
	char count[UNITS_TEXT_SIZE], line[256];

	if (!sessions || !json_is_true(json_object_get(gpu, "mig")) || *session_text(gpu, "role"))
		return;
	snprintf(line, sizeof(line),
		 "GPU %" PRIu64 " went into MIG mode, and %s on it cannot use it; release what is "
		 "on it, or switch the mode off: nvidia-smi -i %" PRIu64 " -mig 0",
		 index, units_format_count(sessions, "session", count), index);
	missing_add(missing, line);
}

/* The daemon's GPUs, as it shows them; NULL: it does not answer. */
static json_t *gpus_check(const struct client *client, json_t *found, json_t *missing)
{
	json_t *gpus = NULL;
	struct error err = {0};
	size_t i;
	json_t *gpu;

	if (client_call(client, "GET", "/v1/gpus", NULL, NULL, &gpus, &err) < 0)
		missing_error(missing, &err);
	else if (!json_array_size(gpus))
		missing_add(missing, "no GPU found: the daemon sees none through the driver");
	json_array_foreach(gpus, i, gpu)
	{
		json_array_append_new(found, gpu_check(gpu));
		mig_check(gpu, missing);
	}
	return gpus;
}

/* Slices are granted all the same where queues are of no use, as when another version of carve
 * wrote the database of jobs. */
static void queues_check(const struct client *client, json_t *missing)
{
	cleanup_json json_t *queues = NULL;
	struct error err = {0};

	if (client_call(client, "GET", "/v1/queues", NULL, NULL, &queues, &err) < 0)
		missing_error(missing, &err);
}

static const char *or_none(const char *text)
{
	return *text ? text : "not found";
}

/* The facts about the driver: its version is the daemon's to say. */
static const char *driver_text(const json_t *daemon, const json_t *driver)
{
	if (!json_is_object(daemon) && *session_text(driver, "cuda"))
		return "version unknown, as no daemon answers";
	return or_none(session_text(daemon, "driver_version"));
}

/* The daemon's own words about itself and its socket, or null: then *err says why. */
static json_t *daemon_check(const char *host, json_t *found, json_t **ret_gpus, json_t *missing,
			    struct error *err)
{
	cleanup_json json_t *daemon = NULL;
	struct client client;

	if (client_open(&client, host, err) < 0 ||
	    client_call(&client, "GET", "/v1/version", NULL, NULL, &daemon, err) < 0) {
		missing_error(missing, err);
		return json_null();
	}
	json_object_set_new(daemon, "socket", json_string(client.socket));
	*ret_gpus = gpus_check(&client, found, missing);
	queues_check(&client, missing);
	return steal_ptr(&daemon);
}

static void means_print(const char *what, const json_t *means)
{
	printf("  %-9s %s: %s\n", what, session_text(means, "enforced_by"),
	       session_text(means, "strength"));
}

/* Whether two GPUs differ in nothing that their blocks say. The time since when a GPU is in its
 * state is in the text of the state where it matters. */
static bool is_alike(const json_t *a, const json_t *b)
{
	cleanup_json json_t *one = json_copy((json_t *)a), *other = json_copy((json_t *)b);

	json_object_del(one, "index");
	json_object_del(other, "index");
	json_object_del(one, "state_since");
	json_object_del(other, "state_since");
	return json_equal(one, other);
}

/* One block for all GPUs that are like the first. */
static void gpu_block_print(const json_t *gpu, const json_t *alike)
{
	char indexes[256], title[300];

	session_indexes_text(alike, indexes, sizeof(indexes));
	snprintf(title, sizeof(title), "GPU%s %s:", json_array_size(alike) > 1 ? "s" : "", indexes);
	printf("%-9s %s\n", title, session_text(gpu, "name"));
	printf("  %-9s %s\n", "state:", session_text(gpu, "state_text"));
	means_print("memory:", json_object_get(gpu, "memory"));
	means_print("compute:", json_object_get(gpu, "compute"));
}

static void gpus_print(const json_t *gpus)
{
	for (size_t i = 0; i < json_array_size(gpus); i++) {
		const json_t *gpu = json_array_get(gpus, i);
		cleanup_json json_t *alike = json_array();
		bool first = true;

		for (size_t j = 0; j < json_array_size(gpus); j++) {
			json_t *other = json_array_get(gpus, j);

			if (!is_alike(gpu, other))
				continue;
			first &= j >= i;
			json_array_append(alike, other);
		}
		if (first)
			gpu_block_print(gpu, alike);
	}
}

static void check_print(const json_t *check, bool all)
{
	const json_t *driver = json_object_get(check, "driver");
	const json_t *front = json_object_get(check, "front");
	const json_t *daemon = json_object_get(check, "daemon");

	printf("driver:   %s\n", driver_text(daemon, driver));
	printf("  libcuda:   %s\n", or_none(session_text(driver, "cuda")));
	printf("  nvml:      %s\n", or_none(session_text(driver, "nvml")));
	if (json_is_object(daemon))
		printf("daemon:   carved %s, process %" PRIu64 ", at %s\n",
		       session_text(daemon, "version"), session_number(daemon, "pid"),
		       session_text(daemon, "socket"));
	else
		printf("daemon:   not reachable\n");
	printf("front:    %s\n", session_text(front, "cuda"));
	check_isolation_print(json_object_get(check, "isolation"));
	gpus_print(json_object_get(check, "gpus"));
	if (!json_is_object(daemon))
		printf("GPUs:     unknown, as no daemon answers\n");
	check_conditions_print(json_object_get(check, "conditions"),
			       json_object_get(check, "missing"), all);
}

/* The runtime directory of the daemon that answers, or else of the one that would be started; NULL:
 * not known. */
static const char *runtime_find(const json_t *daemon, const char *host, char buf[static PATH_MAX])
{
	const char *socket = session_text(daemon, "socket"), *slash = strrchr(socket, '/');
	struct error ignored;

	if (slash) {
		snprintf(buf, PATH_MAX, "%.*s", (int)(slash - socket), socket);
		return buf;
	}
	if (host || secure_getenv("CARVE_HOST") || runtime_dir_choose(buf, PATH_MAX, &ignored) < 0)
		return NULL;
	return buf;
}

/* An obstacle is missing, too: its absence is. */
static json_t *conditions_check(const json_t *daemon, const char *host, const json_t *gpus,
				const json_t *driver, json_t *missing)
{
	char runtime[PATH_MAX];
	struct places places;
	struct error err = {0};
	struct check_input input = {
		.places = places_find(&places, &err) == 0 ? &places : NULL,
		.daemon = json_is_object(daemon) ? daemon : NULL,
		.gpus = gpus,
		.unknown = json_object_get(driver, "unknown_functions"),
		.runtime = runtime_find(daemon, host, runtime),
	};
	json_t *conditions = check_conditions(&input), *item;
	char line[5120];
	size_t i;

	json_array_foreach(conditions, i, item)
	{
		if (strcmp(session_text(item, "state"), "problem") != 0)
			continue;
		snprintf(line, sizeof(line), "%s; %s", session_text(item, "message"),
			 session_text(item, "advice"));
		missing_add(missing, line);
	}
	return conditions;
}

int cli_check(struct cli *cli, struct error *err)
{
	json_t *gpus = json_array(), *missing = json_array();
	json_t *driver = driver_check(missing), *front = front_check(missing);
	cleanup_json json_t *shown = NULL;
	struct error unreachable = {0};
	json_t *daemon = daemon_check(cli->value[OPT_HOST], gpus, &shown, missing, &unreachable);
	json_t *conditions = conditions_check(daemon, cli->value[OPT_HOST], shown, driver, missing);
	cleanup_json json_t *check =
		json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "driver", driver, "daemon", daemon,
			  "front", front, "isolation", check_isolation(), "gpus", gpus,
			  "conditions", conditions, "missing", missing);
	int rc = 0;

	if (!check)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	if (cli->value[OPT_JSON])
		rc = output_json(check, err);
	else
		check_print(check, cli->value[OPT_CHECK_VERBOSE] != NULL);
	if (rc < 0)
		return rc;
	/* Without a daemon every command ends so, whatever else is missing. */
	if (unreachable.code)
		return unreachable.code;
	return json_array_size(missing) ? EXIT_CODE_FAILED : EXIT_CODE_OK;
}
