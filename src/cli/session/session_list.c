#include <inttypes.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/moment.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

static void bytes_cell(struct table *table, uint64_t bytes)
{
	char text[UNITS_TEXT_SIZE];

	table_add(table, "%s", units_format_bytes(bytes, text));
}

/* One that waits is at a place in the row. */
static void state_cell(struct table *table, const json_t *session)
{
	uint64_t position = session_number(session, "position");

	if (position)
		table_add(table, "waiting (%" PRIu64 ")", position);
	else
		table_add(table, "%s", session_text_or_dash(session, "state"));
}

static void received_cell(struct table *table, const json_t *session)
{
	const json_t *received = json_object_get(session, "received");

	if (json_is_number(received))
		table_add(table, "%.1f%%", json_number_value(received) * 100);
	else
		table_add(table, "-");
}

/* The sum over its GPUs. It is not told of another user's session. */
static void sum_cell(struct table *table, const json_t *session, const char *key)
{
	const json_t *first = json_array_get(json_object_get(session, "gpus"), 0);

	if (json_is_integer(json_object_get(first, key)))
		bytes_cell(table, session_gpus_sum(session, key));
	else
		table_add(table, "-");
}

/* Memory beyond the slice, by the driver's figures, counts and is marked. */
static void used_cell(struct table *table, const json_t *session)
{
	uint64_t over = session_number(session, "over_bytes");
	char used[UNITS_TEXT_SIZE];

	if (!over)
		return sum_cell(table, session, "used_bytes");
	table_add(table, "%s!", units_format_bytes(session_gpus_sum(session, "used_bytes"), used));
}

/* One that waits may have asked for a part of whichever GPU it gets. */
static void size_cell(struct table *table, const json_t *session)
{
	char text[SESSION_SIZE_SIZE];

	if (json_is_integer(json_object_get(session, "vram_bytes")))
		table_add(table, "%s", session_size_text(session, text));
	else
		table_add(table, "%s", session_text_or_dash(session, "asked"));
}

static void pids_cell(struct table *table, const json_t *session)
{
	const json_t *pids = json_object_get(session, "pids");

	if (json_is_array(pids))
		table_add(table, "%zu", json_array_size(pids));
	else
		table_add(table, "-");
}

/* Short, as a row has to fit a terminal; `session show` and JSON tell it exactly. */
static void moment_cell(struct table *table, const json_t *session, const char *key, int64_t now)
{
	char text[MOMENT_SIZE];

	moment_long_text(moment_parse(json_string_value(json_object_get(session, key))), now, text);
	table_add(table, "%s", *text ? text : "-");
}

/* Columns of sessions that ended: when, why, the most they held, the time they had. */
static void history_cells(struct table *table, const json_t *session, int64_t now)
{
	moment_cell(table, session, "ended", now);
	sum_cell(table, session, "peak_bytes");
	received_cell(table, session);
	table_add(table, "%s", session_text_or_dash(session, "reason"));
}

static void session_row(struct table *table, const json_t *session, bool history, int64_t now)
{
	char on[SESSION_GPUS_SIZE];

	table_add(table, "%s", session_text_or_dash(session, "id"));
	table_add(table, "%s", session_text_or_dash(session, "name"));
	state_cell(table, session);
	table_add(table, "%s", session_text_or_dash(session, "owner"));
	size_cell(table, session);
	used_cell(table, session);
	table_add(table, "%s", session_gpus_text(session, on));
	pids_cell(table, session);
	moment_cell(table, session, "created", now);
	if (history)
		history_cells(table, session, now);
}

static void sessions_print(const json_t *sessions, bool history)
{
	static const char *const current[] = {"ID",   "NAME", "STATE", "OWNER",   "SIZE",
					      "USED", "GPU",  "PIDS",  "CREATED", NULL};
	static const char *const all[] = {"ID",   "NAME",  "STATE",  "OWNER",   "SIZE",
					  "USED", "GPU",   "PIDS",   "CREATED", "ENDED",
					  "PEAK", "SHARE", "REASON", NULL};
	cleanup_table struct table table;
	int64_t now = now_realtime_ns() / 1000000000;
	size_t i;
	json_t *session;

	table_begin(&table, history ? all : current);
	json_array_foreach(sessions, i, session) session_row(&table, session, history, now);
	table_print(&table);
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
	sessions_print(sessions, cli->value[OPT_ALL] != NULL);
	beyond_print(sessions);
	return 0;
}
