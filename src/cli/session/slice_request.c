#include "cli/session/slice_request.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "client/client.h"
#include "client/sessions.h"
#include "core/request.h"
#include "proto/ledger.h"
#include "slice/runtime_dir.h"

/* The daemon's bounds of priorities. */
#define PRIORITY_MAX 100u

static const char *option_name(enum cli_option_id id)
{
	for (const struct cli_option *o = cli_options; o->name; o++)
		if (o->id == id)
			return o->name;
	return "?";
}

/* Whether a daemon runs: for a size that is wrong none is started. */
static bool daemon_runs(const char *host)
{
	char dir[PATH_MAX], socket[PATH_MAX + sizeof(RUNTIME_SOCKET) + 1];
	struct error ignored;

	if (host || secure_getenv("CARVE_HOST"))
		return true;
	if (runtime_dir_choose(dir, sizeof(dir), &ignored) < 0)
		return false;
	snprintf(socket, sizeof(socket), "%s/%s", dir, RUNTIME_SOCKET);
	return runtime_socket_answers(socket);
}

/* The daemon knows what a slice has to hold at least: a CUDA context, which is mostly more than the
 * smallest slice. Where it doesn't, the error stands as it is. */
static void least_tell(const struct cli *cli, enum cli_option_id given, struct error *err)
{
	cleanup_json json_t *gpus = NULL;
	struct client client;
	struct error ignored;
	uint64_t least = UINT64_MAX;
	char text[UNITS_TEXT_SIZE];
	size_t i;
	json_t *gpu;

	if (!daemon_runs(cli->value[OPT_HOST]) ||
	    client_open(&client, cli->value[OPT_HOST], &ignored) < 0 ||
	    client_call(&client, "GET", "/v1/gpus", NULL, NULL, &gpus, &ignored) < 0)
		return;
	json_array_foreach(gpus, i, gpu) least = MIN(least, session_number(gpu, "context_bytes"));
	if (!i || least <= SLICE_BYTES_MIN)
		return;
	error_set(err, EXIT_CODE_USAGE,
		  "--%s: '%.64s' is too small for one CUDA context, which takes %s",
		  option_name(given), cli->value[given], units_format_bytes(least, text));
	error_hint(err, "for example: --%s %s", option_name(given),
		   given == OPT_VRAM ? "2.5GiB" : "2Gi");
}

/* Some tools' sizes include what the driver takes for itself: a slice of 8 GiB with 64 MiB
 * reserved shows 8128 MiB. */
static int reserve_take(const struct cli *cli, struct slice_request *r, struct error *err)
{
	const char *text = cli->value[OPT_RESERVE];
	uint64_t bytes;

	if (!text)
		return 0;
	if (!r->place.bytes)
		return error_set(err, EXIT_CODE_USAGE,
				 "--reserve only goes with --vram or --gpu-memory");
	if (units_parse_amount(text, "--reserve", &bytes, err) < 0)
		return -EXIT_CODE_USAGE;
	if (bytes < r->place.bytes && r->place.bytes - bytes >= SLICE_BYTES_MIN) {
		r->place.bytes -= bytes;
		return 0;
	}
	return error_set(err, EXIT_CODE_USAGE, "--reserve: '%.64s' leaves less than 100 MB", text);
}

/* Reads the one size into the body. */
static int size_read(const struct cli *cli, struct slice_request *r, struct error *err)
{
	static const enum cli_option_id sizes[] = {[REQUEST_VRAM] = OPT_VRAM,
						   [REQUEST_GPU_MEMORY] = OPT_GPU_MEMORY,
						   [REQUEST_GPU] = OPT_GPU,
						   [REQUEST_SIZES] = OPT_MIG_PROFILE};
	enum cli_option_id given = OPT_COUNT;
	size_t which = 0;
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		if (!cli->value[sizes[i]])
			continue;
		if (given != OPT_COUNT) {
			error_set(err, EXIT_CODE_USAGE, "--%s and --%s are both given",
				  option_name(given), option_name(sizes[i]));
			error_hint(err, "a slice has one size: leave one of them out");
			return -EXIT_CODE_USAGE;
		}
		given = sizes[i];
		which = i;
	}
	if (given == OPT_COUNT)
		return cli->value[OPT_RESERVE] ? reserve_take(cli, r, err) : 0;
	const char *text = cli->value[given];
	if (which < REQUEST_SIZES)
		rc = request_size_put((enum request_size)which, text, &r->place, err);
	if (rc == -ERANGE)
		least_tell(cli, given, err);
	if (rc < 0)
		return rc;
	if ((rc = reserve_take(cli, r, err)) < 0)
		return rc;
	r->sized = true;
	if (r->place.bytes)
		json_object_set_new(r->body, "vram_bytes",
				    json_integer((json_int_t)r->place.bytes));
	else
		json_object_set_new(r->body, given == OPT_GPU ? "gpu" : "mig_profile",
				    json_string(text));
	return 0;
}

