/* carve mig list, carve mig gc: MIG instances that carve makes. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

/* Those that hold it, as many as there is room for. */
static const char *list_text(const json_t *list, char *buf, size_t size)
{
	size_t used = 0, i;
	json_t *item;

	snprintf(buf, size, "-");
	json_array_foreach(list, i, item)
	{
		if (used + 24 > size)
			return buf;
		used += json_is_string(item)
				? (size_t)snprintf(buf + used, size - used, "%s%.20s", i ? "," : "",
						   json_string_value(item))
				: (size_t)snprintf(buf + used, size - used,
						   "%s%" JSON_INTEGER_FORMAT, i ? "," : "",
						   json_integer_value(item));
	}
	return buf;
}

static void place_fill(const json_t *instance, int64_t now, struct cell *cell)
{
	column_print(cell, "%" PRIu64 ":%" PRIu64, session_number(instance, "start"),
		     session_number(instance, "size"));
}

static void utilization_fill(const json_t *instance, int64_t now, struct cell *cell)
{
	uint64_t per_cent = column_number(instance, "utilization");

	if (per_cent == COLUMN_NONE)
		column_print(cell, "N/A");
	else
		column_print(cell, "%" PRIu64 "%%", per_cent);
}

static void sessions_fill(const json_t *instance, int64_t now, struct cell *cell)
{
	(void)list_text(json_object_get(instance, "sessions"), cell->text, 128);
}

static void pids_fill(const json_t *instance, int64_t now, struct cell *cell)
{
	(void)list_text(json_object_get(instance, "pids"), cell->text, 64);
}

static const struct column columns[] = {
	{"GPU", "gpu", FORMAT_COUNT},       {"PROFILE", "profile", FORMAT_KNOWN},
	{"PLACE", .fill = place_fill},      {"MEMORY", "memory_bytes", FORMAT_LONG_BYTES},
	{"STATE", "state", FORMAT_TEXT},    {"UTIL", .fill = utilization_fill},
	{"SESSION", .fill = sessions_fill}, {"OWNER", "owner", FORMAT_KNOWN},
	{"SINCE", "since", FORMAT_KNOWN},   {"PIDS", .fill = pids_fill},
	{"UUID", "uuid", FORMAT_KNOWN},
};

/* The first GPU whose flags are so decides which step is next. */
static void next_step_print(const json_t *gpus)
{
	static const struct {
		bool role, mode, capable;
		const char *text;
	} steps[] = {
		{true, true, true,
		 "there is no MIG instance yet: carve makes them as requests need them, for "
		 "example "
		 "carve run --mig-profile 1g.10gb CMD"},
		{true, false, true,
		 "MIG mode is off: carve node set-role --dynamic-mig-enabled --enable-mode "
		 "switches "
		 "it on while nobody uses the GPU"},
		{false, true, true,
		 "no GPU gives out MIG instances: carve node set-role --dynamic-mig-enabled lets "
		 "carve make them on GPUs in MIG mode"},
		{false, false, true,
		 "no GPU is in MIG mode: carve node set-role --dynamic-mig-enabled --enable-mode "
		 "switches it on while nobody uses the GPU, and lets carve make instances"},
		{false, false, false,
		 "no GPU here is capable of MIG: carve run --vram 4 CMD cuts a slice without it"},
	};
	size_t i;
	json_t *gpu;

	for (size_t step = 0; step < ARRAY_SIZE(steps); step++)
		json_array_foreach(gpus, i, gpu)
		{
			bool mode = json_is_true(json_object_get(gpu, "mig"));
			bool capable = mode || json_is_true(json_object_get(gpu, "mig_capable"));

			if (steps[step].role != (*session_text(gpu, "role") != '\0') ||
			    steps[step].mode != mode || steps[step].capable != capable)
				continue;
			puts(steps[step].text);
			return;
		}
	puts("no GPU found: carve check says why");
}

int cli_mig_list(struct cli *cli, struct error *err)
{
	cleanup_json json_t *list = NULL, *gpus = NULL;
	struct client client;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = client_call(&client, "GET", "/v1/mig", NULL, NULL, &list, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(list, err);
	if (!json_array_size(list)) {
		rc = client_call(&client, "GET", "/v1/gpus", NULL, NULL, &gpus, err);
		if (rc == 0)
			next_step_print(gpus);
		return rc;
	}
	table_print_rows(columns, ARRAY_SIZE(columns), list);
	return 0;
}

int cli_mig_gc(struct cli *cli, struct error *err)
{
	cleanup_json json_t *answer = NULL, *body = json_object();
	char count[UNITS_TEXT_SIZE];
	struct client client;
	uint64_t older_ns = 0;
	int rc = 0;

	if (cli->value[OPT_OLDER_THAN])
		rc = units_parse_seconds(cli->value[OPT_OLDER_THAN], "--older-than", &older_ns,
					 err);
	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0)
		return rc;
	json_object_set_new(body, "older_than", json_real((double)older_ns / 1e9));
	rc = client_call(&client, "POST", "/v1/mig/gc", body, NULL, &answer, err);
	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(answer, err);
	printf("removing %s\n",
	       units_format_count(session_number(answer, "removing"), "idle instance", count));
	return 0;
}
