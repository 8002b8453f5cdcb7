#include "cli/top/top_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/macros.h"
#include "cli/moment.h"
#include "cli/top/top_text.h"
#include "client/gpu_holder.h"
#include "client/sessions.h"

/* Ranks of columns are below it. */
#define COLUMN_RANKS 11

/* ---- columns ----------------------------------------------------------------------------- */

static void busy_fill(const json_t *gpu, int64_t now, struct cell *cell)
{
	uint64_t percent = column_number(gpu, "utilization");

	if (percent > 100)
		return;
	cell->number = cell->bar = (double)percent / 100;
	column_print(cell, "%" PRIu64 "%%", percent);
}

static void gpu_used_fill(const json_t *gpu, int64_t now, struct cell *cell)
{
	column_bar(cell, column_number(gpu, "used_bytes"), column_number(gpu, "shown.claimed"),
		   column_number(gpu, "memory_bytes"));
}

/* "ok"; "lost since 14:03"; "drained: fan is loud"; of a GPU that another daemon has, whose it is.
 */
static void gpu_state_fill(const json_t *gpu, int64_t now, struct cell *cell)
{
	static const char *const dated[] = {"lost", "failing", "draining"};
	const json_t *holder = json_object_get(gpu, "held_by");
	const char *state = json_text(gpu, "state");
	const char *reason = json_text(json_object_get(gpu, "drain"), "reason");
	char since[MOMENT_SIZE], held[GPU_HOLDER_SIZE];

	if (json_is_object(holder))
		column_print(cell, "%s", gpu_holder_text(holder, held));
	moment_text(moment_parse(json_text(gpu, "state_since")), now, since);
	for (size_t i = 0; i < ARRAY_SIZE(dated) && *since; i++)
		if (!strcmp(state, dated[i]))
			column_print(cell, "%s since %s", state, since);
	if (*reason && !strncmp(state, "drain", strlen("drain")))
		column_print(cell, "%s: %s", state, reason);
}

static void session_used_fill(const json_t *session, int64_t now, struct cell *cell)
{
	uint64_t over = column_number(session, "over_bytes");
	uint64_t used = column_number(session, "gpus.used_bytes");

	if (over && over != COLUMN_NONE)
		strncat(cell->text, "!", sizeof(cell->text) - strlen(cell->text) - 1);
	if (used != COLUMN_NONE)
		column_bar(cell, used, column_number(session, "gpus.peak_bytes"),
			   column_number(session, "shown.size"));
}

static void name_fill(const json_t *session, int64_t now, struct cell *cell)
{
	column_print(cell, "%s", session_name_text(session));
}

/* The size that a job was granted on its GPUs together, or else the size that it waits for. */
static void job_size_fill(const json_t *job, int64_t now, struct cell *cell)
{
	const json_t *granted = json_object_get(job, "granted_bytes"), *bytes;
	char text[COLUMN_SHORT_SIZE];
	json_int_t all = 0;
	size_t i;

	json_array_foreach(granted, i, bytes) all += MAX(json_integer_value(bytes), 0);
	if (all)
		column_print(cell, "%s", column_bytes_text((uint64_t)all, text));
}

static void job_gpus_fill(const json_t *job, int64_t now, struct cell *cell)
{
	const json_t *gpu;
	size_t i, used = 0;

	json_array_foreach(json_object_get(job, "gpus"), i, gpu)
	{
		if (used < sizeof(cell->text))
			used += (size_t)snprintf(cell->text + used, sizeof(cell->text) - used,
						 "%s%d", i ? "," : "",
						 (int)json_integer_value(gpu));
	}
}

/* Columns get room by their ranks. At 80 columns the first two lists still have names. */
static const struct column gpu_columns[] = {
	{"GPU", "index", FORMAT_COUNT, .width = 4, .right = true},
	{"NAME", "name", FORMAT_TEXT, .width = 12, .rank = 3, .uncut = true},
	{"USED", "used_bytes", FORMAT_PART, "memory_bytes", gpu_used_fill, 13, .flexible = true},
	{"PROMISED", "promised_bytes", FORMAT_BYTES, .width = 9, .right = true, .rank = 1},
	{"OUTSIDE", "outside_bytes", FORMAT_BYTES, .width = 8, .right = true, .rank = 5},
	{"FREE", "available_bytes", FORMAT_ROOM, .width = 6, .right = true, .rank = 2},
	{"BUSY", NULL, FORMAT_SHARE, NULL, busy_fill, 5, .wide = 10, .rank = 2},
	{"SESSIONS", "sessions", FORMAT_COUNT, .width = 9, .right = true, .rank = 6},
	{"MODE", "shown.mode", FORMAT_TEXT, .width = 6, .rank = 7},
	/* "draining since 14:03" */
	{"STATE", "state", FORMAT_KNOWN, NULL, gpu_state_fill, 6, .rank = 4, .uncut = true},
};

