/* carve top without a terminal or a daemon: what it makes of answers, and of keys. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/json_text.h"
#include "base/macros.h"
#include "cli/top/top_model.h"
#include "cli/top/top_table.h"
#include "cli/top/top_text.h"
#include "cli/top/top_view.h"

#define NOW 1767323045 /* 2026-01-02T03:04:05Z */

static const char gpus_text[] =
	"[{'index': 0, 'name': 'A', 'memory_bytes': 85899345920, 'reserved_bytes': 1073741824,"
	"  'used_bytes': 8589934592, 'promised_bytes': 42949672960, 'outside_bytes': 4294967296,"
	"  'available_bytes': 1, 'utilization': 37, 'sessions': 2, 'compute_mode': 'off',"
	"  'mig': false, 'held_by': null, 'state': 'ok', 'state_since': '2026-01-02T01:00:00Z',"
	"  'outside_processes': [{'pid': 77, 'memory_bytes': 4294967296}]},"
	" {'index': 3, 'name': 'B', 'memory_bytes': 42949672960, 'used_bytes': null,"
	"  'utilization': null, 'sessions': 0, 'mig': true, 'compute_mode': 'off',"
	"  'state': 'held', 'held_by': {'pid': 12, 'user': 'eve'}, 'outside_processes': []}]";

static const char sessions_text[] =
	"[{'id': 's-aaaaaa', 'state': 'active', 'owner': 'alice', 'vram_bytes': 4294967296,"
	"  'created': '2026-01-02T03:03:00.123Z', 'name': 'Train', 'pids': [10, 11],"
	"  'compute_request': 0.25, 'compute_limit': 1.0, 'received': 0.0625,"
	"  'gpus': [{'index': 0, 'vram_bytes': 4294967296, 'used_bytes': 1073741824,"
	"            'peak_bytes': 2147483648},"
	"           {'index': 3, 'vram_bytes': 4294967296, 'used_bytes': 0, 'peak_bytes': 0}]},"
	" {'id': null, 'state': 'active', 'owner': null, 'vram_bytes': 8589934592,"
	"  'gpus': [{'index': 0, 'vram_bytes': 8589934592}]},"
	" {'id': 's-bbbbbb', 'state': 'active', 'owner': 'bob', 'vram_bytes': 1073741824,"
	"  'created': '2026-01-02T02:04:05Z', 'pids': [],"
	"  'gpus': [{'index': 3, 'vram_bytes': 1073741824, 'used_bytes': 1073741824}]},"
	" {'id': 's-cccccc', 'state': 'waiting', 'owner': 'alice', 'asked': '79 GiB',"
	"  'vram_bytes': 84825604096, 'position': 1, 'created': '2026-01-02T03:04:00Z',"
	"  'reason': 'no room', 'gpus': []}]";

static const char quotas_text[] =
	"[{'kind': 'user', 'name': 'alice', 'vram_bytes': 17179869184, 'sessions': null,"
	"  'gpus': 2, 'used': {'vram_bytes': 8589934592, 'sessions': 1, 'gpus': 2}},"
	" {'kind': 'group', 'name': 'alice', 'vram_bytes': null, 'sessions': 9, 'gpus': null,"
	"  'used': {'vram_bytes': 5, 'sessions': 3, 'gpus': 1}}]";

static const char timeslicing_text[] =
	"[{'gpu': 0, 'mode': 'fair', 'sessions': [{'id': 's-aaaaaa', 'request': 0.5, 'limit': 1.0,"
	"  'received': 0.4, 'leases': 10, 'waited_ns': 2500000000, 'overrun_ns': 0}]},"
	" {'gpu': 3, 'mode': 'strict', 'sessions': [{'id': 's-aaaaaa', 'received': 0.3,"
	"  'leases': 5, 'waited_ns': 500000000}, {'id': 's-gone', 'received': 1}, {'id': null}]},"
	" {'gpu': 7, 'mode': 'off', 'sessions': [{'id': 's-aaaaaa', 'request': 0.5, 'received': 0,"
	"  'leases': 0, 'waited_ns': 0, 'overrun_ns': 0}]}]";

#define LONG_NAME "train-a-large-language-model-on-two-gpus-2026"
#define LONG_WHY \
	"it waits for job 2, which has no --time, so its end cannot be predicted; it is first"

static const char queues_text[] =
	"[{'name': 'night', 'size': '0.5', 'waiting': 1, 'running': 1, 'agent': 'a-1',"
	"  'reason': ''}, {'name': 'odd', 'size': null, 'waiting': 2, 'running': 0,"
	"  'agent': null, 'reason': 'no agent serves it'}]";

