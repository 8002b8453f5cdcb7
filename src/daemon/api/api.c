/* The requests of sessions, one after the other, and the table of all routes. Longer than other
 * files, as each request is a short function that is read beside its like. */
#include "daemon/api/api.h"

#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_agent.h"
#include "daemon/api/api_command.h"
#include "daemon/api/api_job.h"
#include "daemon/api/api_quota.h"
#include "daemon/api/api_sessions.h"
#include "daemon/api/api_slicing.h"
#include "daemon/api/fresh.h"
#include "daemon/api/http.h"
#include "daemon/api/mig_api.h"
#include "daemon/api/view.h"
#include "daemon/mig/mig.h"
#include "daemon/node.h"
#include "daemon/queue/queue.h"
#include "daemon/request/request.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/waiting/quotas.h"
#include "daemon/waiting/refusal.h"
#include "daemon/waiting/waiting.h"

#define SESSIONS_PREFIX "/v1/sessions/"

/* By its ID, or of the caller's own by its name; an administrator sees the names of all. */
static struct session *session_meant(const struct call *call, const char *id)
{
	struct session *s = session_find(&call->node->sessions, id);

	if (!s)
		s = session_named(&call->node->sessions, call->peer.uid, id);
	return !s && call->peer.admin ? session_named_once(&call->node->sessions, id) : s;
}

static struct waiter *waiter_meant(const struct call *call, const char *id)
{
	struct waiter *w = waiting_find(&call->node->waiting, id);

	return w ? w : waiting_named(&call->node->waiting, call->peer.uid, id);
}

/* Likewise of those that ended. */
static bool ended_meant(const struct call *call, const char *id, struct store_session *ret)
{
	return store_session_find(call->node->store, id, ret) == 0 ||
	       store_session_named(call->node->store, call->peer.uid, id, ret) == 0;
}

struct session *api_session_or_reply(struct call *call, const char *id)
{
	struct session *s = session_meant(call, id);
	struct error err = {0};

	if (!s) {
		error_set(&err, EXIT_CODE_FAILED, "there is no session %.64s of yours", id);
		error_hint(&err, "`carve session list` shows them");
		call_reply_error(call, MHD_HTTP_NOT_FOUND, &err);
		return NULL;
	}
	if (!peer_permitted(&call->peer, s->record.uid)) {
		answer_failed(call, MHD_HTTP_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "session %s is another user's", id);
		return NULL;
	}
	return s;
}

/* ---- looking ----------------------------------------------------------------------------- */

static void get_version(struct call *call, const char *id)
{
	call_reply(call, MHD_HTTP_OK, view_version(call->node));
}

static void answer_gpus(struct call *call, void *arg)
{
	call_reply(call, MHD_HTTP_OK, view_gpus(call->node));
}

static void get_gpus(struct call *call, const char *id)
{
	/* Those of a daemon that has ended meanwhile are to be had now. */
	if (call->node->pool.state == POOL_READY && pool_claim(&call->node->pool, false))
		call->node->waiting.dirty = true;
	fresh_defer(call, answer_gpus, NULL);
}

static void get_session(struct call *call, const char *id)
{
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session record = {.gpu = gpus};
	const struct waiter *w = waiter_meant(call, id);
	const struct session *s = session_meant(call, id);

	if (w && peer_permitted(&call->peer, w->peer.uid)) {
		call_reply(call, MHD_HTTP_OK,
			   view_waiter(w, waiting_position(&call->node->waiting, w), &call->peer));
	} else if (!s && ended_meant(call, id, &record) &&
		   peer_permitted(&call->peer, record.uid)) {
		call_reply(call, MHD_HTTP_OK, view_ended(&record, &call->peer));
	} else if ((s = api_session_or_reply(call, id)) != NULL) {
		call_reply(call, MHD_HTTP_OK, view_session(s, &call->peer));
	}
}

/* ---- asking ------------------------------------------------------------------------------ */

static void on_decided(void *arg, struct session *session, const struct error *err)
{
	struct call *call = arg;

	if (session)
		call_reply(call, MHD_HTTP_CREATED, view_session(session, &call->peer));
	else
		call_reply_error(call, answer_status(err), err);
}

