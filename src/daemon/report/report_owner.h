/* Owners with the figures that are counted and not written yet, and with their GPU-hours in this
 * month. The number of rows of one owner is bounded as it is in the database. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/store/store.h"

struct report;

struct report_row {
	struct report_row *next, *previous; /* all that are to be written */
	struct report_row *next_of_owner;
	struct report_owner *owner;
	struct store_tally stored;
};

/* GPU-hours in this month, of one primary group. */
struct report_month {
	struct report_month *next;
	gid_t gid;
	uint64_t gpu_ns;
};

struct report_owner {
	struct report_owner *next;
	uid_t uid;
	struct report_row *rows;
	unsigned names; /* rows that are named, and have a name */
	struct report_month *months;
	unsigned groups; /* in `months` */
};

/* Adds to the rows of a user on a day: to that of the group and the GPU of `key`, and to that of
 * its name. Without memory it is lost. */
void report_add(struct report *report, const struct store_tally *key);
/* NULL: nothing was counted for it. */
struct report_owner *report_owner_find(const struct report *report, uid_t uid);
/* Takes at most `most` rows out of what is to be written; they become the caller's. */
uint32_t report_rows_take(struct report *report, struct report_row **ret, uint32_t most);
/* Puts rows back that could not be written. */
void report_rows_return(struct report *report, struct report_row **rows, uint32_t count);
/* Sums the month of that day up, from the database and from what is not written. 0 or -errno. */
int report_month_load(struct report *report, int64_t day);
void report_owners_free(struct report *report);