static const char jobs_text[] =
	"[{'id': '1', 'name': 'old', 'queue': 'night', 'state': 'done', 'user': 'alice'},"
	" {'id': '3', 'name': '" LONG_NAME "', 'queue': 'night', 'state': 'queued',"
	"  'user': 'alice', 'size': '40 GiB', 'granted_bytes': null, 'gpus': [],"
	"  'started': null, 'reason': '" LONG_WHY "'},"
	" {'id': '2', 'name': 'short', 'queue': 'night', 'state': 'running', 'user': 'bob',"
	"  'size': '0.5', 'granted_bytes': [4294967296, 4294967296], 'gpus': [0, 3],"
	"  'started': '2026-01-02T03:03:00Z', 'reason': ''}]";

static json_t *parse(const char *text)
{
	char *copy = strdup(text);

	for (char *c = copy; *c; c++)
		if (*c == '\'')
			*c = '"';
	json_t *json = json_loads(copy, JSON_DECODE_ANY, NULL);
	assert_non_null(json);
	free(copy);
	return json;
}

static struct top_model *model_make(bool leases)
{
	struct top_answers answers = {
		.version = parse("{'version': '9.9', 'driver_version': '550', 'pid': 4}"),
		.gpus = parse(gpus_text),
		.sessions = parse(sessions_text),
		.quotas = parse(quotas_text),
		.timeslicing = leases ? parse(timeslicing_text) : NULL,
		.queues = parse(queues_text),
		.jobs = parse(jobs_text),
	};
	struct top_model *model = top_model_read(&answers, NOW);

	assert_non_null(model);
	json_t *json = top_model_json(model, &answers);
	assert_int_equal(json_array_size(json_object_get(json, "sessions")), 3);
	assert_int_equal(json_array_size(json_object_get(json, "waiting")), 1);
	assert_int_equal(json_array_size(json_object_get(json, "users")), 4);
	assert_int_equal(json_array_size(json_object_get(json, "queues")), 2);
	assert_int_equal(json_array_size(json_object_get(json, "jobs")), 2);
	/* Over its life, as in `carve session list`, whatever the last plan was. */
	const json_t *first = json_array_get(json_object_get(json, "sessions"), 0);
	assert_true(json_number_value(json_object_get(first, "received")) == 0.0625);
	assert_int_equal(json_integer_value(json_object_get(first, "leases")), leases ? 15 : 0);
	json_decref(json);
	top_answers_free(&answers);
	return model;
}

static int column_named(enum top_list list, const char *title)
{
	size_t count;
	const struct column *columns = top_columns(list, &count);

	for (size_t c = 0; c < count; c++)
		if (!strcmp(columns[c].title, title))
			return (int)c;
	fail_msg("no column %s", title);
	return -1;
}

static void assert_cell(const struct top_model *model, enum top_list list, size_t item,
			const char *title, const char *text)
{
	struct cell cell;

	top_cell(model, list, item, (size_t)column_named(list, title), &cell);
	assert_string_equal(cell.text, text);
}

static void assert_state(const char *state, const char *since, const char *text)
{
	struct top_answers answers = {.gpus = parse("[{'index': 0}]")};
	json_t *gpu = json_array_get(answers.gpus, 0);

	json_object_set_new(gpu, "state", json_string(state));
	json_object_set_new(gpu, "state_since", json_string(since));
	struct top_model *m = top_model_read(&answers, NOW);
	assert_cell(m, TOP_GPUS, 0, "STATE", text);
	top_model_free(m);
	top_answers_free(&answers);
}

static void test_states_say_since_when(void **state)
{
	setenv("TZ", "UTC", 1);
	tzset();
	assert_state("lost", "2026-01-02T01:02:59.9Z", "lost since 01:02");
	assert_state("failing", "2026-01-01T23:59:00Z", "failing since 01-01");
	assert_state("draining", "2025-01-02T01:00:00Z", "draining since 01-02");
	assert_state("mig", "2026-01-02T01:02:00Z", "mig");
	assert_state("ok", "2026-01-02T01:02:00Z", "ok");
	assert_state("lost", "", "lost");
	assert_state("", "", "-");
}

/* The common case has one line for each GPU; a long state stands below its GPU alone. */
static void test_gpus_fit_into_80_columns(void **state)
{
	struct top_answers answers = {
		.gpus = parse("[{'index': 0, 'name': 'NVIDIA H100 80GB HBM3', 'state': 'ok'},"
			      " {'index': 1, 'name': 'NVIDIA H100 80GB HBM3', 'state': 'drained',"
			      "  'drain': {'reason': 'the fan is loud, and a new one comes'}}]")};
	struct top_model *m = top_model_read(&answers, NOW);
	int widths[TOP_COLUMNS_MAX];
	char text[TOP_BELOW_SIZE];

	top_columns_fit(m, TOP_GPUS, 80, widths);
	assert_true(widths[column_named(TOP_GPUS, "NAME")] >= 21);
	for (int i = 0; i < 3; i++)
		assert_true(widths[column_named(TOP_GPUS, (const char *[]){"BUSY", "FREE",
									   "PROMISED"}[i])] > 0);
	assert_string_equal(top_below_text(m, TOP_GPUS, 0, widths, text), "");
	assert_string_equal(top_below_text(m, TOP_GPUS, 1, widths, text),
			    "STATE drained: the fan is loud, and a new one comes");
	top_columns_fit(m, TOP_GPUS, 160, widths);
	assert_string_equal(top_below_text(m, TOP_GPUS, 1, widths, text), "");
	top_model_free(m);
	top_answers_free(&answers);
}

