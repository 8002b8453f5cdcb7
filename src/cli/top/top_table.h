/* The lists that `carve top` shows, as columns and cells, and which rows of them in which order.
 * Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/columns.h"
#include "cli/top/top_model.h"

#define TOP_COLUMNS_MAX 20

const char *top_list_title(enum top_list list);
/* The columns of a list, TOP_COLUMNS_MAX at most. */
const struct column *top_columns(enum top_list list, size_t *ret_count);
/* Rows of a list before any filter. */
size_t top_list_size(const struct top_model *model, enum top_list list);
/* The cell in a row of a list; `item` < top_list_size(). */
void top_cell(const struct top_model *model, enum top_list list, size_t item, size_t column,
	      struct cell *ret);
/* The key that identifies an item from one model to the next. */
#define TOP_KEY_SIZE 64
const char *top_item_key(const struct top_model *model, enum top_list list, size_t item,
			 char buf[static TOP_KEY_SIZE]);

/* Gives each column its width on a screen of so many columns; 0: it is not shown. */
void top_columns_fit(const struct top_model *model, enum top_list list, int screen,
		     int ret[static TOP_COLUMNS_MAX]);
/* The names and reasons of an item for which its columns have no room, with their titles. They
 * stand below the item, from column TOP_INDENT on. "": all have room. */
#define TOP_INDENT 5
#define TOP_BELOW_SIZE ((size_t)3 * CELL_SIZE)
const char *top_below_text(const struct top_model *model, enum top_list list, size_t item,
			   const int widths[static TOP_COLUMNS_MAX],
			   char buf[static TOP_BELOW_SIZE]);

/* How rows are chosen and ordered. */
struct top_order {
	int column; /* -1: as the daemon lists them */
	bool reverse;
	const char *filter; /* rows in which this text stands, case ignored; "": all */
	/* Whether the processes of an item are shown below it; NULL: never. */
	bool (*unfolded)(void *context, const char *key);
	void *context;
	/* The screen, for lines below items; NULL: there are none. */
	const int *widths;
	int screen;
};

/* A line of a list: an item, a line of the texts below it, or one of its processes. */
struct top_row {
	size_t item;
	size_t place; /* the item's number among those that are shown */
	int process;  /* -1: the item itself */
	int line;     /* below the item; 0: the item itself */
	int lines;    /* that the item has below it, in all its lines */
};

/* The rows to show, owned by the caller; NULL: there are none. Rows that are equal stay in the
 * daemon's order. */
struct top_row *top_rows(const struct top_model *model, enum top_list list,
			 const struct top_order *order, size_t *ret_count);
/* "  4711 python3  1.5G" */
void top_process_text(const struct top_model *model, enum top_list list, const struct top_row *row,
		      char buf[static CELL_SIZE]);
