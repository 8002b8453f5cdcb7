#include "daemon/waiting/waiting.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "core/time_limits.h"
#include "daemon/gpu/gpu_drain.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/unrecorded.h"
#include "daemon/mig/mig.h"
#include "daemon/report/report.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/waiting/grant.h"
#include "daemon/waiting/quota_check.h"
#include "daemon/waiting/quota_near.h"
#include "daemon/waiting/quotas.h"
#include "daemon/waiting/refusal.h"

/* Figures of the driver that are no older are good enough to decide on: a program outside carve may
 * take memory the moment after, too. */
#define SAMPLE_FRESH_NS 200000000ull
/* Where requests keep coming new ones are taken before they are needed, so that nobody waits for
 * the driver. */
#define SAMPLE_AHEAD_NS 100000000ull

/* ---- the line ---------------------------------------------------------------------------- */

/* A new request of this user, behind those of the same priority. NULL with *ret_rc: -ENOMEM, or
 * -EMFILE for a user who has too many. */
static struct waiter *waiter_new(struct waiting *waiting, const struct slice_request *request,
				 uid_t uid, int *ret_rc)
{
	struct waiter *w = calloc(1, sizeof(*w)), **end;

	*ret_rc = -ENOMEM;
	if (!w)
		return NULL;
	*ret_rc = -EMFILE;
	if (!budget_enter(&waiting->budget, uid, &w->owner)) {
		free(w);
		return NULL;
	}
	w->request = *request;
	for (end = &waiting->first; *end && (*end)->request.priority >= request->priority;
	     end = &(*end)->next)
		;
	w->next = *end;
	*end = w;
	*ret_rc = 0;
	return w;
}

/* The request is decided on figures of the driver that are new enough. */
static void sample_want(struct waiting *waiting, struct waiter *w, uint64_t now)
{
	uint64_t age = waiting->pool->done ? now - waiting->pool->done_ns : UINT64_MAX;

	if (age > SAMPLE_FRESH_NS)
		w->sample = pool_refresh(waiting->pool, POOL_ALL);
	else if (age > SAMPLE_AHEAD_NS && !waiting->pool->running)
		(void)pool_refresh(waiting->pool, POOL_ALL);
}

/* The same client, or another of this user that knows the ID, asks for a request that waits. */
static void waiter_ask_again(struct waiter *w, const struct peer *peer,
			     const struct waiter_ask *ask)
{
	struct waiter_ask before = w->ask;
	struct error err = {0};

	w->peer = *peer;
	w->ask = *ask;
	if (w->state == WAITER_ABSENT) {
		w->state = WAITER_QUEUED;
		w->why[0] = '\0';
	}
	if (!before.cb)
		return;
	error_set(&err, EXIT_CODE_FAILED, "another call asked for request %s", w->id);
	before.cb(before.arg, NULL, &err);
}

int waiting_add(struct waiting *waiting, const struct slice_request *request,
		const struct peer *peer, const struct waiter_ask *ask)
{
	struct waiter *w = request->id[0] ? waiting_find(waiting, request->id) : NULL;
	uint64_t now = now_monotonic_ns();
	char id[STORE_ID_SIZE];
	int rc = 0;

	if (w && w->peer.uid == peer->uid) {
		waiter_ask_again(w, peer, ask);
	} else {
		memcpy(id, request->id, sizeof(id));
		while (!id[0] || waiting_find(waiting, id))
			session_make_id(waiting->sessions, id);
		w = waiter_new(waiting, request, peer->uid, &rc);
		if (!w)
			return rc;
		memcpy(w->id, id, sizeof(w->id));
		w->peer = *peer;
		w->ask = *ask;
		w->since_ns = now;
		w->deadline_ns = now + request->wait_ns;
		w->created = now_realtime_ns();
	}
	sample_want(waiting, w, now);
	waiting_kick(waiting);
	return 0;
}

struct waiter *waiting_named(const struct waiting *waiting, uid_t uid, const char *name)
{
	struct waiter *w = *name ? waiting->first : NULL;