static const struct column session_columns[] = {
	{"SESSION", "id", FORMAT_KNOWN, .width = 9, .uncut = true},
	{"OWNER", "owner", FORMAT_KNOWN, .width = 8, .rank = 1, .uncut = true},
	{"STATE", "state", FORMAT_TEXT, .width = 7, .rank = 6},
	{"GPU", "shown.gpus", FORMAT_TEXT, .width = 4, .rank = 2, .uncut = true},
	{"SIZE", "shown.size", FORMAT_BYTES, .width = 6, .right = true},
	{"USED", "gpus.used_bytes", FORMAT_BYTES, NULL, session_used_fill, 20, .flexible = true},
	{"PEAK", "gpus.peak_bytes", FORMAT_BYTES, .width = 6, .right = true, .rank = 5},
	{"REQ", "shown.request", FORMAT_SHARE, .width = 5, .right = true, .rank = 7},
	{"LIM", "shown.limit", FORMAT_SHARE, .width = 5, .right = true, .rank = 8},
	{"GOT", "shown.received", FORMAT_SHARE, .width = 5, .right = true, .leases = true,
	 .rank = 5},
	{"LEASES", "leases", FORMAT_COUNT, .width = 7, .right = true, .leases = true, .rank = 9},
	{"WAITED", "waited_ns", FORMAT_DURATION, .width = 7, .right = true, .leases = true,
	 .rank = 9},
	{"OVERRUN", "overrun_ns", FORMAT_DURATION, .width = 8, .right = true, .leases = true,
	 .rank = 9},
	{"PROCS", "pids", FORMAT_COUNT, .width = 6, .right = true, .rank = 4},
	{"AGE", "created", FORMAT_AGE, .width = 6, .right = true, .rank = 5},
	{"IDLE", "idle_since", FORMAT_AGE, .width = 6, .right = true, .rank = 10},
	{"NAME", "name", FORMAT_TEXT, NULL, name_fill, 8, .rank = 3, .uncut = true},
};

static const struct column waiting_columns[] = {
	{"LINE", "position", FORMAT_COUNT, .width = 5, .right = true},
	{"SESSION", "id", FORMAT_KNOWN, .width = 9, .uncut = true},
	{"OWNER", "owner", FORMAT_KNOWN, .width = 8, .rank = 2, .uncut = true},
	{"ASKED", "asked", FORMAT_TEXT, .width = 8, .rank = 1, .uncut = true},
	{"SINCE", "created", FORMAT_AGE, .width = 6, .right = true, .rank = 1},
	{"NAME", "name", FORMAT_TEXT, NULL, name_fill, 8, .rank = 3, .uncut = true},
	{"WAITS FOR", "reason", FORMAT_TEXT, .width = 10, .rank = 4, .flexible = true,
	 .uncut = true},
};

static const struct column queue_columns[] = {
	{"QUEUE", "name", FORMAT_TEXT, .width = 12, .uncut = true},
	{"SIZE", "size", FORMAT_KNOWN, .width = 8, .rank = 2, .uncut = true},
	{"WAITING", "waiting", FORMAT_COUNT, .width = 8, .right = true},
	{"RUNNING", "running", FORMAT_COUNT, .width = 8, .right = true},
	{"AGENT", "agent", FORMAT_KNOWN, .width = 8, .rank = 3, .uncut = true},
	{"REASON", "reason", FORMAT_TEXT, .width = 10, .rank = 4, .flexible = true, .uncut = true},
};

