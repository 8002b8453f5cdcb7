/* The state of `carve top`'s screen: selection, sorting, filter, questions. Pure: keys
 * and models come in, what to do goes out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/top/top_table.h"

/* Keys that are no characters; above all of those. */
enum top_key {
	TOP_KEY_UP = 0x200000,
	TOP_KEY_DOWN,
	TOP_KEY_LEFT,
	TOP_KEY_RIGHT,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_BACKSPACE,
	TOP_KEY_BACKTAB,
	TOP_KEY_HELP,
	TOP_KEY_QUIT,
};
#define TOP_KEY_TAB '\t'
#define TOP_KEY_ENTER '\n'
#define TOP_KEY_ESCAPE 27
#define TOP_KEY_CTRL_L 12

enum top_action {
	TOP_NOTHING, /* but to draw */
	TOP_QUIT,
	TOP_RELEASE,       /* the session in view->asked */
	TOP_RELEASE_FORCE, /* and end its processes */
	TOP_REDRAW,        /* all of it, the terminal was disturbed */
};

enum top_mode { TOP_LOOKING, TOP_FILTERING, TOP_ASKING, TOP_HELPING };

#define TOP_FILTER_SIZE 64
#define TOP_UNFOLDED_MAX 256
#define TOP_INTERVAL_MIN_NS 100000000ull
#define TOP_INTERVAL_MAX_NS 3600000000000ull

/* One list: what is selected and what is seen of it. */
struct top_pane {
	char key[TOP_KEY_SIZE]; /* the key of the selected row's item */
	int process;            /* the process in the selected row; -1: the item itself */
	int line;               /* the line of the item in the selected row */
	size_t selected, first; /* positions among the rows */
	int column;             /* sorted by; -1: as the daemon lists them */
	bool reverse;
	struct top_row *rows; /* owned */
	size_t count;
	int height;                  /* lines that it was last given, for paging */
	int widths[TOP_COLUMNS_MAX]; /* the columns' widths; 0: not shown */
};

struct top_view {
	enum top_mode mode;
	enum top_list focus;
	struct top_pane pane[TOP_LISTS];
	const struct top_model *model; /* NULL: none yet; not owned */
	int columns;                   /* the screen's */
	char filter[TOP_FILTER_SIZE], filter_before[TOP_FILTER_SIZE];
	bool unfold_all;
	char unfolded[TOP_UNFOLDED_MAX][TOP_KEY_SIZE]; /* exceptions from unfold_all */
	size_t unfolded_count;
	char asked[TOP_KEY_SIZE]; /* the session that is to be released */
	char message[512];        /* the result of the last command */
	bool message_bad;
	uint64_t interval_ns;
};

void top_view_init(struct top_view *view, uint64_t interval_ns);
void top_view_free(struct top_view *view);
/* A newer model: what is selected stays selected. The old one may be freed then. */
void top_view_update(struct top_view *view, const struct top_model *model);
/* The screen has so many columns. */
void top_view_widen(struct top_view *view, int columns);
/* One key, a character or an enum top_key. */
enum top_action top_view_key(struct top_view *view, int key);
/* The question or message of the last line; "": there is none. */
void top_view_prompt(const struct top_view *view, char *buf, size_t size);

/* Lines of a pane: where its heading is, and how many rows follow. height < 0: not shown. */
struct top_place {
	int y, height;
};
/* Divides the lines [top, bottom) among the lists. Lines that do not fit are not shown; where there
 * is little room, the list in focus alone is. */
void top_view_layout(const struct top_view *view, int top, int bottom,
		     struct top_place ret[static TOP_LISTS]);
/* Moves what is seen of a pane so that the selected row is among `height` lines, and the lines
 * below it as far as there is room. */
void top_pane_scroll(struct top_pane *pane, int height);
/* Whether a row of a pane is selected, or a line of the selected item. */
bool top_pane_selects(const struct top_pane *pane, size_t row);
