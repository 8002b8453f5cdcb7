/* Whether the quotas of a user let a grant be, and the refusal in words. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "core/place.h"

struct error;
struct peer;
struct quotas;
struct session;

/* Whether this user may be granted that. 0; -EAGAIN: not on top of what is held, or not in this
 * month; -EPERM: never. The latter two with *err in words. */
int quotas_check(const struct quotas *quotas, const struct peer *peer,
		 const struct place_result *result, struct error *err);
/* Whether the GPU-hours of this user are used up in this month, or those of one of its groups
 * (*ret_of_group). */
bool quotas_hours_used_up(const struct quotas *quotas, const struct peer *peer, bool *ret_of_group);
/* The day on which hours count anew: "2026-12-01 (UTC)". */
const char *quotas_month_text(char buf[static UNITS_TEXT_SIZE]);
/* Whether a session may become that large on its GPUs. 0, or -EPERM with *err. */
int quotas_check_resize(const struct quotas *quotas, const struct session *session,
			const uint64_t *bytes, struct error *err);
