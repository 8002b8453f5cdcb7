#include "daemon/idle/idle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "base/clock.h"
#include "base/units.h"
#include "daemon/events/events.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/idle/idle_look.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/settle/exempt.h"

/* Asking the driver takes a part in this many of the time at most: it may hold programs' own calls
 * up meanwhile. */
#define COST_PART 20
#define AHEAD_NS 500000000ll

struct idle {
	struct sessions *sessions;
	const struct idle_hooks *hooks;
	void *context;
	struct idle_policy policy;
	struct exempt exempt;
	const char *unknown; /* a name of it that this machine does not know; NULL: none */
	int64_t ahead;       /* how far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, about */
	/* The thread pool has the sheets of `mask` while `running`. */
	uv_work_t work;
	bool running, stopped;
	uint64_t mask;
	uint64_t ended_ns, took_ns;
	struct idle_sheet sheets[GPUS_MAX];
};

/* ---- the policy -------------------------------------------------------------------------- */

const struct exempt *idle_exempt(const struct idle *idle)
{
	return idle ? &idle->exempt : NULL;
}

bool idle_exempts(struct idle *idle, uid_t uid, gid_t gid, const struct groups *groups)
{
	return idle && (idle->unknown || exempt_has_owner(&idle->exempt, uid, gid, groups));
}

/* Sessions that root's services keep, as the Kubernetes plugin does for a pod, end with what they
 * were made for. */
static bool is_exempt(struct idle *idle, const struct session *s)
{
	return (s->record.kept && s->record.uid == 0) ||
	       idle_exempts(idle, s->record.uid, s->record.gid, &s->record.groups);
}

/* A name may be a directory server's, and its user somebody whose work is to be spared. */
static void exempt_follow(struct idle *idle)
{
	bool group = false, told = idle->unknown;

	idle->unknown = exempt_look(&idle->exempt, &group);
	if (idle->unknown && !told)
		log_event(LOG_WARNING, "idle.no_%s name=%s", group ? "group" : "user",
			  idle->unknown);
}

static uint64_t whole_seconds(uint64_t ns)
{
	return ns / 1000000000 * 1000000000;
}

/* Writes the event, with a text such as "no GPU time for 1h50m, released in 10m". */
static void tell(const struct idle *idle, const struct session *s, enum event_kind kind,
		 uint64_t now)
{
	char subject[STORE_ID_SIZE + sizeof("session ")], text[3 * UNITS_TEXT_SIZE];
	char unused[UNITS_TEXT_SIZE], left[UNITS_TEXT_SIZE];
	uint64_t since = s->idle.clock.since_ns;
	uint64_t release = idle_release_ns(&s->idle.clock, &idle->policy, false);

	snprintf(subject, sizeof(subject), "session %s", s->record.id);
	units_format_exact_duration(since ? whole_seconds(now - since) : 0, unused);
	units_format_exact_duration(release > now ? whole_seconds(release - now) : 0, left);
	if (kind == EVENT_IDLE_WITHDRAWN)
		snprintf(text, sizeof(text), "it is not released for now");
	else
		snprintf(text, sizeof(text), "no GPU time for %s%s%s", unused,
			 kind == EVENT_IDLE_WARNED ? ", released in " : "",
			 kind == EVENT_IDLE_WARNED ? left : "");
	events_add(idle->sessions->events, &(struct event){.kind = kind,
							   .owner = &s->record.uid,
							   .subject = subject,
							   .text = text});
}

/* Once: a job takes its grace to end. */
static void release(const struct idle *idle, struct session *s, uint64_t now)
{
	char why[STORE_REASON_SIZE], timeout[UNITS_TEXT_SIZE];

	if (s->idle.released)
		return;
	s->idle.released = true;
	tell(idle, s, EVENT_IDLE_RELEASED, now);
	snprintf(why, sizeof(why), "it used no GPU time for %s (idle_timeout)",
		 units_format_exact_duration(idle->policy.timeout_ns, timeout));
	if (idle->hooks->end_job(idle->context, s, why))
		return;
	session_commands_end(s, NULL);
	session_end(s, STORE_END_POLICY, why);
}

/* For reports: the time since the last look counts as a whole. */
static void look_count(struct session_idle *s, enum idle_look look, uint64_t now)
{
	uint64_t passed = s->looked_ns ? now - s->looked_ns : 0;

	s->looked_ns = now;
	if (look == IDLE_LOOK_UNKNOWN)
		return;
	s->watched_ns += passed;
	if (look == IDLE_LOOK_USED)
		s->worked_ns += passed;
}

