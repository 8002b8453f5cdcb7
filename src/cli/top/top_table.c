#include "cli/top/top_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/macros.h"
#include "cli/moment.h"
#include "client/gpu_holder.h"
#include "client/sessions.h"

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

/* Without the name, sessions and mode they fit into 80 columns. */
static const struct column gpu_columns[] = {
	{"GPU", "index", FORMAT_COUNT, .width = 4, .right = true},
	{"NAME", "name", FORMAT_TEXT, .width = 19, .rank = 4},
	{"USED", "used_bytes", FORMAT_PART, "memory_bytes", gpu_used_fill, 17, .flexible = true},
	{"PROMISED", "promised_bytes", FORMAT_BYTES, .width = 9, .right = true, .rank = 1},
	{"OUTSIDE", "outside_bytes", FORMAT_BYTES, .width = 8, .right = true, .rank = 3},
	{"FREE", "available_bytes", FORMAT_ROOM, .width = 6, .right = true, .rank = 2},
	{"BUSY", NULL, FORMAT_SHARE, NULL, busy_fill, 10, .rank = 2},
	{"SESSIONS", "sessions", FORMAT_COUNT, .width = 9, .right = true, .rank = 5},
	{"MODE", "shown.mode", FORMAT_TEXT, .width = 6, .rank = 6},
	/* "draining since 14:03" */
	{"STATE", "state", FORMAT_KNOWN, NULL, gpu_state_fill, 20},
};

static const struct column session_columns[] = {
	{"SESSION", "id", FORMAT_KNOWN, .width = 15},
	{"OWNER", "owner", FORMAT_KNOWN, .width = 10, .rank = 1},
	{"STATE", "state", FORMAT_TEXT, .width = 6, .rank = 6},
	{"GPU", "shown.gpus", FORMAT_TEXT, .width = 5, .rank = 2},
	{"SIZE", "shown.size", FORMAT_BYTES, .width = 6, .right = true},
	{"USED", "gpus.used_bytes", FORMAT_BYTES, NULL, session_used_fill, 20, .flexible = true},
	{"PEAK", "gpus.peak_bytes", FORMAT_BYTES, .width = 6, .right = true, .rank = 3},
	{"REQ", "shown.request", FORMAT_SHARE, .width = 5, .right = true, .rank = 5},
	{"LIM", "shown.limit", FORMAT_SHARE, .width = 5, .right = true, .rank = 6},
	{"GOT", "shown.received", FORMAT_SHARE, .width = 5, .right = true, .leases = true,
	 .rank = 4},
	{"LEASES", "leases", FORMAT_COUNT, .width = 7, .right = true, .leases = true, .rank = 8},
	{"WAITED", "waited_ns", FORMAT_DURATION, .width = 7, .right = true, .leases = true,
	 .rank = 8},
	{"OVERRUN", "overrun_ns", FORMAT_DURATION, .width = 8, .right = true, .leases = true,
	 .rank = 8},
	{"PROCS", "pids", FORMAT_COUNT, .width = 6, .right = true, .rank = 3},
	{"AGE", "created", FORMAT_AGE, .width = 6, .right = true, .rank = 4},
	{"IDLE", "idle_since", FORMAT_AGE, .width = 6, .right = true, .rank = 9},
	{"NAME", "name", FORMAT_TEXT, NULL, name_fill, 12, .rank = 7},
};

static const struct column waiting_columns[] = {
	{"LINE", "position", FORMAT_COUNT, .width = 5, .right = true},
	{"SESSION", "id", FORMAT_KNOWN, .width = 15},
	{"OWNER", "owner", FORMAT_KNOWN, .width = 10, .rank = 2},
	{"ASKED", "asked", FORMAT_TEXT, .width = 18, .rank = 1},
	{"SINCE", "created", FORMAT_AGE, .width = 6, .right = true, .rank = 1},
	{"WAITS FOR", "reason", FORMAT_TEXT, .width = 10, .flexible = true, .rank = 3},
};

static const struct column user_columns[] = {
	{"USER", "name", FORMAT_TEXT, .width = 14},
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
	else if (list == TOP_USERS)
		snprintf(buf, TOP_KEY_SIZE, "%s %s", json_text(row, "kind"),
			 json_text(row, "name"));
	else if (*id)
		snprintf(buf, TOP_KEY_SIZE, "%s", id);
	else /* another user's: nothing but its place names it */
		snprintf(buf, TOP_KEY_SIZE, "%s %zu", top_list_title(list), item);
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

/* Sorts the first `count` rows, which are items. Without memory they stay as they are. */
static void rows_sort(const struct top_model *model, enum top_list list,
		      const struct top_order *order, struct top_row *rows, size_t count)
{
	bool reverse = order->reverse;
	struct sorted *sorted = order->column >= 0 && count ? calloc(count, sizeof(*sorted)) : NULL;

	if (!sorted)
		return;
	for (size_t i = 0; i < count; i++) {
		sorted[i].item = rows[i].item;
		top_cell(model, list, rows[i].item, (size_t)order->column, &sorted[i].cell);
	}
	qsort_r(sorted, count, sizeof(*sorted), by_cell, &reverse);
	for (size_t i = 0; i < count; i++)
		rows[i].item = sorted[i].item;
	free(sorted);
}

/* Puts the processes of unfolded items below them. Takes `rows` over. */
static struct top_row *rows_unfold(const struct top_model *model, enum top_list list,
				   const struct top_order *order, struct top_row *rows,
				   size_t *count)
{
	size_t total = 0, to = 0;

	for (size_t i = 0; i < *count; i++)
		total += 1 + json_array_size(processes_of(model, list, rows[i].item));
	struct top_row *all = total > *count ? calloc(total, sizeof(*all)) : NULL;
	if (!all)
		return rows;
	for (size_t i = 0; i < *count; i++) {
		char key[TOP_KEY_SIZE];

		all[to++] = rows[i];
		size_t processes = json_array_size(processes_of(model, list, rows[i].item));
		top_item_key(model, list, rows[i].item, key);
		for (size_t p = 0; p < processes && order->unfolded(order->context, key); p++)
			all[to++] = (struct top_row){rows[i].item, (int)p};
	}
	free(rows);
	*count = to;
	return all;
}

struct top_row *top_rows(const struct top_model *model, enum top_list list,
			 const struct top_order *order, size_t *ret_count)
{
	size_t size = top_list_size(model, list), count = 0;
	struct top_row *rows = calloc(size + 1, sizeof(*rows));

	*ret_count = 0;
	if (!rows)
		return NULL;
	for (size_t i = 0; i < size; i++)
		if (matches(model, list, i, order->filter))
			rows[count++] = (struct top_row){i, -1};
	rows_sort(model, list, order, rows, count);
	if (order->unfolded)
		rows = rows_unfold(model, list, order, rows, &count);
	*ret_count = count;
	return rows;
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
