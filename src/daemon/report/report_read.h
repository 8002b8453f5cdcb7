/* The tallies of a period, added up from the database, and the answer's text. Both take up to some
 * tens of milliseconds, so they run on the thread pool, with a connection of their own that only
 * reads. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/host/names.h"
#include "daemon/store/store.h"

enum report_by { REPORT_BY_USER, REPORT_BY_GROUP, REPORT_BY_GPU, REPORT_BY_NAME };
extern const char *const report_by_words[];

/* Lines of an answer; those with fewer GPU-hours come as one. */
#define REPORT_LINES_MAX 1000u

struct report_query {
	enum report_by by;
	int64_t first, last; /* days, both included */
	int64_t uid;         /* only this user's; -1: all users' */
};

struct report_line {
	struct store_tally sum; /* the key has those fields that `by` names */
	int32_t index;          /* NVML's number of the GPU; -1: not known */
	char model[96];
	char user[NAMES_SIZE]; /* the name of the user or group, which is the caller's to fill in */
};

struct report_answer {
	struct report_query query;
	int64_t began; /* the first day of which all is there */
	uint32_t count, left_out;
	struct report_line *lines; /* the most GPU-hours first */
	struct tally rest, total;  /* the lines that are left out, and all */
};

/* Reads the database at that path. 0 or -errno; report_answer_free() in each case. */
int report_read(const char *path, const struct report_query *query, struct report_answer *ret);
/* The answer as JSON, from malloc; NULL: no memory. */
char *report_text(const struct report_answer *answer);
void report_answer_free(struct report_answer *answer);
/* Reads "2026-11-29": days since 1970. 0 or -EINVAL. */
int report_day_parse(const char *text, int64_t *ret);
#define REPORT_DAY_SIZE 16
const char *report_day_text(int64_t day, char buf[static REPORT_DAY_SIZE]);
