/* Roles and instances over HTTP. */
#include "daemon/api/mig_api.h"

#include <http_parser.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "daemon/api/answer.h"
#include "daemon/api/fresh.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/api/view_owners.h"
#include "daemon/mig/mig.h"
#include "daemon/mig/mig_books.h"
#include "daemon/mig/mig_mode.h"
#include "daemon/node.h"
#include "daemon/request/request.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

/* ---- showing ----------------------------------------------------------------------------- */

/* Processes of the viewer's sessions on it; of an instance that is no session's, those that NVML
 * lists, for who may see them. */
static json_t *pids_json(const struct mig *mig, const struct mig_detail *detail,
			 const struct peer *viewer)
{
	json_t *list = json_array();

	for (uint32_t i = 0; !detail->session[0] && viewer->admin && i < detail->pid_count; i++)
		json_array_append_new(list, json_integer(detail->pid[i]));
	for (const struct session *s = mig_session_on(mig->sessions->first, detail->uuid_text); s;
	     s = mig_session_on(s->next, detail->uuid_text))
		for (const struct process *p = s->processes; p; p = p->next)
			if (!process_is_dead(p) && peer_permitted(viewer, s->record.uid))
				json_array_append_new(list, json_integer(p->id.pid));
	return list;
}

/* Those on it that the viewer may see. */
static json_t *sessions_json(const struct mig *mig, const struct mig_detail *detail,
			     const struct peer *viewer)
{
	json_t *list = json_array();

	for (const struct session *s = mig_session_on(mig->sessions->first, detail->uuid_text); s;
	     s = mig_session_on(s->next, detail->uuid_text))
		if (peer_permitted(viewer, s->record.uid))
			json_array_append_new(list, json_string(s->record.id));
	return list;
}

static json_t *id_json(uint8_t id_plus_1)
{
	return id_plus_1 ? json_integer(id_plus_1 - 1) : json_null();
}

static json_t *utilization_json(int per_cent)
{
	return per_cent < 0 ? json_null() : json_integer(per_cent);
}

static json_t *instance_json(const struct mig *mig, uint32_t gpu, uint32_t at,
			     const struct peer *viewer)
{
	const struct mig_board *board = &mig->board[gpu];
	const struct mig_instance *instance = &board->instance[at];
	const struct mig_detail *detail = &board->detail[at];
	const struct session *s =
		detail->session[0] ? session_find(mig->sessions, detail->session) : NULL;
	bool permitted = s && peer_permitted(viewer, s->record.uid);
	bool shown = s && view_shows_owner(node_of(s), viewer, s->record.uid, s->record.gid,
					   &s->record.groups);
	const char *name = instance->profile == MIG_NO_PROFILE
				   ? ""
				   : mig->profile[mig->gpu[gpu].die][instance->profile].name;

	return json_pack(
		"{s:i, s:s, s:s, s:i, s:i, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o}",
		"gpu", (int)mig->gpus->gpu[gpu].info.index, "profile", name, "uuid",
		detail->uuid_text, "start", instance->start, "size", instance->size, "memory_bytes",
		answer_number(detail->bytes), "state", mig_state_text(instance->state), "session",
		permitted ? json_string(s->record.id) : json_null(), "owner",
		shown ? json_string(view_user(s->record.uid)) : json_null(), "since",
		view_time(detail->since), "pids", pids_json(mig, detail, viewer), "sessions",
		sessions_json(mig, detail, viewer), "shared", mig_is_shared(mig, detail),
		"gpu_instance", id_json(detail->gpu_instance), "compute_instance",
		id_json(detail->compute_instance), "utilization",
		utilization_json(detail->utilization));
}

/* The GPU's instances that start at a memory unit: one, or none. */
static void list_add(json_t *list, const struct mig *mig, uint32_t gpu, uint32_t start,
		     const struct peer *viewer)
{
	const struct mig_board *board = &mig->board[gpu];

	for (uint32_t at = 0; board->role && at < board->count; at++)
		if (board->instance[at].start == start && board->instance[at].state != MIG_GONE)
			json_array_append_new(list, instance_json(mig, gpu, at, viewer));
}

/* All instances of GPUs with the role. */
static json_t *list_json(const struct mig *mig, const struct peer *viewer)
{
	json_t *list = json_array();

	for (uint32_t gpu = 0; mig && gpu < mig->gpus->count; gpu++)
		for (uint32_t start = 0; start < MIG_UNITS_MAX; start++)
			list_add(list, mig, gpu, start, viewer);
	return list;
}

void api_get_mig(struct call *call, const char *id)
{
	call_reply(call, HTTP_STATUS_OK, list_json(call->node->mig, &call->peer));
}

/* ---- changing ---------------------------------------------------------------------------- */

static bool may(struct call *call, const char *what)
{
	if (call->peer.admin || call->peer.uid == geteuid())
		return true;
	answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
		      "only root and members of group carve may %s", what);
	return false;
}

/* A request for roles. Flat: fresh_defer() frees it. */
struct wish {
	bool on, enable_mode;
	struct slice_request gpus; /* those that are named, where any are */
};

