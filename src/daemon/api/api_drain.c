#include "daemon/api/api_drain.h"

#include <http_parser.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/events/events.h"
#include "daemon/mig/mig.h"
#include "daemon/node.h"
#include "daemon/request/request.h"
#include "daemon/session/sessions.h"

/* ---- showing ----------------------------------------------------------------------------- */

/* A GPU, or (-1) one that is gone. */
static json_t *row_json(const struct node *node, int gpu, const char *uuid_text)
{
	const struct pool_gpu *of = gpu < 0 ? NULL : &node->pool.gpu[gpu];

	return json_pack("{s:o, s:s, s:o, s:s, s:i, s:o}", "gpu",
			 of ? json_integer(of->info.index) : json_null(), "uuid", uuid_text, "name",
			 of ? json_string(of->info.name) : json_null(), "state",
			 of ? gpu_state_name(of->state) : "gone", "sessions",
			 of ? (int)of->sessions : 0, "drain",
			 view_drain(gpu_drain_find(&node->pool.drains, uuid_text)));
}

void api_get_drains(struct call *call, const char *id)
{
	const struct gpu_drains *drains = &call->node->pool.drains;
	json_t *list = json_array();

	/* The states are looked at once a second otherwise: a GPU whose last session has just
	 * ended is drained now, and one that a restart found is not "ok". */
	gpu_states_look(&call->node->pool);
	for (uint32_t i = 0; i < drains->count; i++) {
		const char *uuid = drains->row[i].uuid_text;

		json_array_append_new(
			list, row_json(call->node, pool_find(&call->node->pool, uuid), uuid));
	}
	call_reply(call, HTTP_STATUS_OK, list);
}

/* ---- changing ---------------------------------------------------------------------------- */

/* GPUs that are to be drained or resumed, in the order of the answer. */
struct change {
	bool drain;
	const char *reason;
	struct store_drain before[GPU_DRAINS_MAX + GPUS_MAX]; /* `since` 0: it was not drained */
	uint32_t count;
};

static void change_add(struct change *change, const struct node *node, const char *uuid_text)
{
	const struct store_drain *drain = gpu_drain_find(&node->pool.drains, uuid_text);
	struct store_drain *to = &change->before[change->count++];

	*to = drain ? *drain : (struct store_drain){0};
	snprintf(to->uuid_text, sizeof(to->uuid_text), "%s", uuid_text);
}

/* The GPUs that are named. Without any: all that are there; to be resumed, all that are drained,
 * the GPUs that are gone among them. 0, or negative with *err. */
static int gpus_read(const struct node *node, const json_t *ids, struct change *change,
		     struct error *err)
{
	const struct gpu_drains *drains = &node->pool.drains;
	struct slice_request request = {0};

	if (ids && !json_is_null(ids) &&
	    (request_parse_gpu_ids(ids, &request, err) < 0 ||
	     request_resolve(&request, &node->pool, err) < 0))
		return -1;
	for (uint32_t i = 0; i < node->pool.count; i++) {
		const char *uuid = node->pool.gpu[i].info.uuid_text;

		if (request.by_index ? request.allowed[i]
				     : change->drain || gpu_drain_find(drains, uuid))
			change_add(change, node, uuid);
	}
	for (uint32_t i = 0; !change->drain && !request.by_index && i < drains->count; i++)
		if (pool_find(&node->pool, drains->row[i].uuid_text) < 0)
			change_add(change, node, drains->row[i].uuid_text);
	return 0;
}

static int reason_read(const json_t *reason, struct change *change, struct error *err)
{
	change->reason = json_string_value(reason);
	/* A NUL would end the text before its end. */
	if (change->reason && strlen(change->reason) == json_string_length(reason) &&
	    gpu_drain_reason_is_valid(change->reason))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "reason: %s",
		  reason && !json_is_null(reason) ? "it is no line of 1 to 128 bytes of text"
						  : "a drain needs one, which users will see");
	error_hint(err, "for example: \"a fan is to be replaced\"");
	return -1;
}

