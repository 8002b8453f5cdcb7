#include "integrations/kubernetes/api/retry.h"

#include "base/macros.h"

unsigned retry_wait_ms(unsigned failures, unsigned random)
{
	unsigned seconds = MIN(1u << MIN(failures, 6u), RETRY_SECONDS_MAX);

	return seconds * 500 + random % (seconds * 500 + 1);
}
