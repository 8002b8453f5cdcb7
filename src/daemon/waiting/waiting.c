#include "daemon/waiting/waiting.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/mig/mig.h"
#include "daemon/node.h"
#include "daemon/session/session.h"
#include "daemon/waiting/grant.h"
#include "daemon/waiting/quotas.h"
#include "daemon/waiting/refusal.h"

/* Figures of the driver that are no older are good enough to decide on: a program outside carve may
 * take memory the moment after, too. */
#define SAMPLE_FRESH_NS 200000000ull
/* Where requests keep coming new ones are taken before they are needed, so that nobody waits for
 * the driver. */
#define SAMPLE_AHEAD_NS 100000000ull

int waiting_add(struct node *node, const struct slice_request *request, const struct peer *peer,
		waiter_cb cb, void *arg)
{
	struct waiter *w = calloc(1, sizeof(*w)), **end;

	if (!w)
		return -ENOMEM;
	if (!crowd_enter(&node->waiting_crowd, peer->uid, &w->owner)) {
		free(w);
		return -EMFILE;
	}
	w->request = *request;
	w->peer = *peer;
	w->since_ns = now_monotonic_ns();
	w->deadline_ns = w->since_ns + request->wait_ns;
	w->created = now_realtime_ns();
	w->cb = cb;
	w->arg = arg;
	memcpy(w->id, request->id, sizeof(w->id));
	while (!w->id[0] || waiting_find(node, w->id))
		session_make_id(&node->sessions, w->id);
	uint64_t age = node->pool.done ? w->since_ns - node->pool.done_ns : UINT64_MAX;
	if (age > SAMPLE_FRESH_NS)
		w->sample = pool_refresh(&node->pool, POOL_ALL);
	else if (age > SAMPLE_AHEAD_NS && !node->pool.running)
		(void)pool_refresh(&node->pool, POOL_ALL);
	/* Behind those of the same priority. */
	for (end = &node->waiters; *end && (*end)->request.priority >= request->priority;
	     end = &(*end)->next)
		;
	w->next = *end;
	*end = w;
	waiting_kick(node);
	return 0;
}

struct waiter *waiting_named(const struct node *node, uid_t uid, const char *name)
{
	struct waiter *w = *name ? node->waiters : NULL;

	while (w && (w->peer.uid != uid || strcmp(w->request.name, name) != 0))
		w = w->next;
	return w;
}

struct waiter *waiting_find(const struct node *node, const char *id)
{
	struct waiter *w = node->waiters;

	while (w && strcmp(w->id, id) != 0)
		w = w->next;
	return w;
}

unsigned waiting_position(const struct node *node, const struct waiter *waiter)
{
	unsigned position = 1;

	for (const struct waiter *w = node->waiters; w != waiter; w = w->next)
		position++;
	return position;
}

bool waiting_resizes(const struct node *node, const char *session)
{
	for (const struct waiter *w = node->waiters; w; w = w->next)
		if (!strcmp(w->request.resize, session))
			return true;
	return false;
}

static void waiter_remove(struct node *node, struct waiter *w)
{
	struct waiter **at;

	for (at = &node->waiters; *at && *at != w; at = &(*at)->next)
		;
	*at = w->next;
	crowd_leave(&node->waiting_crowd, w->owner);
	free(w);
}

void waiting_cancel(struct node *node, void *arg)
{
	for (struct waiter *w = node->waiters, *next; w; w = next) {
		next = w->next;
		if (w->arg == arg) {
			waiter_remove(node, w);
			waiting_kick(node);
		}
	}
}

static void refuse(struct node *node, struct waiter *w, const struct error *err)
{
	w->cb(w->arg, NULL, err);
	waiter_remove(node, w);
	waiting_kick(node);
}

bool waiting_release(struct node *node, struct waiter *w)
{
	struct error err = {0};

	error_set(&err, EXIT_CODE_FAILED, "request %s was released while it waited", w->id);
	refuse(node, w, &err);
	return true;
}

void waiting_kick(struct node *node)
{
	node->waiters_dirty = true;
}

/* ---- deciding ---------------------------------------------------------------------------- */