/* Those that are named, or all that can have the role, or have it. */
static int wish_mask(const struct node *node, struct wish *wish, uint64_t *ret, struct error *err)
{
	uint64_t mask = 0;
	int capable = -1; /* the first one */

	if (request_resolve(&wish->gpus, &node->pool, err) < 0)
		return -1;
	for (uint32_t i = 0; i < node->pool.count; i++) {
		const struct gpu_info *info = &node->pool.gpu[i].info;

		if (capable < 0 && info->mig_capable)
			capable = (int)info->index;
		if (wish->gpus.by_index ? wish->gpus.allowed[i]
		    : !wish->on         ? mig_has_role(node->mig, i)
					: info->mig || (wish->enable_mode && info->mig_capable))
			mask |= 1ull << i;
	}
	*ret = mask;
	if (mask || !wish->on)
		return 0;
	if (capable < 0)
		return error_set(err, EXIT_CODE_FAILED, "no GPU here is capable of MIG");
	error_set(err, EXIT_CODE_FAILED, "no GPU here is in MIG mode");
	error_hint(err,
		   "carve node set-role --dynamic-mig-enabled --gpu-ids %d --enable-mode switches "
		   "it on while nobody uses the GPU",
		   capable);
	return -1;
}

static json_t *roles_json(const struct node *node)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < node->pool.count; i++)
		json_array_append_new(
			list, json_pack("{s:i, s:s, s:o}", "gpu", (int)node->pool.gpu[i].info.index,
					"uuid", node->pool.gpu[i].info.uuid_text, "role",
					mig_has_role(node->mig, i) ? json_string("dynamic-mig")
								   : json_null()));
	return list;
}

static int wish_read(const json_t *root, struct wish *ret, struct error *err)
{
	const json_t *role = json_object_get(root, "role"), *ids = json_object_get(root, "gpu_ids"),
		     *enable = json_object_get(root, "enable_mode");

	ret->on = json_is_string(role) && !strcmp(json_string_value(role), "dynamic-mig");
	ret->enable_mode = json_is_true(enable);
	if (!json_is_object(root) || !(ret->on || json_is_null(role)))
		return error_set(err, EXIT_CODE_USAGE, "'role' takes \"dynamic-mig\" or null");
	if (enable && (!json_is_boolean(enable) || !ret->on))
		return error_set(err, EXIT_CODE_USAGE,
				 "'enable_mode' takes true or false, beside a role");
	return ids && !json_is_null(ids) ? request_parse_gpu_ids(ids, &ret->gpus, err) : 0;
}

static void on_fresh(struct call *call, void *arg);

/* The mode is on, or not. The GPUs' present state is asked for anew. */
static void on_mode(void *asker, void *arg, const struct error *err)
{
	struct call *call = asker;
	struct wish *again = err->code ? NULL : malloc(sizeof(*again));

	if (!again) {
		call_reply_error(call, answer_status(err), err);
		return;
	}
	*again = *(const struct wish *)arg;
	again->enable_mode = false;
	fresh_defer(call, on_fresh, again);
}

static void on_gone(struct call *call)
{
	mig_mode_forget(call->node->mig, call);
}

static uint64_t modes_off(const struct node *node, uint64_t mask)
{
	for (uint32_t i = 0; i < node->pool.count; i++)
		if (node->pool.gpu[i].info.mig)
			mask &= ~(1ull << i);
	return mask;
}

static void on_fresh(struct call *call, void *arg)
{
	struct node *node = call->node;
	struct wish *wish = arg, *later;
	struct error err = {0};
	uint64_t mask;
	int rc = wish_mask(node, wish, &mask, &err);

	if (rc == 0 && wish->enable_mode && modes_off(node, mask)) {
		later = malloc(sizeof(*later));
		if (later) {
			*later = *wish;
			if (mig_mode_enable(node->mig, modes_off(node, mask), on_mode, call, later))
				call_defer(call, on_gone);
			return;
		}
		rc = error_set(&err, EXIT_CODE_FAILED, "there is no memory left");
	}
	if (rc == 0)
		rc = mig_role_set(node->mig, mask, wish->on, &call->peer, &err);
	if (rc < 0)
		call_reply_error(call, answer_status(&err), &err);
	else
		call_reply(call, HTTP_STATUS_OK, roles_json(node));
}

/* By figures of now: the mode may have been switched just before. */
void api_put_mig_roles(struct call *call, const char *id)
{
	struct error err = {0};

	if (!may(call, "change what GPUs are used for"))
		return;
	struct wish *wish = calloc(1, sizeof(*wish));
	json_t *root = answer_body(call, &err);
	int rc = root && wish ? wish_read(root, wish, &err) : -1;
	json_decref(root);
	if (rc == 0) {
		fresh_defer(call, on_fresh, wish);
		return;
	}
	free(wish);
	call_reply_error(call, answer_status(&err), &err);
}

static int older_read(const json_t *root, uint64_t *ret_ns, struct error *err)
{
	const json_t *value = json_object_get(root, "older_than");
	double seconds = json_number_value(value);

	*ret_ns = 0;
	if (!json_is_object(root) || (value && !json_is_number(value)) || seconds < 0 ||
	    seconds > 1e9) {
		error_set(err, EXIT_CODE_USAGE, "'older_than' takes a number of seconds");
		return -1;
	}
	*ret_ns = (uint64_t)(seconds * 1e9);
	return 0;
}

void api_post_mig_gc(struct call *call, const char *id)
{
	struct error err = {0};
	uint64_t older_ns;

	if (!may(call, "remove idle MIG instances"))
		return;
	json_t *root = answer_body(call, &err);
	int rc = root ? older_read(root, &older_ns, &err) : -1;
	json_decref(root);
	if (rc < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	unsigned count = call->node->mig ? mig_collect(call->node->mig, older_ns) : 0;
	call_reply(call, HTTP_STATUS_OK, json_pack("{s:i}", "removing", (int)count));
}
