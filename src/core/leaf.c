#include "core/leaf.h"

#include <stddef.h>

enum leaf_choice leaf_choose(const struct leaf_facts *f, const char **ret_why)
{
	bool own = !f->root && !f->others && (f->alone || f->made);

	*ret_why = NULL;
	if (own)
		return LEAF_TAKEN;
	if (f->movable)
		return LEAF_MADE;
	*ret_why = f->root     ? "a process of it is in the root cgroup"
		   : f->others ? "a process of it is in a cgroup with another limit"
			       : "a process of it is in a cgroup that others share";
	return LEAF_NONE;
}

/* LIMIT_STATES: it cannot happen. */
static const enum limit_state next[LIMIT_STATES][LIMIT_EVENTS] = {
	/*                RECORD          SET           LEAVE         CLEAR */
	[LIMIT_NONE] = {LIMIT_RECORDED, LIMIT_STATES, LIMIT_STATES, LIMIT_STATES},
	[LIMIT_RECORDED] = {LIMIT_RECORDED, LIMIT_HELD, LIMIT_GOING, LIMIT_STATES},
	[LIMIT_HELD] = {LIMIT_HELD, LIMIT_HELD, LIMIT_GOING, LIMIT_STATES},
	[LIMIT_GOING] = {LIMIT_STATES, LIMIT_STATES, LIMIT_GOING, LIMIT_NONE},
};

bool limit_next(enum limit_state from, enum limit_event event, enum limit_state *ret)
{
	if (next[from][event] == LIMIT_STATES)
		return false;
	*ret = next[from][event];
	return true;
}
