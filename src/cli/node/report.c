/* carve report: what users held and used of the GPUs, for people, for spreadsheets and for
 * programs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

#define NS_PER_HOUR 3600e9
/* The longest time for --since: ten times that of the history. */
#define SINCE_MOST_NS (3660 * 86400ull * 1000000000ull)
#define PATH_SIZE 256

/* ---- columns ----------------------------------------------------------------------------- */

static void hours_print(const json_t *row, const char *key, struct cell *cell)
{
	uint64_t ns = column_number(row, key);

	if (ns == COLUMN_NONE)
		column_print(cell, "-");
	else
		column_print(cell, "%.2f", (double)ns / NS_PER_HOUR);
}

static void gpu_hours_fill(const json_t *row, int64_t now, struct cell *cell)
{
	hours_print(row, "gpu_ns", cell);
}

static void slice_hours_fill(const json_t *row, int64_t now, struct cell *cell)
{
	hours_print(row, "held_ns", cell);
}

static void used_fill(const json_t *row, int64_t now, struct cell *cell)
{
	uint64_t used = column_number(row, "used_ns"), of = column_number(row, "measured_ns");

	if (used == COLUMN_NONE || !of)
		column_print(cell, "-");
	else
		column_print(cell, "%.0f%%", 100.0 * (double)used / (double)of);
}

static void peak_fill(const json_t *row, int64_t now, struct cell *cell)
{
	uint64_t peak = column_number(row, "peak_bytes"), asked = column_number(row, "asked_bytes");
	char text[COLUMN_SHORT_SIZE];

	if (peak != COLUMN_NONE && asked != COLUMN_NONE && asked)
		column_print(cell, "%s (%.0f%%)", column_average_text(peak, text),
			     100.0 * (double)peak / (double)asked);
}

/* The first columns say whose the row is: a user's, a group's, a GPU's, or a name's. */
static void group_fill(const json_t *row, int64_t now, struct cell *cell)
{
	column_print(cell, "%s",
		     json_is_true(json_object_get(row, "other")) ? "(other)"
								 : session_text(row, "group"));
}

static void gpu_fill(const json_t *row, int64_t now, struct cell *cell)
{
	const json_t *gpu = json_object_get(row, "gpu");
	uint64_t index = column_number(gpu, "index");

	if (json_is_null(gpu))
		column_print(cell, "(none)");
	else if (index == COLUMN_NONE)
		column_print(cell, "%s", session_text(gpu, "uuid"));
	else
		column_print(cell, "%" PRIu64 " %s", index, session_text(gpu, "name"));
}

static void name_fill(const json_t *row, int64_t now, struct cell *cell)
{
	const char *name = session_text(row, "name");

	column_print(cell, "%s",
		     json_is_true(json_object_get(row, "other")) ? "(other)"
		     : *name                                     ? name
								 : "(none)");
}

#define FIGURES                                                                           \
	{"GPU-HOURS", .fill = gpu_hours_fill}, {"SLICE-HOURS", .fill = slice_hours_fill}, \
		{"USED", .fill = used_fill}, {"ASKED", "asked_bytes", FORMAT_AVERAGE},    \
		{"PEAK", "peak_bytes", FORMAT_AVERAGE, .fill = peak_fill},                \
		{"SESSIONS", "sessions", FORMAT_COUNT}, {"JOBS", "jobs", FORMAT_COUNT},   \
		{"REFUSED", "refusals", FORMAT_COUNT}, {"WAITS", "waits", FORMAT_COUNT},  \
	{                                                                                 \
		"WAITED", "wait_ns", FORMAT_DURATION                                      \
	}

static const struct column by_user[] = {{"USER", "user", FORMAT_TEXT}, FIGURES};
static const struct column by_group[] = {{"GROUP", .fill = group_fill}, FIGURES};
static const struct column by_gpu[] = {{"GPU", .fill = gpu_fill}, FIGURES};
static const struct column by_name[] = {
	{"USER", "user", FORMAT_TEXT}, {"NAME", .fill = name_fill}, FIGURES};