/* A caller that asks again with the same ID (its first answer was lost with a daemon) gets the
 * session that it got then. True: answered. */
static bool answer_asked_before(struct call *call, const struct slice_request *request)
{
	struct session *session =
		request->id[0] ? session_find(&call->node->sessions, request->id) : NULL;

	if (!session)
		return false;
	if (session->record.uid == call->peer.uid)
		call_reply(call, MHD_HTTP_CREATED, view_session(session, &call->peer));
	else
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED,
			      "another session has the ID %s", request->id);
	return true;
}

/* The session that is to come back has ended, and was the caller's. False: answered. */
static bool again_or_reply(struct call *call, const struct slice_request *request)
{
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session record = {.gpu = gpus};

	if (store_session_find(call->node->store, request->id, &record) == 0 && record.ended &&
	    record.ephemeral && record.uid == call->peer.uid)
		return true;
	answer_failed(call, MHD_HTTP_NOT_FOUND, EXIT_CODE_FAILED,
		      "no session %s of yours has ended", request->id);
	return false;
}

static void on_asker_gone(struct call *call)
{
	waiting_cancel(&call->node->waiting, call);
}

static void post_session(struct call *call, const char *id)
{
	struct slice_request request;
	struct error err = {0};
	json_t *root = answer_body(call, &err);
	int rc = root ? request_parse(root, &request, &err) : -1;

	json_decref(root);
	if (rc == 0 && request.priority > 0 && !call->peer.admin)
		rc = error_set(&err, EXIT_CODE_NOT_PERMITTED,
			       "--priority: above 0 is for root and members of group carve");
	if (rc == 0 && request.kept && !call->peer.admin)
		rc = error_set(&err, EXIT_CODE_NOT_PERMITTED,
			       "kept: such sessions are for root and members of group carve");
	if (rc < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	if (answer_asked_before(call, &request) ||
	    (request.again && !again_or_reply(call, &request)))
		return;
	rc = waiting_add(&call->node->waiting, &request, &call->peer, on_decided, call);
	if (rc == -EMFILE)
		answer_failed(call, MHD_HTTP_TOO_MANY_REQUESTS, EXIT_CODE_FAILED,
			      "you have too many requests that wait; let some end first");
	else if (rc < 0)
		answer_failed(call, MHD_HTTP_INTERNAL_SERVER_ERROR, EXIT_CODE_FAILED, "%s",
			      strerrordesc_np(-rc));
	else
		call_defer(call, on_asker_gone);
}

/* ---- explaining -------------------------------------------------------------------------- */

static void explain_reply(struct call *call, const struct waiter *w,
			  const struct slice_request *request, const struct place_result *result,
			  const struct error *err)
{
	json_t *json = view_explain(call->node, request, result, err);

	json_object_set_new(json, "ahead",
			    view_ahead(call->node, w, request->priority, &call->peer));
	call_reply(call, MHD_HTTP_OK, json);
}

static void answer_explain(struct call *call, void *arg)
{
	struct slice_request *request = arg;
	struct place_result result = {0};
	struct error err = {0};

	/* GPUs that there are not: the request is wrong, not refused. */
	if (request_resolve(request, &call->node->pool, &err) < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	(void)waiting_would(&call->node->waiting, request, &call->peer, &result, &err);
	explain_reply(call, NULL, request, &result, &err);
}

static void post_explain(struct call *call, const char *id)
{
	struct slice_request *request = calloc(1, sizeof(*request));
	struct error err = {0};
	json_t *root = answer_body(call, &err);
	int rc = root && request ? request_parse(root, request, &err) : -1;

	json_decref(root);
	if (rc == 0) {
		fresh_defer(call, answer_explain, request);
		return;
	}
	free(request);
	call_reply_error(call, answer_status(&err), &err);
}

/* A request that waits. It may have been decided while the sample was taken. */
static void answer_explain_waiter(struct call *call, void *id)
{
	struct waiter *w = waiting_find(&call->node->waiting, id);
	struct place_result result = {0};
	struct error err = {0};

	if (!w) {
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED,
			      "%s does not wait any more", (const char *)id);
		return;
	}
	if (request_resolve(&w->request, &call->node->pool, &err) == 0)
		(void)waiting_explain(&call->node->waiting, w, &result, &err);
	explain_reply(call, w, &w->request, &result, &err);
}

static void get_explain(struct call *call, const char *id)
{
	const struct waiter *w = waiting_find(&call->node->waiting, id);

	if (!w && api_session_or_reply(call, id))
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED, "session %s does not wait",
			      id);
	else if (w && peer_permitted(&call->peer, w->peer.uid))
		fresh_defer(call, answer_explain_waiter, strdup(id));
	else if (w)
		answer_failed(call, MHD_HTTP_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "request %s is another user's", id);
}

