/* Tables of columns: how values of the daemon's JSON objects become cells of a list. The lists of
 * the verbs and `carve top` share the formats. Pure: no I/O, and no clock. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number that is not known; of a quota: no limit. */
#define COLUMN_NONE UINT64_MAX
/* The daemon's longest texts are the reasons of jobs, below 700 bytes. */
#define CELL_SIZE 1024

struct cell {
	char text[CELL_SIZE]; /* as it came, not fit for a terminal */
	bool numeric;
	double number;    /* the number by which it is sorted, where numeric */
	double bar;       /* 0 to 1: drawn as a bar before the text; < 0: none */
	double bar_light; /* a lighter part that reaches so far; below `bar`: none */
};

/* Values that are missing, or of another type, are shown as "-". */
enum column_format {
	FORMAT_TEXT,     /* "" where it is missing */
	FORMAT_KNOWN,    /* a text, also "-" where it is empty */
	FORMAT_COUNT,    /* an integer, or the length of an array */
	FORMAT_LIMITED,  /* "3/4" with the count in `whole`; "3" without it */
	FORMAT_BYTES,    /* "1.5Gi", rounded up */
	FORMAT_ROOM,     /* "1.5Gi", rounded down: what can be had */
	FORMAT_AVERAGE,  /* "1.5Gi", rounded to the nearest: an average of sizes */
	FORMAT_PART,     /* "12.5Gi/80Gi", with a bar, as a part of `whole`; "12.5Gi" without it */
	FORMAT_SHARE,    /* "25%" of 0.25 */
	FORMAT_AGE,      /* "1m05s" since a moment of the API */
	FORMAT_DURATION, /* "3.00s", of nanoseconds */
	FORMAT_LONG_BYTES, /* "1.5 GiB", as the lists of the verbs have it */
	FORMAT_PERCENT,    /* "25.0%" of 0.25 */
	FORMAT_MOMENT,     /* "11-29 08:00" */
};

struct column {
	const char *title;
	/* The place of the value in the object: "used.gpus". Numbers below an array are summed:
	 * "gpus.used_bytes" is the sum over the GPUs that tell one. NULL: `fill` makes it all. */
	const char *path;
	enum column_format format;
	const char *whole; /* the place of the value of which it is a part */
	/* Refines the cell that the format has made; NULL: nothing does. */
	void (*fill)(const json_t *row, int64_t now, struct cell *cell);
	/* The rest is of use on a screen alone. */
	int width;
	int wide;      /* its width where there is more room; 0: no other */
	int rank;      /* where there is no room, the highest go first; 0 stays */
	bool right;    /* numbers */
	bool flexible; /* takes what room is left */
	/* A name or a reason, which is read whole. It gets more than `width` where there is room,
	 * and stands below its row where there is not enough. */
	bool uncut;
	bool leases; /* only where the daemon tells of leases */
};

/* The number at a place; COLUMN_NONE: it is not known. */
uint64_t column_number(const json_t *row, const char *path);
/* The cell in the row of an object. `now`: in seconds since 1970. */
void column_cell(const struct column *column, const json_t *row, int64_t now, struct cell *ret);
/* For `fill`: the text of a cell. */
void column_print(struct cell *cell, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For `fill`: a bar of a part, and a lighter bar that reaches further. */
void column_bar(struct cell *cell, uint64_t part, uint64_t light, uint64_t whole);

/* "79.1Gi", "512Mi", "0": at most 6 characters, powers of 1024, rounded up; COLUMN_NONE: "-". */
#define COLUMN_SHORT_SIZE 16
const char *column_bytes_text(uint64_t bytes, char buf[static COLUMN_SHORT_SIZE]);
/* Likewise, rounded down: what can be had. */
const char *column_room_text(uint64_t bytes, char buf[static COLUMN_SHORT_SIZE]);
/* Likewise, rounded to the nearest: an average of sizes. */
const char *column_average_text(uint64_t bytes, char buf[static COLUMN_SHORT_SIZE]);
/* "12s", "3m05s", "2h10m", "4d07h" */
const char *column_seconds_text(int64_t seconds, char buf[static COLUMN_SHORT_SIZE]);
