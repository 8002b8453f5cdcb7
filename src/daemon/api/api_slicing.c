#include "daemon/api/api_slicing.h"

#include <ctype.h>
#include <errno.h>
#include <http_parser.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/units.h"
#include "core/compute.h"
#include "daemon/api/answer.h"
#include "daemon/api/http.h"
#include "daemon/lease/leases.h"
#include "daemon/node.h"
#include "daemon/request/request.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/slicing/slicing.h"

/* Turns in one answer. */
#define TURNS_MAX 256u

static json_t *share_json(uint32_t ppm)
{
	return json_real(ppm / (double)SHARE_ONE);
}

/* ---- showing ----------------------------------------------------------------------------- */

static void standing_add(json_t *json, const struct lease_standing *standing)
{
	const struct lease_client_stat *stat = &standing->stat;

	json_object_set_new(json, "received", share_json(stat->received_plan_ppm));
	json_object_set_new(json, "received_minute", share_json(stat->received_minute_ppm));
	json_object_set_new(json, "leases", answer_number(stat->leases));
	json_object_set_new(json, "preempted", answer_number(stat->preempted));
	json_object_set_new(json, "held_ns", answer_number(stat->held_ns));
	json_object_set_new(json, "waited_ns", answer_number(stat->waited_ns));
	json_object_set_new(json, "overrun_ns", answer_number(stat->overrun_ns));
	json_object_set_new(json, "stalls", answer_number(standing->stalls));
	json_object_set_new(json, "reopened", answer_number(standing->reopened));
	json_object_set_new(json, "beyond_ns", answer_number(standing->beyond_ns));
	json_object_set_new(json, "returned_ns", answer_number(standing->returned_ns));
	json_object_set_new(json, "suspended_ns", answer_number(standing->suspended_ns));
}

json_t *api_slicing_session(const struct session *s)
{
	struct lease_standing standing;

	if (!s->lease)
		return json_null();
	leases_standing(s->sessions->leases, s->lease, &standing);
	if (!standing.sliced)
		return json_null();
	json_t *json = json_object();
	standing_add(json, &standing);
	return json;
}

static json_t *member_json(const struct session *s, const struct peer *viewer)
{
	struct lease_standing standing = {0};
	uint32_t request, limit;

	slicing_shares(s, &request, &limit);
	json_t *json = json_pack("{s:o, s:o, s:o}", "id",
				 peer_permitted(viewer, s->record.uid) ? json_string(s->record.id)
								       : json_null(),
				 "request", share_json(request), "limit", share_json(limit));
	if (s->lease)
		leases_standing(s->sessions->leases, s->lease, &standing);
	standing_add(json, &standing);
	json_object_set_new(json, "wants", json_boolean(standing.sliced && standing.stat.wants));
	json_object_set_new(json, "holds", json_boolean(standing.sliced && standing.stat.holds));
	return json;
}

static json_t *gpu_json(const struct node *node, uint32_t position, const struct peer *viewer)
{
	const struct pool_gpu *gpu = &node->pool.gpu[position];
	struct lease_setting setting = {gpu->mode, gpu->lease_ns, gpu->granularity_ppm};
	json_t *sessions = json_array();

	for (const struct session *s = node->sessions.first; s; s = s->next)
		if (session_gpu_mask(s) >> position & 1)
			json_array_append_new(sessions, member_json(s, viewer));
	return json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:b, s:o}", "gpu",
			 (int)gpu->info.index, "uuid", gpu->info.uuid_text, "mode",
			 compute_mode_text(gpu->mode), "lease_ns", answer_number(gpu->lease_ns),
			 "granularity", share_json(gpu->granularity_ppm), "plan_ns",
			 answer_number(lease_plan_ns(&setting)), "promised",
			 json_real((double)gpu->share / SHARE_ONE), "set", gpu->slicing_set,
			 "sessions", sessions);
}

static json_t *slicing_json(const struct node *node, const struct peer *viewer)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < node->pool.count; i++)
		json_array_append_new(list, gpu_json(node, i, viewer));
	return list;
}

void api_get_slicing(struct call *call, const char *id)
{
	call_reply(call, HTTP_STATUS_OK, slicing_json(call->node, &call->peer));
}

/* ---- setting ----------------------------------------------------------------------------- */

/* All that can be sliced, or those that are named. 0, or negative with *err. */
static int gpus_read(const struct node *node, const json_t *ids, uint64_t *ret_mask,
		     struct error *err)
{
	struct slice_request request = {0};
	uint64_t mask = 0;

