#include "daemon/api/api_resize.h"

#include <errno.h>
#include <http_parser.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_events.h"
#include "daemon/api/api_session.h"
#include "daemon/api/fresh.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/host/unrecorded.h"
#include "daemon/mig/mig.h"
#include "daemon/node.h"
#include "daemon/request/request.h"
#include "daemon/session/session.h"
#include "daemon/waiting/quota_check.h"
#include "daemon/waiting/quota_near.h"
#include "daemon/waiting/refusal.h"
#include "daemon/waiting/waiting.h"

/* A fraction is one of time too; an amount of memory leaves the session's share of time as it is.
 */
static uint32_t resized_compute(const struct session *s, const struct place_request *request)
{
	return request->kind == PLACE_FRACTION ? place_compute(request) : s->record.compute;
}

/* Whether the GPU is drained, so that nothing grows there. 0, or negative with *err. */
static int drain_check(const struct session *s, uint32_t i, struct error *err)
{
	const struct store_drain *drain = gpu_drain_of(s->sessions->pool, (uint32_t)s->pool_gpu[i]);
	char text[GPU_DRAIN_TEXT_SIZE];

	if (!drain)
		return 0;
	error_set(err, EXIT_CODE_NO_ROOM, "cannot grow: GPU %u: %s", s->record.gpu[i].index,
		  gpu_drain_text(drain, text));
	error_hint(err, "a new session is granted on another GPU");
	return -EXIT_CODE_NO_ROOM;
}

/* Whether this daemon gives out more of the session's GPU at all. 0, or negative with *err. */
static int grow_check(const struct session *s, uint32_t i, struct error *err)
{
	const struct pool_gpu *gpu = &s->sessions->pool->gpu[s->pool_gpu[i]];
	char holder[REFUSAL_HOLDER_SIZE];

	if (gpu->info.mig)
		return error_set(err, EXIT_CODE_NO_ROOM, "cannot grow: GPU %u is in MIG mode",
				 s->record.gpu[i].index);
	if (gpu->claim.state != CLAIM_OURS)
		return error_set(err, EXIT_CODE_NO_ROOM, "cannot grow: GPU %u: %s",
				 s->record.gpu[i].index, refusal_holder(&gpu->claim, holder));
	return drain_check(s, i, err);
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
	if (bytes > now && bytes - now > place_available(gpu)) {
		error_set(err, EXIT_CODE_NO_ROOM,
			  "cannot grow to %s: on GPU %u this session can have %s at most", asked,
			  s->record.gpu[i].index,
			  units_format_room(now + place_available(gpu), has));
		refusal_mebibytes_hint(s->sessions->pool, request, err);
		return -1;
	}
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
	uint64_t before = 0, after = 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		before += s->record.gpu[i].bytes;
		after += bytes[i];
	}
	int rc = session_resize(s, bytes, compute);
	if (rc == 0 && after > before)
		quota_near_look(&node_of(s)->quotas, s, after - before);

	if (rc == -EBUSY)
		return error_set(err, EXIT_CODE_FAILED,
				 "cannot shrink session %s: more than that came into use just now",
				 s->record.id);
	return rc < 0 ? unrecorded_set(err, "the new size cannot be recorded", rc) : 0;
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
	if (bytes > s->record.gpu[0].bytes && drain_check(s, 0, err) < 0)
		return -1;
	if (shrink_check(s, 0, &gpus[s->pool_gpu[0]], bytes, err) < 0 ||
	    quotas_check_resize(&node_of(s)->quotas, s, &bytes, err) < 0)
		return -1;
	int rc = resize_do(s, &bytes, s->record.compute, err);

	mig_part_changed(s);
	return rc;
}

static int resize(struct session *s, const struct place_request *request, struct error *err)
{
	uint64_t bytes[PLACE_GPUS_MAX] = {0};

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
	api_session_reply(arg, HTTP_STATUS_OK, session, err);
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
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
			      "session %s can have %s at most in the MIG instance that it shares; "
			      "another instance takes its place when nobody is in the session",
			      s->record.id, units_format_room(most, text));
	else
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
			      "session %s is a MIG instance with processes in it, which keeps its "
			      "size; another one takes its place when nobody is in the session",
			      s->record.id);
}

/* The session's instances as they are, where they are what a request of the new size would get. */
static bool keeps_instances(const struct session *s, const struct slice_request *request,
			    struct store_gpu *ret_gpus)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		ret_gpus[i] = s->record.gpu[i];
		if (s->pool_gpu[i] < 0 ||
		    !mig_keeps(s->sessions->mig, &s->record.gpu[i], (uint32_t)s->pool_gpu[i],
			       request, &ret_gpus[i].requested))
			return false;
	}
	return s->state == SESSION_ACTIVE && !mig_shares(s) && !request->together;
}

/* Processes may be in it: nothing but the record changes. */
static void keep_instances(struct call *call, struct session *s, const struct store_gpu *gpus)
{
	struct error err = {0};
	int rc = session_move(s, gpus);

	if (rc == 0) {
		call_reply(call, HTTP_STATUS_OK, view_session(s, &call->peer));
		return;
	}
	unrecorded_set(&err, "the new size cannot be recorded", rc);
	call_reply_error(call, answer_status(&err), &err);
}

/* A command of a session may be ending: that of a container looks after it for a moment longer than
 * the container lives. */
#define COMMANDS_PATIENCE_NS 2000000000ull

