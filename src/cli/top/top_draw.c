#include "cli/top/top_draw.h"

#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* Functions, not macros: some of those have the names of ours. */
#define NCURSES_NOMACROS
#include <curses.h>

#include "base/macros.h"
#include "base/units.h"
#include "cli/top/top_model.h"
#include "cli/top/top_term.h"
#include "cli/top/top_text.h"
#include "cli/top/top_view.h"

/* Columns of a line that are drawn at most. */
#define LINE_MAX_COLUMNS 1000
#define LINE_SIZE (4 * LINE_MAX_COLUMNS + 1)
#define BAR_MIN 5
/* A piece of the first and the last line. */
#define PIECE_SIZE 96
#define ESCAPE_DELAY_MS 25

enum { PAIR_GREEN = 1, PAIR_YELLOW, PAIR_RED, PAIR_BLUE, PAIR_HEADING, PAIR_FOCUS };

static SCREEN *screen;
static bool coloured, unicode;

/* ---- the terminal ------------------------------------------------------------------------ */

static void colours_start(void)
{
	const char *no = secure_getenv("NO_COLOR"); // NOLINT(concurrency-mt-unsafe): nobody sets it

	coloured = !(no && *no) && has_colors() && start_color() == OK;
	if (!coloured)
		return;
	use_default_colors();
	init_pair(PAIR_GREEN, COLOR_GREEN, -1);
	init_pair(PAIR_YELLOW, COLOR_YELLOW, -1);
	init_pair(PAIR_RED, COLOR_RED, -1);
	init_pair(PAIR_BLUE, COLOR_BLUE, -1);
	init_pair(PAIR_HEADING, COLOR_BLACK, COLOR_GREEN);
	init_pair(PAIR_FOCUS, COLOR_BLACK, COLOR_CYAN);
}

bool top_screen_open(void)
{
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return false;
	top_term_guard();
	set_escdelay(ESCAPE_DELAY_MS);
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, true);
	nodelay(stdscr, true);
	curs_set(0);
	unicode = !strcmp(nl_langinfo(CODESET), "UTF-8"); // NOLINT(concurrency-mt-unsafe)
	colours_start();
	return true;
}

void top_screen_close(void)
{
	if (!screen)
		return;
	endwin();
	delscreen(screen);
	screen = NULL;
}

void top_screen_leave(void)
{
	endwin();
}

void top_screen_enter(void)
{
	top_screen_resized();
	top_screen_disturbed();
}

void top_screen_resized(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col)
		resizeterm(size.ws_row, size.ws_col);
}

void top_screen_disturbed(void)
{
	clearok(stdscr, true);
}

int top_screen_key(void)
{
	static const struct {
		wint_t code;
		int key;
	} keys[] = {
		{KEY_UP, TOP_KEY_UP},
		{KEY_DOWN, TOP_KEY_DOWN},
		{KEY_LEFT, TOP_KEY_LEFT},
		{KEY_RIGHT, TOP_KEY_RIGHT},
		{KEY_PPAGE, TOP_KEY_PAGE_UP},
		{KEY_NPAGE, TOP_KEY_PAGE_DOWN},
		{KEY_HOME, TOP_KEY_HOME},
		{KEY_END, TOP_KEY_END},
		{KEY_BACKSPACE, TOP_KEY_BACKSPACE},
		{KEY_BTAB, TOP_KEY_BACKTAB},
		{KEY_ENTER, TOP_KEY_ENTER},
		{KEY_F(1), TOP_KEY_HELP},
		{KEY_F(3), '/'},
		{KEY_F(4), '/'},
		{KEY_F(6), '>'},
		{KEY_F(9), 'x'},
		{KEY_F(10), TOP_KEY_QUIT},
		{KEY_DC, 'x'},
	};
	wint_t code;

	for (;;) {
		int kind = wget_wch(stdscr, &code);

		if (kind == ERR)
			return 0;
		if (kind == OK)
			return code == '\r' ? TOP_KEY_ENTER : (int)code;
		for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
			if (keys[i].code == code)
				return keys[i].key;
	}
}