static void test_queues_and_jobs(void **state)
{
	struct top_model *m = model_make(false);

	assert_int_equal(top_list_size(m, TOP_JOBS), 2); /* those that have not ended */
	assert_cell(m, TOP_JOBS, 0, "JOB", "2");         /* what runs is first */
	assert_cell(m, TOP_JOBS, 0, "SIZE", "8Gi");
	assert_cell(m, TOP_JOBS, 0, "GPU", "0,3");
	assert_cell(m, TOP_JOBS, 0, "RAN", "1m05s");
	assert_cell(m, TOP_JOBS, 1, "SIZE", "40 GiB");
	assert_cell(m, TOP_JOBS, 1, "RAN", "-");
	assert_cell(m, TOP_JOBS, 1, "NAME", LONG_NAME);
	assert_cell(m, TOP_JOBS, 1, "REASON", LONG_WHY);
	assert_cell(m, TOP_QUEUES, 0, "SIZE", "0.5");
	assert_cell(m, TOP_QUEUES, 0, "RUNNING", "1");
	assert_cell(m, TOP_QUEUES, 1, "SIZE", "-");
	assert_cell(m, TOP_QUEUES, 1, "REASON", "no agent serves it");
	top_model_free(m);
}

/* Whether a text stands whole in its column, or below its row. */
static bool is_whole(const struct top_model *m, enum top_list list, size_t item, const char *title,
		     const int *widths)
{
	char below[TOP_BELOW_SIZE];
	struct cell cell;
	int column = column_named(list, title);

	top_cell(m, list, item, (size_t)column, &cell);
	top_below_text(m, list, item, widths, below);
	bool fits = (int)strlen(cell.text) <= widths[column];
	assert_true(fits != (strstr(below, cell.text) != NULL));
	return fits;
}

static void test_names_and_reasons_are_uncut_at_any_width(void **state)
{
	struct top_model *m = model_make(true);
	int widths[TOP_COLUMNS_MAX];

	for (int width = 1; width < 300; width++) {
		top_columns_fit(m, TOP_JOBS, width, widths);
		bool name = is_whole(m, TOP_JOBS, 1, "NAME", widths);
		bool reason = is_whole(m, TOP_JOBS, 1, "REASON", widths);
		assert_true(width < 100 || name);
		assert_true(width < 200 || reason);
		/* A reason has all that it needs, or no column. */
		assert_true(reason || !widths[column_named(TOP_JOBS, "REASON")]);
		top_columns_fit(m, TOP_SESSIONS, width, widths);
		assert_true(width < 80 || is_whole(m, TOP_SESSIONS, 0, "NAME", widths));
	}
	top_model_free(m);
}

static void test_lines_below_are_rows_of_their_item(void **state)
{
	struct top_model *m = model_make(false);
	struct top_view view;

	top_view_init(&view, 1000000000);
	top_view_update(&view, m);
	struct top_pane *jobs = &view.pane[TOP_JOBS];
	assert_int_equal(jobs->count, 4);
	assert_int_equal(jobs->rows[3].lines, 2);
	assert_int_equal(jobs->rows[3].place, 1);
	jobs->height = 4;
	top_view_key(&view, '5');
	top_view_key(&view, 'j');
	assert_true(top_pane_selects(jobs, 1) && top_pane_selects(jobs, 3));
	assert_false(top_pane_selects(jobs, 0));
	top_view_key(&view, 'j'); /* passes the lines over, and there is nothing behind */
	assert_int_equal(jobs->selected, 1);
	top_pane_scroll(jobs, 3);
	assert_int_equal(jobs->first, 1);
	/* Where an item has no room, its lines scroll. */
	top_pane_scroll(jobs, 2);
	top_view_key(&view, 'j');
	top_view_key(&view, 'j');
	assert_int_equal(jobs->selected, 3);
	top_view_update(&view, m);
	assert_int_equal(jobs->selected, 3);
	top_view_key(&view, TOP_KEY_HOME);
	assert_int_equal(jobs->selected, 0);
	top_view_widen(&view, 250);
	assert_int_equal(jobs->count, 2);
	top_view_free(&view);
	top_model_free(m);
}