	while (w && (w->peer.uid != uid || strcmp(w->request.name, name) != 0))
		w = w->next;
	return w;
}

struct waiter *waiting_find(const struct waiting *waiting, const char *id)
{
	struct waiter *w = waiting->first;

	while (w && strcmp(w->id, id) != 0)
		w = w->next;
	return w;
}

unsigned waiting_position(const struct waiting *waiting, const struct waiter *waiter)
{
	unsigned position = 1;

	for (const struct waiter *w = waiting->first; w != waiter; w = w->next)
		position++;
	return position;
}

bool waiting_resizes(const struct waiting *waiting, const char *session)
{
	for (const struct waiter *w = waiting->first; w; w = w->next)
		if (!strcmp(w->request.resize, session))
			return true;
	return false;
}

static void waiter_remove(struct waiting *waiting, struct waiter *w)
{
	struct waiter **at;

	for (at = &waiting->first; *at && *at != w; at = &(*at)->next)
		;
	*at = w->next;
	/* A row that cannot be removed is forgotten by the next daemon, as nobody asks for it. */
	if (w->recorded)
		(void)store_waiting_remove(waiting->sessions->store, w->id);
	budget_leave(&waiting->budget, w->owner);
	free(w);
}

void waiting_cancel(struct waiting *waiting, void *arg)
{
	for (struct waiter *w = waiting->first, *next; w; w = next) {
		next = w->next;
		if (w->ask.cb && w->ask.arg == arg) {
			waiter_remove(waiting, w);
			waiting_kick(waiting);
		}
	}
}

static void refuse(struct waiting *waiting, struct waiter *w, const struct error *err)
{
	if (w->ask.cb)
		w->ask.cb(w->ask.arg, NULL, err);
	waiter_remove(waiting, w);
	waiting_kick(waiting);
}

bool waiting_release(struct waiting *waiting, struct waiter *w)
{
	struct error err = {0};

	error_set(&err, EXIT_CODE_FAILED, "request %s was released while it waited", w->id);
	refuse(waiting, w, &err);
	return true;
}

void waiting_kick(struct waiting *waiting)
{
	waiting->dirty = true;
}

/* ---- rows -------------------------------------------------------------------------------- */

/* The request waits from now on. A store that has no room is asked again at the next decision. */
static void waiter_record(const struct waiting *waiting, struct waiter *w)
{
	struct store_waiting row = {
		.uid = w->peer.uid,
		.since_ns = w->since_ns,
		.deadline_ns = w->deadline_ns,
		.created = w->created,
		.passed = w->passed,
		.body = w->ask.body,
		.body_size = w->ask.body_size,
	};

	if (w->recorded || !w->ask.body)
		return;
	memcpy(row.id, w->id, sizeof(row.id));
	w->recorded = store_waiting_put(waiting->sessions->store, &row) == 0;
}

/* A later request passed this one. Only the last pass, from which on nothing more does, is worth a
 * write. */
static void waiter_pass(const struct waiting *waiting, struct waiter *w)
{
	if (++w->passed == WAITING_PASSES && w->recorded)
		(void)store_waiting_passed(waiting->sessions->store, w->id, w->passed);
}

/* The rows are this daemon's own words of before, but a newer one may have written them. */
static int row_take(void *arg, const struct store_waiting *row)
{
	struct waiting *waiting = arg;
	struct slice_request request;
	struct error ignored = {0};
	json_t *root = json_loadb(row->body, row->body_size, 0, NULL);
	int rc = root ? request_parse(root, &request, &ignored) : -1;

	json_decref(root);
	/* The answer was lost that said: granted. */
	if (rc < 0 || session_find(waiting->sessions, row->id))
		return 0;
	struct waiter *w = waiter_new(waiting, &request, row->uid, &rc);
	if (!w)
		return rc == -ENOMEM ? rc : 0;
	memcpy(w->id, row->id, sizeof(w->id));
	w->peer.uid = row->uid;
	w->peer.gid = (gid_t)-1; /* its groups are not known until it asks again */
	w->since_ns = row->since_ns;
	w->deadline_ns = row->deadline_ns;
	w->created = row->created;
	w->passed = row->passed;
	w->recorded = true;
	w->state = WAITER_ABSENT;
	w->absent_until_ns = now_monotonic_ns() + WAITING_RETURN_NS;
	snprintf(w->why, sizeof(w->why),
		 "the daemon was started again, and the client has not asked again yet");
	/* Without GPUs by these names it may use any, so it keeps its place on all. */
	(void)request_resolve(&w->request, waiting->pool, &ignored);
	return 0;
}

