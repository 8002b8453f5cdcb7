#include "cli/top/top_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/top/top_model.h"

/* Below it one list at a time is shown. */
#define LINES_FOR_ALL 14
/* Until the screen says how many it has. */
#define COLUMNS_DEFAULT 80

void top_view_init(struct top_view *view, uint64_t interval_ns)
{
	*view = (struct top_view){
		.focus = TOP_SESSIONS, .interval_ns = interval_ns, .columns = COLUMNS_DEFAULT};
	for (int i = 0; i < TOP_LISTS; i++)
		view->pane[i] = (struct top_pane){.process = -1, .column = -1};
}

void top_view_free(struct top_view *view)
{
	for (int i = 0; i < TOP_LISTS; i++) {
		free(view->pane[i].rows);
		view->pane[i].rows = NULL;
	}
}

/* ---- rows -------------------------------------------------------------------------------- */

static bool is_unfolded(void *context, const char *key)
{
	const struct top_view *view = context;

	for (size_t i = 0; i < view->unfolded_count; i++)
		if (!strcmp(view->unfolded[i], key))
			return !view->unfold_all;
	return view->unfold_all;
}

static void fold_toggle(struct top_view *view, const char *key)
{
	for (size_t i = 0; i < view->unfolded_count; i++)
		if (!strcmp(view->unfolded[i], key)) {
			view->unfolded_count--;
			memmove(view->unfolded[i], view->unfolded[view->unfolded_count],
				TOP_KEY_SIZE);
			return;
		}
	if (view->unfolded_count < TOP_UNFOLDED_MAX)
		memcpy(view->unfolded[view->unfolded_count++], key, strlen(key) + 1);
}

/* Notes what is selected, so that it is found again among other rows. */
static void pane_remember(const struct top_view *view, enum top_list list)
{
	struct top_pane *pane = (struct top_pane *)&view->pane[list];

	pane->key[0] = '\0';
	if (pane->selected >= pane->count)
		return;
	top_item_key(view->model, list, pane->rows[pane->selected].item, pane->key);
	pane->process = pane->rows[pane->selected].process;
	pane->line = pane->rows[pane->selected].line;
}

/* Finds the remembered row again; where it is gone, what now stands in its place is selected. */
static void pane_find(struct top_view *view, enum top_list list)
{
	struct top_pane *pane = &view->pane[list];
	bool found = false;

	for (size_t i = 0; i < pane->count && *pane->key && !found; i++) {
		char key[TOP_KEY_SIZE];

		top_item_key(view->model, list, pane->rows[i].item, key);
		if (strcmp(key, pane->key) != 0)
			continue;
		pane->selected = i;
		found = pane->rows[i].process == pane->process &&
			pane->rows[i].line == MIN(pane->line, pane->rows[i].lines);
	}
	if (pane->selected >= pane->count)
		pane->selected = pane->count ? pane->count - 1 : 0;
	pane_remember(view, list);
}

static void rows_make(struct top_view *view)
{
	for (int list = 0; list < TOP_LISTS; list++) {
		struct top_pane *pane = &view->pane[list];
		struct top_order order = {.column = pane->column,
					  .reverse = pane->reverse,
					  .filter = view->filter,
					  .unfolded = is_unfolded,
					  .context = view,
					  .widths = pane->widths,
					  .screen = view->columns};

		free(pane->rows);
		top_columns_fit(view->model, list, view->columns, pane->widths);
		pane->rows = top_rows(view->model, list, &order, &pane->count);
		pane_find(view, list);
	}
	if (!view->pane[view->focus].count)
		view->focus = TOP_SESSIONS;
}

void top_view_update(struct top_view *view, const struct top_model *model)
{
	view->model = model;
	rows_make(view);
}

void top_view_widen(struct top_view *view, int columns)
{
	bool same = view->columns == columns;

	view->columns = columns;
	if (view->model && !same)
		rows_make(view);
}

/* ---- keys -------------------------------------------------------------------------------- */

static void say(struct top_view *view, bool bad, const char *text)
{
	snprintf(view->message, sizeof(view->message), "%s", text);
	view->message_bad = bad;
}

/* The lines below an item are passed over, but where they have no room beside it: there they
 * scroll. */
static bool is_passed(const struct top_pane *pane, long row)
{
	return pane->rows[row].line && pane->rows[row].lines < pane->height;
}