/* One active session a user. */
static bool user_has_one(const struct node *node, const struct slice_request *request,
			 const struct peer *peer, struct error *err)
{
	const struct session *active = session_of_user(&node->sessions, peer->uid);

	if (request->ephemeral || request->kept || request->resize[0] || !active)
		return false;
	error_set(err, EXIT_CODE_FAILED, "you have an active session already: %s",
		  active->record.id);
	error_hint(err,
		   "for one more slice: carve run --ephemeral; to end it: carve session "
		   "release %s",
		   active->record.id);
	return true;
}

/* A name is one session's of a user, or one request's that came first (`before` is where to stop).
 */
static bool name_taken(const struct node *node, const struct slice_request *request,
		       const struct peer *peer, const struct waiter *before, struct error *err)
{
	const struct session *s = session_named(&node->sessions, peer->uid, request->name);
	const char *holder = s ? s->record.id : NULL;

	for (const struct waiter *w = node->waiters; *request->name && w && w != before;
	     w = w->next)
		if (w->peer.uid == peer->uid && !strcmp(w->request.name, request->name))
			holder = w->id;
	if (!holder)
		return false;
	error_set(err, EXIT_CODE_FAILED, "your session %s is called %s already", holder,
		  request->name);
	error_hint(err, "choose another name, or release that one");
	return true;
}

static void record_fill(const struct node *node, const struct waiter *w,
			const struct place_result *result, struct store_gpu *gpus,
			struct store_session *ret)
{
	const struct slice_request *request = &w->request;

	grant_record_fill(&node->pool, &w->peer, &request->place, result, gpus, ret);
	ret->asked = w->created;
	ret->ephemeral = request->ephemeral;
	ret->kept = request->kept;
	if (request->timeout_ns)
		ret->ends_at = ret->created + (int64_t)request->timeout_ns;
	snprintf(ret->id, sizeof(ret->id), "%s", w->id);
	snprintf(ret->name, sizeof(ret->name), "%s", request->name);
}

/* A session that goes on in other instances. */
static void grant_moved(struct node *node, struct waiter *w, const struct store_session *record)
{
	struct session *s = session_find(&node->sessions, w->request.resize);
	struct error err = {0};

	if (!s || s->state != SESSION_ACTIVE)
		error_set(&err, EXIT_CODE_FAILED, "session %s has ended meanwhile",
			  w->request.resize);
	else if (session_is_used(s))
		error_set(&err, EXIT_CODE_FAILED, "a process came into session %s meanwhile",
			  s->record.id);
	int rc = err.code ? 0 : session_move(s, record->gpu);
	if (rc < 0)
		error_set(&err, EXIT_CODE_FAILED, "the new size cannot be recorded: %s",
			  strerrordesc_np(-rc));
	if (err.code) {
		refuse(node, w, &err);
		return;
	}
	log_event(LOG_INFO, "session.moved id=%s profile=%s", s->record.id,
		  s->record.gpu[0].profile);
	w->cb(w->arg, s, NULL);
	waiter_remove(node, w);
	waiting_kick(node);
}

static const char *unrecorded_why(int rc)
{
	switch (rc) {
	case -ENOSPC:
		return "the disk is full";
	case -EFBIG:
		return "carved may write no larger files (ulimit -f)";
	case -EROFS:
		return "the database cannot be written";
	case -EUCLEAN:
		return "the database is damaged";
	case -ESRCH:
		return "the process that asked has ended";
	case -EMFILE:
		return "this user has too many commands in slices";
	default:
		return strerrordesc_np(-rc);
	}
}

static void grant(struct node *node, struct waiter *w, const struct place_result *result,
		  const struct mig_grant *instances)
{
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session record;
	struct session *session;
	struct error err = {0};
	int rc;

	record_fill(node, w, result, gpus, &record);
	if (instances)
		grant_record_instances(instances, gpus);
	if (w->request.resize[0]) {
		grant_moved(node, w, &record);
		return;
	}
	/* An ID that an ended session had is taken too. */
	while ((rc = session_create(&node->sessions, &record,
				    w->request.ephemeral ? &w->peer.process : NULL, &session)) ==
	       -EEXIST)
		session_make_id(&node->sessions, record.id);
	if (rc < 0) {
		error_set(&err, EXIT_CODE_FAILED, "the session cannot be recorded: %s",
			  unrecorded_why(rc));
		refuse(node, w, &err);
		return;
	}
	if (instances)
		mig_give(node, instances, record.id);
	log_event(LOG_INFO, "session.granted id=%s uid=%u gpus=%u bytes=%" PRIu64 " tolerance=%d",
		  record.id, record.uid, record.gpu_count, gpus[0].bytes, record.tolerance_applied);
	w->cb(w->arg, session, NULL);
	waiter_remove(node, w);
}