static const struct {
	const char *by;
	const struct column *columns;
	size_t count;
	const char *csv; /* the titles of its first columns */
} kinds[] = {
	{"user", by_user, ARRAY_SIZE(by_user), "user,uid"},
	{"group", by_group, ARRAY_SIZE(by_group), "group,gid"},
	{"gpu", by_gpu, ARRAY_SIZE(by_gpu), "gpu,uuid,model"},
	{"name", by_name, ARRAY_SIZE(by_name), "user,uid,name"},
};

/* ---- CSV (RFC 4180) ---------------------------------------------------------------------- */

/* A spreadsheet takes a text that begins like this for a formula, and names come from others. */
static bool looks_like_formula(const char *text)
{
	return *text && strchr("=+-@\t\r", *text);
}

static void csv_text(const char *text)
{
	putchar('"');
	if (looks_like_formula(text))
		putchar('\'');
	for (; *text; text++) {
		if (*text == '"')
			putchar('"');
		putchar(*text);
	}
	putchar('"');
}

static void csv_integer(const json_t *row, const char *key)
{
	const json_t *value = json_object_get(row, key);

	if (json_is_integer(value))
		printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
}

static void csv_time(const json_t *row, const char *key, double unit_ns)
{
	const json_t *value = json_object_get(row, key);

	if (json_is_integer(value))
		printf("%.6f", (double)json_integer_value(value) / unit_ns);
}

static void csv_key(const json_t *row, const char *by)
{
	const json_t *gpu = json_object_get(row, "gpu");
	struct cell cell = {{0}};

	if (!strcmp(by, "gpu")) {
		csv_integer(gpu, "index");
		putchar(',');
		csv_text(session_text(gpu, "uuid"));
		putchar(',');
		csv_text(session_text(gpu, "name"));
	} else if (!strcmp(by, "group")) {
		group_fill(row, 0, &cell);
		csv_text(cell.text);
		putchar(',');
		csv_integer(row, "gid");
	} else {
		csv_text(session_text(row, "user"));
		putchar(',');
		csv_integer(row, "uid");
	}
	if (!strcmp(by, "name")) {
		name_fill(row, 0, &cell);
		putchar(',');
		csv_text(cell.text);
	}
}

static void csv_row(const json_t *row, const char *by)
{
	static const char *const hours[] = {"gpu_ns", "held_ns", "used_ns", "measured_ns"};
	static const char *const integers[] = {"asked_bytes", "peak_bytes", "peak_most_bytes",
					       "sessions",    "jobs",       "refusals",
					       "waits"};

	csv_key(row, by);
	for (size_t i = 0; i < ARRAY_SIZE(hours); i++) {
		putchar(',');
		csv_time(row, hours[i], NS_PER_HOUR);
	}
	for (size_t i = 0; i < ARRAY_SIZE(integers); i++) {
		putchar(',');
		csv_integer(row, integers[i]);
	}
	putchar(',');
	csv_time(row, "wait_ns", 1e9);
	printf("\r\n");
}

static void csv_print(const json_t *report, size_t kind)
{
	size_t i;
	json_t *row;

	printf("%s,gpu_hours,slice_hours,used_hours,measured_hours,asked_bytes,peak_bytes,"
	       "peak_most_bytes,sessions,jobs,refusals,waits,wait_seconds\r\n",
	       kinds[kind].csv);
	json_array_foreach(json_object_get(report, "rows"), i, row) csv_row(row, kinds[kind].by);
}

/* ---- the query --------------------------------------------------------------------------- */

static int kind_find(const char *by, size_t *ret, struct error *err)
{
	*ret = 0;
	for (size_t i = 0; by && i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(by, kinds[i].by)) {
			*ret = i;
			return 0;
		}
	return by ? error_set(err, EXIT_CODE_USAGE,
			      "--by: '%.64s' is none of user, group, gpu and name", by)
		  : 0;
}