int waiting_load(struct waiting *waiting)
{
	return store_waiting_each(waiting->sessions->store, row_take, waiting);
}

/* ---- deciding ---------------------------------------------------------------------------- */

/* Whether a request would make its user's current session. */
static bool asks_for_current(const struct slice_request *request)
{
	return !request->ephemeral && !request->kept && !request->resize[0] && !request->name[0];
}

struct waiter *waiting_for_current(const struct waiting *waiting, uid_t uid,
				   const struct waiter *before)
{
	struct waiter *w = waiting->first;

	while (w && w != before && (w->peer.uid != uid || !asks_for_current(&w->request)))
		w = w->next;
	return w == before ? NULL : w;
}

/* A user has one current session, or one request for it that came first (`before` is where to
 * stop). */
static bool current_taken(const struct waiting *waiting, const struct slice_request *request,
			  const struct peer *peer, const struct waiter *before, struct error *err)
{
	const struct session *current = session_current(waiting->sessions, peer->uid);
	const struct waiter *first = waiting_for_current(waiting, peer->uid, before);

	if (!asks_for_current(request))
		return false;
	if (current)
		error_set(err, EXIT_CODE_FAILED, "you have a current session already: %s%s",
			  current->record.id,
			  current->state == SESSION_ACTIVE ? "" : ", which is ending");
	else if (first)
		error_set(err, EXIT_CODE_FAILED,
			  "your request %s for a current session waits already", first->id);
	else
		return false;
	error_hint(err,
		   "for one more session: --name NAME; for a slice of one command: carve run "
		   "--vram 4 CMD; to end it: carve session release %s",
		   current ? current->record.id : first->id);
	return true;
}

/* A name is one session's of a user, or one request's that came first (`before` is where to stop).
 */
static bool name_taken(const struct waiting *waiting, const struct slice_request *request,
		       const struct peer *peer, const struct waiter *before, struct error *err)
{
	const struct session *s = session_named(waiting->sessions, peer->uid, request->name);
	const char *holder = s ? s->record.id : NULL;

	for (const struct waiter *w = waiting->first; *request->name && w && w != before;
	     w = w->next)
		if (w->peer.uid == peer->uid && !strcmp(w->request.name, request->name))
			holder = w->id;
	if (!holder)
		return false;
	error_set(err, EXIT_CODE_FAILED, "your session %s is called %s already", holder,
		  request->name);
	error_hint(err, "choose another name, or end that session: carve session release %s",
		   request->name);
	return true;
}

/* The time-out of the session; 0: none. A session that root's services keep, as the Kubernetes
 * plugin does for a pod, ends with what it was made for, and not by the clock. */
static int timeout_get(const struct waiting *waiting, const struct slice_request *request,
		       const struct peer *peer, uint64_t *ret_ns)
{
	if (request->kept && peer->uid == 0) {
		*ret_ns = request->timeout_ns;
		return 0;
	}
	return time_limits_apply(waiting->times, request->timeout_ns, ret_ns);
}

static bool is_too_long(const struct waiting *waiting, const struct slice_request *request,
			const struct peer *peer, struct error *err)
{
	char asked[UNITS_TEXT_SIZE], most[UNITS_TEXT_SIZE];
	uint64_t ns;

	if (request->resize[0] || timeout_get(waiting, request, peer, &ns) == 0)
		return false;
	error_set(err, EXIT_CODE_NOT_PERMITTED,
		  "session_timeout: a session lasts %s at most here, and %s is asked for",
		  units_format_exact_duration(waiting->times->max_ns, most),
		  units_format_exact_duration(request->timeout_ns, asked));
	error_hint(err,
		   "ask for --session-timeout %s or less, or have an administrator raise "
		   "session_timeout_max in carved.json",
		   most);
	return true;
}