static bool may_use(const struct waiter *w, uint32_t gpu)
{
	return !w->request.place.allowed || w->request.place.allowed[gpu];
}

bool waiting_lets_grow(const struct node *node, uint32_t gpu)
{
	for (const struct waiter *w = node->waiters; w; w = w->next)
		if (w->passed >= WAITING_PASSES && may_use(w, gpu))
			return false;
	return true;
}

void waiting_grown(struct node *node, uint32_t gpu)
{
	for (struct waiter *w = node->waiters; w; w = w->next)
		w->passed += w->why[0] && may_use(w, gpu);
}

/* GPUs on which requests before `w` (NULL: all) have been passed too often. False: on no GPU. */
static bool fence(const struct node *node, const struct waiter *w, uint8_t *closed)
{
	bool any = false;

	memset(closed, 0, GPUS_MAX);
	for (const struct waiter *e = node->waiters; e && e != w; e = e->next)
		for (uint32_t i = 0; e->passed >= WAITING_PASSES && i < node->pool.count; i++)
			if (may_use(e, i)) {
				closed[i] = 1;
				any = true;
			}
	return any;
}

/* One that was not decided yet, as it waits for figures of the driver, is not passed: nobody knows
 * that it does not fit. */
static void count_passes(struct node *node, const struct waiter *w,
			 const struct place_result *result)
{
	for (struct waiter *e = node->waiters; e != w; e = e->next)
		for (uint32_t i = 0; e->why[0] && i < result->count; i++)
			if (may_use(e, result->grant[i].gpu)) {
				e->passed++;
				break;
			}
}

/* -EAGAIN: worth waiting for. */
static int decide_fraction(const struct node *node, const struct waiter *w,
			   const struct place_request *place, const struct peer *peer,
			   struct place_result *ret, struct error *err)
{
	struct place_gpu gpus[GPUS_MAX];
	uint8_t closed[GPUS_MAX];

	pool_place_gpus(&node->pool, gpus);
	int rc = place_decide(gpus, node->pool.count, place, ret);
	if (rc < 0) {
		refusal_explain(&node->pool, place, rc, err);
		/* What can never be granted is not worth waiting for. */
		return rc == -ENOSPC && place_possible(gpus, node->pool.count, place) ? -EAGAIN
										      : rc;
	}
	rc = quotas_check(node, peer, ret, err);
	if (rc < 0 || !fence(node, w, closed))
		return rc;
	for (uint32_t i = 0; i < node->pool.count; i++)
		gpus[i].offered &= !closed[i];
	if (place_decide(gpus, node->pool.count, place, ret) == 0)
		return 0;
	error_set(err, EXIT_CODE_NO_ROOM,
		  "earlier requests wait for the room that is left and go first");
	return -EAGAIN;
}

static int decide_instances(const struct node *node, const struct waiter *w,
			    const struct slice_request *request, const struct peer *peer,
			    struct mig_decision *instances, struct place_result *ret,
			    struct error *err)
{
	uint8_t closed[GPUS_MAX];
	bool fenced = fence(node, w, closed);
	int rc = mig_would(node, request, fenced ? closed : NULL, instances, err);

	if (rc < 0)
		return rc;
	grant_of_decision(instances, ret);
	const struct session *s =
		request->resize[0] ? session_find(&node->sessions, request->resize) : NULL;
	uint64_t bytes[PLACE_GPUS_MAX];
	for (uint32_t i = 0; i < ret->count; i++)
		bytes[i] = ret->grant[i].bytes;
	return s ? quotas_check_resize(s, bytes, err) : quotas_check(node, peer, ret, err);
}

/* What is cut by the byte holds whatever is asked next, and what is wanted whole is no instance. */
static bool instances_preferred(const struct slice_request *request,
				const struct mig_decision *instances,
				const struct place_result *fraction)
{
	return request->place.kind != PLACE_WHOLE &&
	       mig_preferred(instances, fraction->grant[0].bytes, fraction->tolerance_applied);
}