/* ---- pieces ------------------------------------------------------------------------------ */

static chtype colour(int pair)
{
	return coloured ? (chtype)COLOR_PAIR(pair) : A_NORMAL;
}

/* Text in `width` columns from x, as far as the screen goes. */
static void put(int y, int x, int width, bool right, chtype attributes, const char *text)
{
	char line[LINE_SIZE];
	int room = MIN(MIN(width, COLS - x), LINE_MAX_COLUMNS);

	if (room <= 0 || y < 0 || y >= LINES)
		return;
	attrset((int)attributes);
	mvaddstr(y, x, top_text_fit(text, room, right, line, sizeof(line)));
	attrset(A_NORMAL);
}

static void put_repeated(int y, int x, int count, chtype attributes, const char *character)
{
	attrset((int)attributes);
	for (int i = 0; i < count && x + i < COLS; i++)
		mvaddstr(y, x + i, character);
	attrset(A_NORMAL);
}

/* [|||||:::   ]: the full part, the light part, and the rest. */
static void put_bar(int y, int x, int width, double full, double light)
{
	int room = width - 2, filled = (int)(full * room + 0.5);
	int lighter = (int)(MIN(light, 1.0) * room + 0.5) - filled;
	chtype hue = colour(full < 0.7 ? PAIR_GREEN : full < 0.9 ? PAIR_YELLOW : PAIR_RED);

	/* The smallest use is seen. */
	if (full > 0 && !filled)
		filled = 1;
	put(y, x, 1, false, A_BOLD, "[");
	put_repeated(y, x + 1, filled, hue | A_BOLD, unicode ? "\u2588" : "|");
	if (lighter > 0)
		put_repeated(y, x + 1 + filled, lighter, colour(PAIR_BLUE),
			     unicode ? "\u2592" : ":");
	put(y, x + width - 1, 1, false, A_BOLD, "]");
}

static void put_cell(int y, int x, int width, const struct column *column, const struct cell *cell)
{
	int text = MAX(top_text_width(cell->text), column->flexible ? 11 : 4);
	int bar = width - text - 1;

	if (cell->bar < 0 || bar < BAR_MIN) {
		put(y, x, width, column->right, A_NORMAL, cell->text);
		return;
	}
	put_bar(y, x, bar, cell->bar, cell->bar_light);
	put(y, x + bar + 1, text, true, A_NORMAL, cell->text);
}

/* ---- lists ------------------------------------------------------------------------------- */

/* " 3-9 of 20 ", of items. "": all are seen. */
static void part_text(const struct top_view *view, enum top_list list, char *buf, size_t size)
{
	const struct top_pane *pane = &view->pane[list];
	size_t height = (size_t)MAX(pane->height, 0);

	buf[0] = '\0';
	if (pane->count <= height)
		return;
	size_t last = pane->first + height;
	snprintf(buf, size, " %zu-%zu of %zu ", pane->rows[pane->first].place + 1,
		 pane->rows[MIN(MAX(last, 1), pane->count) - 1].place + 1,
		 pane->rows[pane->count - 1].place + 1);
}

static void draw_heading(const struct top_view *view, enum top_list list, int y)
{
	const struct top_pane *pane = &view->pane[list];
	const int *widths = pane->widths;
	bool focus = view->focus == list;
	chtype look = coloured ? colour(focus ? PAIR_FOCUS : PAIR_HEADING)
		      : focus  ? A_REVERSE | A_BOLD
			       : A_REVERSE;
	char text[64];
	size_t count;
	const struct column *columns = top_columns(list, &count);
	int x = 0;

	put(y, 0, COLS, false, look, "");
	for (size_t c = 0; c < count; c++) {
		bool sorted = pane->column == (int)c;

		if (!widths[c])
			continue;
		snprintf(text, sizeof(text), "%s%s", columns[c].title,
			 !sorted         ? ""
			 : pane->reverse ? "v"
					 : "^");
		put(y, x, widths[c], columns[c].right, sorted ? look | A_BOLD | A_UNDERLINE : look,
		    text);
		x += widths[c] + 1;
	}
	part_text(view, list, text, sizeof(text));
	put(y, COLS - (int)strlen(text), (int)strlen(text), false, look | A_BOLD, text);
}

