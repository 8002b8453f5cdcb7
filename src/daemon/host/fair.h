/* Users take turns at the loop. One user may have thousands of calls that are ready to be answered,
 * and each takes up to some milliseconds. So calls are answered at once only for FAIR_NS in each
 * pass of the loop. All further calls stand in lines, one line a user, and each user in turn has
 * one call answered. A user's call thus waits for at most one call of each other user that has any.
 * Users are owners as in host/crowd.h. One thread, the loop's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The time for answering calls in one pass of the loop. */
#define FAIR_NS 2000000ull

struct fair_line;

/* A place in a line; embedded in what it belongs to. */
struct fair_work {
	struct fair_work *next, *previous;
	struct fair_line *line; /* NULL: it stands in none */
	void (*run)(struct fair_work *work);
};

struct fair {
	struct fair_line *lines, *last; /* in the order of their users' turns */
	uint64_t spent_ns;              /* in this pass of the loop */
};

/* Runs it at once, or puts it behind the user's others. True: it has run. False: fair_run() runs
 * it, unless fair_withdraw() takes it out. Where there is no memory for a line, it runs at once. */
bool fair_do(struct fair *fair, uid_t owner, struct fair_work *work);
/* Puts it behind the user's others in every case. False: there is no memory for a line. */
bool fair_line_up(struct fair *fair, uid_t owner, struct fair_work *work);
/* Whether fair_do() would let it wait. */
bool fair_waits(const struct fair *fair);
/* Takes it out of its line, if it stands in one. */
void fair_withdraw(struct fair_work *work);
/* A new pass of the loop: runs what stands in the lines, for FAIR_NS. Returns whether some is
 * left. */
bool fair_run(struct fair *fair);