	if (ids && !json_is_null(ids)) {
		if (request_parse_gpu_ids(ids, &request, err) < 0 ||
		    request_resolve(&request, &node->pool, err) < 0)
			return -1;
	}
	for (uint32_t i = 0; i < node->pool.count; i++)
		if (request.by_index ? request.allowed[i] : !node->pool.gpu[i].info.mig)
			mask |= 1ull << i;
	*ret_mask = mask;
	return 0;
}

static int change_read(const struct node *node, const json_t *root, struct slicing_change *change,
		       uint64_t *ret_mask, struct error *err)
{
	if (!json_is_object(root)) {
		error_set(err, EXIT_CODE_USAGE, "the body is not a JSON object");
		return -1;
	}
	if (slicing_change_read(root, "gpu_ids", change, err) < 0)
		return -1;
	return gpus_read(node, json_object_get(root, "gpu_ids"), ret_mask, err);
}

void api_put_slicing(struct call *call, const char *id)
{
	struct slicing_change change;
	struct error err = {0};
	uint64_t mask;

	if (!call->peer.admin && call->peer.uid != geteuid()) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "only root and members of group carve may change time-slicing");
		return;
	}
	json_t *root = answer_body(call, &err);
	int rc = root ? change_read(call->node, root, &change, &mask, &err) : -1;
	json_decref(root);
	if (rc == 0)
		rc = slicing_set(&call->node->slicing, mask, &change, &call->peer, &err);
	if (rc < 0)
		call_reply_error(call, answer_status(&err), &err);
	else
		call_reply(call, HTTP_STATUS_OK, slicing_json(call->node, &call->peer));
}

/* ---- turns ------------------------------------------------------------------------------- */

static json_t *gpus_json(const struct node *node, uint64_t gpus)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < node->pool.count; i++)
		if (gpus >> i & 1)
			json_array_append_new(list, json_integer(node->pool.gpu[i].info.index));
	return list;
}

static json_t *turn_json(const struct node *node, const struct lease_turn *turn,
			 const struct peer *viewer)
{
	static const char *const ends[] = {
		[LEASE_END_NONE] = "none",
		[LEASE_END_TIME] = "time",
		[LEASE_END_IDLE] = "idle",
		[LEASE_END_STALLED] = "stalled",
	};

	return json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b}", "session",
		peer_permitted(viewer, turn->uid) ? json_string(turn->session) : json_null(),
		"gpus", gpus_json(node, turn->gpus), "opened_ns", answer_number(turn->opened),
		"until_ns", turn->until == UINT64_MAX ? json_null() : answer_number(turn->until),
		"revoked_ns", turn->revoked ? answer_number(turn->revoked) : json_null(),
		"closed_ns", turn->closed ? answer_number(turn->closed) : json_null(), "end",
		ends[turn->end], "contended", turn->contended);
}

static json_t *turns_json(const struct call *call, const struct lease_turn *turns, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, turn_json(call->node, &turns[i], &call->peer));
	return list;
}

/* Digits alone, as `next` of an answer is. */
static bool number_read(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return isdigit((unsigned char)*text) && !*end && !errno;
}

void api_get_turns(struct call *call, const char *id)
{
	const char *from = call_argument(call, "from");
	uint64_t first = 0, next = 0;

	if (from && !number_read(from, &first)) {
		struct error err = {0};

		error_set(&err, EXIT_CODE_USAGE,
			  "from: '%.64s' is no number; it takes what the answer before named as "
			  "next",
			  from);
		call_reply_error(call, HTTP_STATUS_BAD_REQUEST, &err);
		return;
	}
	struct lease_turn *turns = calloc(TURNS_MAX, sizeof(*turns));
	if (!turns) {
		call_reply(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, NULL);
		return;
	}
	size_t count = leases_turns(call->node->leases, first, turns, TURNS_MAX, &next);
	json_t *ended = turns_json(call, turns, count);
	count = leases_turns_open(call->node->leases, turns, TURNS_MAX);
	json_t *open = turns_json(call, turns, count);
	free(turns);
	call_reply(call, HTTP_STATUS_OK,
		   json_pack("{s:o, s:o, s:o, s:o}", "now_ns",
			     answer_number(leases_now(call->node->leases)), "next",
			     answer_number(next), "turns", ended, "open", open));
}