/* ---- resizing ---------------------------------------------------------------------------- */

/* A fraction is one of time too; an amount of memory leaves the session's share of time as it is.
 */
static uint32_t resized_compute(const struct session *s, const struct place_request *request)
{
	return request->kind == PLACE_FRACTION ? place_compute(request) : s->record.compute;
}

/* Whether this daemon gives out more of the session's GPU at all. 0, or negative with *err. */
static int grow_check(const struct session *s, uint32_t i, struct error *err)
{
	const struct pool_gpu *gpu = &s->sessions->pool->gpu[s->pool_gpu[i]];
	char holder[REFUSAL_HOLDER_SIZE];

	if (gpu->info.mig)
		return error_set(err, EXIT_CODE_NO_ROOM, "cannot grow: GPU %u is in MIG mode",
				 s->record.gpu[i].index);
	if (gpu->claim.state == CLAIM_OURS)
		return 0;
	return error_set(err, EXIT_CODE_NO_ROOM, "cannot grow: GPU %u: %s", s->record.gpu[i].index,
			 refusal_holder(&gpu->claim, holder));
}

/* The least that a session can be. 0, or negative with *err. */
static int shrink_check(const struct session *s, uint32_t i, const struct place_gpu *gpu,
			uint64_t bytes, struct error *err)
{
	char asked[UNITS_TEXT_SIZE], has[UNITS_TEXT_SIZE];
	uint64_t used = session_used(s, i);

	units_format_bytes(bytes, asked);
	if (bytes < MAX(gpu->context, SLICE_BYTES_MIN))
		return error_set(err, EXIT_CODE_USAGE, "%s is too small for one CUDA context (%s)",
				 asked, units_format_bytes(gpu->context, has));
	if (bytes >= used)
		return 0;
	/* Which of them is less has to be seen. */
	if (!strcmp(asked, units_format_bytes(used, has))) {
		snprintf(asked, sizeof(asked), "%" PRIu64 " bytes", bytes);
		snprintf(has, sizeof(has), "%" PRIu64, used);
	}
	return error_set(err, EXIT_CODE_FAILED, "cannot shrink to %s: %s are in use on GPU %u",
			 asked, has, s->record.gpu[i].index);
}

/* Whether so much of a GPU's time can be the session's. 0, or negative with *err. */
static int promise_check(const struct session *s, uint32_t i, const struct place_gpu *gpu,
			 uint32_t compute, struct error *err)
{
	if (compute <= s->record.compute || !gpu->shared_time ||
	    gpu->share - s->record.compute + compute <= SHARE_ONE)
		return 0;
	return error_set(err, EXIT_CODE_NO_ROOM,
			 "cannot grow to %g%% of the time of GPU %u: %g%% of it are promised to "
			 "others",
			 compute * 100.0 / SHARE_ONE, s->record.gpu[i].index,
			 (double)(gpu->share - s->record.compute) * 100 / SHARE_ONE);
}