/* A size that was asked for. Flat: fresh_defer() frees it. */
struct wanted {
	char id[STORE_ID_SIZE];
	struct place_request size;
	uint64_t until_ns; /* commands are waited for until then; CLOCK_MONOTONIC */
};

static void answer_resize(struct call *call, void *arg);

/* True: the session has commands, and no process that uses the GPU. The call waits for them. */
static bool awaits_commands(struct call *call, const struct session *s, const struct wanted *wanted)
{
	struct wanted *again;

	if (session_live(s) || now_monotonic_ns() >= wanted->until_ns)
		return false;
	again = malloc(sizeof(*again));
	if (!again)
		return false;
	*again = *wanted;
	fresh_await(call, answer_resize, again);
	return true;
}

/* Another instance, where nobody is in the session. Answers, or lets the call wait. */
static void move_session(struct call *call, struct session *s, const struct wanted *wanted)
{
	const struct place_request *size = &wanted->size;
	struct store_gpu kept[PLACE_GPUS_MAX];
	struct slice_request request = {
		.place = *size, .backend = BACKEND_MIG, .together = mig_shares(s)};
	struct peer peer = {.uid = s->record.uid, .gid = s->record.gid, .groups = s->record.groups};

	request.place.count = s->record.gpu_count;
	if (request.place.kind != PLACE_BYTES)
		request.together = false;
	/* An amount of memory leaves what was asked of the compute as it is. */
	if (request.place.kind == PLACE_BYTES && s->record.kind == PLACE_BYTES) {
		request.place.compute = s->record.compute;
		request.compute_given = s->record.compute > 0;
	}
	snprintf(request.resize, sizeof(request.resize), "%s", s->record.id);
	if (s->state != SESSION_ACTIVE)
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED, "session %s is ending",
			      s->record.id);
	else if (waiting_resizes(&call->node->waiting, s->record.id))
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
			      "session %s is being resized already", s->record.id);
	else if (keeps_instances(s, &request, kept))
		keep_instances(call, s, kept);
	else if (session_is_used(s) && awaits_commands(call, s, wanted))
		return;
	else if (session_is_used(s))
		answer_stays(call, s);
	else if (waiting_add(&call->node->waiting, &request, &peer,
			     &(struct waiter_ask){.cb = on_moved, .arg = call}) < 0)
		answer_failed(call, HTTP_STATUS_TOO_MANY_REQUESTS, EXIT_CODE_FAILED,
			      "too many requests wait; try again");
	else
		call_defer(call, api_session_asker_gone);
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

static void record(struct call *call, const struct session *s, const char *before)
{
	char after[API_HELD_TEXT_SIZE];

	api_deed_record(call->node, &call->peer,
			&(struct api_deed){EVENT_SESSION_RESIZED, "session", s->record.id,
					   s->record.uid, before, api_held_text(s, after)});
}

/* True: the call was one, and is answered. */
static bool patch_lower(struct call *call, struct session *s, json_t *root)
{
	struct slice_request most;
	struct error err = {0};
	char before[API_HELD_TEXT_SIZE];

	api_held_text(s, before);
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
	record(call, s, before);
	waiting_kick(&call->node->waiting);
	call_reply(call, HTTP_STATUS_OK, view_session(s, &call->peer));
	return true;
}

static void reply_waits(struct call *call, const struct waiter *w)
{
	struct error err = {0};

	if (!peer_permitted(&call->peer, w->peer.uid)) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "request %s is another user's", w->id);
		return;
	}
	error_set(&err, EXIT_CODE_FAILED, "request %s waits for room: it has no size to change yet",
		  w->id);
	error_hint(&err, "give it up and ask anew: carve session release %s", w->id);
	call_reply_error(call, HTTP_STATUS_CONFLICT, &err);
}

/* The session may have ended meanwhile. */
static void answer_resize(struct call *call, void *arg)
{
	const struct wanted *wanted = arg;
	struct session *s = api_session_or_reply(call, wanted->id);
	char before[API_HELD_TEXT_SIZE];
	struct error err = {0};

	if (!s)
		return;
	api_held_text(s, before);
	if (call->node->pool.state == POOL_READY)
		(void)pool_claim(&call->node->pool, true);
	bool in_part = is_instance(s) && fits_in_part(s, &wanted->size);
	if (is_instance(s) && !in_part) {
		move_session(call, s, wanted);
		return;
	}
	int rc = in_part ? resize_part(s, &wanted->size, &err) : resize(s, &wanted->size, &err);
	if (rc < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	record(call, s, before);
	waiting_kick(&call->node->waiting);
	call_reply(call, HTTP_STATUS_OK, view_session(s, &call->peer));
}

/* The memory that programs outside carve hold by now is not there to be promised. */
void api_patch_session(struct call *call, const char *id)
{
	const struct waiter *w = api_session_waiter(call, id);
	struct session *s = w ? NULL : api_session_or_reply(call, id);
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
	struct wanted *wanted = calloc(1, sizeof(*wanted));
	int rc = root && wanted ? request_parse_size(root, &wanted->size, &err) : -1;

	if (root && !wanted)
		error_set(&err, EXIT_CODE_FAILED, "out of memory");
	json_decref(root);
	if (rc < 0) {
		free(wanted);
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	memcpy(wanted->id, s->record.id, sizeof(wanted->id));
	wanted->until_ns = now_monotonic_ns() + COMMANDS_PATIENCE_NS;
	fresh_defer(call, answer_resize, wanted);
}
