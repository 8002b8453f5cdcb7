/* The budget of one pass of the loop, and users' turns at it. All work whose amount users decide
 * draws on the same FAIR_NS: calls, reading, accepting connections, arrays, jobs that start, end,
 * or wait for others. One user may have thousands of such pieces, and each takes up to some
 * milliseconds. So work is done at once only while there is some of the budget left. All further
 * pieces stand in lines, one line a user, and each user in turn has one piece done. A user's piece
 * thus waits for at most one piece of each other user. Work that outlasts FAIR_STEP_NS is cut, and
 * goes behind its user's other pieces. Users are owners as in host/budget.h. One thread, the
 * loop's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The time for all of that in one pass of the loop. */
#define FAIR_NS 2000000ull
/* The time after which a piece of work that can be cut is cut. */
#define FAIR_STEP_NS 500000ull

struct fair_line;

/* A place in a line; embedded in what it belongs to. */
struct fair_work {
	struct fair_work *next, *previous;
	struct fair_line *line; /* NULL: it stands in none */
	void (*run)(struct fair_work *work);
};

struct fair {
	struct fair_line *lines, *last; /* in the order of their users' turns */
	uint64_t spent_ns;              /* in this pass of the loop, before the work that goes on */
	uint64_t began_ns;              /* the work that goes on; it lies in this many others: */
	unsigned depth;
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
/* Work that stands in no line counts from fair_begin() to fair_end(). Both may be called within
 * other work, which counts once. */
void fair_begin(struct fair *fair);
void fair_end(struct fair *fair);
/* Whether nothing is left of the budget of this pass. */
bool fair_is_spent(const struct fair *fair);
/* A new pass of the loop begins, with a whole budget. */
void fair_pass(struct fair *fair);
/* Runs what stands in the lines: one piece, and more while some of the budget is left. Returns
 * whether some is left. */
bool fair_run(struct fair *fair);