static void test_cells(void **state)
{
	struct top_model *m = model_make(false);
	struct cell cell;

	assert_cell(m, TOP_GPUS, 0, "USED", "8Gi/80Gi");
	assert_cell(m, TOP_GPUS, 0, "BUSY", "37%");
	assert_cell(m, TOP_GPUS, 0, "PROMISED", "40Gi");
	assert_cell(m, TOP_GPUS, 1, "USED", "-/40Gi");
	assert_cell(m, TOP_GPUS, 1, "BUSY", "-");
	assert_cell(m, TOP_GPUS, 1, "MODE", "mig");
	assert_cell(m, TOP_GPUS, 0, "STATE", "ok");
	assert_cell(m, TOP_GPUS, 1, "STATE", "held by another daemon (process 12 of eve)");
	top_cell(m, TOP_GPUS, 0, (size_t)column_named(TOP_GPUS, "USED"), &cell);
	assert_true(cell.bar > 0.099 && cell.bar < 0.101);
	assert_true(cell.bar_light > 0.549 && cell.bar_light < 0.551);
	assert_cell(m, TOP_SESSIONS, 0, "SESSION", "s-aaaaaa");
	assert_cell(m, TOP_SESSIONS, 0, "SIZE", "8Gi");
	assert_cell(m, TOP_SESSIONS, 0, "USED", "1Gi");
	assert_cell(m, TOP_SESSIONS, 0, "PEAK", "2Gi");
	assert_cell(m, TOP_SESSIONS, 0, "GPU", "0,3");
	assert_cell(m, TOP_SESSIONS, 0, "REQ", "25%");
	assert_cell(m, TOP_SESSIONS, 0, "GOT", "-");
	assert_cell(m, TOP_SESSIONS, 0, "PROCS", "2");
	assert_cell(m, TOP_SESSIONS, 0, "AGE", "1m05s");
	/* Another user's: its size, and nothing else. */
	assert_cell(m, TOP_SESSIONS, 1, "SIZE", "8Gi");
	assert_cell(m, TOP_SESSIONS, 1, "SESSION", "-");
	assert_cell(m, TOP_SESSIONS, 1, "OWNER", "-");
	assert_cell(m, TOP_SESSIONS, 1, "USED", "-");
	assert_cell(m, TOP_SESSIONS, 1, "AGE", "-");
	assert_cell(m, TOP_SESSIONS, 1, "PROCS", "-");
	assert_cell(m, TOP_WAITING, 0, "LINE", "1");
	assert_cell(m, TOP_WAITING, 0, "SINCE", "5s");
	assert_cell(m, TOP_WAITING, 0, "WAITS FOR", "no room");
	top_model_free(m);
}

static void test_users_are_summed_against_quotas(void **state)
{
	struct top_model *m = model_make(false);

	assert_int_equal(top_list_size(m, TOP_USERS), 4);
	assert_cell(m, TOP_USERS, 0, "USER", "alice");
	assert_cell(m, TOP_USERS, 0, "SESSIONS", "1");
	assert_cell(m, TOP_USERS, 0, "WAITING", "1");
	assert_cell(m, TOP_USERS, 0, "GPUS", "2/2");
	assert_cell(m, TOP_USERS, 0, "PROMISED", "8Gi/16Gi");
	assert_cell(m, TOP_USERS, 1, "USER", "(others)");
	assert_cell(m, TOP_USERS, 2, "USED", "1Gi");
	assert_cell(m, TOP_USERS, 2, "PROMISED", "1Gi");
	assert_cell(m, TOP_USERS, 3, "KIND", "group");
	assert_cell(m, TOP_USERS, 3, "SESSIONS", "3/9");
	assert_cell(m, TOP_USERS, 3, "USED", "-");
	top_model_free(m);
}

static void test_a_user_whose_name_changes_meanwhile_has_one_row(void **state)
{
	/* Removed between the two answers; another user has the number for a name. */
	struct top_answers answers = {
		.sessions = parse("[{'id': 's-aaaaaa', 'state': 'active', 'owner': 'anna',"
				  "  'uid': 2005, 'vram_bytes': 1, 'gpus': []},"
				  " {'id': 's-bbbbbb', 'state': 'waiting', 'owner': 'anna',"
				  "  'uid': 2005, 'gpus': []}]"),
		.quotas = parse("[{'kind': 'user', 'name': '2005', 'id': 2005, 'sessions': 3,"
				"  'used': {'sessions': 1}},"
				" {'kind': 'user', 'name': 'anna', 'id': 7, 'sessions': 1},"
				" {'kind': 'group', 'name': '2005', 'id': 2005, 'sessions': 9}]"),
	};
	struct top_model *m = top_model_read(&answers, 0);

	assert_int_equal(top_list_size(m, TOP_USERS), 3);
	assert_cell(m, TOP_USERS, 0, "USER", "2005");
	assert_cell(m, TOP_USERS, 0, "SESSIONS", "1/3");
	assert_cell(m, TOP_USERS, 0, "WAITING", "1");
	assert_cell(m, TOP_USERS, 1, "USER", "anna");
	top_model_free(m);
	top_answers_free(&answers);
}