static void record_fill(const struct waiting *waiting, const struct waiter *w,
			const struct place_result *result, struct store_gpu *gpus,
			struct store_session *ret)
{
	const struct slice_request *request = &w->request;

	grant_record_fill(waiting->pool, &w->peer, &request->place, result, gpus, ret);
	ret->asked = w->created;
	ret->ephemeral = request->ephemeral;
	ret->kept = request->kept;
	if (timeout_get(waiting, request, &w->peer, &ret->timeout_ns) == 0 && ret->timeout_ns)
		ret->ends_at = ret->created + (int64_t)ret->timeout_ns;
	snprintf(ret->id, sizeof(ret->id), "%s", w->id);
	snprintf(ret->name, sizeof(ret->name), "%s", request->name);
	snprintf(ret->pod, sizeof(ret->pod), "%s", request->pod);
}

/* A session that goes on in other instances. */
static void grant_moved(struct waiting *waiting, struct waiter *w,
			const struct store_session *record)
{
	struct session *s = session_find(waiting->sessions, w->request.resize);
	struct error err = {0};

	if (!s || s->state != SESSION_ACTIVE)
		error_set(&err, EXIT_CODE_FAILED, "session %s has ended meanwhile",
			  w->request.resize);
	else if (session_is_used(s))
		error_set(&err, EXIT_CODE_FAILED, "a process came into session %s meanwhile",
			  s->record.id);
	int rc = err.code || !s ? 0 : session_move(s, record->gpu);
	if (rc < 0)
		unrecorded_set(&err, "the new size cannot be recorded", rc);
	if (err.code || !s) {
		refuse(waiting, w, &err);
		return;
	}
	log_event(LOG_INFO, "session.moved id=%s profile=%s", s->record.id,
		  s->record.gpu[0].profile);
	if (w->ask.cb)
		w->ask.cb(w->ask.arg, s, NULL);
	waiter_remove(waiting, w);
	waiting_kick(waiting);
}

/* A request that could not be decided at once has waited. */
static void waiter_report(const struct waiting *waiting, const struct waiter *w, const char *gpu)
{
	if (w->why[0])
		report_waited(waiting->report, &w->peer, gpu, w->request.name,
			      now_monotonic_ns() - w->since_ns);
}

static void grant(struct waiting *waiting, struct waiter *w, const struct place_result *result,
		  const struct mig_grant *instances)
{
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session record;
	struct session *session;
	struct error err = {0};
	int rc;

	record_fill(waiting, w, result, gpus, &record);
	if (w->request.again)
		session_make_id(waiting->sessions, record.former);
	if (instances)
		grant_record_instances(instances, gpus);
	if (w->request.resize[0]) {
		grant_moved(waiting, w, &record);
		return;
	}
	/* An ID that an ended session had is taken too. */
	while ((rc = session_create(waiting->sessions, &record,
				    w->request.ephemeral ? &w->peer.process : NULL, &session)) ==
	       -EEXIST)
		session_make_id(waiting->sessions, record.id);
	if (rc < 0) {
		unrecorded_set(&err, "the session cannot be recorded", rc);
		refuse(waiting, w, &err);
		return;
	}
	if (instances)
		mig_give(waiting->sessions->mig, instances, record.id);
	waiter_report(waiting, w, record.gpu[0].uuid_text);
	report_began(waiting->report, session, record.name);
	log_event(LOG_INFO, "session.granted id=%s uid=%u gpus=%u bytes=%" PRIu64 " tolerance=%d",
		  record.id, record.uid, record.gpu_count, gpus[0].bytes, record.tolerance_applied);
	quota_near_look(waiting->quotas, session, 0);
	if (w->ask.cb)
		w->ask.cb(w->ask.arg, session, NULL);
	waiter_remove(waiting, w);
}