/* The new size on one GPU of the session. 0, or negative with *err. */
static int resize_check(const struct session *s, uint32_t i, const struct place_request *request,
			uint64_t *ret_bytes, struct error *err)
{
	struct place_gpu gpus[GPUS_MAX];
	char asked[UNITS_TEXT_SIZE], has[UNITS_TEXT_SIZE];
	uint64_t now = s->record.gpu[i].bytes;
	uint32_t compute = resized_compute(s, request);

	if (s->pool_gpu[i] < 0)
		return error_set(err, EXIT_CODE_FAILED, "GPU %u is gone", s->record.gpu[i].index);
	pool_place_gpus(s->sessions->pool, gpus);
	const struct place_gpu *gpu = &gpus[s->pool_gpu[i]];
	uint64_t bytes = place_requested(gpu, request);
	units_format_bytes(bytes, asked);
	if (shrink_check(s, i, gpu, bytes, err) < 0)
		return -1;
	if ((bytes > now || compute > s->record.compute) && grow_check(s, i, err) < 0)
		return -1;
	if (bytes > now && bytes - now > place_available(gpu))
		return error_set(err, EXIT_CODE_NO_ROOM,
				 "cannot grow to %s: on GPU %u this session can have %s at most",
				 asked, s->record.gpu[i].index,
				 units_format_room(now + place_available(gpu), has));
	if (bytes > now && !waiting_lets_grow(&node_of(s)->waiting, (uint32_t)s->pool_gpu[i]))
		return error_set(err, EXIT_CODE_NO_ROOM,
				 "cannot grow to %s: earlier requests wait for the room that is "
				 "left and go first",
				 asked);
	*ret_bytes = bytes;
	return promise_check(s, i, gpu, compute, err);
}

static int resize_do(struct session *s, const uint64_t *bytes, uint32_t compute, struct error *err)
{
	int rc = session_resize(s, bytes, compute);

	if (rc == -EBUSY)
		return error_set(err, EXIT_CODE_FAILED,
				 "cannot shrink session %s: more than that came into use just now",
				 s->record.id);
	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "the new size cannot be recorded: %s",
				  strerrordesc_np(-rc))
		      : 0;
}

/* Whether the session's part of an instance that it shares can be of the new size where it is. */
static bool fits_in_part(const struct session *s, const struct place_request *request)
{
	uint64_t most =
		s->state == SESSION_ACTIVE && request->kind == PLACE_BYTES ? mig_part_most(s) : 0;

	return most && request->bytes <= most &&
	       (request->bytes <= s->record.gpu[0].bytes ||
		waiting_lets_grow(&node_of(s)->waiting, (uint32_t)s->pool_gpu[0]));
}

/* Its processes may go on meanwhile: the front bounds the part. */
static int resize_part(struct session *s, const struct place_request *request, struct error *err)
{
	struct place_gpu gpus[GPUS_MAX];
	uint64_t bytes = request->bytes;

	pool_place_gpus(s->sessions->pool, gpus);
	gpus[s->pool_gpu[0]].context = mig_part_least(s);
	if (shrink_check(s, 0, &gpus[s->pool_gpu[0]], bytes, err) < 0 ||
	    quotas_check_resize(&node_of(s)->quotas, s, &bytes, err) < 0)
		return -1;
	int rc = resize_do(s, &bytes, s->record.compute, err);

	mig_part_changed(s);
	return rc;
}

static int resize(struct session *s, const struct place_request *request, struct error *err)
{
	uint64_t bytes[PLACE_GPUS_MAX];

	if (s->state != SESSION_ACTIVE)
		return error_set(err, EXIT_CODE_FAILED, "session %s is ending", s->record.id);
	if (request->kind == PLACE_WHOLE || request->kind == PLACE_PROFILE)
		return error_set(err, EXIT_CODE_USAGE,
				 "a session is resized to an amount of memory "
				 "or a fraction of a GPU");
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		int rc = resize_check(s, i, request, &bytes[i], err);

		if (rc < 0)
			return rc;
	}
	if (quotas_check_resize(&node_of(s)->quotas, s, bytes, err) < 0)
		return -1;
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (bytes[i] > s->record.gpu[i].bytes)
			waiting_grown(&node_of(s)->waiting, (uint32_t)s->pool_gpu[i]);
	return resize_do(s, bytes, resized_compute(s, request), err);
}