/* A line of what an item's columns have no room for. */
static void draw_below(const struct top_view *view, enum top_list list, const struct top_row *row,
		       int y)
{
	char text[TOP_BELOW_SIZE], line[TOP_BELOW_SIZE] = "";
	const char *rest = text;

	top_below_text(view->model, list, row->item, view->pane[list].widths, text);
	for (int i = 0; i < row->line; i++)
		(void)top_text_line(&rest, view->columns - TOP_INDENT, line, sizeof(line));
	put(y, TOP_INDENT, COLS - TOP_INDENT, false, A_NORMAL, line);
}

static void draw_row(const struct top_view *view, enum top_list list, const struct top_row *row,
		     int y)
{
	const int *widths = view->pane[list].widths;
	struct cell cell;
	size_t count;
	const struct column *columns = top_columns(list, &count);
	int x = 0;

	if (row->line) {
		draw_below(view, list, row, y);
		return;
	}
	if (row->process >= 0) {
		top_process_text(view->model, list, row, cell.text);
		put(y, 4, COLS - 4, false, colour(PAIR_BLUE), cell.text);
		return;
	}
	for (size_t c = 0; c < count; c++) {
		if (!widths[c])
			continue;
		top_cell(view->model, list, row->item, c, &cell);
		put_cell(y, x, widths[c], &columns[c], &cell);
		x += widths[c] + 1;
	}
}

static void draw_list(struct top_view *view, enum top_list list, struct top_place place)
{
	struct top_pane *pane = &view->pane[list];

	if (place.height < 0)
		return;
	top_pane_scroll(pane, place.height);
	draw_heading(view, list, place.y);
	for (int i = 0; i < place.height && pane->first + (size_t)i < pane->count; i++) {
		int y = place.y + 1 + i;

		draw_row(view, list, &pane->rows[pane->first + (size_t)i], y);
		if (list == view->focus && top_pane_selects(pane, pane->first + (size_t)i))
			mvchgat(y, 0, -1, A_REVERSE, 0, NULL);
	}
}

/* ---- the frame --------------------------------------------------------------------------- */

/* Pieces of a line, as many of the first ones as there is room for. */
static void put_pieces(int y, int width, chtype attributes, const char (*pieces)[PIECE_SIZE],
		       size_t count)
{
	char line[LINE_SIZE] = "";
	size_t used = 0;

	for (size_t i = 0; i < count; i++) {
		const char *gap = used ? "  " : "";

		if (i && (int)(used + strlen(gap) + strlen(pieces[i])) > width)
			break;
		used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s", gap, pieces[i]);
	}
	put(y, 0, width, false, attributes, line);
}

static void draw_trouble(const struct top_status *status)
{
	char text[600], silent[COLUMN_SHORT_SIZE];

	snprintf(text, sizeof(text), "No answer for %s, trying again: %s",
		 column_seconds_text(status->silent_s, silent), status->trouble);
	put(0, 0, COLS, false, colour(PAIR_RED) | A_BOLD | (coloured ? 0 : A_REVERSE), text);
}

