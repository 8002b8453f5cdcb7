/* Quotas: what a user, or the users of a group together, may hold at most. Pure.
 *
 * A user has one limit of each kind: the most specific one that is set. The user's own quota goes
 * first, then the quota for each member of a group, then the one for everyone, and then the
 * defaults of carved.json. A group's quota is a sum over its members and holds besides. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

struct error;

/* In a field of a quota: it says nothing, and a less specific quota holds. */
#define QUOTA_NONE UINT64_MAX
/* There is no limit, whatever less specific quotas say. */
#define QUOTA_UNLIMITED (UINT64_MAX - 1)

/* The order is the order of lists. */
enum quota_limit {
	QUOTA_VRAM,     /* bytes: the sum over all slices and GPUs */
	QUOTA_SESSIONS, /* at a time */
	QUOTA_GPUS,     /* different ones at a time */
	QUOTA_HOURS,    /* GPU-hours that are held in a calendar month, in milliseconds */
	QUOTA_LIMITS,   /* so many; also: within all limits */
};
#define QUOTA_WITHIN QUOTA_LIMITS

struct quota {
	uint64_t most[QUOTA_LIMITS];
};

/* No limit is set. */
#define QUOTA_NOTHING                                                  \
	{                                                              \
		{                                                      \
			QUOTA_NONE, QUOTA_NONE, QUOTA_NONE, QUOTA_NONE \
		}                                                      \
	}
extern const struct quota quota_none;

/* For whom a quota is, from the most specific one on. Databases have these numbers. */
enum quota_kind {
	QUOTA_OF_USER = 0,
	QUOTA_OF_GROUP = 1,    /* all members together */
	QUOTA_OF_EACH = 2,     /* each member of a group */
	QUOTA_OF_EVERYONE = 3, /* each user */
	QUOTA_OF_DEFAULTS = 4, /* each user, by carved.json; in no database */
	QUOTA_OF_NOBODY = 5,   /* nobody set a limit */
};

/* The present use. */
struct quota_use {
	uint64_t vram_bytes;
	uint64_t sessions;
	uint64_t gpu_mask; /* bit = position in the pool */
	uint64_t gpu_ms;   /* held in this month: milliseconds of a whole GPU */
};

struct quota_use quota_add(struct quota_use a, struct quota_use b);
uint64_t quota_gpus(struct quota_use use);
/* The use that one limit counts. */
uint64_t quota_used(struct quota_use use, enum quota_limit limit);
/* A limit that `use` exceeds, or QUOTA_WITHIN. Hours are exceeded once they are used up, and are
 * looked at first: nothing that a user releases gives them back. */
enum quota_limit quota_check(const struct quota *quota, struct quota_use use);
/* Whether a field of a quota limits anything. */
static inline bool quota_is_limit(uint64_t most)
{
	return most < QUOTA_UNLIMITED;
}
/* Whether a quota belongs to a group, or to each of its members. */
static inline bool quota_is_of_group(enum quota_kind kind)
{
	return kind == QUOTA_OF_GROUP || kind == QUOTA_OF_EACH;
}

/* The limits that hold for one user, and whose they are. */
struct quota_bounds {
	struct quota most;
	struct {
		enum quota_kind kind;
		uint32_t id; /* its user or group */
	} from[QUOTA_LIMITS];
};
/* No limits. */
void quota_bounds_begin(struct quota_bounds *bounds);
/* Takes each limit that is more specific than the present one. Where a user is in
 * several groups, the larger limit holds. The order of the calls does not matter. */
void quota_bounds_add(struct quota_bounds *bounds, const struct quota *quota, enum quota_kind kind,
		      uint32_t id);

/* A limit as people write it: a size of GPU memory ("16GiB"; "0": none of it), or hours ("100",
 * "2.5") to milliseconds. `option`: "--vram". 0, or negative with *err. */
int quota_parse_vram(const char *text, const char *option, uint64_t *ret, struct error *err);
int quota_parse_hours(const char *text, const char *option, uint64_t *ret, struct error *err);
/* A limit of hours to the nearest ten-thousandth. A limit above 0 stays above 0. */
uint64_t quota_limit_ms(double hours);
/* A limit of hours without an exponent: "100", "2.5", "0.0005". Returns buf. */
const char *quota_format_hours(uint64_t ms, char buf[static UNITS_TEXT_SIZE]);
/* Hours that are used, rounded down to ten-thousandths. */
double quota_used_hours(uint64_t ms);
/* More hours are refused: a hundred GPUs for a thousand months. */
#define QUOTA_HOURS_MAX 100000000u
