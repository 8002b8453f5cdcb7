/* Tells by an event when a grant brings a use to 90% of a quota, each time that the limit is
 * crossed. A user may cross limits as often as that user likes: beyond QUOTA_NEAR_PER_MINUTE events
 * of a user within a minute no more are told. Loop thread. */
#pragma once

#include <stdint.h>

struct quotas;
struct session;

#define QUOTA_NEAR_PER_MINUTE 10u

/* The session is among the sessions since now; or, with `grown`, has become larger by as many
 * bytes. */
void quota_near_look(struct quotas *quotas, const struct session *session, uint64_t grown);