static bool may_use(const struct waiter *w, uint32_t gpu)
{
	return !w->request.place.allowed || w->request.place.allowed[gpu];
}

/* Whether nothing more is granted before this request on the GPUs that it may use. A drain may last
 * for days. */
static bool is_next(const struct waiter *w)
{
	if (w->for_drained)
		return false;
	return w->passed >= WAITING_PASSES || w->state == WAITER_ABSENT;
}

bool waiting_lets_grow(const struct waiting *waiting, uint32_t gpu)
{
	for (const struct waiter *w = waiting->first; w; w = w->next)
		if (is_next(w) && may_use(w, gpu))
			return false;
	return true;
}

void waiting_grown(struct waiting *waiting, uint32_t gpu)
{
	for (struct waiter *w = waiting->first; w; w = w->next)
		if (w->why[0] && !w->for_drained && may_use(w, gpu))
			waiter_pass(waiting, w);
}

/* GPUs on which requests before `w` (NULL: all) are next. False: on no GPU. */
static bool fence(const struct waiting *waiting, const struct waiter *w, uint8_t *closed)
{
	bool any = false;

	memset(closed, 0, GPUS_MAX);
	for (const struct waiter *e = waiting->first; e && e != w; e = e->next)
		for (uint32_t i = 0; is_next(e) && i < waiting->pool->count; i++)
			if (may_use(e, i)) {
				closed[i] = 1;
				any = true;
			}
	return any;
}

/* One that was not decided yet, as it waits for figures of the driver, is not passed: nobody knows
 * that it does not fit. */
static void count_passes(struct waiting *waiting, const struct waiter *w,
			 const struct place_result *result)
{
	for (struct waiter *e = waiting->first; e != w; e = e->next)
		for (uint32_t i = 0; e->why[0] && !e->for_drained && i < result->count; i++)
			if (may_use(e, result->grant[i].gpu)) {
				waiter_pass(waiting, e);
				break;
			}
}

/* Whether the request could be granted if sessions ended, and all drained GPUs stayed drained. */
static bool is_possible_now(const struct waiting *waiting, const struct slice_request *request)
{
	struct place_gpu gpus[GPUS_MAX];

	if (!waiting->pool->drains.count || mig_possible(waiting->sessions->mig, request))
		return true;
	pool_place_gpus(waiting->pool, gpus);
	for (uint32_t i = 0; i < waiting->pool->count; i++)
		gpus[i].offered &= !gpus[i].drained;
	return request->place.kind != PLACE_PROFILE && request->backend != BACKEND_MIG &&
	       place_possible(gpus, waiting->pool->count, &request->place);
}

/* -EAGAIN: worth waiting for. */
static int decide_fraction(const struct waiting *waiting, const struct waiter *w,
			   const struct place_request *place, const struct peer *peer,
			   struct place_result *ret, struct error *err)
{
	struct place_gpu gpus[GPUS_MAX];
	uint8_t closed[GPUS_MAX];

	pool_place_gpus(waiting->pool, gpus);
	int rc = place_decide(waiting->pool->policy, gpus, waiting->pool->count, place, ret);
	if (rc < 0) {
		refusal_explain(waiting->pool, place, rc, err);
		/* A request that can never be granted is not worth waiting for. */
		return rc == -ENOSPC && place_possible(gpus, waiting->pool->count, place) ? -EAGAIN
											  : rc;
	}
	rc = quotas_check(waiting->quotas, peer, ret, err);
	if (rc < 0 || !fence(waiting, w, closed))
		return rc;
	for (uint32_t i = 0; i < waiting->pool->count; i++)
		gpus[i].offered &= !closed[i];
	if (place_decide(waiting->pool->policy, gpus, waiting->pool->count, place, ret) == 0)
		return 0;
	error_set(err, EXIT_CODE_NO_ROOM,
		  "earlier requests wait for the room that is left and go first");
	return -EAGAIN;
}