/* Whether any GPU that may be used is cut by the byte, or would be but for somebody else. */
static bool is_cut(const struct node *node, const struct slice_request *request)
{
	for (uint32_t i = 0; i < node->pool.count; i++)
		if ((!request->place.allowed || request->place.allowed[i]) &&
		    !mig_has_role(node, i))
			return true;
	return false;
}

/* Neither has room: both say why. */
static void errors_join(struct error *err, const struct error *instances)
{
	size_t used = strlen(err->message);

	if (!err->code) {
		*err = *instances;
		return;
	}
	snprintf(err->message + used, sizeof(err->message) - used, "; %.300s", instances->message);
	if (!err->hint[0])
		memcpy(err->hint, instances->hint, sizeof(err->hint));
}

/* Decides between what GPUs with the MIG role and all others can give. *ret_count of `instances`:
 * 0: a fraction. */
static int decide(const struct node *node, const struct waiter *w,
		  const struct slice_request *request, const struct peer *peer,
		  struct place_result *ret, struct mig_decision *instances, struct error *err)
{
	bool profile = request->place.kind == PLACE_PROFILE;
	bool offers = request->backend != BACKEND_FRACTION && mig_offers(node, request);
	struct error other = {0};
	struct place_result cut;
	int fraction = -EDOM, mig;

	instances->count = 0;
	if (!offers && (profile || request->backend == BACKEND_MIG)) {
		error_set(err, EXIT_CODE_NO_ROOM, "no GPU here gives out MIG instances");
		error_hint(err, "carve node set-role --dynamic-mig-enabled lets carve make them on "
				"GPUs in MIG mode");
		return -EDOM;
	}
	if (!profile && request->backend != BACKEND_MIG && (!offers || is_cut(node, request)))
		fraction = decide_fraction(node, w, &request->place, peer, &cut, err);
	if (!offers) {
		*ret = cut;
		return fraction;
	}
	mig = decide_instances(node, w, request, peer, instances, ret, &other);
	if (mig == 0 && (fraction < 0 || instances_preferred(request, instances, &cut))) {
		*err = (struct error){0};
		return 0;
	}
	instances->count = 0;
	if (fraction == 0) {
		*ret = cut;
		return 0;
	}
	errors_join(err, &other);
	return mig == -EAGAIN ? mig : fraction == -EAGAIN ? fraction : mig;
}

int waiting_would(const struct node *node, const struct slice_request *request,
		  const struct peer *peer, struct place_result *ret, struct error *err)
{
	if (node->pool.state == POOL_NO_GPU) {
		refusal_no_gpu(&node->pool, err);
		return -ENODEV;
	}
	if (user_has_one(node, request, peer, err) || name_taken(node, request, peer, NULL, err))
		return -EEXIST;
	struct mig_decision instances;
	return decide(node, NULL, request, peer, ret, &instances, err);
}

int waiting_explain(const struct node *node, const struct waiter *w, struct place_result *ret,
		    struct error *err)
{
	if (user_has_one(node, &w->request, &w->peer, err))
		return -EEXIST;
	struct mig_decision instances;
	return decide(node, w, &w->request, &w->peer, ret, &instances, err);
}

/* It had its time: asking again with the same wish is not what helps. */
static void waited_in_vain(const struct waiter *w, struct error *err)
{
	int64_t since = now_realtime_ns() - w->created;
	/* Over an upgrade only the rest of its time is known, and when it came. */
	bool longer = since > (int64_t)w->request.wait_ns + 1000000000;
	uint64_t waited = longer ? (uint64_t)since : w->request.wait_ns;
	char text[UNITS_TEXT_SIZE];
	struct error why = *err;

	if (!w->request.wait_ns)
		return;
	error_set(err, why.code, "waited %s in vain: %s", units_format_duration(waited, text),
		  why.message);
	error_hint(err, "ask for less, or wait longer; carve session list shows what is held");
}

static void grant_instances(struct node *node, struct waiter *w, const struct mig_grant *instances)
{
	struct place_result result;

	grant_of_instances(instances, &result);
	grant(node, w, &result, instances);
}