static void on_moved(void *arg, struct session *session, const struct error *err)
{
	struct call *call = arg;

	if (session)
		call_reply(call, MHD_HTTP_OK, view_session(session, &call->peer));
	else
		call_reply_error(call, answer_status(err), err);
}

static bool is_instance(const struct session *s)
{
	return s && s->record.gpu_count && s->record.gpu[0].instance[0];
}

/* Why an instance keeps its size while somebody is in the session. */
static void answer_stays(struct call *call, const struct session *s)
{
	uint64_t most = mig_part_most(s);
	char text[UNITS_TEXT_SIZE];

	if (most)
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED,
			      "session %s can have %s at most in the MIG instance that it shares; "
			      "another instance takes its place when nobody is in the session",
			      s->record.id, units_format_room(most, text));
	else
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED,
			      "session %s is a MIG instance with processes in it, which keeps its "
			      "size; another one takes its place when nobody is in the session",
			      s->record.id);
}

/* Another instance, where nobody is in the session. Answers, or lets the call wait. */
static void move_session(struct call *call, const struct session *s,
			 const struct place_request *size)
{
	struct slice_request request = {
		.place = *size, .backend = BACKEND_MIG, .together = mig_shares(s)};
	struct peer peer = {.uid = s->record.uid, .groups = s->record.groups};

	request.place.count = s->record.gpu_count;
	if (request.place.kind != PLACE_BYTES)
		request.together = false;
	snprintf(request.resize, sizeof(request.resize), "%s", s->record.id);
	if (s->state != SESSION_ACTIVE)
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED, "session %s is ending",
			      s->record.id);
	else if (session_is_used(s))
		answer_stays(call, s);
	else if (waiting_resizes(&call->node->waiting, s->record.id))
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED,
			      "session %s is being resized already", s->record.id);
	else if (waiting_add(&call->node->waiting, &request, &peer, on_moved, call) < 0)
		answer_failed(call, MHD_HTTP_TOO_MANY_REQUESTS, EXIT_CODE_FAILED,
			      "too many requests wait; try again");
	else
		call_defer(call, on_asker_gone);
}

/* The rest of a GPU's part under a limit that only lowers, and of the session's share of time. */
static int lower_check(const struct session *s, uint32_t i, const struct place_request *most,
		       uint32_t compute, uint64_t *ret_bytes, struct error *err)
{
	struct place_gpu gpus[GPUS_MAX];

	*ret_bytes = MIN(s->record.gpu[i].bytes, most->bytes);
	if (s->pool_gpu[i] < 0)
		return error_set(err, EXIT_CODE_FAILED, "GPU %u is gone", s->record.gpu[i].index);
	pool_place_gpus(s->sessions->pool, gpus);
	const struct place_gpu *gpu = &gpus[s->pool_gpu[i]];
	int rc = *ret_bytes < s->record.gpu[i].bytes ? shrink_check(s, i, gpu, *ret_bytes, err) : 0;

	return rc < 0 ? rc : promise_check(s, i, gpu, compute, err);
}

/* Takes what the session has above a limit. One without a share of time gets the limit as its
 * share: no share would mean all that is left. */
static int lower(struct session *s, const struct place_request *most, struct error *err)
{
	bool less = most->compute && (!s->record.compute || most->compute < s->record.compute);
	uint32_t compute = less ? most->compute : s->record.compute;
	uint64_t bytes[PLACE_GPUS_MAX];

	if (s->state != SESSION_ACTIVE)
		return error_set(err, EXIT_CODE_FAILED, "session %s is ending", s->record.id);
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		int rc = lower_check(s, i, most, compute, &bytes[i], err);

		if (rc < 0)
			return rc;
		less |= bytes[i] < s->record.gpu[i].bytes;
	}
	if (!less)
		return 0;
	if (is_instance(s) && (!mig_part_most(s) || compute != s->record.compute))
		return error_set(err, EXIT_CODE_FAILED,
				 "session %s is a MIG instance, which no limit makes smaller",
				 s->record.id);
	int rc = resize_do(s, bytes, compute, err);
	if (is_instance(s))
		mig_part_changed(s);
	return rc;
}

