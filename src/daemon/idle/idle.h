/* Sessions that leave their GPUs unused (docs/admin/policies.md, "Release what nobody uses"). Once
 * a second each session is looked at, and core/idle.h says what follows: a warning, its withdrawal,
 * or the release. The end of an idle session is that of a session whose time was up. A job ends
 * with its reason, and its session with it.
 *
 * Nothing of it is stored. A daemon that starts begins the idle time of each session anew, as it
 * cannot know what happened without a daemon. Loop thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/idle.h"

struct exempt;
struct exempt_names;
struct groups;
struct idle;
struct session;
struct sessions;

struct idle_hooks {
	/* Ends the job whose session this is, for that reason. False: it is no job's. */
	bool (*end_job)(void *context, const struct session *session, const char *why);
};

/* Once sessions and MIG have begun. 0 or -errno. */
int idle_start(struct sessions *sessions, const struct idle_hooks *hooks, void *context,
	       struct idle **ret);
/* The policy that holds from now on, and the users and groups that it spares. While a name is not
 * known nobody is released. Takes `idle` NULL. */
void idle_set(struct idle *idle, const struct idle_policy *policy, const struct exempt_names *users,
	      const struct exempt_names *groups);
/* The users and groups that the policy spares. NULL where `idle` is NULL. */
const struct exempt *idle_exempt(const struct idle *idle);
/* Whether the policy spares a user of these groups, or every user. Takes `idle` NULL. */
bool idle_exempts(struct idle *idle, uid_t uid, gid_t gid, const struct groups *groups);
/* Each second. */
void idle_tick(struct idle *idle);
/* Takes NULL. A look that still runs ends by itself. */
void idle_stop(struct idle *idle);

/* The state of one session, for showing. Times in ns since 1970; 0: none. */
struct idle_standing {
	int64_t since;      /* 0: it works, or nobody can tell */
	int64_t release_at; /* 0: it is not released for being idle */
	bool warned;        /* its user is warned of that */
	bool bound;         /* the policy holds for it: */
	uint64_t timeout_ns, warning_ns;
	const char *unknown_why; /* why nobody can tell; NULL: it is known */
};
void idle_standing(struct idle *idle, const struct session *session, struct idle_standing *ret);