static void test_leases_are_merged(void **state)
{
	struct top_model *m = model_make(true);

	assert_true(m->leases);
	assert_cell(m, TOP_SESSIONS, 0, "REQ", "50%");
	assert_cell(m, TOP_SESSIONS, 0, "GOT", "30%"); /* the smaller of two GPUs' */
	assert_cell(m, TOP_SESSIONS, 0, "LEASES", "15");
	assert_cell(m, TOP_SESSIONS, 0, "WAITED", "3.00s");
	assert_cell(m, TOP_SESSIONS, 0, "OVERRUN", "0.00s");
	assert_cell(m, TOP_SESSIONS, 2, "GOT", "-");
	assert_cell(m, TOP_GPUS, 0, "MODE", "fair");
	top_model_free(m);
}

static void test_answers_of_other_types_are_survived(void **state)
{
	static const char *const odd[] = {"{}",
					  "[]",
					  "null",
					  "[1, 'x', [], {}]",
					  "[{'gpus': 4, 'id': 5, 'pids': {}, 'state': []}]",
					  "[{'gpus': [1, {'index': -1}], 'created': 'x'}]",
					  "[{'sessions': [3, {}], 'used': 7, 'name': {}}]"};

	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		struct top_answers answers = {parse(odd[i]), parse(odd[i]), parse(odd[i]),
					      parse(odd[i]), parse(odd[i]), parse(odd[i]),
					      parse(odd[i])};
		struct top_model *m = top_model_read(&answers, NOW);
		struct top_view view;

		top_view_init(&view, 1);
		top_view_update(&view, m);
		for (int list = 0; list < TOP_LISTS; list++)
			for (size_t c = 0, n; top_columns((enum top_list)list, &n) && c < n; c++)
				for (size_t r = 0; r < top_list_size(m, (enum top_list)list); r++) {
					struct cell cell;

					top_cell(m, (enum top_list)list, r, c, &cell);
				}
		json_decref(top_model_json(m, &answers));
		top_view_free(&view);
		top_model_free(m);
		top_answers_free(&answers);
	}
}

static void test_bytes_and_seconds(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} sizes[] = {{0, "0"},
		     {1, "1B"},
		     {1023, "1023B"},
		     {1024, "1Ki"},
		     {1536, "1.5Ki"},
		     {1048575, "1Mi"},
		     {MIB(512), "512Mi"},
		     {GIB(80), "80Gi"},
		     {GIB(80) - MIB(400), "79.7Gi"},
		     {GIB(1024), "1Ti"},
		     {COLUMN_NONE, "-"},
		     {COLUMN_NONE - 1, "16Ei"}};
	static const struct {
		int64_t seconds;
		const char *text;
	} times[] = {{-5, "0s"},      {59, "59s"},      {60, "1m00s"},
		     {3661, "1h01m"}, {90000, "1d01h"}, {INT64_MAX, "999d00h"}};
	char buf[COLUMN_SHORT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		assert_string_equal(column_bytes_text(sizes[i].bytes, buf), sizes[i].text);
	assert_string_equal(column_room_text(GIB(80) - MIB(400), buf), "79.6Gi");
	assert_string_equal(column_room_text(1048575, buf), "1023Ki");
	assert_string_equal(column_room_text(GIB(100) - 1, buf), "99.9Gi");
	assert_string_equal(column_bytes_text(GIB(100) - 1, buf), "100Gi");
	assert_string_equal(column_average_text(GIB(8) + MIB(3), buf), "8Gi");
	assert_string_equal(column_average_text(GIB(8) - 1, buf), "8Gi");
	assert_string_equal(column_average_text(GIB(8) + MIB(60), buf), "8.1Gi");
	assert_string_equal(column_room_text(0, buf), "0");
	assert_string_equal(column_room_text(COLUMN_NONE, buf), "-");
	for (size_t i = 0; i < ARRAY_SIZE(times); i++)
		assert_string_equal(column_seconds_text(times[i].seconds, buf), times[i].text);
}

/* The column that is sorted by has a mark behind its title. */
static void test_titles_fit(void **state)
{
	for (enum top_list list = 0; list < TOP_LISTS; list++) {
		size_t count;
		const struct column *columns = top_columns(list, &count);

		for (size_t i = 0; i < count; i++)
			assert_true(columns[i].width > (int)strlen(columns[i].title));
	}
}

/* ---- rows -------------------------------------------------------------------------------- */

static bool all_unfolded(void *context, const char *key)
{
	return true;
}

/* The sessions in their order, as the third letter of their IDs; processes as '.'. */
static void assert_sessions(const struct top_model *m, const struct top_order *order,
			    const char *letters)
{
	char found[64] = "";
	size_t count;
	struct top_row *rows = top_rows(m, TOP_SESSIONS, order, &count);

	for (size_t i = 0; i < count; i++) {
		const char *id =
			json_text(json_array_get(m->list[TOP_SESSIONS], rows[i].item), "id");

		found[i] = rows[i].process >= 0 ? '.' : *id ? id[2] : '-';
	}
	assert_string_equal(found, letters);
	free(rows);
}