static const struct column job_columns[] = {
	{"JOB", "id", FORMAT_KNOWN, .width = 7, .uncut = true},
	{"NAME", "name", FORMAT_TEXT, .width = 8, .rank = 2, .uncut = true},
	{"QUEUE", "queue", FORMAT_TEXT, .width = 8, .rank = 1, .uncut = true},
	{"USER", "user", FORMAT_KNOWN, .width = 8, .rank = 1, .uncut = true},
	{"STATE", "state", FORMAT_TEXT, .width = 8},
	{"SIZE", "size", FORMAT_KNOWN, NULL, job_size_fill, 7, .rank = 1, .uncut = true},
	{"GPU", NULL, FORMAT_TEXT, NULL, job_gpus_fill, 4, .rank = 1, .uncut = true},
	{"RAN", "started", FORMAT_AGE, .width = 6, .right = true, .rank = 1},
	{"SESSION", "session", FORMAT_KNOWN, .width = 9, .rank = 5},
	{"REASON", "reason", FORMAT_TEXT, .width = 10, .rank = 4, .flexible = true, .uncut = true},
};

static const struct column user_columns[] = {
	{"USER", "name", FORMAT_TEXT, .width = 14, .uncut = true},
	{"KIND", "kind", FORMAT_TEXT, .width = 5, .rank = 4},
	{"SESSIONS", "sessions", FORMAT_LIMITED, "quota.sessions", .width = 9, .right = true,
	 .rank = 1},
	{"WAITING", "shown.waiting", FORMAT_COUNT, .width = 8, .right = true, .rank = 3},
	{"GPUS", "gpus", FORMAT_LIMITED, "quota.gpus", .width = 6, .right = true, .rank = 2},
	{"USED", "used_bytes", FORMAT_BYTES, .width = 6, .right = true, .rank = 2},
	{"PROMISED", "vram_bytes", FORMAT_PART, "quota.vram_bytes", .width = 20, .flexible = true},
};

static const struct {
	const char *title;
	const struct column *columns;
	size_t count;
} lists[TOP_LISTS] = {
	[TOP_GPUS] = {"GPUs", gpu_columns, ARRAY_SIZE(gpu_columns)},
	[TOP_SESSIONS] = {"Sessions", session_columns, ARRAY_SIZE(session_columns)},
	[TOP_WAITING] = {"Waiting", waiting_columns, ARRAY_SIZE(waiting_columns)},
	[TOP_QUEUES] = {"Queues", queue_columns, ARRAY_SIZE(queue_columns)},
	[TOP_JOBS] = {"Jobs", job_columns, ARRAY_SIZE(job_columns)},
	[TOP_USERS] = {"Users", user_columns, ARRAY_SIZE(user_columns)},
};

_Static_assert(ARRAY_SIZE(session_columns) <= TOP_COLUMNS_MAX, "the longest list fits");

const char *top_list_title(enum top_list list)
{
	return lists[list].title;
}

const struct column *top_columns(enum top_list list, size_t *ret_count)
{
	*ret_count = lists[list].count;
	return lists[list].columns;
}

size_t top_list_size(const struct top_model *model, enum top_list list)
{
	return json_array_size(model->list[list]);
}

void top_cell(const struct top_model *model, enum top_list list, size_t item, size_t column,
	      struct cell *ret)
{
	column_cell(&lists[list].columns[column], json_array_get(model->list[list], item),
		    model->now, ret);
}

const char *top_item_key(const struct top_model *model, enum top_list list, size_t item,
			 char buf[static TOP_KEY_SIZE])
{
	const json_t *row = json_array_get(model->list[list], item);
	const char *id = json_text(row, "id");

	if (list == TOP_GPUS)
		snprintf(buf, TOP_KEY_SIZE, "gpu %" PRIu64, column_number(row, "index"));
	else if (list == TOP_QUEUES)
		snprintf(buf, TOP_KEY_SIZE, "queue %s", json_text(row, "name"));
	else if (list == TOP_USERS)
		snprintf(buf, TOP_KEY_SIZE, "%s %s", json_text(row, "kind"),
			 json_text(row, "name"));
	else if (*id)
		snprintf(buf, TOP_KEY_SIZE, "%s", id);
	else /* another user's: nothing but its place names it */
		snprintf(buf, TOP_KEY_SIZE, "%s %zu", top_list_title(list), item);
	return buf;
}

/* ---- widths ------------------------------------------------------------------------------ */

