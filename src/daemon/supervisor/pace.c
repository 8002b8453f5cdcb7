#include "daemon/supervisor/pace.h"

#include "base/macros.h"

uint64_t pace_ended(struct pace *pace, uint64_t lived_ns, bool served)
{
	uint64_t longest = served ? PACE_SERVED_NS : PACE_FAILED_NS, wait = PACE_FIRST_NS;

	if (served && lived_ns >= PACE_LASTED_NS)
		pace->quick = 0;
	if (++pace->quick <= PACE_AT_ONCE)
		return 0;
	for (unsigned i = PACE_AT_ONCE + 1; i < pace->quick && wait < longest; i++)
		wait *= 2;
	return MIN(wait, longest);
}