static void test_sorting_and_filtering(void **state)
{
	struct top_model *m = model_make(false);
	struct top_order order = {.column = -1, .filter = ""};

	assert_sessions(m, &order, "a-b");
	order.column = column_named(TOP_SESSIONS, "SIZE");
	assert_sessions(m, &order, "ba-"); /* equal ones stay in order */
	order.reverse = true;
	assert_sessions(m, &order, "a-b");
	order.column = column_named(TOP_SESSIONS, "OWNER");
	assert_sessions(m, &order, "ba-");
	order.column = column_named(TOP_SESSIONS, "AGE");
	assert_sessions(m, &order, "ba-");
	order.filter = "TRAIN";
	assert_sessions(m, &order, "a");
	order.filter = "8g";
	assert_sessions(m, &order, "a-");
	order.filter = "nothing";
	assert_sessions(m, &order, "");
	order.filter = "";
	order.unfolded = all_unfolded;
	assert_sessions(m, &order, "ba..-");
	top_model_free(m);
}

/* ---- keys -------------------------------------------------------------------------------- */

static void keys(struct top_view *view, const char *text)
{
	for (; *text; text++)
		assert_int_equal(top_view_key(view, *text), TOP_NOTHING);
}

static const char *selected(const struct top_view *view)
{
	return view->pane[view->focus].key;
}

static void test_selection_follows_its_session(void **state)
{
	struct top_model *m = model_make(false), *next = model_make(false);
	struct top_view view;

	top_view_init(&view, 1000000000);
	assert_int_equal(top_view_key(&view, 'j'), TOP_NOTHING); /* before any answer */
	assert_int_equal(top_view_key(&view, 'x'), TOP_NOTHING);
	keys(&view, "><");
	top_view_update(&view, m);
	assert_string_equal(selected(&view), "s-aaaaaa");
	keys(&view, "jjjjj");
	assert_string_equal(selected(&view), "s-bbbbbb");
	/* One that was before it ends. */
	json_array_remove(next->list[TOP_SESSIONS], 1);
	top_view_update(&view, next);
	assert_string_equal(selected(&view), "s-bbbbbb");
	assert_int_equal(view.pane[TOP_SESSIONS].selected, 1);
	keys(&view, "g");
	assert_string_equal(selected(&view), "s-aaaaaa");
	top_view_key(&view, TOP_KEY_END);
	assert_string_equal(selected(&view), "s-bbbbbb");
	top_view_free(&view);
	top_model_free(m);
	top_model_free(next);
}

static void test_keys_sort_filter_and_fold(void **state)
{
	struct top_model *m = model_make(false);
	struct top_view view;
	char prompt[256];

	top_view_init(&view, 1000000000);
	top_view_update(&view, m);
	keys(&view, ">>>>>");
	assert_int_equal(view.pane[TOP_SESSIONS].column, column_named(TOP_SESSIONS, "SIZE"));
	assert_true(view.pane[TOP_SESSIONS].reverse);
	keys(&view, "<<<<<");
	assert_int_equal(view.pane[TOP_SESSIONS].column, -1);
	keys(&view, "<"); /* round the end; columns of leases are not there */
	assert_int_equal(view.pane[TOP_SESSIONS].column, column_named(TOP_SESSIONS, "NAME"));
	keys(&view, ">/bob");
	top_view_prompt(&view, prompt, sizeof(prompt));
	assert_string_equal(prompt, "Filter: bob_");
	assert_int_equal(view.pane[TOP_SESSIONS].count, 1);
	assert_string_equal(selected(&view), "s-bbbbbb");
	top_view_key(&view, TOP_KEY_BACKSPACE);
	top_view_key(&view, 0xe9); /* e with an acute accent */
	assert_string_equal(view.filter, "bo\xc3\xa9");
	top_view_key(&view, TOP_KEY_BACKSPACE);
	assert_string_equal(view.filter, "bo");
	top_view_key(&view, 0x1f600);
	assert_string_equal(view.filter, "bo\xf0\x9f\x98\x80");
	top_view_key(&view, TOP_KEY_ESCAPE); /* as it was before */
	assert_string_equal(view.filter, "");
	keys(&view, "/alice");
	top_view_key(&view, TOP_KEY_ENTER);
	assert_int_equal(view.mode, TOP_LOOKING);
	assert_int_equal(view.pane[TOP_SESSIONS].count, 1);
	keys(&view, "t");
	assert_int_equal(view.pane[TOP_SESSIONS].count, 3);
	keys(&view, " ");
	assert_int_equal(view.pane[TOP_SESSIONS].count, 1);
	top_view_key(&view, TOP_KEY_ESCAPE);
	assert_int_equal(view.pane[TOP_SESSIONS].count, 3);
	for (int i = 0; i < 100; i++)
		keys(&view, "/");
	assert_true(strlen(view.filter) < TOP_FILTER_SIZE);
	top_view_free(&view);
	top_model_free(m);
}

