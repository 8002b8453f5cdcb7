/* The configuration file: any text is taken, within its bounds, or refused with one line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config config;
	struct error err = {0};

	memset(&config, 0xa5, sizeof(config));
	struct config before = config;
	if (config_parse((const char *)data, size, &config, &err) < 0) {
		if (!err.code || !err.message[0] || memcmp(&before, &config, sizeof(config)) != 0)
			abort();
		return 0;
	}
	if ((config.over_policy != OVER_REPORT && config.over_policy != OVER_KILL) ||
	    config.over_after_ns < 1000000000ull || config.over_after_ns > 3600000000000ull ||
	    config.over_tolerance_bytes > 1ull << 50 || config.history_sessions > 10000000)
		abort();
	if (config.outside.after_ns < 2000000000ull ||
	    config.outside.after_ns > 86400000000000ull ||
	    config.outside.users.count > EXEMPT_NAMES_MAX ||
	    config.outside.groups.count > EXEMPT_NAMES_MAX)
		abort();
	return 0;
}