/* True: the call was one, and is answered. */
static bool patch_lower(struct call *call, struct session *s, json_t *root)
{
	struct slice_request most;
	struct error err = {0};

	if (!json_is_true(json_object_get(root, "lower")))
		return false;
	json_object_del(root, "lower");
	int rc = request_parse(root, &most, &err);
	if (rc == 0 && most.place.kind != PLACE_BYTES)
		rc = error_set(&err, EXIT_CODE_USAGE, "'lower' goes with an amount of memory");
	if (rc == 0)
		rc = lower(s, &most.place, &err);
	if (rc < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return true;
	}
	waiting_kick(&call->node->waiting);
	call_reply(call, MHD_HTTP_OK, view_session(s, &call->peer));
	return true;
}

static void reply_waits(struct call *call, const struct waiter *w)
{
	struct error err = {0};

	if (!peer_permitted(&call->peer, w->peer.uid)) {
		answer_failed(call, MHD_HTTP_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "request %s is another user's", w->id);
		return;
	}
	error_set(&err, EXIT_CODE_FAILED, "request %s waits for room: it has no size to change yet",
		  w->id);
	error_hint(&err, "give it up and ask anew: carve session release %s", w->id);
	call_reply_error(call, MHD_HTTP_CONFLICT, &err);
}

