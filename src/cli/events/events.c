/* carve events: prints events of the daemon's log as they come, or tells of them. carve audit:
 * lists the changes among them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clean_text.h"
#include "base/error.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/events/event_text.h"
#include "cli/events/follow.h"
#include "cli/moment.h"
#include "cli/output.h"
#include "cli/user.h"
#include "cli/when.h"
#include "client/client.h"
#include "client/sessions.h"
#include "client/text.h"

#define FILTER_SIZE 160
/* Bytes of a value in the table of changes: a quota's four limits fit. */
#define TEXT_WIDTH 72

/* ---- options ------------------------------------------------------------------------------- */

static int filters_read(const struct cli *cli, char filters[static FILTER_SIZE], struct error *err)
{
	const char *kind = cli->value[OPT_EVENT_KIND], *user = cli->value[OPT_JOB_USER];
	char of_user[32] = "";
	uid_t uid;
	int rc = user ? user_find(user, &uid, err) : 0;

	if (rc < 0)
		return rc;
	if (user)
		snprintf(of_user, sizeof(of_user), "&uid=%u", uid);
	snprintf(filters, FILTER_SIZE, "%s%s", of_user, kind ? "&kind=" : "");
	if (!kind || (*kind && strlen(kind) < 32 && text_url_append(filters, FILTER_SIZE, kind)))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--kind: '%.64s' is no kind of events", kind);
	error_hint(err, "for example: --kind quota.set, gpu.drained or config.read; "
			"carve-events(1) lists the kinds");
	return -EXIT_CODE_USAGE;
}

/* ---- carve events -------------------------------------------------------------------------- */

static int event_print(const struct cli *cli, const json_t *event, struct error *err)
{
	char line[EVENT_LINE_SIZE], when[MOMENT_SIZE];
	int64_t at = moment_parse(session_text(event, "at"));
	int rc = 0;

	if (cli->value[OPT_JSON])
		rc = output_json_line(event, err);
	else
		printf("%s %s\n", moment_exact_text(at, when), event_line(event, line));
	if (rc == 0 && fflush(stdout) == EOF)
		rc = error_set(err, EXIT_CODE_FAILED, "cannot write to standard output");
	return rc;
}

static const char *event_name(const json_t *event, char *buf, size_t size)
{
	snprintf(buf, size, "event %llu, %s", (unsigned long long)session_number(event, "number"),
		 session_text(event, "kind"));
	return buf;
}

static void event_environment(const json_t *event)
{
	char line[EVENT_LINE_SIZE], number[32];

	snprintf(number, sizeof(number), "%llu",
		 (unsigned long long)session_number(event, "number"));
	setenv("CARVE_EVENT_NUMBER", number, 1);
	setenv("CARVE_EVENT_KIND", session_text(event, "kind"), 1);
	setenv("CARVE_EVENT_LINE", event_line(event, line), 1);
}

int cli_events(struct cli *cli, struct error *err)
{
	char filters[FILTER_SIZE];
	const struct follow_source source = {
		.verb = "events",
		.path = "/v1/events",
		.filters = filters,
		.list = "events",
		.one = "event",
		.many = "events",
		.store = "event log",
		.cursor_file = "node-events.json",
		.environment = event_environment,
		.name = event_name,
		.print = event_print,
	};
	int rc = filters_read(cli, filters, err);

	return rc < 0 ? rc : follow(cli, &source, err);
}

/* ---- carve audit --------------------------------------------------------------------------- */

/* All changes since then: a list, owned by the caller. */
static int changes_get(const struct client *client, const char *filters, int64_t since,
		       json_t **ret, struct error *err)
{
	char path[FILTER_SIZE + 96], place[64] = "";
	uint64_t from, next = 0;

	*ret = json_array();
	do {
		cleanup_json json_t *answer = NULL;

		from = next;
		if (from)
			snprintf(place, sizeof(place), "&from=%llu", (unsigned long long)from);
		snprintf(path, sizeof(path), "/v1/events?changes=1&since=%lld%s%s",
			 (long long)since * 1000000000, place, filters);
		int rc = client_call(client, "GET", path, NULL, NULL, &answer, err);
		if (rc < 0)
			return rc;
		json_array_extend(*ret, json_object_get(answer, "events"));
		next = session_number(answer, "next");
	} while (next != from);
	return 0;
}

static void by_fill(const json_t *row, int64_t now, struct cell *cell)
{
	const char *user = session_text(row, "user"), *login = session_text(row, "login");

	if (!*user)
		column_print(cell, "carved");
	else if (*login && strcmp(login, user) != 0)
		column_print(cell, "%s (%s)", user, login);
	else
		column_print(cell, "%s", user);
}

/* With the process above it. */
static void process_fill(const json_t *row, int64_t now, struct cell *cell)
{
	const char *process = session_text(row, "process"), *parents = session_text(row, "parents");
	int length = (int)strcspn(parents, ",");

	if (json_is_integer(json_object_get(row, "pid")))
		column_print(cell, "%s%s%llu%s%.*s%s", process, *process ? " " : "",
			     (unsigned long long)session_number(row, "pid"), length ? " (" : "",
			     length, parents, length ? ")" : "");
	else
		column_print(cell, "-");
}

/* A configuration can differ in much: the table has its beginning, and --json has all. */
static void text_fill(const json_t *row, const char *key, struct cell *cell)
{
	const char *text = session_text(row, key);
	char begin[TEXT_WIDTH - 2];

	if (strlen(text) <= TEXT_WIDTH) {
		column_print(cell, "%s", *text ? text : "-");
		return;
	}
	clean_text(text, begin, sizeof(begin));
	column_print(cell, "%s...", begin);
}

static void before_fill(const json_t *row, int64_t now, struct cell *cell)
{
	text_fill(row, "before", cell);
}

static void after_fill(const json_t *row, int64_t now, struct cell *cell)
{
	text_fill(row, "after", cell);
}

static void reason_fill(const json_t *row, int64_t now, struct cell *cell)
{
	text_fill(row, "text", cell);
}

static const struct column columns[] = {
	{.title = "WHEN", .path = "at", .format = FORMAT_MOMENT},
	{.title = "KIND", .path = "kind"},
	{.title = "BY", .fill = by_fill},
	{.title = "PROCESS", .fill = process_fill},
	{.title = "SUBJECT", .path = "subject", .format = FORMAT_KNOWN},
	{.title = "BEFORE", .fill = before_fill},
	{.title = "AFTER", .fill = after_fill},
	{.title = "REASON", .fill = reason_fill},
};

int cli_audit(struct cli *cli, struct error *err)
{
	cleanup_json json_t *changes = NULL;
	const char *wanted = cli->value[OPT_JOB_SINCE];
	char filters[FILTER_SIZE];
	struct client client;
	int64_t since;
	int rc = when_since(wanted ? wanted : "7d", &since, err);

	if (rc < 0 || (rc = filters_read(cli, filters, err)) < 0 ||
	    (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0 ||
	    (rc = changes_get(&client, filters, since, &changes, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(changes, err);
	if (json_array_size(changes))
		table_print_rows(columns, ARRAY_SIZE(columns), changes);
	else
		printf("no changes since %s\n", wanted ? wanted : "7 days ago");
	return 0;
}
