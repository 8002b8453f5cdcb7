/* carve timeslicing: how the GPUs' time is shared. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/timeslicing/timeslicing.h"
#include "client/client.h"
#include "client/sessions.h"
#include "core/lease.h"

#define PERCENT_SIZE 32

/* ---- showing ----------------------------------------------------------------------------- */

static const char *percent(const json_t *object, const char *key, char buf[static PERCENT_SIZE])
{
	snprintf(buf, PERCENT_SIZE, "%.4g%%",
		 100 * json_number_value(json_object_get(object, key)));
	return buf;
}

static void time_add(struct table *table, const json_t *object, const char *key)
{
	char text[UNITS_TEXT_SIZE];

	table_add(table, "%s", units_format_duration(session_number(object, key), text));
}

static void gpu_add(struct table *table, const json_t *gpu)
{
	char text[PERCENT_SIZE];

	table_add(table, "%" PRIu64, session_number(gpu, "gpu"));
	table_add(table, "%s", session_text(gpu, "mode"));
	time_add(table, gpu, "lease_ns");
	table_add(table, "%s", percent(gpu, "granularity", text));
	time_add(table, gpu, "plan_ns");
	table_add(table, "%s", percent(gpu, "promised", text));
	table_add(table, "%zu", json_array_size(json_object_get(gpu, "sessions")));
}

static void gpus_print(const json_t *gpus)
{
	static const char *const headings[] = {"GPU",  "MODE",     "LEASE",    "GRANULARITY",
					       "PLAN", "PROMISED", "SESSIONS", NULL};
	cleanup_table struct table table;
	size_t i;
	json_t *gpu;

	table_begin(&table, headings);
	json_array_foreach(gpus, i, gpu) gpu_add(&table, gpu);
	table_print(&table);
}

/* The share that a session had. One that was promised no time and did no work had none to have. */
static void received_add(struct table *table, const json_t *session, const char *key)
{
	bool has = json_number_value(json_object_get(session, "request")) > 0 ||
		   session_number(session, "leases");
	char text[PERCENT_SIZE];

	table_add(table, "%s", has ? percent(session, key, text) : "-");
}

static void session_add(struct table *table, const json_t *gpu, const json_t *session)
{
	char text[PERCENT_SIZE];

	table_add(table, "%" PRIu64, session_number(gpu, "gpu"));
	table_add(table, "%s", session_text_or_dash(session, "id"));
	table_add(table, "%s", percent(session, "request", text));
	table_add(table, "%s", percent(session, "limit", text));
	received_add(table, session, "received");
	received_add(table, session, "received_minute");
	table_add(table, "%" PRIu64, session_number(session, "leases"));
	time_add(table, session, "waited_ns");
	time_add(table, session, "overrun_ns");
}

/* Only of GPUs whose time is sliced: the others' is anybody's. */
static void sessions_print(const json_t *gpus)
{
	static const char *const headings[] = {"GPU",       "SESSION", "REQUEST", "LIMIT",
					       "LAST PLAN", "MINUTE",  "LEASES",  "WAITED",
					       "OVERRUN",   NULL};
	cleanup_table struct table table;
	size_t i, at, count = 0;
	json_t *gpu, *session;

	table_begin(&table, headings);
	json_array_foreach(gpus, i, gpu) if (session_text(gpu, "mode")[0] != 'o')
		json_array_foreach(json_object_get(gpu, "sessions"), at, session)
	{
		session_add(&table, gpu, session);
		count++;
	}
	if (count) {
		printf("\n");
		table_print(&table);
	}
}

/* ---- changing ---------------------------------------------------------------------------- */

static int mode_read(const char *text, enum compute_mode *ret, struct error *err)
{
	if (compute_mode_parse(text, ret))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--mode: '%.32s' is none of off, fair, strict", text);
	error_hint(err, "for example: --mode fair");
	return -EXIT_CODE_USAGE;
}

static const struct units_part lease_granularity = {LEASE_GRANULARITY_MIN, LEASE_GRANULARITY_MAX,
						    LEASE_GRANULARITY_RIGHT};

int timeslicing_setting_read(const struct cli *cli, struct lease_setting *setting,
			     struct error *err)
{
	const char *mode = cli->value[OPT_MODE], *lease = cli->value[OPT_LEASE];
	const char *granularity = cli->value[OPT_GRANULARITY];

	if (cli->value[OPT_SIMULATE_MODE])
		mode = cli->value[OPT_SIMULATE_MODE];
	int rc = mode ? mode_read(mode, &setting->mode, err) : 0;

	if (rc == 0 && lease)
		rc = units_parse_duration(lease, "--lease", LEASE_NS_MIN, LEASE_NS_MAX,
					  &setting->lease_ns, err);
	if (rc == 0 && granularity)
		rc = units_parse_part(granularity, "--granularity", &lease_granularity,
				      &setting->granularity_ppm, err);
	return rc;
}

/* The body of PUT; NULL in *ret: nothing is to be changed. */
static int change_read(const struct cli *cli, json_t **ret, struct error *err)
{
	const char *mode = cli->value[OPT_MODE], *lease = cli->value[OPT_LEASE];
	const char *granularity = cli->value[OPT_GRANULARITY], *ids = cli->value[OPT_GPU_IDS];
	struct lease_setting setting;
	int rc = timeslicing_setting_read(cli, &setting, err);

	if (rc < 0)
		return rc;
	*ret = NULL;
	if (!mode && !lease && !granularity && ids) {
		error_set(err, EXIT_CODE_USAGE,
			  "--gpu-ids: give what to change on these GPUs, too");
		error_hint(err, "for example: --mode fair --gpu-ids 0,1");
		return -EXIT_CODE_USAGE;
	}
	if (mode || lease || granularity)
		*ret = json_pack("{s:s*, s:s*, s:s*, s:s*}", "mode", mode, "lease", lease,
				 "granularity", granularity, "gpu_ids", ids);
	return 0;
}

/* GPUs in MIG mode are left out unless they are named, and then refused. */
static void left_out_tell(const struct cli *cli, const json_t *gpus)
{
	enum compute_mode mode;
	size_t i;
	json_t *gpu;

	if (!cli->value[OPT_MODE] || cli->value[OPT_GPU_IDS] ||
	    !compute_mode_parse(cli->value[OPT_MODE], &mode) || mode == COMPUTE_OFF)
		return;
	json_array_foreach(gpus, i, gpu) if (!strcmp(session_text(gpu, "mode"), "off"))
		fprintf(stderr,
			"carve: note: GPU %" PRIu64 " stays off: it is in MIG mode, and its "
			"instances are not time-sliced\n",
			session_number(gpu, "gpu"));
}

int cli_timeslicing(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *gpus = NULL, *change = NULL;
	int rc = change_read(cli, &change, err);

	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0)
		return rc;
	rc = client_call(&client, change ? "PUT" : "GET", "/v1/timeslicing", change, NULL, &gpus,
			 err);
	if (rc < 0)
		return rc;
	left_out_tell(cli, gpus);
	if (cli->value[OPT_JSON])
		return output_json(gpus, err);
	gpus_print(gpus);
	sessions_print(gpus);
	return 0;
}