static void test_releasing_asks_first(void **state)
{
	struct top_model *m = model_make(false);
	struct top_view view;
	char prompt[256];

	top_view_init(&view, 1000000000);
	top_view_update(&view, m);
	keys(&view, "x");
	top_view_prompt(&view, prompt, sizeof(prompt));
	assert_non_null(strstr(prompt, "Release s-aaaaaa, with 2 processes inside?"));
	assert_int_equal(top_view_key(&view, TOP_KEY_ENTER), TOP_NOTHING);
	assert_string_equal(view.message, "not released");
	keys(&view, "x");
	assert_int_equal(top_view_key(&view, 'y'), TOP_RELEASE);
	assert_string_equal(view.asked, "s-aaaaaa");
	keys(&view, "x");
	assert_int_equal(top_view_key(&view, 'f'), TOP_RELEASE_FORCE);
	keys(&view, "jx"); /* another user's */
	assert_int_equal(view.mode, TOP_LOOKING);
	assert_true(view.message_bad);
	keys(&view, "3x"); /* one that waits */
	assert_string_equal(view.asked, "s-cccccc");
	keys(&view, "n1x");
	assert_int_equal(view.mode, TOP_LOOKING);
	assert_non_null(strstr(view.message, "select a session"));
	assert_int_equal(top_view_key(&view, 'q'), TOP_QUIT);
	top_view_free(&view);
	top_model_free(m);
}

static void test_interval_and_focus(void **state)
{
	struct top_model *m = model_make(false);
	struct top_view view;

	top_view_init(&view, 2500000000);
	top_view_update(&view, m);
	keys(&view, "+");
	assert_int_equal(view.interval_ns, 3000000000);
	keys(&view, "--");
	assert_int_equal(view.interval_ns, 1000000000);
	for (int i = 0; i < 30; i++)
		keys(&view, "-");
	assert_int_equal(view.interval_ns, TOP_INTERVAL_MIN_NS);
	for (int i = 0; i < 30; i++)
		keys(&view, "+");
	assert_int_equal(view.interval_ns, TOP_INTERVAL_MAX_NS);
	json_array_clear(m->list[TOP_WAITING]);
	top_view_update(&view, m);
	keys(&view, "3"); /* nobody waits: not shown */
	assert_int_equal(view.focus, TOP_SESSIONS);
	top_view_key(&view, TOP_KEY_TAB);
	assert_int_equal(view.focus, TOP_QUEUES);
	top_view_key(&view, TOP_KEY_TAB);
	assert_int_equal(view.focus, TOP_JOBS);
	keys(&view, "6");
	assert_int_equal(view.focus, TOP_USERS);
	top_view_key(&view, TOP_KEY_TAB);
	top_view_key(&view, TOP_KEY_BACKTAB);
	assert_int_equal(view.focus, TOP_USERS);
	json_array_clear(m->list[TOP_USERS]);
	top_view_update(&view, m);
	assert_int_equal(view.focus, TOP_SESSIONS);
	keys(&view, "h");
	assert_int_equal(view.mode, TOP_HELPING);
	keys(&view, "x");
	assert_int_equal(view.mode, TOP_LOOKING);
	top_view_free(&view);
	top_model_free(m);
}

/* ---- room -------------------------------------------------------------------------------- */

static void test_lists_share_any_screen(void **state)
{
	static const size_t counts[] = {0, 3, 500};
	struct top_place places[TOP_LISTS];

	for (size_t n = 0; n < 3 * 3 * 3 * 3 * 3 * 3; n++)
		for (int lines = -1; lines < 80; lines++) {
			struct top_view view;
			bool used[100] = {false};

			top_view_init(&view, 1);
			view.focus = (enum top_list)(n % TOP_LISTS);
			for (size_t i = 0, rest = n; i < TOP_LISTS; i++, rest /= 3)
				view.pane[i].count = counts[rest % 3];
			top_view_layout(&view, 1, 1 + lines, places);
			for (int i = 0; i < TOP_LISTS; i++)
				for (int y = 0; y <= places[i].height; y++) {
					assert_in_range(places[i].y + y, 1, lines);
					assert_false(used[places[i].y + y]);
					used[places[i].y + y] = true;
				}
			if (lines > 0 && lines < 10)
				assert_true(places[view.focus].height >= 0);
			if (lines > 14)
				assert_true(places[TOP_SESSIONS].height >= 1);
			for (int i = 0; i < TOP_LISTS && lines > 14; i++)
				assert_true(!view.pane[i].count || places[i].height >= 1);
		}
}

static void test_scrolling_keeps_the_selected_row_in_sight(void **state)
{
	struct top_pane pane = {.count = 500};

	for (int height = 0; height < 40; height++)
		for (size_t selected = 0; selected < 500; selected += 7) {
			pane.selected = selected;
			top_pane_scroll(&pane, height);
			assert_true(pane.first <= selected);
			assert_true(selected < pane.first + (size_t)MAX(height, 1));
			assert_true(pane.first + (size_t)MAX(height, 1) <= 500);
		}
	pane = (struct top_pane){.count = 2, .first = 9};
	top_pane_scroll(&pane, 10);
	assert_int_equal(pane.first, 0);
}