void waiting_made(struct node *node, const char *id, const struct mig_grant *instances,
		  const struct error *why)
{
	struct waiter *w = waiting_find(node, id);
	struct error err = {0};

	waiting_kick(node);
	if (!w)
		return;
	w->making = false;
	if (why)
		err = *why;
	else if (!instances && w->request.resize[0])
		error_set(&err, EXIT_CODE_FAILED,
			  "the driver did not make room for another instance: something holds one "
			  "that is idle, or session %s's own",
			  w->request.resize);
	/* Another request of this user may have come first. */
	if (instances && (user_has_one(node, &w->request, &w->peer, &err) ||
			  name_taken(node, &w->request, &w->peer, w, &err)))
		instances = NULL;
	if (instances)
		grant_instances(node, w, instances);
	else if (err.code)
		refuse(node, w, &err);
}

static void take_instances(struct node *node, struct waiter *w, const struct mig_decision *decision)
{
	struct mig_grant *instances = calloc(1, sizeof(*instances));
	struct error err = {0};
	int rc = instances ? mig_take(node, w->id, decision, w->request.together, instances, &err)
			   : error_set(&err, EXIT_CODE_FAILED, "there is no memory left");

	w->making = rc == 0;
	if (rc == 0)
		snprintf(w->why, sizeof(w->why), "its MIG instance is being made");
	else if (rc > 0)
		grant_instances(node, w, instances);
	else
		refuse(node, w, &err);
	free(instances);
}

/* Carries the decision out, or lets the request wait. */
static void waiter_settle(struct node *node, struct waiter *w, int rc,
			  const struct place_result *result, const struct mig_decision *instances,
			  struct error *err)
{
	/* A change that is under way ends soon, and may let it through. */
	if (rc < 0 && w->request.backend != BACKEND_FRACTION && mig_changing(node, &w->request)) {
		snprintf(w->why, sizeof(w->why), "MIG instances are being looked at or changed");
		return;
	}
	if (!w->counted)
		mig_came(node, &w->request, rc == 0);
	w->counted = true;
	if (rc == 0) {
		count_passes(node, w, result);
		if (instances->count)
			take_instances(node, w, instances);
		else
			grant(node, w, result, NULL);
	} else if (rc != -EAGAIN || now_monotonic_ns() >= w->deadline_ns) {
		if (rc == -EAGAIN)
			waited_in_vain(w, err);
		refuse(node, w, err);
	} else {
		snprintf(w->why, sizeof(w->why), "%s", err->message);
	}
}

/* Decides one request, or leaves it waiting. */
static void waiter_run(struct node *node, struct waiter *w)
{
	struct place_result result;
	struct mig_decision instances;
	struct error err = {0};

	if (w->making)
		return;
	if (node->pool.state == POOL_NO_GPU)
		refusal_no_gpu(&node->pool, &err);
	if (err.code || user_has_one(node, &w->request, &w->peer, &err) ||
	    name_taken(node, &w->request, &w->peer, w, &err) ||
	    request_resolve(&w->request, &node->pool, &err) < 0) {
		refuse(node, w, &err);
		return;
	}
	int rc = decide(node, w, &w->request, &w->peer, &result, &instances, &err);
	const struct session *own =
		w->request.resize[0] ? session_find(&node->sessions, w->request.resize) : NULL;
	bool lent = rc < 0 && own && !mig_changing(node, &w->request);
	if (lent) {
		mig_lend(node, own);
		rc = decide(node, w, &w->request, &w->peer, &result, &instances, &err);
	}
	waiter_settle(node, w, rc, &result, &instances, &err);
	if (lent)
		mig_lend(node, NULL);
}

void waiting_run(struct node *node)
{
	/* The sample that ended sessions' memory waits for is on its way, and so is this call's
	 * next. */
	if (!node->ready || node->sessions.drains)
		return;
	node->waiters_dirty = false;
	if (node->pool.state == POOL_READY && node->waiters)
		(void)pool_claim(&node->pool, true);
	for (struct waiter *w = node->waiters, *next; w; w = next) {
		next = w->next;
		if (w->sample <= node->pool.done || node->pool.state == POOL_NO_GPU)
			waiter_run(node, w);
	}
}
