/* How a GPU's time is shared, and what of it is promised. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Numbers are on disk. */
enum compute_mode {
	COMPUTE_OFF = 0,    /* the driver's own sharing: time is promised to nobody */
	COMPUTE_FAIR = 1,   /* a request is the least that its session gets */
	COMPUTE_STRICT = 2, /* and the most */
};

/* "off", "fair", "strict". */
const char *compute_mode_text(enum compute_mode mode);
/* False: no mode is called that. */
bool compute_mode_parse(const char *text, enum compute_mode *ret);
/* Whether requests are promises in this mode: then those on one GPU come to SHARE_ONE at most. */
static inline bool compute_mode_promises(enum compute_mode mode)
{
	return mode != COMPUTE_OFF;
}
