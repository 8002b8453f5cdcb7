/* Which cgroup the driver's limit of a session is set on, and what becomes of one: pure. */
#pragma once

#include <stdbool.h>

/* The facts known of the cgroup that a process of the session is in. */
struct leaf_facts {
	bool root;    /* it is the machine's own, in which everything may be */
	bool made;    /* carve made it for this session */
	bool alone;   /* nobody but the session's processes is in it */
	bool others;  /* it carries another session's limit, or one that carve did not set */
	bool movable; /* the process has not begun, and may be put into another one */
};

enum leaf_choice {
	LEAF_TAKEN, /* the cgroup itself */
	LEAF_MADE,  /* one of the session's own below it */
	LEAF_NONE,  /* the front alone binds */
};

/* *ret_why, where there is none: a line for users, static. */
enum leaf_choice leaf_choose(const struct leaf_facts *facts, const char **ret_why);

/* NONE -> RECORDED (on disk, so that whoever comes next takes it away) -> HELD (the driver has it)
 * -> GOING (it is being taken away) -> NONE. */
enum limit_state {
	LIMIT_NONE,
	LIMIT_RECORDED,
	LIMIT_HELD,
	LIMIT_GOING,
	LIMIT_STATES,
};

enum limit_event {
	LIMIT_EVENT_RECORD,
	LIMIT_EVENT_SET,   /* the driver took it */
	LIMIT_EVENT_LEAVE, /* it is of no use any more, or the driver did not take it */
	LIMIT_EVENT_CLEAR, /* the driver has none */
	LIMIT_EVENTS,
};

/* False: that cannot happen in this state. */
bool limit_next(enum limit_state from, enum limit_event event, enum limit_state *ret);