static int decide_instances(const struct waiting *waiting, const struct waiter *w,
			    const struct slice_request *request, const struct peer *peer,
			    struct mig_decision *instances, struct place_result *ret,
			    struct error *err)
{
	uint8_t closed[GPUS_MAX];
	bool fenced = fence(waiting, w, closed);
	int rc = mig_would(waiting->sessions->mig, request, peer, fenced ? closed : NULL, instances,
			   err);

	if (rc < 0)
		return rc;
	grant_of_decision(instances, ret);
	const struct session *s =
		request->resize[0] ? session_find(waiting->sessions, request->resize) : NULL;
	uint64_t bytes[PLACE_GPUS_MAX];
	for (uint32_t i = 0; i < ret->count; i++)
		bytes[i] = ret->grant[i].bytes;
	return s ? quotas_check_resize(waiting->quotas, s, bytes, err)
		 : quotas_check(waiting->quotas, peer, ret, err);
}

/* A GPU that is cut by the byte holds whatever is asked next, and one that is wanted whole is no
 * instance. */
static bool instances_preferred(const struct slice_request *request,
				const struct mig_decision *instances,
				const struct place_result *fraction)
{
	return request->place.kind != PLACE_WHOLE &&
	       mig_preferred(instances, fraction->grant[0].bytes, fraction->tolerance_applied);
}

/* Whether any GPU that may be used is cut by the byte, or would be but for somebody else. */
static bool is_cut(const struct waiting *waiting, const struct slice_request *request)
{
	for (uint32_t i = 0; i < waiting->pool->count; i++)
		if ((!request->place.allowed || request->place.allowed[i]) &&
		    !mig_has_role(waiting->sessions->mig, i))
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
	snprintf(err->message + used, sizeof(err->message) - used, "; %s", instances->message);
	if (!err->hint[0])
		memcpy(err->hint, instances->hint, sizeof(err->hint));
}

/* Decides between what GPUs with the MIG role and all others can give. *ret_count of `instances`:
 * 0: a fraction. */
static int decide(const struct waiting *waiting, const struct waiter *w,
		  const struct slice_request *request, const struct peer *peer,
		  struct place_result *ret, struct mig_decision *instances, struct error *err)
{
	bool profile = request->place.kind == PLACE_PROFILE;
	bool offers =
		request->backend != BACKEND_FRACTION && mig_offers(waiting->sessions->mig, request);
	struct error other = {0};
	struct place_result cut;
	int fraction = -EDOM, mig;

	*err = (struct error){0};
	instances->count = 0;
	if (!offers && (profile || request->backend == BACKEND_MIG)) {
		error_set(err, EXIT_CODE_NO_ROOM, "no GPU here gives out MIG instances");
		error_hint(err, "carve node set-role --dynamic-mig-enabled lets carve make them on "
				"GPUs in MIG mode");
		return -EDOM;
	}
	if (!profile && request->backend != BACKEND_MIG && (!offers || is_cut(waiting, request)))
		fraction = decide_fraction(waiting, w, &request->place, peer, &cut, err);
	if (!offers) {
		*ret = cut;
		return fraction;
	}
	mig = decide_instances(waiting, w, request, peer, instances, ret, &other);
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

int waiting_would(const struct waiting *waiting, const struct slice_request *request,
		  const struct peer *peer, struct place_result *ret, struct error *err)
{
	if (waiting->pool->state == POOL_NO_GPU) {
		refusal_no_gpu(waiting->pool, err);
		return -ENODEV;
	}
	if (current_taken(waiting, request, peer, NULL, err) ||
	    name_taken(waiting, request, peer, NULL, err))
		return -EEXIST;
	if (is_too_long(waiting, request, peer, err))
		return -EPERM;
	struct mig_decision instances;
	return decide(waiting, NULL, request, peer, ret, &instances, err);
}

int waiting_explain(const struct waiting *waiting, const struct waiter *w, struct place_result *ret,
		    struct error *err)
{
	if (current_taken(waiting, &w->request, &w->peer, w, err))
		return -EEXIST;
	struct mig_decision instances;
	return decide(waiting, w, &w->request, &w->peer, ret, &instances, err);
}

/* It had its time: asking again with the same wish is not what helps. */
static void waited_in_vain(const struct waiting *waiting, const struct waiter *w, struct error *err)
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
	/* Less would be refused, too, where a quota is used up. */
	if (why.code != EXIT_CODE_NO_ROOM)
		error_hint(err, "%s", why.hint);
	else if (refusal_is_by_drains(waiting->pool, &w->request.place))
		error_hint(err, "wait longer, or ask an administrator (carve node resume)");
	else
		error_hint(err, "ask for less, or wait longer; carve session list shows what is "
				"held");
}

