/* carve node drain, carve node resume: GPUs on which nothing new is granted. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/node/node_name.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

/* Between two looks at how many sessions are left. */
#define LOOK_NS 500000000L
/* A daemon that is started anew answers again within seconds. */
#define LOOKS_IN_VAIN_MAX 40

static const char *text_of(const json_t *row, const char *object, const char *key)
{
	return session_text(json_object_get(row, object), key);
}

/* "GPU 3", or of a GPU that is gone its UUID. */
#define GPU_NAME_SIZE 96
static const char *gpu_name(const json_t *row, char buf[static GPU_NAME_SIZE])
{
	if (json_is_integer(json_object_get(row, "gpu")))
		snprintf(buf, GPU_NAME_SIZE, "GPU %" PRIu64, session_number(row, "gpu"));
	else
		snprintf(buf, GPU_NAME_SIZE, "%.64s, which is gone,", session_text(row, "uuid"));
	return buf;
}

/* ---- asking ------------------------------------------------------------------------------ */

static int here_check(const struct cli *cli, struct error *err)
{
	const char *node = cli->argument_count ? cli->arguments[0] : NULL;
	char name[HOST_NAME_MAX + 1];

	return node_is_here(node, name) ? 0 : node_refuse(node, name, "kubectl cordon", "", err);
}

/* The rows of the GPUs that were drained or resumed. */
static int change(const struct cli *cli, const struct client *client, bool drain, json_t **ret,
		  struct error *err)
{
	cleanup_json json_t *body =
		json_pack("{s:b, s:s*, s:s*}", "drain", drain, "gpu_ids", cli->value[OPT_GPU_IDS],
			  "reason", drain ? cli->value[OPT_REASON] : NULL);

	/* Words that are no UTF-8. */
	if (!body)
		return error_set(err, EXIT_CODE_USAGE, "--reason: it is no text in UTF-8");
	return client_call(client, "PUT", "/v1/drains", body, NULL, ret, err);
}

/* ---- draining ---------------------------------------------------------------------------- */

static void drained_print(const json_t *rows)
{
	static const struct column columns[] = {
		{"GPU", "gpu", FORMAT_COUNT},
		{"STATE", "state", FORMAT_TEXT},
		{"SESSIONS", "sessions", FORMAT_COUNT},
		{"REASON", "drain.reason", FORMAT_TEXT},
	};
	char name[GPU_NAME_SIZE];
	size_t i;
	json_t *row;

	table_print_rows(columns, ARRAY_SIZE(columns), rows);
	json_array_foreach(rows, i, row) if (*text_of(row, "before", "since"))
		printf("%s was drained already; the reason that %s gave at %s is replaced: %s\n",
		       gpu_name(row, name), text_of(row, "before", "by"),
		       text_of(row, "before", "since"), text_of(row, "before", "reason"));
}

/* The row of a GPU in the list of drains; NULL: it is not drained any more. */
static const json_t *row_find(const json_t *rows, const char *uuid)
{
	size_t i;
	json_t *row;

	json_array_foreach(rows, i, row) if (!strcmp(session_text(row, "uuid"), uuid)) return row;
	return NULL;
}

/* Brings the rows up to date. The number of sessions that are left on them, or negative with *err.
 */
static int look(const struct client *client, json_t *rows, struct error *err)
{
	cleanup_json json_t *now = NULL;
	char name[GPU_NAME_SIZE];
	uint64_t left = 0;
	size_t i;
	json_t *row;
	int rc = client_call(client, "GET", "/v1/drains", NULL, NULL, &now, err);

	if (rc < 0)
		return rc;
	json_array_foreach(rows, i, row)
	{
		const json_t *is = row_find(now, session_text(row, "uuid"));

		if (!is)
			return error_set(err, EXIT_CODE_FAILED,
					 "%s was resumed before it was empty", gpu_name(row, name));
		json_object_update(row, (json_t *)is);
		left += session_number(is, "sessions");
	}
	return (int)left;
}

/* Until no session is on the GPUs. */
static int empty_await(const struct client *client, json_t *rows, struct error *err)
{
	const struct timespec pause = {.tv_nsec = LOOK_NS};
	char count[UNITS_TEXT_SIZE];
	int told = 0, in_vain = 0;

	for (;;) {
		int left = look(client, rows, err);

		if (left == 0)
			return 0;
		if (left < 0 && (left != -EXIT_CODE_UNREACHABLE || ++in_vain > LOOKS_IN_VAIN_MAX))
			return left;
		if (left > 0 && left != told)
			fprintf(stderr, "carve: waiting for %s to end%s\n",
				units_format_count((uint64_t)left, "session", count),
				told ? "" : " (Ctrl-C ends the wait, and not the drain)");
		told = left > 0 ? left : told;
		in_vain = left > 0 ? 0 : in_vain;
		(void)nanosleep(&pause, NULL);
	}
}

int cli_node_drain(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *rows = NULL;

	if (!cli->value[OPT_REASON]) {
		error_set(err, EXIT_CODE_USAGE,
			  "node drain: no reason given, which users will see");
		error_hint(err, "for example: carve node drain --gpu-ids 3 --reason \"a fan is to "
				"be replaced\"");
		return -EXIT_CODE_USAGE;
	}
	int rc = here_check(cli, err);
	if (rc == 0)
		rc = client_open(&client, cli->value[OPT_HOST], err);
	if (rc == 0)
		rc = change(cli, &client, true, &rows, err);
	if (rc == 0 && cli->value[OPT_DRAIN_WAIT])
		rc = empty_await(&client, rows, err);
	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(rows, err);
	drained_print(rows);
	return 0;
}

/* ---- resuming ---------------------------------------------------------------------------- */

static void resumed_print(const json_t *rows)
{
	char name[GPU_NAME_SIZE];
	size_t i;
	json_t *row;

	if (!json_array_size(rows))
		puts("no GPU is drained");
	json_array_foreach(rows, i, row)
	{
		gpu_name(row, name);
		if (*text_of(row, "before", "since"))
			printf("%s is resumed; %s drained it at %s: %s\n", name,
			       text_of(row, "before", "by"), text_of(row, "before", "since"),
			       text_of(row, "before", "reason"));
		else
			printf("%s was not drained\n", name);
	}
}

int cli_node_resume(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *rows = NULL;
	int rc = here_check(cli, err);

	if (rc == 0)
		rc = client_open(&client, cli->value[OPT_HOST], err);
	if (rc == 0)
		rc = change(cli, &client, false, &rows, err);
	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(rows, err);
	resumed_print(rows);
	return 0;
}
