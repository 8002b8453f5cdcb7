#include "core/compute.h"

#include <string.h>

#include "base/macros.h"

static const char *const names[] = {
	[COMPUTE_OFF] = "off",
	[COMPUTE_FAIR] = "fair",
	[COMPUTE_STRICT] = "strict",
};

const char *compute_mode_text(enum compute_mode mode)
{
	return (unsigned)mode < ARRAY_SIZE(names) ? names[mode] : "off";
}

bool compute_mode_parse(const char *text, enum compute_mode *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i], text)) {
			*ret = (enum compute_mode)i;
			return true;
		}
	return false;
}
