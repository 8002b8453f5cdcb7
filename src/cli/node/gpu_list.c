#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/gpu_owners.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/gpu_holder.h"
#include "client/sessions.h"

static void memory_fill(const json_t *gpu, int64_t now, struct cell *cell)
{
	if (!session_number(gpu, "memory_bytes"))
		column_print(cell, "-");
}

static void available_fill(const json_t *gpu, int64_t now, struct cell *cell)
{
	char left[UNITS_TEXT_SIZE];

	column_print(cell, "%s", units_format_room(session_number(gpu, "available_bytes"), left));
}

static const struct column columns[] = {
	{"GPU", "index", FORMAT_COUNT},
	{"NAME", "name", FORMAT_TEXT},
	{"MEMORY", "memory_bytes", FORMAT_LONG_BYTES, .fill = memory_fill},
	{"AVAILABLE", .fill = available_fill},
	{"SESSIONS", "sessions", FORMAT_COUNT}, /* a count, or the sessions themselves */
	{"BACKEND", "backend", FORMAT_TEXT},
	{"MODE", "compute_mode", FORMAT_TEXT},
	{"STATE", "state", FORMAT_KNOWN},
};

/* Says which GPUs another daemon has: nothing can be granted on those here. */
static void holders_print(const json_t *gpus)
{
	char text[GPU_HOLDER_SIZE];
	size_t i;
	json_t *gpu;

	json_array_foreach(gpus, i, gpu)
	{
		const json_t *holder = json_object_get(gpu, "held_by");

		if (json_is_object(holder))
			printf("GPU %" PRIu64 " is %s: %s\n", session_number(gpu, "index"),
			       gpu_holder_text(holder, text), gpu_holder_advice(holder));
	}
}

static void mig_print(const json_t *gpus)
{
	char count[UNITS_TEXT_SIZE];
	size_t i;
	json_t *gpu;

	json_array_foreach(gpus, i, gpu)
	{
		uint64_t sessions = session_number(gpu, "sessions");
		const char *refusal = session_text(gpu, "mig_refusal");

		if (*refusal)
			printf("GPU %" PRIu64 " makes no MIG instances now: %s\n",
			       session_number(gpu, "index"), refusal);
		if (*session_text(gpu, "role") && !json_is_true(json_object_get(gpu, "mig")))
			printf("GPU %" PRIu64
			       " has the MIG role, but MIG mode is off: its slices are no "
			       "instances; carve node set-role --dynamic-mig-enabled --enable-mode "
			       "--gpu-ids %" PRIu64 " switches it on\n",
			       session_number(gpu, "index"), session_number(gpu, "index"));
		if (!json_is_true(json_object_get(gpu, "mig")) || *session_text(gpu, "role"))
			continue;
		printf("GPU %" PRIu64 " is in MIG mode: no slices of it are granted",
		       session_number(gpu, "index"));
		if (sessions)
			printf(", and %s on it cannot use it until that is switched off\n",
			       units_format_count(sessions, "session", count));
		else
			printf("; carve node set-role --dynamic-mig-enabled --gpu-ids %" PRIu64
			       " lets carve make instances of it\n",
			       session_number(gpu, "index"));
	}
}

/* Where a GPU cannot be used: since when, and what to do. */
static void states_print(const json_t *gpus)
{
	static const char *const advice[][2] = {
		{"lost", "; end what runs on it, then reset it (nvidia-smi --gpu-reset) or restart "
			 "the host"},
		{"failing", "; dmesg may say why"},
		{"unsupported", ""},
		{"draining", "it goes to the system daemon when the sessions on it have ended"},
	};
	size_t i;
	json_t *gpu;

	json_array_foreach(gpus, i,
			   gpu) for (size_t a = 0; a < ARRAY_SIZE(advice);
				     a++) if (!strcmp(session_text(gpu, "state"), advice[a][0]) &&
					      !(json_is_object(json_object_get(gpu, "drain")) &&
						!strcmp(advice[a][0], "draining")))
		printf("GPU %" PRIu64 " is %s since %s: %s%s\n", session_number(gpu, "index"),
		       advice[a][0], session_text(gpu, "state_since"),
		       session_text(gpu, "state_reason"), advice[a][1]);
}

/* GPUs that an administrator drained, whatever their state is besides. */
static void drains_print(const json_t *gpus)
{
	size_t i;
	json_t *gpu;

	json_array_foreach(gpus, i, gpu)
	{
		const json_t *drain = json_object_get(gpu, "drain");

		if (json_is_object(drain))
			printf("GPU %" PRIu64 " was drained by %s at %s, so nothing new is granted "
			       "there: %s\n",
			       session_number(gpu, "index"), session_text(drain, "by"),
			       session_text(drain, "since"), session_text(drain, "reason"));
	}
}

static int no_gpu(const struct client *client, struct error *err)
{
	cleanup_json json_t *version = NULL;
	struct error ignored;

	if (client_call(client, "GET", "/v1/version", NULL, NULL, &version, &ignored) < 0)
		version = NULL;
	const char *why = session_text(version, "no_gpu_reason");
	error_set(err, EXIT_CODE_FAILED, "no GPU found: %s",
		  *why ? why : "the NVIDIA driver shows none here");
	error_hint(err, "try `carve sim --gpus h100-80gb -- carve gpu list`; "
			"`carve check` tells more");
	return -EXIT_CODE_FAILED;
}

int cli_gpu_list(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *gpus = NULL;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = client_call(&client, "GET", "/v1/gpus", NULL, NULL, &gpus, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON] && (rc = output_json(gpus, err)) < 0)
		return rc;
	if (!json_array_size(gpus))
		return no_gpu(&client, err);
	if (cli->value[OPT_JSON])
		return 0;
	table_print_rows(columns, ARRAY_SIZE(columns), gpus);
	holders_print(gpus);
	mig_print(gpus);
	states_print(gpus);
	gpu_owners_print(gpus);
	drains_print(gpus);
	return 0;
}