static void patch_session(struct call *call, const char *id)
{
	const struct waiter *w = waiter_meant(call, id);
	struct session *s = w ? NULL : api_session_or_reply(call, id);
	struct place_request request;
	struct error err = {0};

	if (w)
		reply_waits(call, w);
	if (!s)
		return;
	json_t *root = answer_body(call, &err);
	if (root && patch_lower(call, s, root)) {
		json_decref(root);
		return;
	}
	int rc = root ? request_parse_size(root, &request, &err) : -1;

	json_decref(root);
	if (rc == 0 && call->node->pool.state == POOL_READY)
		(void)pool_claim(&call->node->pool, true);
	bool in_part = rc == 0 && is_instance(s) && fits_in_part(s, &request);
	if (rc == 0 && is_instance(s) && !in_part) {
		move_session(call, s, &request);
		return;
	}
	if (rc == 0)
		rc = in_part ? resize_part(s, &request, &err) : resize(s, &request, &err);
	if (rc < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	waiting_kick(&call->node->waiting);
	call_reply(call, MHD_HTTP_OK, view_session(s, &call->peer));
}

/* ---- releasing --------------------------------------------------------------------------- */

static void reply_released(struct call *call, const char *id)
{
	call_reply(call, MHD_HTTP_OK, json_pack("{s:s, s:s}", "id", id, "state", "released"));
}

/* One that nobody is in ends at once, unless its end cannot be kept. */
static void reply_if_released(struct call *call, const char *id)
{
	struct error err = {0};

	if (!session_find(&call->node->sessions, id)) {
		reply_released(call, id);
		return;
	}
	error_set(&err, EXIT_CODE_FAILED,
		  "session %s is not released yet: its end cannot be written, the disk of carved's "
		  "database is full or cannot be written",
		  id);
	error_hint(&err, "make room there: carved tries again each second, and lists the session "
			 "until then");
	call_reply_error(call, MHD_HTTP_CONFLICT, &err);
}

static void on_session_ended(void *arg, const char *id)
{
	struct call *call = arg;
	const struct session *s = session_find(&call->node->sessions, id);
	struct error err = {0};

	if (!s) {
		reply_released(call, id);
		return;
	}
	error_set(&err, EXIT_CODE_FAILED,
		  "session %s is not released yet: process %d of it is another user's now, and "
		  "carve may not end it",
		  id, (int)s->refused_pid);
	error_hint(&err, "have that user or root end it: the session ends with it");
	call_reply_error(call, MHD_HTTP_CONFLICT, &err);
}

static void on_releaser_gone(struct call *call)
{
	session_unlisten(&call->node->sessions, call);
}

/* A command of `carve run` that may use the GPU yet, though it has not so far. A caller from within
 * it knows of it. */
static bool is_command_of_others(const struct holder *h, const struct call *call)
{
	return h->command && !process_descends_from(call->peer.process, h->process);
}

static void pid_add(char *buf, size_t size, pid_t pid)
{
	size_t used = strlen(buf);

	if (used + 16 < size)
		(void)snprintf(buf + used, size - used, "%s%d", used ? ", " : "", (int)pid);
}

/* Whom a release would leave without a GPU: "4711, 4712"; empty: nobody. */
static void pids_text(const struct session *s, const struct call *call, char *buf, size_t size)
{
	buf[0] = '\0';
	for (const struct process *p = s->processes; p; p = p->next)
		if (!process_is_dead(p))
			pid_add(buf, size, p->id.pid);
	for (const struct holder *h = s->holders; h; h = h->next)
		if ((h->unread || is_command_of_others(h, call)) &&
		    !session_has_attached(s, h->process.pid))
			pid_add(buf, size, h->process.pid);
}

static void release(struct call *call, struct session *s, const char *reason)
{
	char id[STORE_ID_SIZE];

	snprintf(id, sizeof(id), "%s", s->record.id);
	if (!session_live(s)) {
		session_end(s, reason);
		reply_if_released(call, id);
		return;
	}
	if (session_listen(s, on_session_ended, call) < 0) {
		call_reply(call, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL);
		return;
	}
	call_defer(call, on_releaser_gone);
	session_end(s, reason);
}

static void delete_waiter(struct call *call, struct waiter *w)
{
	char id[STORE_ID_SIZE];

	if (!peer_permitted(&call->peer, w->peer.uid)) {
		answer_failed(call, MHD_HTTP_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "request %s is another user's", w->id);
		return;
	}
	snprintf(id, sizeof(id), "%s", w->id);
	waiting_release(&call->node->waiting, w);
	reply_released(call, id);
}

static void refuse_used(struct call *call, const char *id, const char *pids)
{
	const struct job *job = job_of_session(call->node->queues, id);
	char name[JOB_ID_TEXT];
	struct error err = {0};

	error_set(&err, EXIT_CODE_FAILED, "session %s has processes inside: %s", id, pids);
	if (job)
		error_hint(&err, "it is job %s's: `carve job cancel %s` ends that job",
			   job_id_text(&job->record, name), name);
	else
		error_hint(&err, "end them first, or let carve end them: say it with --force");
	call_reply_error(call, MHD_HTTP_CONFLICT, &err);
}

static void delete_session(struct call *call, const char *id)
{
	struct waiter *w = waiter_meant(call, id);
	const char *force = call_argument(call, "force");
	char pids[256], why[STORE_REASON_SIZE];

	if (w) {
		delete_waiter(call, w);
		return;
	}
	struct session *s = api_session_or_reply(call, id);
	if (!s)
		return;
	pids_text(s, call, pids, sizeof(pids));
	if (!pids[0]) {
		release(call, s, session_unused_reason(s, "released", why));
		return;
	}
	if (force && strcmp(force, "0") != 0) {
		session_commands_end(s, &call->peer.process);
		release(call, s, "released by force");
		return;
	}
	refuse_used(call, s->record.id, pids);
}

/* ---- upgrades ---------------------------------------------------------------------------- */

/* Of the loop's thread. NULL: nothing answers yet, as before the sockets listen. */
static void (*upgrade_answer)(struct call *call, const char *id);

void api_upgrade_with(void (*answer)(struct call *call, const char *id))
{
	upgrade_answer = answer;
}

static void post_upgrade(struct call *call, const char *id)
{
	if (upgrade_answer)
		upgrade_answer(call, id);
	else
		answer_failed(call, MHD_HTTP_SERVICE_UNAVAILABLE, EXIT_CODE_FAILED,
			      "this daemon cannot be upgraded in place");
}

/* ---- routes ------------------------------------------------------------------------------ */

struct route {
	const char *method, *path;
	bool takes_id; /* `path` is a prefix, an ID follows */
	void (*handle)(struct call *call, const char *id);
};

static const struct route routes[] = {
	{"GET", "/v1/version", false, get_version},
	{"GET", "/v1/gpus", false, get_gpus},
	{"GET", "/v1/sessions", false, api_get_sessions},
	{"POST", "/v1/sessions", false, post_session},
	{"POST", "/v1/commands", false, api_post_command},
	{"POST", "/v1/upgrade", false, post_upgrade},
	{"POST", "/v1/explain", false, post_explain},
	{"GET", "/v1/explain/", true, get_explain},
	{"GET", "/v1/quotas", false, api_get_quotas},
	{"PUT", "/v1/quotas/user/", true, api_put_user_quota},
	{"PUT", "/v1/quotas/group/", true, api_put_group_quota},
	{"GET", "/v1/quotas/user/", true, api_get_user_quota},
	{"GET", "/v1/quotas/group/", true, api_get_group_quota},
	{"PATCH", "/v1/quotas/user/", true, api_patch_user_quota},
	{"PATCH", "/v1/quotas/group/", true, api_patch_group_quota},
	{"DELETE", "/v1/quotas/user/", true, api_delete_user_quota},
	{"DELETE", "/v1/quotas/group/", true, api_delete_group_quota},
	{"GET", "/v1/mig", false, api_get_mig},
	{"PUT", "/v1/mig/roles", false, api_put_mig_roles},
	{"POST", "/v1/mig/gc", false, api_post_mig_gc},
	{"GET", "/v1/timeslicing", false, api_get_slicing},
	{"PUT", "/v1/timeslicing", false, api_put_slicing},
	{"GET", "/v1/timeslicing/trace", false, api_get_turns},
	{"GET", "/v1/agents", false, api_get_agents},
	{"POST", "/v1/agents", false, api_post_agent},
	{"PATCH", "/v1/agents/", true, api_patch_agent},
	{"DELETE", "/v1/agents/", true, api_delete_agent},
	{"GET", "/v1/queues", false, api_get_queues},
	{"GET", "/v1/jobs", false, api_get_jobs},
	{"POST", "/v1/jobs", false, api_post_job},
	{"GET", "/v1/jobs/events", false, api_get_job_events},
	{"GET", "/v1/jobs/", true, api_get_job},
	{"POST", "/v1/jobs/", true, api_post_job_again},
	{"PATCH", "/v1/jobs/", true, api_patch_job},
	{"DELETE", "/v1/jobs/", true, api_delete_job},
	{"GET", SESSIONS_PREFIX, true, get_session},
	{"PATCH", SESSIONS_PREFIX, true, patch_session},
	{"DELETE", SESSIONS_PREFIX, true, delete_session},
};

static bool route_matches(const struct route *route, const char *path)
{
	size_t size = strlen(route->path);

	return route->takes_id ? !strncmp(path, route->path, size) && path[size] &&
					 !strchr(path + size, '/')
			       : !strcmp(path, route->path);
}

static bool is_of_queues(const char *path)
{
	return !strncmp(path, "/v1/jobs", 8) || !strncmp(path, "/v1/agents", 10) ||
	       !strncmp(path, "/v1/queues", 10);
}

void api_handle(struct call *call)
{
	bool known = false, whole = false;

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		/* A word that is a path of its own is no ID. */
		if (!route_matches(&routes[i], call->path) || (whole && routes[i].takes_id))
			continue;
		known = true;
		whole |= !routes[i].takes_id;
		if (strcmp(routes[i].method, call->method) != 0)
			continue;
		if (!call->node->queues && is_of_queues(routes[i].path)) {
			call_reply_error(call, MHD_HTTP_SERVICE_UNAVAILABLE,
					 &call->node->queues_error);
			return;
		}
		routes[i].handle(call, call->path + strlen(routes[i].path));
		return;
	}
	if (known)
		answer_failed(call, MHD_HTTP_METHOD_NOT_ALLOWED, EXIT_CODE_USAGE,
			      "%.16s does not go with %.128s", call->method, call->path);
	else
		answer_failed(call, MHD_HTTP_NOT_FOUND, EXIT_CODE_USAGE, "there is no %.128s",
			      call->path);
}
