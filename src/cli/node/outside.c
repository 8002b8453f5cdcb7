/* carve outside: programs that use a GPU outside of slices. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

static void gpus_fill(const json_t *program, int64_t now, struct cell *cell)
{
	const json_t *gpus = json_object_get(program, "gpus");
	size_t used = 0, i;
	json_t *gpu;

	json_array_foreach(gpus, i, gpu)
	{
		if (used + 8 > 64)
			break;
		used += (size_t)snprintf(cell->text + used, sizeof(cell->text) - used, "%s%" PRIu64,
					 i ? "," : "", session_number(gpu, "index"));
	}
}

/* The fate of a program, by the daemon's word in `spared`. */
static const struct {
	const char *spared, *text;
} fates[] = {
	{"root", "it stays: root's"},
	{"system_user", "it stays: a system user's"},
	{"exempt", "it stays: exempt"},
	{"graphics", "it stays: it only draws"},
	{"namespace", "it stays: in a namespace of its own"},
	{"several_users", "it stays: it has several user IDs"},
	{"unproved", "carve has yet to look at it"},
	{"refused", "it stays: the kernel refused the signal"},
};

static void fate_fill(const json_t *program, int64_t now, struct cell *cell)
{
	const char *spared = session_text(program, "spared"),
		   *state = session_text(program, "state");
	const json_t *left = json_object_get(program, "ends_in_s");

	for (size_t i = 0; i < ARRAY_SIZE(fates); i++)
		if (!strcmp(fates[i].spared, spared)) {
			column_print(cell, "%s", fates[i].text);
			return;
		}
	if (!strcmp(state, "ending") || !strcmp(state, "killing"))
		column_print(cell, "it is ending");
	else if (json_is_number(left))
		column_print(cell, "it ends in %.0f s", ceil(json_number_value(left)));
	else
		column_print(cell, "it is reported");
}

static const struct column columns[] = {
	{"PID", "pid", FORMAT_COUNT},
	{"OWNER", "owner", FORMAT_KNOWN},
	{"COMMAND", "command", FORMAT_KNOWN},
	{"GPU", .fill = gpus_fill},
	{"MEMORY", "memory_bytes", FORMAT_LONG_BYTES},
	{"SINCE", "since", FORMAT_AGE},
	{"FATE", .fill = fate_fill},
};

static void policy_print(const json_t *answer)
{
	const char *problem = session_text(answer, "problem");
	double seconds = json_number_value(json_object_get(answer, "seconds"));

	if (strcmp(session_text(answer, "policy"), "kill") != 0)
		puts("outside_policy is report: programs outside carve are listed and logged.");
	else if (*problem)
		printf("outside_policy is kill, but nobody is ended: %s.\n", problem);
	else
		printf("outside_policy is kill: a program of an ordinary user ends after %g s "
		       "outside of slices.\n",
		       seconds);
}

int cli_outside(struct cli *cli, struct error *err)
{
	cleanup_json json_t *answer = NULL;
	struct client client;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 ||
	    (rc = client_call(&client, "GET", "/v1/outside", NULL, NULL, &answer, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(answer, err);
	const json_t *programs = json_object_get(answer, "programs");

	if (json_array_size(programs))
		table_print_rows(columns, ARRAY_SIZE(columns), programs);
	else
		puts("No program outside carve uses a GPU.");
	if (session_number(answer, "more"))
		printf("and %" PRIu64 " more programs\n", session_number(answer, "more"));
	policy_print(answer);
	return 0;
}