/* Room that others hold can be asked for, where users see who holds it. */
static void owners_point_to(const struct waiting *waiting, const struct waiter *w,
			    struct error *err)
{
	size_t used = strlen(err->hint);

	if (waiting->owners_shown && !w->request.wait_ns && err->code == EXIT_CODE_NO_ROOM)
		snprintf(err->hint + used, sizeof(err->hint) - used,
			 "%s`carve gpu list` shows who holds the GPUs", used ? "; " : "");
}

static void grant_instances(struct waiting *waiting, struct waiter *w,
			    const struct mig_grant *instances)
{
	struct place_result result;

	grant_of_instances(instances, &result);
	grant(waiting, w, &result, instances);
}

/* The driver made the instance, and another program was in it before the session, or it is too
 * small for a context. */
static void instance_refused(const struct waiting *waiting, const char *session, struct error *err)
{
	const struct session *s = session_find(waiting->sessions, session);
	int gpu = s && s->record.gpu_count ? s->pool_gpu[0] : -1;
	char held[160];
	const char *why =
		gpu < 0 ? NULL
			: mig_held_text(waiting->sessions->mig, (uint32_t)gpu, held, sizeof(held));

	error_set(err, EXIT_CODE_FAILED,
		  "session %s has no new size, as the MIG instance that was made for it cannot be "
		  "used: %s",
		  session,
		  why ? why : "a process holds it, or it is smaller than one CUDA context");
	error_hint(err, "`carve mig list` shows the instances and the processes in them");
}

/* A GPU was drained while the instance was being made: the request is decided anew. */
static bool any_drained(const struct waiting *waiting, const struct mig_grant *instances)
{
	for (uint32_t i = 0; i < instances->count; i++)
		if (gpu_drain_of(waiting->pool, instances->share[i].gpu))
			return true;
	return false;
}

void waiting_made(struct waiting *waiting, const char *id, const struct mig_grant *instances,
		  const struct error *why)
{
	struct waiter *w = waiting_find(waiting, id);
	struct error err = {0};

	waiting_kick(waiting);
	if (!w)
		return;
	if (w->state == WAITER_MAKING)
		w->state = WAITER_QUEUED;
	/* Another GPU may have room, or this one later: but not for a session that is to go on
	 * there. */
	bool elsewhere = why && why->code == EXIT_CODE_NO_ROOM && !w->request.resize[0];
	if (why && !elsewhere) {
		err = *why;
		err.code = err.code == EXIT_CODE_NO_ROOM ? EXIT_CODE_FAILED : err.code;
	} else if (!instances && w->request.resize[0])
		instance_refused(waiting, w->request.resize, &err);
	/* Another request of this user may have come first. */
	if (instances && any_drained(waiting, instances))
		instances = NULL;
	if (instances && (current_taken(waiting, &w->request, &w->peer, w, &err) ||
			  name_taken(waiting, &w->request, &w->peer, w, &err)))
		instances = NULL;
	if (instances)
		grant_instances(waiting, w, instances);
	else if (err.code)
		refuse(waiting, w, &err);
}

static void take_instances(struct waiting *waiting, struct waiter *w,
			   const struct mig_decision *decision)
{
	struct mig_grant *instances = calloc(1, sizeof(*instances));
	struct error err = {0};
	int rc = instances ? mig_take(waiting->sessions->mig, w->id, decision, w->request.together,
				      instances, &err)
			   : error_set(&err, EXIT_CODE_FAILED, "there is no memory left");

	if (rc == 0) {
		w->state = WAITER_MAKING;
		snprintf(w->why, sizeof(w->why), "its MIG instance is being made");
	} else if (rc > 0) {
		grant_instances(waiting, w, instances);
	} else {
		refuse(waiting, w, &err);
	}
	free(instances);
}