static void test_columns_fit_any_width(void **state)
{
	int widths[TOP_COLUMNS_MAX];
	struct top_model *models[] = {model_make(false), model_make(true)};

	for (int list = 0; list < TOP_LISTS; list++)
		for (int width = 0; width < 300; width++) {
			size_t count;
			int total = 0;
			bool rest = false;
			const struct column *columns = top_columns((enum top_list)list, &count);

			top_columns_fit(models[width % 2], (enum top_list)list, width, widths);
			for (size_t c = 0; c < count; c++) {
				total += widths[c] ? widths[c] + 1 : 0;
				rest |= widths[c] && columns[c].rank;
				assert_true(columns[c].rank || widths[c] > 0);
			}
			assert_true(total - 1 <= width || !rest);
		}
	top_model_free(models[0]);
	top_model_free(models[1]);
}

static void assert_lines(const char *text, int width, const char *const *lines)
{
	char buf[64];

	for (; top_text_line(&text, width, buf, sizeof(buf)); lines++)
		assert_string_equal(buf, *lines ? *lines : "(no more)");
	assert_null(*lines);
}

static void test_text_wraps(void **state)
{
	assert_lines("", 5, (const char *[]){NULL});
	assert_lines("   ", 5, (const char *[]){NULL});
	assert_lines("abc def", 20, (const char *[]){"abc def", NULL});
	assert_lines("abc def", 3, (const char *[]){"abc", "def", NULL});
	assert_lines("abc   defg h ", 5, (const char *[]){"abc", "defg", "h", NULL});
	assert_lines("abcdefgh ij", 4, (const char *[]){"abcd", "efgh", "ij", NULL});
	assert_lines("ab", 0, (const char *[]){"a", "b", NULL});
}

static void test_text_fits(void **state)
{
	char buf[64];

	assert_string_equal(top_text_fit("abc", 5, false, buf, sizeof(buf)), "abc  ");
	assert_string_equal(top_text_fit("abc", 5, true, buf, sizeof(buf)), "  abc");
	assert_string_equal(top_text_fit("abcdef", 4, true, buf, sizeof(buf)), "abc~");
	assert_string_equal(top_text_fit("a\x1b[2Jb\n", 8, false, buf, sizeof(buf)), "a?[2Jb? ");
	assert_string_equal(top_text_fit("", 0, false, buf, sizeof(buf)), "");
	assert_string_equal(top_text_fit("x", 20, true, buf, 5), "    ");
	if (!setlocale(LC_CTYPE, "C.UTF-8")) {
		print_message("# not tried further: there is no C.UTF-8 here\n");
		return;
	}
	assert_string_equal(top_text_fit("\xc3\xa9\xe6\xbc\xa2z", 5, false, buf, sizeof(buf)),
			    "\xc3\xa9\xe6\xbc\xa2z ");
	assert_string_equal(top_text_fit("\xe6\xbc\xa2\xe6\xbc\xa2", 3, false, buf, sizeof(buf)),
			    "\xe6\xbc\xa2~");
	assert_string_equal(top_text_fit("\xff\xc2\x9b", 4, false, buf, sizeof(buf)), "??  ");
	assert_string_equal(top_text_fit("e\xcc\x81\xcc\x81x", 3, false, buf, sizeof(buf)), "ex ");
	assert_int_equal(top_text_width("\xe6\xbc\xa2"), 2);
	setlocale(LC_CTYPE, "C");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cells),
		cmocka_unit_test(test_states_say_since_when),
		cmocka_unit_test(test_gpus_fit_into_80_columns),
		cmocka_unit_test(test_queues_and_jobs),
		cmocka_unit_test(test_names_and_reasons_are_uncut_at_any_width),
		cmocka_unit_test(test_lines_below_are_rows_of_their_item),
		cmocka_unit_test(test_users_are_summed_against_quotas),
		cmocka_unit_test(test_a_user_whose_name_changes_meanwhile_has_one_row),
		cmocka_unit_test(test_leases_are_merged),
		cmocka_unit_test(test_answers_of_other_types_are_survived),
		cmocka_unit_test(test_bytes_and_seconds),
		cmocka_unit_test(test_titles_fit),
		cmocka_unit_test(test_sorting_and_filtering),
		cmocka_unit_test(test_selection_follows_its_session),
		cmocka_unit_test(test_keys_sort_filter_and_fold),
		cmocka_unit_test(test_releasing_asks_first),
		cmocka_unit_test(test_interval_and_focus),
		cmocka_unit_test(test_lists_share_any_screen),
		cmocka_unit_test(test_scrolling_keeps_the_selected_row_in_sight),
		cmocka_unit_test(test_columns_fit_any_width),
		cmocka_unit_test(test_text_fits),
		cmocka_unit_test(test_text_wraps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