static int longest_text(const struct top_model *model, enum top_list list, size_t column)
{
	struct cell cell;
	int most = 0;

	for (size_t i = 0; i < top_list_size(model, list); i++) {
		top_cell(model, list, i, column, &cell);
		most = MAX(most, top_text_width(cell.text));
	}
	return most;
}

/* The columns of a list while they get their widths. */
struct fitting {
	const struct column *columns;
	size_t count;
	int most[TOP_COLUMNS_MAX]; /* at which nothing of a column is cut; 0: it is not there */
	int *width;                /* 0: a column is not shown */
	int left;                  /* room that nobody has; < 0: it is missing */
};

static bool width_set(struct fitting *f, size_t column, int width, bool forced)
{
	int left = f->left + (f->width[column] ? f->width[column] + 1 : 0) - (width + 1);

	if (left < 0 && !forced)
		return false;
	f->width[column] = width;
	f->left = left;
	return true;
}

/* A name has all that it needs, or as little as it can do with: the rest of it stands below. A
 * reason has all that it needs, or no column. */
static void column_fit(struct fitting *f, size_t column)
{
	const struct column *c = &f->columns[column];
	int wanted = c->uncut ? f->most[column] : c->width;

	if (!width_set(f, column, wanted, false) && !f->width[column] && !(c->uncut && c->flexible))
		width_set(f, column, c->width, false);
}

/* The most that each column can do with. Columns of no rank have their width in any case. */
static void columns_measure(struct fitting *f, const struct top_model *model, enum top_list list)
{
	for (size_t c = 0; c < f->count; c++) {
		const struct column *column = &f->columns[c];
		int longest = column->uncut ? longest_text(model, list, c) : 0;

		if (!column->leases || model->leases)
			f->most[c] = MAX(MAX(column->width, column->wide), longest);
		if (!column->rank)
			width_set(f, c, column->width, true);
	}
}

/* Columns that can do with more get what is left, and then the one that takes any room. */
static void columns_widen(struct fitting *f)
{
	for (size_t c = 0; c < f->count; c++)
		if (f->width[c] && f->left > 0)
			width_set(f, c, MIN(f->most[c], f->width[c] + f->left), false);
	for (size_t c = 0; c < f->count; c++)
		if (f->width[c] && f->left > 0 && f->columns[c].flexible)
			width_set(f, c, f->width[c] + f->left, false);
}

void top_columns_fit(const struct top_model *model, enum top_list list, int screen,
		     int ret[static TOP_COLUMNS_MAX])
{
	struct fitting f = {lists[list].columns, lists[list].count, {0}, ret, screen + 1};

	memset(ret, 0, TOP_COLUMNS_MAX * sizeof(*ret));
	columns_measure(&f, model, list);
	for (int rank = 0; rank < COLUMN_RANKS; rank++)
		for (size_t c = 0; c < f.count; c++)
			if (f.columns[c].rank == rank && f.most[c])
				column_fit(&f, c);
	columns_widen(&f);
}

const char *top_below_text(const struct top_model *model, enum top_list list, size_t item,
			   const int widths[static TOP_COLUMNS_MAX],
			   char buf[static TOP_BELOW_SIZE])
{
	struct cell cell;
	size_t used = 0;

	buf[0] = '\0';
	for (size_t c = 0; c < lists[list].count && used < TOP_BELOW_SIZE; c++) {
		if (!lists[list].columns[c].uncut)
			continue;
		top_cell(model, list, item, c, &cell);
		if (*cell.text && strcmp(cell.text, "-") != 0 &&
		    top_text_width(cell.text) > widths[c])
			used += (size_t)snprintf(buf + used, TOP_BELOW_SIZE - used, "%s%s %s",
						 used ? "  " : "", lists[list].columns[c].title,
						 cell.text);
	}
	return buf;
}

/* ---- rows -------------------------------------------------------------------------------- */

static const json_t *processes_of(const struct top_model *model, enum top_list list, size_t item)
{
	return top_processes(json_array_get(model->list[list], item));
}

static bool matches(const struct top_model *model, enum top_list list, size_t item,
		    const char *filter)
{
	struct cell cell;
	size_t columns;

	if (!filter || !*filter || list == TOP_GPUS)
		return true;
	top_columns(list, &columns);
	for (size_t c = 0; c < columns; c++) {
		top_cell(model, list, item, c, &cell);
		if (strcasestr(cell.text, filter))
			return true;
	}
	return false;
}