static bool is_day(const char *text)
{
	return strlen(text) == 10 && strspn(text, "0123456789-") == 10;
}

/* Adds "&since=2026-11-29" of "30d" (ago) or of the day itself. */
static int day_add(const char *name, const char *text, char path[static PATH_SIZE],
		   struct error *err)
{
	size_t used = strlen(path);
	char option[16], day[16];
	uint64_t ago;

	if (!text)
		return 0;
	snprintf(option, sizeof(option), "--%s", name);
	if (is_day(text)) {
		snprintf(path + used, PATH_SIZE - used, "&%s=%s", name, text);
		return 0;
	}
	bool bare = text[strspn(text, "0123456789")] == '\0';
	if (bare || units_parse_seconds(text, option, &ago, NULL) < 0 || ago > SINCE_MOST_NS) {
		error_set(err, EXIT_CODE_USAGE,
			  "%s: '%.64s' is neither a time of at most ten years nor a day", option,
			  text);
		error_hint(err, "for example: %s 30d, or %s 2026-11-01 (days of UTC)", option,
			   option);
		return -EXIT_CODE_USAGE;
	}
	const time_t at = time(NULL) - (time_t)(ago / 1000000000);
	struct tm tm;
	if (gmtime_r(&at, &tm) && strftime(day, sizeof(day), "%Y-%m-%d", &tm))
		snprintf(path + used, PATH_SIZE - used, "&%s=%s", name, day);
	return 0;
}

/* ---- showing ----------------------------------------------------------------------------- */

/* Days are compared as texts. */
static int history_check(const json_t *report, struct error *err)
{
	const char *began = session_text(report, "history_since");

	if (strcmp(session_text(report, "until"), began) >= 0)
		return 0;
	error_set(err, EXIT_CODE_FAILED, "there is no history from %s to %s: it begins on %s",
		  session_text(report, "since"), session_text(report, "until"), began);
	error_hint(err, "carve keeps a year; for example: carve report --since %s", began);
	return -EXIT_CODE_FAILED;
}

static void history_warn(const json_t *report)
{
	const char *began = session_text(report, "history_since");

	if (strcmp(session_text(report, "since"), began) < 0)
		fprintf(stderr,
			"carve: the history begins on %s: the days before are not in this report\n",
			began);
}

static void report_print(const json_t *report, size_t kind)
{
	const json_t *rows = json_object_get(report, "rows");
	uint64_t left = session_number(report, "left_out");

	if (!json_array_size(rows)) {
		printf("nothing was held or asked for from %s to %s\n",
		       session_text(report, "since"), session_text(report, "until"));
		return;
	}
	table_print_rows(kinds[kind].columns, kinds[kind].count, rows);
	if (left)
		printf("%" PRIu64 " more rows, of fewer GPU-hours, are left out\n", left);
}

int cli_report(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *report = NULL;
	char path[PATH_SIZE];
	size_t kind;
	int rc = kind_find(cli->value[OPT_REPORT_BY], &kind, err);

	if (rc == 0 && cli->value[OPT_JSON] && cli->value[OPT_CSV])
		rc = error_set(err, EXIT_CODE_USAGE,
			       "--csv and --json are both given: leave one of them out");
	snprintf(path, sizeof(path), "/v1/report?by=%s", kinds[kind].by);
	if (rc == 0)
		rc = day_add("since", cli->value[OPT_REPORT_SINCE], path, err);
	if (rc == 0)
		rc = day_add("until", cli->value[OPT_REPORT_UNTIL], path, err);
	if (rc == 0)
		rc = client_open(&client, cli->value[OPT_HOST], err);
	if (rc == 0)
		rc = client_call(&client, "GET", path, NULL, NULL, &report, err);
	if (rc == 0)
		rc = history_check(report, err);
	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(report, err);
	history_warn(report);
	if (cli->value[OPT_CSV])
		csv_print(report, kind);
	else
		report_print(report, kind);
	return 0;
}
