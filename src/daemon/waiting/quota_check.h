/* Whether the quotas of a user let a grant be, and the refusal in words. */
#pragma once

#include <stdint.h>

#include "core/place.h"

struct error;
struct peer;
struct quotas;
struct session;

/* Whether this user may be granted that. 0; -EAGAIN: not on top of what is held, or not in this
 * month; -EPERM: never. The latter two with *err in words. */
int quotas_check(const struct quotas *quotas, const struct peer *peer,
		 const struct place_result *result, struct error *err);
/* Whether a session may become that large on its GPUs. 0, or -EPERM with *err. */
int quotas_check_resize(const struct quotas *quotas, const struct session *session,
			const uint64_t *bytes, struct error *err);