static void draw_title(const struct top_view *view)
{
	const struct top_model *m = view->model;
	char piece[5][PIECE_SIZE] = {"carve top: asking the daemon"};
	char gpus[UNITS_TEXT_SIZE], sessions[UNITS_TEXT_SIZE], jobs[UNITS_TEXT_SIZE];
	time_t now = m ? (time_t)m->now : 0;
	struct tm local;

	if (!m) {
		put_pieces(0, COLS, A_BOLD, piece, 1);
		return;
	}
	snprintf(piece[0], PIECE_SIZE, "carve %s", m->version);
	if (localtime_r(&now, &local))
		strftime(piece[0] + strlen(piece[0]), PIECE_SIZE - strlen(piece[0]), "  %H:%M:%S",
			 &local);
	snprintf(piece[1], PIECE_SIZE, "%s, %s, %zu waiting, %s",
		 units_format_count(top_list_size(m, TOP_GPUS), "GPU", gpus),
		 units_format_count(top_list_size(m, TOP_SESSIONS), "session", sessions),
		 top_list_size(m, TOP_WAITING),
		 units_format_count(top_list_size(m, TOP_JOBS), "job", jobs));
	snprintf(piece[2], PIECE_SIZE, "every %g s", (double)view->interval_ns / 1e9);
	snprintf(piece[3], PIECE_SIZE, "daemon %d", (int)m->daemon_pid);
	snprintf(piece[4], PIECE_SIZE, "driver %s", m->driver);
	put_pieces(0, COLS, A_BOLD, piece, ARRAY_SIZE(piece));
}

static void draw_bottom(const struct top_view *view)
{
	/* At 80 columns the last two have no room. */
	static const char keys[][PIECE_SIZE] = {
		"h help",    "Tab list", "Space processes", "/ filter",     "< > sort",
		"x release", "q quit",   "r reverse",       "+ - interval",
	};
	char text[600];
	chtype look = A_NORMAL;

	top_view_prompt(view, text, sizeof(text));
	if (view->mode != TOP_LOOKING || *text)
		look = A_BOLD | (view->message_bad ? colour(PAIR_RED) : A_NORMAL);
	else if (*view->filter)
		snprintf(text, sizeof(text), "Filter: %s   (Esc shows all again, / changes it)",
			 view->filter);
	else {
		put_pieces(LINES - 1, COLS - 1, A_NORMAL, keys, ARRAY_SIZE(keys));
		return;
	}
	put(LINES - 1, 0, COLS - 1, false, look, text);
}

static void draw_help(void)
{
	static const char *const lines[] = {
		"carve top: GPUs, sessions, waiting requests, queues, jobs, users.",
		"",
		"  Up Down PgUp PgDn Home End   move (also j k g G)",
		"  Tab, 1 to 6                  next list; the first to the sixth of these",
		"  < >, F6                      sort by another column; r turns the order round",
		"  /, F3, F4                    show only rows with this text; Esc shows all",
		"  Space, t                     show the processes of a row, of all rows",
		"  x, F9                        release the session (asks first)",
		"  + -                          longer, shorter interval",
		"  Ctrl-L; h, F1; q, F10        draw anew; help; quit",
		"",
		"1Gi is 1024Mi (a GiB). Names and reasons without room stand below their row.",
		"PROMISED: memory that all sessions on the GPU may use, in all.",
		"OUTSIDE: memory that programs outside carve hold; it is not promised.",
		"FREE: memory that new sessions can get.",
		"A GPU's bar: used memory (all programs), then memory promised beyond that.",
		"A session's bar: used memory of its size, then its peak. !: beyond its slice.",
		"REQ LIM GOT: share of the GPU's time asked for, at most, and received.",
		"Jobs: those that run, then those that wait; 256 at most. carve job list has all.",
		"",
		"q quits; any other key goes back.",
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		put((int)i, 0, COLS, false, i ? A_NORMAL : A_BOLD, lines[i]);
}

void top_screen_draw(struct top_view *view, const struct top_status *status)
{
	struct top_place places[TOP_LISTS];

	erase();
	if (view->mode == TOP_HELPING) {
		draw_help();
		refresh();
		return;
	}
	if (status->trouble)
		draw_trouble(status);
	else
		draw_title(view);
	if (view->model) {
		top_view_widen(view, COLS);
		top_view_layout(view, 1, LINES - 1, places);
		for (int list = 0; list < TOP_LISTS; list++)
			draw_list(view, (enum top_list)list, places[list]);
	}
	if (LINES > 1)
		draw_bottom(view);
	refresh();
}