static void session_judge(struct idle *idle, struct session *s, uint64_t now)
{
	enum idle_look look = idle_look(s, idle->sheets);

	look_count(&s->idle, look, now);
	switch (idle_advance(&s->idle.clock, &idle->policy, is_exempt(idle, s), look, now)) {
	case IDLE_STEP_NONE:
		break;
	case IDLE_STEP_WARN:
		tell(idle, s, EVENT_IDLE_WARNED, now);
		break;
	case IDLE_STEP_WITHDRAW:
		tell(idle, s, EVENT_IDLE_WITHDRAWN, now);
		break;
	case IDLE_STEP_RELEASE:
		release(idle, s, now);
		break;
	}
}

static void sessions_judge(struct idle *idle)
{
	uint64_t now = now_monotonic_ns();

	for (struct session *s = idle->sessions->first, *next; s; s = next) {
		next = s->next;
		if (s->state == SESSION_ACTIVE)
			session_judge(idle, s, now);
	}
}

/* ---- looking ----------------------------------------------------------------------------- */

static void idle_free(struct idle *idle)
{
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		idle_sheet_clear(&idle->sheets[i]);
	exempt_free(&idle->exempt);
	free(idle);
}

static void on_work(uv_work_t *work)
{
	struct idle *idle = work->data;
	uint64_t began = now_monotonic_ns();

	for (uint64_t mask = idle->mask; mask; mask &= mask - 1) {
		uint32_t position = (uint32_t)__builtin_ctzll(mask);

		idle_sheet_fill(idle->sessions->pool, position, &idle->sheets[position]);
	}
	idle->took_ns = now_monotonic_ns() - began;
}

static void on_worked(uv_work_t *work, int status)
{
	struct idle *idle = work->data;

	idle->running = false;
	idle->ended_ns = now_monotonic_ns();
	if (idle->stopped)
		idle_free(idle);
	else
		sessions_judge(idle);
}

/* One moment is told as one time, unless somebody set the clock. */
static void clock_follow(struct idle *idle)
{
	int64_t ahead = now_realtime_ns() - (int64_t)now_monotonic_ns();

	if (llabs(ahead - idle->ahead) > AHEAD_NS)
		idle->ahead = ahead;
}

void idle_tick(struct idle *idle)
{
	if (!idle || idle->running)
		return;
	clock_follow(idle);
	exempt_follow(idle);
	if (!idle->sessions->first)
		return;
	idle->mask = idle_look_mask(idle->sessions);
	if (!idle->mask) {
		sessions_judge(idle);
		return;
	}
	if (idle->sessions->pool->state != POOL_READY ||
	    now_monotonic_ns() - idle->ended_ns < COST_PART * idle->took_ns)
		return;
	idle->running = uv_queue_work(idle->sessions->loop, &idle->work, on_work, on_worked) == 0;
}

/* ---- the whole --------------------------------------------------------------------------- */

int idle_start(struct sessions *sessions, const struct idle_hooks *hooks, void *context,
	       struct idle **ret)
{
	struct idle *idle = calloc(1, sizeof(*idle));

	if (!idle)
		return -ENOMEM;
	idle->sessions = sessions;
	idle->hooks = hooks;
	idle->context = context;
	idle->work.data = idle;
	clock_follow(idle);
	*ret = idle;
	return 0;
}

void idle_set(struct idle *idle, const struct idle_policy *policy, const struct exempt_names *users,
	      const struct exempt_names *groups)
{
	if (!idle)
		return;
	idle->policy = *policy;
	exempt_set(&idle->exempt, users, groups);
	idle->unknown = NULL;
	exempt_follow(idle);
}

void idle_stop(struct idle *idle)
{
	if (!idle)
		return;
	idle->stopped = true;
	if (!idle->running)
		idle_free(idle);
}

void idle_standing(struct idle *idle, const struct session *s, struct idle_standing *ret)
{
	*ret = (struct idle_standing){.unknown_why = s->idle.unknown_why,
				      .warned = s->idle.clock.warned_ns};
	if (!idle)
		return;
	bool exempt = is_exempt(idle, s);
	ret->bound = idle->policy.timeout_ns && !exempt;
	ret->timeout_ns = idle->policy.timeout_ns;
	ret->warning_ns = idle_warning_ns(&idle->policy);
	if (!s->idle.clock.since_ns)
		return;
	uint64_t release = idle_release_ns(&s->idle.clock, &idle->policy, exempt);
	ret->since = (int64_t)s->idle.clock.since_ns + idle->ahead;
	ret->release_at = release ? (int64_t)release + idle->ahead : 0;
}
