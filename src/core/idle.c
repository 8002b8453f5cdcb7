#include "core/idle.h"

#include "base/macros.h"

/* A user who is warned has the time to come back to the terminal. */
#define WARNING_PART 10
#define WARNING_NS_MOST 600000000000ull

uint64_t idle_warning_ns(const struct idle_policy *policy)
{
	return policy->warning_ns ? policy->warning_ns
				  : MIN(policy->timeout_ns / WARNING_PART, WARNING_NS_MOST);
}

void idle_begin(struct idle_clock *clock, uint64_t now)
{
	*clock = (struct idle_clock){.used_ns = now, .since_ns = now};
}

static enum idle_step withdraw(struct idle_clock *clock)
{
	bool warned = clock->warned_ns;

	clock->warned_ns = 0;
	return warned ? IDLE_STEP_WITHDRAW : IDLE_STEP_NONE;
}

uint64_t idle_release_ns(const struct idle_clock *clock, const struct idle_policy *policy,
			 bool exempt)
{
	if (!clock->since_ns || !policy->timeout_ns || exempt)
		return 0;
	return MAX(clock->since_ns + policy->timeout_ns,
		   clock->warned_ns ? clock->warned_ns + idle_warning_ns(policy) : 0);
}

enum idle_step idle_advance(struct idle_clock *clock, const struct idle_policy *policy, bool exempt,
			    enum idle_look look, uint64_t now)
{
	if (look != IDLE_LOOK_UNUSED) {
		clock->used_ns = now;
		clock->since_ns = 0;
		return withdraw(clock);
	}
	if (!clock->since_ns)
		clock->since_ns = clock->used_ns;
	uint64_t release = idle_release_ns(clock, policy, exempt);
	if (!release || now + idle_warning_ns(policy) < release)
		return withdraw(clock);
	if (!clock->warned_ns) {
		clock->warned_ns = now;
		return IDLE_STEP_WARN;
	}
	return now >= release ? IDLE_STEP_RELEASE : IDLE_STEP_NONE;
}