/* Carries the decision out, or lets the request wait. */
static void waiter_settle(struct waiting *waiting, struct waiter *w, int rc,
			  const struct place_result *result, const struct mig_decision *instances,
			  struct error *err)
{
	/* A change that is under way ends soon, and may let it through. */
	if (rc < 0 && w->request.backend != BACKEND_FRACTION &&
	    mig_changing(waiting->sessions->mig, &w->request)) {
		snprintf(w->why, sizeof(w->why), "MIG instances are being looked at or changed");
		return;
	}
	bool waits = rc == -EAGAIN && now_monotonic_ns() < w->deadline_ns;

	if (!w->counted)
		mig_came(waiting->sessions->mig, &w->request,
			 rc == 0 ? MIG_GRANTED
			 : waits ? MIG_QUEUED
				 : MIG_REFUSED);
	w->counted = true;
	if (rc == 0) {
		count_passes(waiting, w, result);
		if (instances->count)
			take_instances(waiting, w, instances);
		else
			grant(waiting, w, result, NULL);
	} else if (!waits) {
		if (rc == -EAGAIN) {
			waited_in_vain(waiting, w, err);
			owners_point_to(waiting, w, err);
		}
		waiter_report(waiting, w, "");
		report_refused(waiting->report, &w->peer, w->request.name);
		refuse(waiting, w, err);
	} else {
		snprintf(w->why, sizeof(w->why), "%s", err->message);
		w->for_drained = !is_possible_now(waiting, &w->request);
		waiter_record(waiting, w);
	}
}

/* Decides one request, or leaves it waiting. */
static void waiter_run(struct waiting *waiting, struct waiter *w)
{
	struct place_result result;
	struct mig_decision instances;
	struct error err = {0};

	if (waiting->pool->state == POOL_NO_GPU)
		refusal_no_gpu(waiting->pool, &err);
	if (err.code || current_taken(waiting, &w->request, &w->peer, w, &err) ||
	    name_taken(waiting, &w->request, &w->peer, w, &err) ||
	    is_too_long(waiting, &w->request, &w->peer, &err) ||
	    request_resolve(&w->request, waiting->pool, &err) < 0) {
		refuse(waiting, w, &err);
		return;
	}
	int rc = decide(waiting, w, &w->request, &w->peer, &result, &instances, &err);
	const struct session *own =
		w->request.resize[0] ? session_find(waiting->sessions, w->request.resize) : NULL;
	bool lent = rc < 0 && own && !mig_changing(waiting->sessions->mig, &w->request);
	if (lent) {
		mig_lend(waiting->sessions->mig, own);
		rc = decide(waiting, w, &w->request, &w->peer, &result, &instances, &err);
	}
	waiter_settle(waiting, w, rc, &result, &instances, &err);
	if (lent)
		mig_lend(waiting->sessions->mig, NULL);
}

void waiting_run(struct waiting *waiting)
{
	/* The sample that ended sessions' memory waits for is on its way, and so is this call's
	 * next. */
	if (waiting->sessions->drains)
		return;
	uint64_t now = now_monotonic_ns();
	waiting->dirty = false;
	if (waiting->pool->state == POOL_READY && waiting->first)
		(void)pool_claim(waiting->pool, true);
	for (struct waiter *w = waiting->first, *next; w; w = next) {
		next = w->next;
		if (w->state == WAITER_ABSENT && now >= w->absent_until_ns) {
			log_event(LOG_INFO, "request.forgotten id=%s uid=%u", w->id, w->peer.uid);
			waiter_remove(waiting, w);
			waiting_kick(waiting);
		} else if (w->state == WAITER_QUEUED && (w->sample <= waiting->pool->done ||
							 waiting->pool->state == POOL_NO_GPU)) {
			waiter_run(waiting, w);
		}
	}
}