static int change_read(const struct node *node, const json_t *root, struct change *change,
		       struct error *err)
{
	const json_t *drain = json_object_get(root, "drain"),
		     *reason = json_object_get(root, "reason");

	if (!json_is_boolean(drain))
		return error_set(err, EXIT_CODE_USAGE,
				 "'drain' takes true, to drain GPUs, or false, to resume them");
	change->drain = json_is_true(drain);
	if (!change->drain && reason && !json_is_null(reason))
		return error_set(err, EXIT_CODE_USAGE, "'reason' goes with a drain");
	if (change->drain && reason_read(reason, change, err) < 0)
		return -1;
	return gpus_read(node, json_object_get(root, "gpu_ids"), change, err);
}

static int drain(struct node *node, uid_t uid, const struct change *change, struct error *err)
{
	struct store_drain rows[GPUS_MAX];

	for (uint32_t i = 0; i < change->count; i++) {
		rows[i] = (struct store_drain){.uid = uid, .since = now_realtime_ns()};
		snprintf(rows[i].uuid_text, sizeof(rows[i].uuid_text), "%s",
			 change->before[i].uuid_text);
		snprintf(rows[i].reason, sizeof(rows[i].reason), "%s", change->reason);
	}
	return gpu_drains_put(&node->pool.drains, node->store, rows, change->count, err);
}

static int resume(struct node *node, const struct change *change, struct error *err)
{
	const char *uuids[GPU_DRAINS_MAX + GPUS_MAX];

	for (uint32_t i = 0; i < change->count; i++)
		uuids[i] = change->before[i].uuid_text;
	return gpu_drains_remove(&node->pool.drains, node->store, uuids, change->count, err);
}

static void change_tell(const struct call *call, const struct change *change)
{
	const struct pool *pool = &call->node->pool;
	char subject[POOL_GPUS_TEXT_SIZE], old[sizeof(change->before[0].reason) + 16];

	for (uint32_t i = 0; i < change->count; i++) {
		const struct store_drain *before = &change->before[i];
		int gpu = pool_find(pool, before->uuid_text);

		if (!change->drain && !before->since)
			continue;
		snprintf(old, sizeof(old), "%s%s", before->since ? "drained: " : "not drained",
			 before->reason);
		events_add(call->node->events,
			   &(struct event){
				   .kind = change->drain ? EVENT_GPU_DRAINED : EVENT_GPU_RESUMED,
				   .actor = &call->peer,
				   .subject = gpu < 0 ? before->uuid_text
						      : pool_gpus_text(pool, 1ull << gpu, subject),
				   .before = old,
				   .after = change->drain ? "drained" : "not drained",
				   .text = change->drain ? change->reason : "",
			   });
	}
}

static json_t *change_json(const struct node *node, const struct change *change)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < change->count; i++) {
		const struct store_drain *before = &change->before[i];
		json_t *row = row_json(node, pool_find(&node->pool, before->uuid_text),
				       before->uuid_text);

		json_object_set_new(row, "before", view_drain(before->since ? before : NULL));
		json_array_append_new(list, row);
	}
	return list;
}

/* Decisions and answers look into the pool's drains each time. The parts that keep something of
 * them are brought up to date here. */
static void change_spread(struct node *node)
{
	mig_drains_changed(node->mig);
	gpu_states_look(&node->pool);
	sessions_room_made(&node->sessions);
}

void api_put_drains(struct call *call, const char *id)
{
	struct node *node = call->node;
	struct change change = {0};
	struct error err = {0};

	if (!call->peer.admin && call->peer.uid != geteuid()) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "only root and members of group carve may drain and resume GPUs");
		return;
	}
	json_t *root = answer_body(call, &err);
	int rc = root ? change_read(node, root, &change, &err) : -1;
	if (rc == 0)
		rc = change.drain ? drain(node, call->peer.uid, &change, &err)
				  : resume(node, &change, &err);
	if (rc == 0) {
		change_tell(call, &change);
		change_spread(node);
		call_reply(call, HTTP_STATUS_OK, change_json(node, &change));
	} else {
		call_reply_error(call, answer_status(&err), &err);
	}
	json_decref(root);
}