struct sorted {
	size_t item;
	struct cell cell;
};

static int by_cell(const void *a, const void *b, void *context)
{
	const struct sorted *x = a, *y = b;
	bool reverse = *(const bool *)context;
	int order = x->cell.numeric
			    ? (x->cell.number > y->cell.number) - (x->cell.number < y->cell.number)
			    : strcasecmp(x->cell.text, y->cell.text);

	if (reverse)
		order = -order;
	return order ? order : (x->item > y->item) - (x->item < y->item);
}

static int lines_below(const struct top_model *model, enum top_list list, size_t item,
		       const struct top_order *order)
{
	char text[TOP_BELOW_SIZE], line[TOP_BELOW_SIZE];
	const char *rest = text;
	int lines = 0;

	if (!order->widths)
		return 0;
	top_below_text(model, list, item, order->widths, text);
	while (top_text_line(&rest, order->screen - TOP_INDENT, line, sizeof(line)))
		lines++;
	return lines;
}

/* Rows as they grow. */
struct rows {
	struct top_row *row;
	size_t count, room;
};

/* Without memory the row is left out. */
static void row_append(struct rows *rows, struct top_row row)
{
	if (rows->count == rows->room) {
		size_t room = 2 * rows->room + 16;
		struct top_row *more = reallocarray(rows->row, room, sizeof(*more));

		if (!more)
			return;
		rows->row = more;
		rows->room = room;
	}
	rows->row[rows->count++] = row;
}

/* An item, the lines of its long texts, and its processes where they are unfolded. */
static void item_append(const struct top_model *model, enum top_list list,
			const struct top_order *order, size_t place, size_t item, struct rows *rows)
{
	size_t processes = json_array_size(processes_of(model, list, item));
	struct top_row row = {.item = item, .place = place, .process = -1};
	char key[TOP_KEY_SIZE];

	row.lines = lines_below(model, list, item, order);
	for (; row.line <= row.lines; row.line++)
		row_append(rows, row);
	row.line = row.lines = 0;
	if (!processes || !order->unfolded ||
	    !order->unfolded(order->context, top_item_key(model, list, item, key)))
		return;
	for (size_t p = 0; p < processes; p++) {
		row.process = (int)p;
		row_append(rows, row);
	}
}

struct top_row *top_rows(const struct top_model *model, enum top_list list,
			 const struct top_order *order, size_t *ret_count)
{
	size_t size = top_list_size(model, list), count = 0;
	struct sorted *sorted = calloc(size + 1, sizeof(*sorted));
	struct rows rows = {0};

	*ret_count = 0;
	if (!sorted)
		return NULL;
	for (size_t i = 0; i < size; i++) {
		if (!matches(model, list, i, order->filter))
			continue;
		sorted[count].item = i;
		if (order->column >= 0)
			top_cell(model, list, i, (size_t)order->column, &sorted[count].cell);
		count++;
	}
	if (order->column >= 0)
		qsort_r(sorted, count, sizeof(*sorted), by_cell, (void *)&order->reverse);
	for (size_t i = 0; i < count; i++)
		item_append(model, list, order, i, sorted[i].item, &rows);
	free(sorted);
	*ret_count = rows.count;
	return rows.row;
}

void top_process_text(const struct top_model *model, enum top_list list, const struct top_row *row,
		      char buf[static CELL_SIZE])
{
	const json_t *all = processes_of(model, list, row->item);
	const json_t *process = json_array_get(all, (size_t)row->process);
	uint64_t bytes = column_number(process, "memory_bytes");
	const char *command = json_text(process, "command");
	char size[COLUMN_SHORT_SIZE] = "";

	if (bytes != COLUMN_NONE)
		column_bytes_text(bytes, size);
	snprintf(buf, CELL_SIZE, "%s %d  %s%s%s%s",
		 (size_t)row->process + 1 == json_array_size(all) ? "`-" : "|-",
		 (int)json_integer_value(json_object_get(process, "pid")), *command ? command : "?",
		 *size ? "  " : "", size,
		 list != TOP_GPUS ? ""
		 : json_is_true(json_object_get(process, "stray"))
			 ? "  (a session's, round carve's library)"
			 : "  (outside carve)");
}
