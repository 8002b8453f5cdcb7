#include "core/leaf.h"

#include <stddef.h>

/* A command is never without a limit where a cgroup can be made for it. A container's process is
 * refused, as its user decides what else is in its cgroup. A process that runs already is left to
 * the front only where it is known that others share its cgroup. */
enum leaf_choice leaf_choose(const struct leaf_facts *f, const char **ret_why)
{
	bool own = !f->root && !f->others && (f->company == LEAF_ALONE || f->made);
	bool unknown = !f->root && !f->others && f->company == LEAF_UNKNOWN;

	*ret_why = NULL;
	if (own)
		return LEAF_TAKEN;
	if (f->asker == LEAF_COMMAND && !f->fixed)
		return LEAF_MADE;
	*ret_why = f->asker == LEAF_COMMAND ? LEAF_FIXED_TEXT
		   : unknown   ? "there are too many processes in its cgroup to look at"
		   : f->root   ? "a process of it is in the root cgroup"
		   : f->others ? "a process of it is in a cgroup with another limit"
			       : "a process of it is in a cgroup that others share";
	return f->asker == LEAF_CONTAINER || (f->asker == LEAF_ATTACHING && unknown) ? LEAF_REFUSED
										     : LEAF_FRONT;
}

/* ---- the processes in a cgroup --------------------------------------------------------- */

/* Processes that are known to be the session's, then those between them and the one that is looked
 * at. */
struct kin {
	struct process_id known[LEAF_STEPS_MAX];
	size_t count;
	unsigned steps;
};

static bool is_among(struct process_id process, const struct process_id *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (process_same(process, list[i]))
			return true;
	return false;
}

static bool step_take(struct kin *kin)
{
	if (!kin->steps)
		return false;
	kin->steps--;
	return true;
}

/* Climbs from one process to its first ancestor that is known. All that it passed is known then. */
static enum leaf_company kin_climb(struct kin *kin, struct process_id at,
				   const struct process_id *roots, size_t root_count,
				   const struct leaf_reader *reader)
{
	size_t first = kin->count, passed = first;

	while (!is_among(at, roots, root_count) && !is_among(at, kin->known, first)) {
		if (passed - first == LEAF_ANCESTORS_MAX || !step_take(kin))
			return LEAF_UNKNOWN;
		kin->known[passed++] = at;
		if (!reader->parent(reader->context, at, &at))
			return LEAF_SHARED;
	}
	kin->count = passed;
	return LEAF_ALONE;
}

enum leaf_company leaf_company(const pid_t *list, size_t count, const struct process_id *roots,
			       size_t root_count, const struct leaf_reader *reader)
{
	struct kin kin = {.steps = LEAF_STEPS_MAX};
	enum leaf_company company = LEAF_ALONE;

	for (size_t i = 0; i < count && company == LEAF_ALONE; i++) {
		struct process_id process;

		if (!list[i])
			return LEAF_SHARED;
		if (!step_take(&kin))
			return LEAF_UNKNOWN;
		/* One that is gone is nobody. */
		if (reader->identify(reader->context, list[i], &process) == 0)
			company = kin_climb(&kin, process, roots, root_count, reader);
	}
	return company;
}

/* ---- the life of a limit --------------------------------------------------------------- */

/* LIMIT_STATES: it cannot happen. */
static const enum limit_state next[LIMIT_STATES][LIMIT_EVENTS] = {
	/*                RECORD          SET           LAPSE           CLEAR */
	[LIMIT_NONE] = {LIMIT_RECORDED, LIMIT_STATES, LIMIT_STATES, LIMIT_STATES},
	[LIMIT_RECORDED] = {LIMIT_RECORDED, LIMIT_HELD, LIMIT_RECORDED, LIMIT_NONE},
	[LIMIT_HELD] = {LIMIT_HELD, LIMIT_HELD, LIMIT_RECORDED, LIMIT_NONE},
};

bool limit_next(enum limit_state from, enum limit_event event, enum limit_state *ret)
{
	if (next[from][event] == LIMIT_STATES)
		return false;
	*ret = next[from][event];
	return true;
}
