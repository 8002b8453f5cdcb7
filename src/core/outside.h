/* Programs that use a GPU outside of carve's slices: which of them a policy may end, and when.
 * Pure.
 *
 * The life of such a program, while it is listed on a GPU and belongs to no slice. `after` is the
 * administrator's `outside_seconds`:
 *
 *   from        when it has lasted   to          step
 *   SEEN        after / 2            WARNED      WARN, where the policy ends it
 *   SEEN        after                REPORTED    REPORT, where the policy spares it
 *   WARNED      after                TERMINATED  TERMINATE
 *   TERMINATED  after + 3 s          KILLED      KILL
 *   any                              SEEN        it belongs to a slice, or is spared by now
 *
 * Time counts only while the driver lists the program again and again: two looks add 2 s at most.
 * So a daemon that was stopped for an hour ends nobody at its first look. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum outside_state {
	OUTSIDE_SEEN,
	OUTSIDE_REPORTED,
	OUTSIDE_WARNED,
	OUTSIDE_TERMINATED,
	OUTSIDE_KILLED,
};

enum outside_step {
	OUTSIDE_STEP_NONE,
	OUTSIDE_STEP_REPORT,
	OUTSIDE_STEP_WARN,
	OUTSIDE_STEP_TERMINATE,
	OUTSIDE_STEP_KILL,
};

/* Zero at first. */
struct outside_life {
	enum outside_state state;
	uint64_t lasted_ns;
	uint64_t looked_ns; /* CLOCK_MONOTONIC of the last look; 0: there was none */
};

/* A program that does not end by SIGTERM is killed this much later. */
#define OUTSIDE_KILL_AFTER_NS 3000000000ull
/* Two looks add no more than this. */
#define OUTSIDE_LOOK_NS_MOST 2000000000ull

/* One look, at `now`. `ends`: the policy ends the program. */
enum outside_step outside_advance(struct outside_life *life, uint64_t now, bool ends,
				  uint64_t after_ns);
/* It belongs to a slice, or is another program by now: its time begins anew. */
void outside_restart(struct outside_life *life);
/* The time until it is ended; 0: it was told to end. */
uint64_t outside_left_ns(const struct outside_life *life, uint64_t after_ns);

/* The reasons for which the policy ends no program, the first one that holds. */
enum outside_spared {
	OUTSIDE_SPARED_NOT,
	OUTSIDE_SPARED_ROOT,
	OUTSIDE_SPARED_SYSTEM,    /* a service's user ID */
	OUTSIDE_SPARED_USERS,     /* its user IDs differ, or are not to be seen */
	OUTSIDE_SPARED_EXEMPT,    /* the administrator named its user or a group of it */
	OUTSIDE_SPARED_GRAPHICS,  /* it draws, and computes nothing */
	OUTSIDE_SPARED_NAMESPACE, /* it is in another user or PID namespace, as of a container */
	OUTSIDE_SPARED_UNPROVED,  /* nobody could look yet whether it is in a slice */
	OUTSIDE_SPARED_REFUSED,   /* the kernel, or the warden, let nobody signal it */
	OUTSIDE_SPARED_COUNT,
};

struct outside_facts {
	uint32_t uid;
	bool one_user; /* all of its user IDs are that one */
	bool exempt, graphics, foreign, proved, refused;
};

enum outside_spared outside_spared(const struct outside_facts *facts);
/* Whether a user ID is a person's: neither root's, nor a system account's, nor one that systemd
 * gives to services for as long as they run (DynamicUser=), nor nobody's. */
bool outside_user_is_ordinary(uint32_t uid);
