/* Tells by an event when 90% of the GPU-hours of a month are held, before anything is refused.
 * Hours pass by themselves, so that no grant is the moment (quota_near.h). */
#pragma once

#include <stdint.h>

#include "core/quota.h"

struct quotas;

/* A user or a group of which it was told. There are no more than users and groups with quotas. */
struct quota_hours_told {
	struct quota_hours_told *next;
	enum quota_kind kind;
	uint32_t id;
	int64_t month; /* the end of that month; CLOCK_REALTIME, ns */
};

/* Each second: looks at the user of one session, and at that user's groups. All sessions have
 * their turn. */
void quota_hours_tick(struct quotas *quotas);
void quota_hours_free(struct quotas *quotas);