/* A duration: whole seconds as an integer, others as a fraction. */
static int seconds_read(const struct cli *cli, enum cli_option_id id, const char *key,
			struct slice_request *r, uint64_t *ret_ns, struct error *err)
{
	char option[32];

	if (!cli->value[id])
		return 0;
	snprintf(option, sizeof(option), "--%s", option_name(id));
	int rc = units_parse_seconds(cli->value[id], option, ret_ns, err);
	if (rc < 0)
		return rc;
	json_object_set_new(r->body, key,
			    *ret_ns % 1000000000 == 0
				    ? json_integer((json_int_t)(*ret_ns / 1000000000))
				    : json_real((double)*ret_ns / 1e9));
	return 0;
}

static int placement_read(const struct cli *cli, struct slice_request *r, struct error *err)
{
	uint64_t gpus;
	uint32_t share;
	int rc;

	if (cli->value[OPT_GPUS]) {
		rc = units_parse_count(cli->value[OPT_GPUS], "--gpus", 1, LEDGER_GPUS_MAX, &gpus,
				       err);
		if (rc < 0)
			return rc;
		json_object_set_new(r->body, "gpus", json_integer((json_int_t)gpus));
	}
	if (cli->value[OPT_GPU_COMPUTE]) {
		rc = units_parse_share(cli->value[OPT_GPU_COMPUTE], "--gpu-compute", &share, err);
		if (rc < 0)
			return rc;
		json_object_set_new(r->body, "gpu_compute",
				    json_string(cli->value[OPT_GPU_COMPUTE]));
	}
	if (cli->value[OPT_GPU_IDS])
		json_object_set_new(r->body, "gpu_ids", json_string(cli->value[OPT_GPU_IDS]));
	if (cli->value[OPT_BACKEND])
		json_object_set_new(r->body, "backend", json_string(cli->value[OPT_BACKEND]));
	if (cli->value[OPT_MIG_SHARE])
		json_object_set_new(r->body, "mig_share", json_true());
	if (cli->value[OPT_VRAM_STRICT])
		json_object_set_new(r->body, "vram_strict", json_true());
	return 0;
}

static int priority_read(const struct cli *cli, struct slice_request *r, struct error *err)
{
	const char *text = cli->value[OPT_PRIORITY];
	bool negative = text && *text == '-';
	uint64_t number;

	if (!text)
		return 0;
	if (units_parse_count(text + negative, "--priority", 0, PRIORITY_MAX, &number, err) < 0) {
		error_set(err, EXIT_CODE_USAGE,
			  "--priority: '%.64s' is no whole number from -%u to %u", text,
			  PRIORITY_MAX, PRIORITY_MAX);
		error_hint(err, "for example: --priority -5; above 0 is for administrators");
		return -EXIT_CODE_USAGE;
	}
	json_object_set_new(r->body, "priority",
			    json_integer(negative ? -(json_int_t)number : (json_int_t)number));
	return 0;
}

int slice_request_read(const struct cli *cli, struct slice_request *ret, struct error *err)
{
	static const enum cli_option_id details[] = {
		OPT_BACKEND, OPT_MIG_SHARE, OPT_VRAM_STRICT,     OPT_GPU_COMPUTE, OPT_GPUS,
		OPT_GPU_IDS, OPT_WAIT_FOR,  OPT_SESSION_TIMEOUT, OPT_NAME,        OPT_PRIORITY};
	cleanup_request struct slice_request r = {.body = json_object(), .place = REQUEST_NONE};
	uint64_t timeout_ns;
	int rc = size_read(cli, &r, err);

	if (rc < 0 || (rc = placement_read(cli, &r, err)) < 0)
		return rc;
	if ((rc = seconds_read(cli, OPT_WAIT_FOR, "wait_for", &r, &r.wait_ns, err)) < 0)
		return rc;
	rc = seconds_read(cli, OPT_SESSION_TIMEOUT, "session_timeout", &r, &timeout_ns, err);
	if (rc < 0 || (rc = priority_read(cli, &r, err)) < 0)
		return rc;
	if (cli->value[OPT_NAME])
		json_object_set_new(r.body, "name", json_string(cli->value[OPT_NAME]));
	for (size_t i = 0; i < ARRAY_SIZE(details); i++)
		if (cli->value[details[i]])
			r.option = option_name(details[i]);
	*ret = r;
	r.body = NULL;
	return 0;
}

int slice_request_unsized(const char *verb, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "%s: no size given", verb);
	error_hint(err, "for example: carve %s --vram 4 (or --gpu-memory 4Gi, --gpu 0.25)", verb);
	return -EXIT_CODE_USAGE;
}

void slice_request_free(struct slice_request *request)
{
	json_decref(request->body);
	request->body = NULL;
}