static void move(struct top_view *view, long by)
{
	struct top_pane *pane = &view->pane[view->focus];
	long last = (long)pane->count - 1, to = MIN(MAX((long)pane->selected + by, 0), last);

	while (by > 0 && to < last && is_passed(pane, to))
		to++;
	while (to > 0 && is_passed(pane, to))
		to--;
	pane->selected = (size_t)MAX(to, 0);
	pane_remember(view, view->focus);
}

/* The next list that has anything to show, or holds sessions. */
static void focus_move(struct top_view *view, int by)
{
	do
		view->focus = (view->focus + TOP_LISTS + by) % TOP_LISTS;
	while (view->model && view->focus != TOP_SESSIONS && !view->pane[view->focus].count);
}

/* A list without rows is not shown, except that of the sessions. */
static void focus_set(struct top_view *view, enum top_list list)
{
	if (view->pane[list].count || list == TOP_SESSIONS)
		view->focus = list;
}

static bool column_shows(const struct top_view *view, int column)
{
	size_t count;
	const struct column *columns = top_columns(view->focus, &count);

	return column < 0 || !columns[column].leases || (view->model && view->model->leases);
}

/* Sorts by the next column; after the last one, as the daemon lists them. */
static void sort_move(struct top_view *view, int by)
{
	struct top_pane *pane = &view->pane[view->focus];
	size_t count;
	const struct column *columns = top_columns(view->focus, &count);
	int choices = (int)count + 1;

	do
		pane->column = (pane->column + 1 + by + choices) % choices - 1;
	while (!column_shows(view, pane->column));
	/* In a column of numbers the largest come first. */
	pane->reverse = pane->column >= 0 && columns[pane->column].right;
}

static void interval_change(struct top_view *view, bool longer)
{
	static const uint64_t steps_ms[] = {100,  200,   500,   1000,  2000,   3000,
					    5000, 10000, 30000, 60000, 300000, 3600000};
	uint64_t found = view->interval_ns;

	for (size_t i = 0; i < ARRAY_SIZE(steps_ms); i++) {
		uint64_t step = steps_ms[i] * 1000000;

		if (longer && step > view->interval_ns) {
			found = step;
			break;
		}
		if (!longer && step < view->interval_ns)
			found = step;
	}
	view->interval_ns = found;
	snprintf(view->message, sizeof(view->message), "every %g s", (double)found / 1e9);
	view->message_bad = false;
}

static void release_ask(struct top_view *view)
{
	const struct top_pane *pane = &view->pane[view->focus];
	bool sessions = view->focus == TOP_SESSIONS || view->focus == TOP_WAITING;

	if (!sessions || !pane->count) {
		say(view, true, "select a session to release it");
		return;
	}
	size_t item = pane->rows[pane->selected].item;
	const char *id = json_text(json_array_get(view->model->list[view->focus], item), "id");
	if (!*id) {
		say(view, true, "that session is another user's");
		return;
	}
	snprintf(view->asked, sizeof(view->asked), "%s", id);
	view->mode = TOP_ASKING;
}

static void fold_selected(struct top_view *view)
{
	struct top_pane *pane = &view->pane[view->focus];

	if (!*pane->key)
		return;
	fold_toggle(view, pane->key);
	pane->process = -1;
}

static void fold_all(struct top_view *view)
{
	view->unfold_all = !view->unfold_all;
	view->unfolded_count = 0;
}

/* Moves the selection. False: that is no such key. */
static bool key_move(struct top_view *view, int key)
{
	struct top_pane *pane = &view->pane[view->focus];
	long page = MAX(pane->height - 1, 1);

	switch (key) {
	case TOP_KEY_UP:
	case 'k':
		move(view, -1);
		return true;
	case TOP_KEY_DOWN:
	case 'j':
		move(view, 1);
		return true;
	case TOP_KEY_PAGE_UP:
		move(view, -page);
		return true;
	case TOP_KEY_PAGE_DOWN:
		move(view, page);
		return true;
	case TOP_KEY_HOME:
	case 'g':
		move(view, -(long)pane->count);
		return true;
	case TOP_KEY_END:
	case 'G':
		move(view, (long)pane->count);
		return true;
	case TOP_KEY_TAB:
		focus_move(view, 1);
		return true;
	case TOP_KEY_BACKTAB:
		focus_move(view, -1);
		return true;
	default:
		if (key < '1' || key >= '1' + TOP_LISTS)
			return false;
		focus_set(view, (enum top_list)(key - '1'));
		return true;
	}
}

