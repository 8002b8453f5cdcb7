#include "cli/top/top_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/macros.h"
#include "cli/moment.h"
#include "cli/top/top_model.h"

/* ---- columns ----------------------------------------------------------------------------- */

enum {
	GPU_INDEX,
	GPU_NAME,
	GPU_MEMORY,
	GPU_PROMISED,
	GPU_OUTSIDE,
	GPU_FREE,
	GPU_BUSY,
	GPU_SESSIONS,
	GPU_MODE,
	GPU_STATE
};

/* Without the name, sessions and mode they fit into 80 columns. */
static const struct top_column gpu_columns[] = {
	[GPU_INDEX] = {"GPU", 4, .right = true},
	[GPU_NAME] = {"NAME", 19, .rank = 4},
	[GPU_MEMORY] = {"USED", 17, .flexible = true},
	[GPU_PROMISED] = {"PROMISED", 9, .right = true, .rank = 1},
	[GPU_OUTSIDE] = {"OUTSIDE", 8, .right = true, .rank = 3},
	[GPU_FREE] = {"FREE", 6, .right = true, .rank = 2},
	[GPU_BUSY] = {"BUSY", 10, .rank = 2},
	[GPU_SESSIONS] = {"SESSIONS", 9, .right = true, .rank = 5},
	[GPU_MODE] = {"MODE", 6, .rank = 6},
	[GPU_STATE] = {"STATE", 20}, /* "draining since 14:03" */
};

enum {
	SESSION_ID,
	SESSION_OWNER,
	SESSION_STATE,
	SESSION_GPUS,
	SESSION_SIZE,
	SESSION_USED,
	SESSION_PEAK,
	SESSION_REQUEST,
	SESSION_LIMIT,
	SESSION_RECEIVED,
	SESSION_LEASES,
	SESSION_WAITED,
	SESSION_OVERRUN,
	SESSION_PROCESSES,
	SESSION_AGE,
	SESSION_NAME
};

static const struct top_column session_columns[] = {
	[SESSION_ID] = {"SESSION", 15},
	[SESSION_OWNER] = {"OWNER", 10, .rank = 1},
	[SESSION_STATE] = {"STATE", 6, .rank = 6},
	[SESSION_GPUS] = {"GPU", 5, .rank = 2},
	[SESSION_SIZE] = {"SIZE", 6, .right = true},
	[SESSION_USED] = {"USED", 20, .flexible = true},
	[SESSION_PEAK] = {"PEAK", 6, .right = true, .rank = 3},
	[SESSION_REQUEST] = {"REQ", 5, .right = true, .rank = 5},
	[SESSION_LIMIT] = {"LIM", 5, .right = true, .rank = 6},
	[SESSION_RECEIVED] = {"GOT", 5, .right = true, .leases = true, .rank = 4},
	[SESSION_LEASES] = {"LEASES", 7, .right = true, .leases = true, .rank = 8},
	[SESSION_WAITED] = {"WAITED", 7, .right = true, .leases = true, .rank = 8},
	[SESSION_OVERRUN] = {"OVERRUN", 8, .right = true, .leases = true, .rank = 8},
	[SESSION_PROCESSES] = {"PROCS", 6, .right = true, .rank = 3},
	[SESSION_AGE] = {"AGE", 6, .right = true, .rank = 4},
	[SESSION_NAME] = {"NAME", 12, .rank = 7},
};

enum { WAITING_POSITION, WAITING_ID, WAITING_OWNER, WAITING_ASKED, WAITING_SINCE, WAITING_REASON };

static const struct top_column waiting_columns[] = {
	[WAITING_POSITION] = {"LINE", 5, .right = true},
	[WAITING_ID] = {"SESSION", 15},
	[WAITING_OWNER] = {"OWNER", 10, .rank = 2},
	[WAITING_ASKED] = {"ASKED", 18, .rank = 1},
	[WAITING_SINCE] = {"SINCE", 6, .right = true, .rank = 1},
	[WAITING_REASON] = {"WAITS FOR", 10, .flexible = true, .rank = 3},
};

