/* Whether a session leaves its GPUs unused, and what the administrator's policy does about it.
 * Pure.
 *
 * A look says whether the session used GPU time since the look before it. The session is idle since
 * the last look that may have seen use, or since its beginning. So a time is never earlier than the
 * truth, and a look that could not tell (IDLE_LOOK_UNKNOWN) begins the time anew.
 *
 *   state     when                                              step
 *   idle      `timeout_ns` less `warning_ns` have passed        WARN
 *   warned    `timeout_ns` have passed, and `warning_ns` since  RELEASE
 *             the warning
 *   warned    it works, or nobody can tell, or the policy       WITHDRAW
 *             leaves it more time
 *
 * Nobody is released without a warning that was `warning_ns` old, whatever the policy becomes
 * meanwhile. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct idle_policy {
	uint64_t timeout_ns; /* 0: nobody is released */
	uint64_t warning_ns; /* less than the timeout; 0: a tenth of it, at most 10 minutes */
};

enum idle_look {
	IDLE_LOOK_USED,
	IDLE_LOOK_UNUSED,
	IDLE_LOOK_UNKNOWN,
};

enum idle_step {
	IDLE_STEP_NONE,
	IDLE_STEP_WARN,
	IDLE_STEP_WITHDRAW,
	IDLE_STEP_RELEASE,
};

/* A session's. Times are CLOCK_MONOTONIC in ns, as `now` below. */
struct idle_clock {
	uint64_t used_ns;   /* the last look that may have seen use, or the beginning */
	uint64_t since_ns;  /* 0: it is not idle, as far as anybody can tell */
	uint64_t warned_ns; /* 0: its user is not warned */
};

/* How long before the release the warning comes. */
uint64_t idle_warning_ns(const struct idle_policy *policy);
/* The session begins, or a daemon takes it up. */
void idle_begin(struct idle_clock *clock, uint64_t now);
/* One look. `exempt`: the policy spares the session. */
enum idle_step idle_advance(struct idle_clock *clock, const struct idle_policy *policy, bool exempt,
			    enum idle_look look, uint64_t now);
/* When an idle session is released if it stays idle; 0: never, or it is not idle. */
uint64_t idle_release_ns(const struct idle_clock *clock, const struct idle_policy *policy,
			 bool exempt);