/* Keys that change which rows there are. False: this is no such key. */
static bool key_rows(struct top_view *view, int key)
{
	struct top_pane *pane = &view->pane[view->focus];

	switch (key) {
	case '<':
	case TOP_KEY_LEFT:
		sort_move(view, -1);
		return true;
	case '>':
	case TOP_KEY_RIGHT:
		sort_move(view, 1);
		return true;
	case 'I':
	case 'r':
		pane->reverse = !pane->reverse;
		return true;
	case ' ':
	case TOP_KEY_ENTER:
		fold_selected(view);
		return true;
	case 't':
		fold_all(view);
		return true;
	case TOP_KEY_ESCAPE:
		view->filter[0] = '\0';
		return true;
	default:
		return false;
	}
}

static enum top_action key_looking(struct top_view *view, int key)
{
	view->message[0] = '\0';
	if (key_move(view, key))
		return TOP_NOTHING;
	if (key_rows(view, key)) {
		if (view->model)
			rows_make(view);
		return TOP_NOTHING;
	}
	switch (key) {
	case 'q':
	case TOP_KEY_QUIT:
		return TOP_QUIT;
	case 'h':
	case '?':
	case TOP_KEY_HELP:
		view->mode = TOP_HELPING;
		break;
	case '/':
		snprintf(view->filter_before, sizeof(view->filter_before), "%s", view->filter);
		view->mode = TOP_FILTERING;
		break;
	case 'x':
		release_ask(view);
		break;
	case '+':
	case '-':
		interval_change(view, key == '+');
		break;
	case TOP_KEY_CTRL_L:
		return TOP_REDRAW;
	default:
		break;
	}
	return TOP_NOTHING;
}

/* Appends a character as UTF-8, which is what the daemon's texts are. */
static void filter_append(struct top_view *view, int key)
{
	size_t used = strlen(view->filter);
	char *to = view->filter + used;

	if (key < ' ' || key == 0x7f || key >= TOP_KEY_UP || used + 5 > sizeof(view->filter))
		return;
	if (key < 0x80) {
		*to++ = (char)key;
	} else if (key < 0x800) {
		*to++ = (char)(0xc0 | key >> 6);
		*to++ = (char)(0x80 | (key & 0x3f));
	} else {
		if (key >= 0x10000)
			*to++ = (char)(0xf0 | key >> 18);
		*to++ = (char)(key < 0x10000 ? 0xe0 | key >> 12 : 0x80 | (key >> 12 & 0x3f));
		*to++ = (char)(0x80 | (key >> 6 & 0x3f));
		*to++ = (char)(0x80 | (key & 0x3f));
	}
	*to = '\0';
}

static void filter_shorten(struct top_view *view)
{
	size_t used = strlen(view->filter);

	while (used && ((unsigned char)view->filter[used - 1] & 0xc0) == 0x80)
		used--;
	view->filter[used ? used - 1 : 0] = '\0';
}

static enum top_action key_filtering(struct top_view *view, int key)
{
	if (key == TOP_KEY_ENTER) {
		view->mode = TOP_LOOKING;
	} else if (key == TOP_KEY_ESCAPE) {
		snprintf(view->filter, sizeof(view->filter), "%s", view->filter_before);
		view->mode = TOP_LOOKING;
	} else if (key == TOP_KEY_BACKSPACE || key == 0x7f || key == '\b') {
		filter_shorten(view);
	} else {
		filter_append(view, key);
	}
	if (view->model)
		rows_make(view);
	return TOP_NOTHING;
}

static enum top_action key_asking(struct top_view *view, int key)
{
	view->mode = TOP_LOOKING;
	if (key == 'y' || key == 'Y')
		return TOP_RELEASE;
	if (key == 'f' || key == 'F')
		return TOP_RELEASE_FORCE;
	say(view, false, "not released");
	return TOP_NOTHING;
}

enum top_action top_view_key(struct top_view *view, int key)
{
	switch (view->mode) {
	case TOP_FILTERING:
		return key_filtering(view, key);
	case TOP_ASKING:
		return key_asking(view, key);
	case TOP_HELPING:
		view->mode = TOP_LOOKING;
		return key == 'q' ? TOP_QUIT : TOP_NOTHING;
	default:
		return key_looking(view, key);
	}
}