enum { USER_NAME, USER_KIND, USER_SESSIONS, USER_WAITING, USER_GPUS, USER_USED, USER_SIZE };

static const struct top_column user_columns[] = {
	[USER_NAME] = {"USER", 14},
	[USER_KIND] = {"KIND", 5, .rank = 4},
	[USER_SESSIONS] = {"SESSIONS", 9, .right = true, .rank = 1},
	[USER_WAITING] = {"WAITING", 8, .right = true, .rank = 3},
	[USER_GPUS] = {"GPUS", 6, .right = true, .rank = 2},
	[USER_USED] = {"USED", 6, .right = true, .rank = 2},
	[USER_SIZE] = {"PROMISED", 20, .flexible = true},
};

static const struct {
	const char *title;
	const struct top_column *columns;
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

const struct top_column *top_columns(enum top_list list, size_t *ret_count)
{
	*ret_count = lists[list].count;
	return lists[list].columns;
}

size_t top_list_size(const struct top_model *model, enum top_list list)
{
	switch (list) {
	case TOP_GPUS:
		return model->gpu_count;
	case TOP_SESSIONS:
		return model->session_count;
	case TOP_WAITING:
		return model->waiting_count;
	default:
		return model->user_count;
	}
}

/* ---- cells ------------------------------------------------------------------------------- */

/* How many times `size / parts` it is, the last one rounded up or down. */
static uint64_t parts_of(uint64_t bytes, uint64_t size, unsigned parts, bool up)
{
	unsigned __int128 all = (unsigned __int128)bytes * parts + (up ? size - 1 : 0);

	return (uint64_t)(all / size);
}

/* Three digits, or four of a unit that has as many. */
static const char *bytes_text(uint64_t bytes, bool up, char buf[static TOP_BYTES_SIZE])
{
	static const char *const units[] = {"B", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
	uint64_t size = 1;
	size_t unit = 0;

	if (bytes == TOP_NONE || bytes == 0) {
		snprintf(buf, TOP_BYTES_SIZE, "%s", bytes ? "-" : "0");
		return buf;
	}
	/* A number that would be rounded up to 1024 takes the next unit. */
	for (; parts_of(bytes, size, 1, up) >= 1024 && unit + 1 < ARRAY_SIZE(units); unit++)
		size *= 1024;
	uint64_t tenths = parts_of(bytes, size, 10, up);
	if (tenths >= 1000 || unit == 0)
		snprintf(buf, TOP_BYTES_SIZE, "%" PRIu64 "%s", parts_of(bytes, size, 1, up),
			 units[unit]);
	else if (tenths % 10)
		snprintf(buf, TOP_BYTES_SIZE, "%" PRIu64 ".%u%s", tenths / 10,
			 (unsigned)(tenths % 10), units[unit]);
	else
		snprintf(buf, TOP_BYTES_SIZE, "%" PRIu64 "%s", tenths / 10, units[unit]);
	return buf;
}

const char *top_bytes_text(uint64_t bytes, char buf[static TOP_BYTES_SIZE])
{
	return bytes_text(bytes, true, buf);
}

const char *top_room_text(uint64_t bytes, char buf[static TOP_BYTES_SIZE])
{
	return bytes_text(bytes, false, buf);
}

const char *top_seconds_text(int64_t seconds, char buf[static TOP_BYTES_SIZE])
{
	int s = (int)MIN(MAX(seconds, 0), 999 * (int64_t)86400);

	if (s < 60)
		snprintf(buf, TOP_BYTES_SIZE, "%ds", s);
	else if (s < 3600)
		snprintf(buf, TOP_BYTES_SIZE, "%dm%02ds", s / 60, s % 60);
	else if (s < 86400)
		snprintf(buf, TOP_BYTES_SIZE, "%dh%02dm", s / 3600, s / 60 % 60);
	else
		snprintf(buf, TOP_BYTES_SIZE, "%dd%02dh", s / 86400, s / 3600 % 24);
	return buf;
}

static void cell_text(struct top_cell *cell, const char *text)
{
	snprintf(cell->text, sizeof(cell->text), "%s", text);
}

static void cell_count(struct top_cell *cell, uint64_t count)
{
	cell->numeric = true;
	cell->number = count == TOP_NONE ? -1 : (double)count;
	if (count == TOP_NONE)
		cell_text(cell, "-");
	else
		snprintf(cell->text, sizeof(cell->text), "%" PRIu64, count);
}

static void cell_bytes(struct top_cell *cell, uint64_t bytes)
{
	char text[TOP_BYTES_SIZE];

	cell->numeric = true;
	cell->number = bytes == TOP_NONE ? -1 : (double)bytes;
	cell_text(cell, top_bytes_text(bytes, text));
}

/* The size of the largest slice that can be granted. */
static void cell_room(struct top_cell *cell, uint64_t bytes)
{
	char text[TOP_BYTES_SIZE];

	cell_bytes(cell, bytes);
	cell_text(cell, top_room_text(bytes, text));
}

static void cell_share(struct top_cell *cell, double share)
{
	cell->numeric = true;
	cell->number = share;
	if (share < 0)
		cell_text(cell, "-");
	else
		snprintf(cell->text, sizeof(cell->text), "%.0f%%", share * 100);
}

static void cell_seconds(struct top_cell *cell, int64_t seconds)
{
	char text[TOP_BYTES_SIZE];

	cell->numeric = true;
	cell->number = (double)seconds;
	cell_text(cell, top_seconds_text(seconds, text));
}

static void cell_age(struct top_cell *cell, int64_t since, int64_t now)
{
	cell_seconds(cell, since ? now - since : 0);
	if (!since)
		cell_text(cell, "-");
}

static void cell_duration(struct top_cell *cell, uint64_t ns)
{
	cell->numeric = true;
	cell->number = ns == TOP_NONE ? -1 : (double)ns;
	if (ns == TOP_NONE)
		cell_text(cell, "-");
	else if (ns < 10000000000ull)
		snprintf(cell->text, sizeof(cell->text), "%.2fs", (double)ns / 1e9);
	else
		cell_seconds(cell, (int64_t)(ns / 1000000000));
}

static double fraction(uint64_t part, uint64_t whole)
{
	return whole && part != TOP_NONE ? MIN((double)part / (double)whole, 1.0) : 0;
}

/* "12.5G/80G", with a bar */
static void cell_part(struct top_cell *cell, uint64_t part, uint64_t whole)
{
	char a[TOP_BYTES_SIZE], b[TOP_BYTES_SIZE];

	cell->numeric = true;
	cell->number = part == TOP_NONE ? -1 : (double)part;
	cell->bar = fraction(part, whole);
	snprintf(cell->text, sizeof(cell->text), "%s/%s", top_bytes_text(part, a),
		 top_bytes_text(whole, b));
}

/* "3/4"; without a limit "3" */
static void cell_limited(struct top_cell *cell, uint64_t count, uint64_t limit)
{
	cell_count(cell, count);
	if (limit != TOP_NONE)
		snprintf(cell->text, sizeof(cell->text), "%" PRIu64 "/%" PRIu64, count, limit);
}

/* "ok"; "lost since 14:03"; of a GPU that another daemon has, whose it is. */
static void cell_state(struct top_cell *cell, const struct top_gpu *gpu, int64_t now)
{
	static const char *const dated[] = {"lost", "failing", "draining"};
	char since[MOMENT_SIZE];

	cell_text(cell, *gpu->held_by ? gpu->held_by : *gpu->state ? gpu->state : "-");
	moment_text(gpu->state_since, now, since);
	for (size_t i = 0; i < ARRAY_SIZE(dated) && *since; i++)
		if (!strcmp(gpu->state, dated[i]))
			snprintf(cell->text, sizeof(cell->text), "%s since %s", gpu->state, since);
}

static void gpu_cell(const struct top_gpu *gpu, int64_t now, size_t column, struct top_cell *ret)
{
	switch (column) {
	case GPU_INDEX:
		return cell_count(ret, gpu->index);
	case GPU_NAME:
		return cell_text(ret, gpu->name);
	case GPU_MEMORY:
		cell_part(ret, gpu->used, gpu->memory);
		ret->bar_light = fraction(gpu->outside + gpu->promised, gpu->memory);
		return;
	case GPU_PROMISED:
		return cell_bytes(ret, gpu->promised);
	case GPU_OUTSIDE:
		return cell_bytes(ret, gpu->outside);
	case GPU_FREE:
		return cell_room(ret, gpu->available);
	case GPU_BUSY:
		cell_share(ret, gpu->utilization < 0 ? -1 : gpu->utilization / 100.0);
		ret->bar = gpu->utilization < 0 ? -1 : gpu->utilization / 100.0;
		return;
	case GPU_SESSIONS:
		return cell_count(ret, gpu->sessions);
	case GPU_MODE:
		return cell_text(ret, gpu->mode);
	default:
		return cell_state(ret, gpu, now);
	}
}

static void session_lease_cell(const struct top_session *s, size_t column, struct top_cell *ret)
{
	switch (column) {
	case SESSION_REQUEST:
		return cell_share(ret, s->request);
	case SESSION_LIMIT:
		return cell_share(ret, s->limit);
	case SESSION_RECEIVED:
		/* A session of memory alone that did no work had no share to have. */
		return cell_share(ret, s->request > 0 || s->leases ? s->received : -1);
	case SESSION_LEASES:
		return cell_count(ret, s->leases);
	case SESSION_WAITED:
		return cell_duration(ret, s->waited_ns);
	default:
		return cell_duration(ret, s->overrun_ns);
	}
}

static void session_cell(const struct top_session *s, int64_t now, size_t column,
			 struct top_cell *ret)
{
	switch (column) {
	case SESSION_ID:
		return cell_text(ret, *s->id ? s->id : "-");
	case SESSION_OWNER:
		return cell_text(ret, *s->owner ? s->owner : "-");
	case SESSION_STATE:
		return cell_text(ret, s->state);
	case SESSION_GPUS:
		return cell_text(ret, s->gpus);
	case SESSION_SIZE:
		return cell_bytes(ret, s->size);
	case SESSION_USED:
		cell_bytes(ret, s->used);
		if (s->over)
			strncat(ret->text, "!", sizeof(ret->text) - strlen(ret->text) - 1);
		ret->bar = s->used == TOP_NONE ? -1 : fraction(s->used, s->size);
		ret->bar_light = fraction(s->peak, s->size);
		return;
	case SESSION_PEAK:
		return cell_bytes(ret, s->peak);
	case SESSION_PROCESSES:
		return cell_count(ret, *s->id ? s->process_count : TOP_NONE);
	case SESSION_AGE:
		return cell_age(ret, s->created, now);
	case SESSION_NAME:
		return cell_text(ret, s->name);
	default:
		return session_lease_cell(s, column, ret);
	}
}

static void waiting_cell(const struct top_session *s, int64_t now, size_t column,
			 struct top_cell *ret)
{
	switch (column) {
	case WAITING_POSITION:
		return cell_count(ret, s->position);
	case WAITING_ID:
		return cell_text(ret, *s->id ? s->id : "-");
	case WAITING_OWNER:
		return cell_text(ret, *s->owner ? s->owner : "-");
	case WAITING_ASKED:
		return cell_text(ret, s->asked);
	case WAITING_SINCE:
		return cell_age(ret, s->created, now);
	default:
		return cell_text(ret, s->reason);
	}
}

static void user_cell(const struct top_user *u, size_t column, struct top_cell *ret)
{
	switch (column) {
	case USER_NAME:
		return cell_text(ret, u->name);
	case USER_KIND:
		return cell_text(ret, u->group ? "group" : "user");
	case USER_SESSIONS:
		return cell_limited(ret, u->sessions, u->max_sessions);
	case USER_WAITING:
		return cell_count(ret, u->group ? TOP_NONE : u->waiting);
	case USER_GPUS:
		return cell_limited(ret, u->gpus, u->max_gpus);
	case USER_USED:
		return cell_bytes(ret, u->used);
	default:
		cell_bytes(ret, u->size);
		if (u->max_size != TOP_NONE)
			cell_part(ret, u->size, u->max_size);
		return;
	}
}

void top_cell(const struct top_model *model, enum top_list list, size_t item, size_t column,
	      struct top_cell *ret)
{
	ret->text[0] = '\0';
	ret->numeric = false;
	ret->number = 0;
	ret->bar = ret->bar_light = -1;
	switch (list) {
	case TOP_GPUS:
		return gpu_cell(&model->gpus[item], model->now, column, ret);
	case TOP_SESSIONS:
		return session_cell(&model->sessions[item], model->now, column, ret);
	case TOP_WAITING:
		return waiting_cell(&model->waiting[item], model->now, column, ret);
	default:
		return user_cell(&model->users[item], column, ret);
	}
}

const char *top_item_key(const struct top_model *model, enum top_list list, size_t item,
			 char buf[static TOP_KEY_SIZE])
{
	const char *id = list == TOP_SESSIONS  ? model->sessions[item].id
			 : list == TOP_WAITING ? model->waiting[item].id
					       : "";

	if (list == TOP_GPUS)
		snprintf(buf, TOP_KEY_SIZE, "gpu %" PRIu64, model->gpus[item].index);
	else if (list == TOP_USERS)
		snprintf(buf, TOP_KEY_SIZE, "%s %s", model->users[item].group ? "group" : "user",
			 model->users[item].name);
	else if (*id)
		snprintf(buf, TOP_KEY_SIZE, "%s", id);
	else /* another user's: nothing but its place names it */
		snprintf(buf, TOP_KEY_SIZE, "%s %zu", top_list_title(list), item);
	return buf;
}

/* ---- rows -------------------------------------------------------------------------------- */

static const struct top_process *processes_of(const struct top_model *model, enum top_list list,
					      size_t item, size_t *ret_count)
{
	*ret_count = 0;
	if (list == TOP_GPUS) {
		*ret_count = model->gpus[item].process_count;
		return model->gpus[item].processes;
	}
	if (list != TOP_SESSIONS)
		return NULL;
	*ret_count = model->sessions[item].process_count;
	return model->sessions[item].processes;
}

static bool matches(const struct top_model *model, enum top_list list, size_t item,
		    const char *filter)
{
	struct top_cell cell;
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
	struct top_cell cell;
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
	size_t total = 0, to = 0, processes;

	for (size_t i = 0; i < *count; i++) {
		processes_of(model, list, rows[i].item, &processes);
		total += 1 + processes;
	}
	struct top_row *all = total > *count ? calloc(total, sizeof(*all)) : NULL;
	if (!all)
		return rows;
	for (size_t i = 0; i < *count; i++) {
		char key[TOP_KEY_SIZE];

		all[to++] = rows[i];
		processes_of(model, list, rows[i].item, &processes);
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
		      char buf[static TOP_CELL_SIZE])
{
	size_t count;
	const struct top_process *list_of = processes_of(model, list, row->item, &count);
	const struct top_process *p = &list_of[row->process];
	char bytes[TOP_BYTES_SIZE] = "";

	if (p->bytes != TOP_NONE)
		top_bytes_text(p->bytes, bytes);
	snprintf(buf, TOP_CELL_SIZE, "%s %d  %s%s%s%s",
		 (size_t)row->process + 1 == count ? "`-" : "|-", (int)p->pid,
		 *p->command ? p->command : "?", *bytes ? "  " : "", bytes,
		 list != TOP_GPUS ? ""
		 : p->stray       ? "  (a session's, round carve's library)"
				  : "  (outside carve)");
}
