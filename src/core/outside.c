#include "core/outside.h"

#include <stddef.h>

#include "base/macros.h"

/* As login.defs has it (UID_MIN) on Debian and Red Hat. */
#define USERS_FIRST 1000u
/* systemd's range for services without a user of their own, and the kernel's for nobody. */
#define SERVICES_FIRST 61184u
#define SERVICES_LAST 65519u
#define NOBODY 65534u

bool outside_user_is_ordinary(uint32_t uid)
{
	return uid >= USERS_FIRST && (uid < SERVICES_FIRST || uid > SERVICES_LAST) &&
	       uid != NOBODY && uid != UINT16_MAX && uid != UINT32_MAX;
}

enum outside_spared outside_spared(const struct outside_facts *facts)
{
	const struct {
		bool holds;
		enum outside_spared why;
	} reasons[] = {
		{!facts->one_user, OUTSIDE_SPARED_USERS},
		{facts->uid == 0, OUTSIDE_SPARED_ROOT},
		{!outside_user_is_ordinary(facts->uid), OUTSIDE_SPARED_SYSTEM},
		{facts->exempt, OUTSIDE_SPARED_EXEMPT},
		{facts->graphics, OUTSIDE_SPARED_GRAPHICS},
		{!facts->proved, OUTSIDE_SPARED_UNPROVED},
		{facts->foreign, OUTSIDE_SPARED_NAMESPACE},
		{facts->refused, OUTSIDE_SPARED_REFUSED},
	};

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].holds)
			return reasons[i].why;
	return OUTSIDE_SPARED_NOT;
}

void outside_restart(struct outside_life *life)
{
	*life = (struct outside_life){0};
}

static const struct {
	enum outside_state from, to;
	bool ends;
	enum outside_step step;
} steps[] = {
	{OUTSIDE_SEEN, OUTSIDE_WARNED, true, OUTSIDE_STEP_WARN},
	{OUTSIDE_SEEN, OUTSIDE_REPORTED, false, OUTSIDE_STEP_REPORT},
	{OUTSIDE_WARNED, OUTSIDE_TERMINATED, true, OUTSIDE_STEP_TERMINATE},
	{OUTSIDE_TERMINATED, OUTSIDE_KILLED, true, OUTSIDE_STEP_KILL},
};

static uint64_t due_ns(enum outside_step step, uint64_t after_ns)
{
	return step == OUTSIDE_STEP_WARN   ? after_ns / 2
	       : step == OUTSIDE_STEP_KILL ? after_ns + OUTSIDE_KILL_AFTER_NS
					   : after_ns;
}

enum outside_step outside_advance(struct outside_life *life, uint64_t now, bool ends,
				  uint64_t after_ns)
{
	/* The warning belongs to the policy of its time. */
	if ((!ends && life->state > OUTSIDE_REPORTED) || (ends && life->state == OUTSIDE_REPORTED))
		outside_restart(life);
	if (life->looked_ns)
		life->lasted_ns += MIN(now - MIN(life->looked_ns, now), OUTSIDE_LOOK_NS_MOST);
	life->looked_ns = now;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		if (steps[i].from != life->state || steps[i].ends != ends ||
		    life->lasted_ns < due_ns(steps[i].step, after_ns))
			continue;
		life->state = steps[i].to;
		return steps[i].step;
	}
	return OUTSIDE_STEP_NONE;
}

uint64_t outside_left_ns(const struct outside_life *life, uint64_t after_ns)
{
	return after_ns - MIN(life->lasted_ns, after_ns);
}