/* How many processes a session has inside. */
static size_t asked_processes(const struct top_view *view)
{
	size_t i;
	json_t *session;

	if (!view->model)
		return 0;
	json_array_foreach(view->model->list[TOP_SESSIONS], i, session)
	{
		if (!strcmp(json_text(session, "id"), view->asked))
			return json_array_size(json_object_get(session, "pids"));
	}
	return 0;
}

void top_view_prompt(const struct top_view *view, char *buf, size_t size)
{
	size_t processes = asked_processes(view);
	char inside[UNITS_TEXT_SIZE];

	if (view->mode == TOP_FILTERING)
		snprintf(buf, size, "Filter: %s_", view->filter);
	else if (view->mode == TOP_ASKING && processes)
		snprintf(buf, size,
			 "Release %s, with %s inside? f: yes, end them; y: only if none is left; "
			 "n: no",
			 view->asked, units_format_count(processes, "process", inside));
	else if (view->mode == TOP_ASKING)
		snprintf(buf, size, "Release %s? y: yes; n: no", view->asked);
	else
		snprintf(buf, size, "%s", view->message);
}

/* ---- room -------------------------------------------------------------------------------- */

/* The lists in the order in which they get room. Each gets a part of the screen first, 1/part of
 * it, and then what the others leave. */
static const struct {
	enum top_list list;
	int part;
} rooms[TOP_LISTS] = {
	{TOP_SESSIONS, 4}, {TOP_GPUS, 5},   {TOP_WAITING, 8},
	{TOP_JOBS, 8},     {TOP_QUEUES, 8}, {TOP_USERS, 8},
};

/* The list in focus is the first of all. */
static enum top_list room_list(const struct top_view *view, int turn)
{
	return turn ? rooms[turn - 1].list : view->focus;
}

/* Gives a list up to `most` rows in all of what is left, and a heading. */
static void place_give(const struct top_view *view, enum top_list list, int most, int *left,
		       struct top_place *place)
{
	/* A list of no sessions still has its heading and an empty line. */
	int rows = MAX((int)MIN(view->pane[list].count, 10000), list == TOP_SESSIONS);
	int more = MIN(MIN(rows, most) - MAX(place->height, 0), *left - (place->height < 0));

	if (more <= 0)
		return;
	*left -= more + (place->height < 0);
	place->height = MAX(place->height, 0) + more;
}

void top_view_layout(const struct top_view *view, int top, int bottom,
		     struct top_place ret[static TOP_LISTS])
{
	int left = bottom - top, lines = left;

	for (int i = 0; i < TOP_LISTS; i++)
		ret[i] = (struct top_place){.y = top, .height = -1};
	if (left < 1)
		return;
	if (lines < LINES_FOR_ALL) {
		ret[view->focus].height = left - 1;
		return;
	}
	for (int turn = 0; turn < TOP_LISTS; turn++)
		place_give(view, rooms[turn].list, 1, &left, &ret[rooms[turn].list]);
	for (int turn = 0; turn < TOP_LISTS; turn++)
		place_give(view, rooms[turn].list, lines / rooms[turn].part, &left,
			   &ret[rooms[turn].list]);
	for (int turn = 0; turn <= TOP_LISTS; turn++)
		place_give(view, room_list(view, turn), lines, &left, &ret[room_list(view, turn)]);
	for (int i = 0, y = top; i < TOP_LISTS; i++) {
		ret[i].y = y;
		y += ret[i].height + 1;
	}
}

bool top_pane_selects(const struct top_pane *pane, size_t row)
{
	if (row == pane->selected || pane->selected >= pane->count)
		return row == pane->selected;
	const struct top_row *one = &pane->rows[row], *chosen = &pane->rows[pane->selected];
	return one->item == chosen->item && one->line && !chosen->line && chosen->process < 0;
}

void top_pane_scroll(struct top_pane *pane, int height)
{
	size_t lines = (size_t)MAX(height, 1);
	const struct top_row *row =
		pane->rows && pane->selected < pane->count ? &pane->rows[pane->selected] : NULL;
	size_t below = row && !row->line ? (size_t)row->lines : 0;

	pane->height = height;
	if (pane->selected < pane->first)
		pane->first = pane->selected;
	if (pane->selected + MIN(below, lines - 1) >= pane->first + lines)
		pane->first = pane->selected + MIN(below, lines - 1) - lines + 1;
	if (pane->first + lines > pane->count)
		pane->first = pane->count > lines ? pane->count - lines : 0;
}
