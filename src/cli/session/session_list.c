#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

static void name_fill(const json_t *session, int64_t now, struct cell *cell)
{
	if (*session_name_text(session))
		column_print(cell, "%s", session_name_text(session));
}

/* A request that waits is at a place in the line. */
static void state_fill(const json_t *session, int64_t now, struct cell *cell)
{
	uint64_t position = session_number(session, "position");

	if (position)
		column_print(cell, "waiting (%" PRIu64 ")", position);
}

/* Memory beyond the slice, by the driver's figures, counts and is marked. */
static void used_fill(const json_t *session, int64_t now, struct cell *cell)
{
	char used[UNITS_TEXT_SIZE];

	if (session_number(session, "over_bytes"))
		column_print(cell, "%s!",
			     units_format_bytes(session_gpus_sum(session, "used_bytes"), used));
}

/* A session that is about to be released is marked. */
static void idle_fill(const json_t *session, int64_t now, struct cell *cell)
{
	if (json_is_true(json_object_get(session, "idle_warned")))
		strncat(cell->text, "!", sizeof(cell->text) - strlen(cell->text) - 1);
}

/* A request that waits may have asked for a part of whichever GPU it gets. */
static void size_fill(const json_t *session, int64_t now, struct cell *cell)
{
	char text[SESSION_SIZE_SIZE];

	if (json_is_integer(json_object_get(session, "vram_bytes")))
		column_print(cell, "%s", session_size_text(session, text));
}

static void gpus_fill(const json_t *session, int64_t now, struct cell *cell)
{
	char text[SESSION_GPUS_SIZE];

	column_print(cell, "%s", session_gpus_text(session, text));
}

/* NULL: none is recorded. */
static const json_t *last_command(const json_t *session)
{
	const json_t *commands = json_object_get(session, "commands");

	return json_array_get(commands, json_array_size(commands) - 1);
}

static void exit_fill(const json_t *session, int64_t now, struct cell *cell)
{
	const json_t *code = json_object_get(last_command(session), "exit_code");

	if (json_is_integer(code))
		column_print(cell, "%" JSON_INTEGER_FORMAT, json_integer_value(code));
	else
		column_print(cell, "-");
}

static void command_fill(const json_t *session, int64_t now, struct cell *cell)
{
	const char *text = session_text(last_command(session), "command");

	column_print(cell, "%s", *text ? text : "-");
}

/* Moments are short, as a row has to fit a terminal; `session show` and JSON tell them exactly. */
static const struct column columns[] = {
	{"ID", "id", FORMAT_KNOWN},
	{"NAME", "name", FORMAT_KNOWN, .fill = name_fill},
	{"STATE", "state", FORMAT_KNOWN, .fill = state_fill},
	{"OWNER", "owner", FORMAT_KNOWN},
	{"SIZE", "asked", FORMAT_KNOWN, .fill = size_fill},
	{"USED", "gpus.used_bytes", FORMAT_LONG_BYTES, .fill = used_fill},
	{"GPU", .fill = gpus_fill},
	{"PIDS", "pids", FORMAT_COUNT},
	{"IDLE", "idle_since", FORMAT_AGE, .fill = idle_fill},
	{"CREATED", "created", FORMAT_MOMENT},
	/* These columns are of use for sessions that have ended. */
	{"ENDED", "ended", FORMAT_MOMENT},
	{"PEAK", "gpus.peak_bytes", FORMAT_LONG_BYTES},
	{"SHARE", "received", FORMAT_PERCENT},
	{"REASON", "reason", FORMAT_KNOWN},
	/* These columns are of use where a command was recorded. */
	{"EXIT", .fill = exit_fill},
	{"COMMAND", .fill = command_fill},
};
#define HISTORY_COLUMNS 6
#define COMMAND_COLUMNS 2

static size_t columns_count(bool all, const json_t *sessions)
{
	size_t i;
	json_t *session;

	if (!all)
		return ARRAY_SIZE(columns) - HISTORY_COLUMNS;
	json_array_foreach(sessions, i,
			   session) if (last_command(session)) return ARRAY_SIZE(columns);
	return ARRAY_SIZE(columns) - COMMAND_COLUMNS;
}

/* Which sessions are marked in the table, and why. */
static void beyond_print(const json_t *sessions)
{
	char over[UNITS_TEXT_SIZE], size[SESSION_SIZE_SIZE];
	size_t i;
	json_t *session;

	json_array_foreach(sessions, i, session) if (session_number(session, "over_bytes"))
		printf("! %s holds %s beyond its slice of %s, by the driver's figures; see `carve "
		       "session show %s`\n",
		       session_text(session, "id"),
		       units_format_bytes(session_number(session, "over_bytes"), over),
		       session_size_text(session, size), session_text(session, "id"));
}

/* Which sessions end soon as nobody uses them, and when. */
static void idle_print(const json_t *sessions)
{
	size_t i;
	json_t *session;

	json_array_foreach(sessions, i, session)
	{
		if (json_is_true(json_object_get(session, "idle_warned")))
			printf("! %s is released at %s unless it uses GPU time\n",
			       session_text(session, "id"),
			       session_text(session, "idle_release_at"));
	}
}

int cli_session_list(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *sessions = NULL;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc == 0)
		rc = cli->value[OPT_ALL] ? sessions_get_all(&client, &sessions, err)
					 : sessions_get(&client, &sessions, err);
	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(sessions, err);
	table_print_rows(columns, columns_count(cli->value[OPT_ALL] != NULL, sessions), sessions);
	beyond_print(sessions);
	idle_print(sessions);
	return 0;
}
