#include "daemon/api/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_idle.h"
#include "daemon/api/api_slicing.h"
#include "daemon/api/http.h"
#include "daemon/api/view_owners.h"
#include "daemon/api/view_recorded.h"
#include "daemon/host/limited.h"
#include "daemon/host/names.h"
#include "daemon/lease/leases.h"
#include "daemon/mig/mig.h"
#include "daemon/mig/mig_books.h"
#include "daemon/node.h"
#include "daemon/request/request_again.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/settings.h"
#include "daemon/settle/cgroups.h"
#include "daemon/settle/outside.h"
#include "daemon/settle/strays.h"
#include "daemon/slicing/slicing.h"
#include "daemon/waiting/refusal.h"
#include "daemon/waiting/waiting.h"

/* Programs outside carve that are named on each GPU. */
#define OUTSIDE_PROCESSES_MAX 64u
/* Requests that are shown before another one. */
#define AHEAD_MAX 64u

json_t *view_time(int64_t ns)
{
	char text[UNITS_TEXT_SIZE];

	return ns ? json_string(units_format_time(ns, UNITS_MILLISECONDS, text)) : json_null();
}

const char *view_user(uid_t uid)
{
	return names_of(NAMES_OF_USERS, uid);
}

static json_t *user_json(uid_t uid)
{
	return json_string(view_user(uid));
}

/* Things that are less than they would be as a service. */
static json_t *shortcomings_json(const struct node *node)
{
	json_t *list = limited_list();

	if (node->separation.why_not[0])
		json_array_append_new(
			list, json_sprintf("%s%s",
					   node->separation.separated
						   ? ""
						   : "it serves as root, without a user of its "
						     "own: ",
					   node->separation.why_not));
	return list;
}

/* Files of the daemon's own that somebody removed. */
static json_t *removed_json(const struct files_removed *removed)
{
	if (!removed->count)
		return json_null();
	return json_pack("{s:i, s:s, s:o}", "made_anew", (int)removed->count, "file", removed->file,
			 "at", view_time(removed->at));
}

/* Null: no launcher has answered yet, or jobs are the daemon's own user's. */
static json_t *job_tasks_json(const struct launcher *launcher)
{
	return launcher->greeted ? json_integer((json_int_t)launcher->tasks_max) : json_null();
}

static json_t *job_tasks_of_json(const struct launcher *launcher)
{
	if (!launcher->greeted || !launcher->tasks_max)
		return json_null();
	return json_string(launcher->tasks == WARDEN_TASKS_OF_USER ? "user" : "job");
}

static const char *policy_text(const struct pool *pool)
{
	return pool->policy == PLACE_SPREAD ? "spread" : "pack";
}

json_t *view_version(const struct node *node)
{
	const struct pool *pool = &node->pool;
	char host[HOST_NAME_MAX + 1] = "";

	(void)gethostname(host, sizeof(host));

	return json_pack("{s:s, s:s, s:i, s:o, s:s, s:b, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o, "
			 "s:o, s:i, s:s}",
			 "version", CARVE_VERSION, "host", host, "pid", (int)getpid(), "started",
			 view_time(node->started), "driver_version",
			 pool->gpus ? gpus_driver_version(pool->gpus) : "", "system",
			 node->options.system, "ready", node->ready, "no_gpu_reason",
			 pool->state == POOL_NO_GPU ? pool->why.message : "", "limited",
			 shortcomings_json(node), "limited_notes", limited_notes(), "config_error",
			 *node->config_wrong ? json_string(node->config_wrong) : json_null(),
			 "config_notes", settings_notes(node), "vanished",
			 removed_json(&node->files.removed), "job_tasks",
			 job_tasks_json(&node->launcher), "job_tasks_of",
			 job_tasks_of_json(&node->launcher), "launcher_silent_s",
			 (int)launcher_slow_s(&node->launcher), "placement", policy_text(pool));
}

/* ---- GPUs -------------------------------------------------------------------------------- */

static json_t *holder_json(const struct pool_gpu *gpu)
{
	const struct claim *claim = &gpu->claim;
	/* A system daemon that does not run is root's to start. */
	bool known = claim->state != CLAIM_RESERVED && claim->holder.pid;

	if (claim->state == CLAIM_OURS)
		return json_null();
	return json_pack("{s:o, s:o, s:b}", "pid",
			 known ? json_integer(claim->holder.pid) : json_null(), "user",
			 user_json(claim->state == CLAIM_RESERVED ? 0 : claim->holder_uid),
			 "system", pool_gpu_is_left(gpu));
}

static bool is_inside(const struct node *node, pid_t pid)
{
	for (const struct session *s = node->sessions.attached; s; s = s->next_attached)
		for (const struct process *p = s->processes; p; p = p->next)
			if (p->id.pid == pid)
				return true;
	return pid == node->probe.pid;
}

/* Processes that the driver lists on this GPU and no session has. */
static json_t *outside_processes_json(const struct node *node, const struct gpu_sample *sample)
{
	json_t *list = json_array();

	for (size_t i = 0; i < MIN(sample->process_count, OUTSIDE_PROCESSES_MAX); i++)
		if (!is_inside(node, sample->processes[i].pid))
			json_array_append_new(
				list,
				json_pack("{s:i, s:o, s:b}", "pid", (int)sample->processes[i].pid,
					  "memory_bytes", answer_number(sample->processes[i].bytes),
					  "stray",
					  strays_has(&node->settling, sample->processes[i].pid)));
	return list;
}

static const char *const driver_modes[] = {
	[GPU_SHARED] = "shared",
	[GPU_EXCLUSIVE] = "exclusive",
	[GPU_PROHIBITED] = "prohibited",
};

/* The driver's own figures, as of the last sample. */
static void sample_add(const struct node *node, const struct gpu_sample *sample, json_t *json)
{
	bool known = sample->total && !sample->error;

	json_object_set_new(json, "used_bytes", known ? answer_number(sample->used) : json_null());
	json_object_set_new(json, "driver_mode",
			    known ? json_string(driver_modes[sample->exclusive]) : json_null());
	json_object_set_new(json, "outside_processes", outside_processes_json(node, sample));
}

static json_t *starts_json(uint32_t starts)
{
	json_t *list = json_array();

	for (; starts; starts &= starts - 1)
		json_array_append_new(list, json_integer(__builtin_ctz(starts)));
	return list;
}

/* Where instances can be made on a GPU with the role; empty where that is not known. */
static json_t *mig_profiles_json(const struct node *node, uint32_t gpu)
{
	json_t *list = json_array();

	if (!mig_has_role(node->mig, gpu) || !node->mig->board[gpu].known)
		return list;
	const struct mig_die *die = &node->mig->die[node->mig->gpu[gpu].die];
	for (uint32_t i = 0; i < die->profile_count; i++) {
		const struct mig_profile *p = &die->profile[i];
		json_array_append_new(
			list,
			json_pack("{s:s, s:o, s:i, s:i, s:i, s:i, s:o, s:o}", "profile",
				  node->mig->profile[node->mig->gpu[gpu].die][i].name,
				  "memory_bytes", answer_number(p->memory_bytes), "sms",
				  (int)p->sms, "slices", (int)p->slices, "limit", (int)p->limit,
				  "size", (int)p->size, "starts", starts_json(p->starts), "refused",
				  starts_json(mig_refused(node->mig, gpu, (uint8_t)i))));
	}
	return list;
}

/* How its MIG mode and role are. */
static void mig_state_add(const struct node *node, uint32_t gpu, json_t *json)
{
	const struct gpu_sample *sample = &node->pool.gpu[gpu].sample;
	const char *problem = mig_problem(node->mig, gpu), *refusal = mig_refusal(node->mig, gpu);

	json_object_set_new(json, "mig_capable",
			    json_boolean(node->pool.gpu[gpu].info.mig_capable));
	json_object_set_new(json, "mig_pending", json_boolean(sample->mig_pending));
	json_object_set_new(json, "mig_problem", *problem ? json_string(problem) : json_null());
	json_object_set_new(json, "mig_refusal", *refusal ? json_string(refusal) : json_null());
	json_object_set_new(json, "mig_foreign", json_integer(mig_foreign(node->mig, gpu)));
	json_object_set_new(json, "mig_profiles", mig_profiles_json(node, gpu));
}

/* In MIG mode the driver has no figure by samples, but may have one by its counters. */
static json_t *utilization_json(const struct node *node, uint32_t gpu)
{
	const struct gpu_sample *sample = &node->pool.gpu[gpu].sample;
	int per_cent = sample->total && !sample->error ? sample->utilization : -1;

	if (per_cent < 0)
		per_cent = mig_utilization(node->mig, gpu);
	return per_cent < 0 ? json_null() : json_integer(per_cent);
}

static const char *gpu_backend(const struct node *node, uint32_t gpu)
{
	if (mig_has_role(node->mig, gpu) && node->pool.gpu[gpu].info.mig)
		return "mig";
	return cgroups_offer(&node->sessions, gpu) ? "cgroup" : "front";
}

json_t *view_drain(const struct store_drain *drain)
{
	if (!drain)
		return json_null();
	return json_pack("{s:s, s:s, s:o}", "reason", drain->reason, "by", view_user(drain->uid),
			 "since", view_time(drain->since));
}

static void state_add(const struct pool *pool, uint32_t gpu, json_t *json)
{
	const struct store_drain *drain = gpu_drain_of(pool, gpu);
	enum gpu_state state = pool->gpu[gpu].state;
	const char *reason = gpu_state_reason(&pool->gpu[gpu]);

	if (drain && (state == GPU_STATE_DRAINING || state == GPU_STATE_DRAINED))
		reason = drain->reason;
	json_object_set_new(json, "state", json_string(gpu_state_name(state)));
	json_object_set_new(json, "state_reason", reason ? json_string(reason) : json_null());
	json_object_set_new(json, "state_since", view_time(pool->gpu[gpu].state_since));
	json_object_set_new(json, "drain", view_drain(drain));
}

json_t *view_gpus(const struct node *node, const struct peer *viewer)
{
	struct view_owners *owners = view_owners_read(node, viewer);
	struct place_gpu place[GPUS_MAX];
	json_t *list = json_array();

	pool_place_gpus(&node->pool, place);
	for (uint32_t i = 0; i < node->pool.count; i++) {
		const struct pool_gpu *gpu = &node->pool.gpu[i];
		json_t *json = json_pack(
			"{s:i, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:s, s:s, s:f, "
			"s:b, s:o, s:o}",
			"index", (int)gpu->info.index, "uuid", gpu->info.uuid_text, "name",
			gpu->info.name, "pci_bus_id", gpu->info.pci_bus_id, "memory_bytes",
			answer_number(gpu->info.total), "reserved_bytes",
			answer_number(gpu->info.reserved), "outside_bytes",
			answer_number(gpu->outside), "promised_bytes",
			answer_number(gpu->promised + mig_promised(node->mig, i)),
			"available_bytes",
			answer_number(place[i].drained             ? 0
				      : place[i].offered           ? place_available(&place[i])
				      : mig_has_role(node->mig, i) ? mig_available(node->mig, i)
								   : 0),
			"context_bytes", answer_number(gpu->context_bytes), "sessions",
			(int)gpu->sessions, "backend", gpu_backend(node, i), "compute_mode",
			compute_mode_text(gpu->mode), "compute_promised",
			(double)gpu->share / SHARE_ONE, "mig", gpu->info.mig, "held_by",
			holder_json(gpu), "role",
			mig_has_role(node->mig, i) ? json_string("dynamic-mig") : json_null());

		json_object_set_new(json, "beyond_bytes", answer_number(gpu->beyond));
		state_add(&node->pool, i, json);
		json_object_set_new(json, "busy_percent", json_integer(place[i].busy));
		const char *problem = cgroups_problem(&node->sessions);
		json_object_set_new(json, "limits_problem",
				    *problem ? json_string(problem) : json_null());
		const char *gap = cgroups_gap(&node->sessions);
		json_object_set_new(json, "limits_gap", *gap ? json_string(gap) : json_null());
		sample_add(node, &gpu->sample, json);
		json_object_set_new(json, "utilization", utilization_json(node, i));
		mig_state_add(node, i, json);
		json_object_set_new(json, "owners", view_owners_json(owners, i));
		json_array_append_new(list, json);
	}
	view_owners_free(owners);
	return list;
}

static const char *const reasons[] = {
	[PLACE_FITS] = "fits",
	[PLACE_NOT_OFFERED] = "not_offered",
	[PLACE_NOT_ALLOWED] = "not_allowed",
	[PLACE_TOO_SMALL] = "too_small",
	[PLACE_DRAINED] = "drained",
	[PLACE_NOT_EMPTY] = "not_empty",
	[PLACE_NO_MEMORY] = "no_memory",
	[PLACE_NO_COMPUTE] = "no_compute",
};

static const char *const instance_reasons[] = {
	[MIG_FITS] = "fits",
	[MIG_NOT_ALLOWED] = "not_allowed",
	[MIG_NOT_OFFERED] = "not_offered",
	[MIG_NO_SUCH_PROFILE] = "not_offered",
	[MIG_TOO_LARGE] = "no_memory",
	[MIG_TOO_MUCH_COMPUTE] = "no_compute",
	[MIG_TOO_SMALL] = "too_small",
	[MIG_FULL] = "no_memory",
	[MIG_FULL_FOREIGN] = "no_memory",
	[MIG_FULL_CHANGING] = "no_memory",
	[MIG_FULL_LIMIT] = "no_memory",
	[MIG_FULL_REFUSED] = "no_memory",
	[MIG_FULL_FROZEN] = "no_memory",
};

/* The answer of one GPU to a request. */
static json_t *gpu_explained(const struct node *node, const struct slice_request *request,
			     const struct place_gpu *place, uint32_t i)
{
	const struct gpu_info *info = &node->pool.gpu[i].info;
	enum place_reason why = place_check(place, i, &request->place);
	const char *reason = reasons[why];
	uint64_t requested = place_requested(&place[i], &request->place),
		 capacity = place_capacity(&place[i]),
		 available = place[i].offered ? place_available(&place[i]) : 0;
	char says[REFUSAL_GPU_SIZE];
	const struct store_drain *drain = gpu_drain_of(&node->pool, i);

	refusal_of_gpu(&node->pool, i, &place[i], &request->place, why, says, sizeof(says));
	if (mig_has_role(node->mig, i) && request->backend != BACKEND_FRACTION) {
		struct mig_says instance;

		mig_explain(node->mig, request, i, &instance);
		snprintf(says, sizeof(says), "%s", instance.text);
		reason = instance_reasons[instance.reason];
		requested = instance.requested;
		capacity = instance.capacity;
		available = mig_available(node->mig, i);
	} else if (request->place.kind == PLACE_PROFILE || request->backend == BACKEND_MIG) {
		snprintf(says, sizeof(says), "it gives out no MIG instances");
		reason = reasons[PLACE_NOT_OFFERED];
		available = 0;
	}
	/* A GPU that was not asked for, or on which the request never fits, says so. */
	if (drain && (!strcmp(reason, reasons[PLACE_DRAINED]) || mig_has_role(node->mig, i))) {
		gpu_drain_text(drain, says);
		reason = reasons[PLACE_DRAINED];
		available = 0;
	}
	return json_pack("{s:i, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "index", (int)info->index,
			 "uuid", info->uuid_text, "name", info->name, "reason", reason, "message",
			 says, "requested_bytes", answer_number(requested), "available_bytes",
			 answer_number(available), "capacity_bytes", answer_number(capacity));
}

json_t *view_explain(const struct node *node, const struct slice_request *request,
		     const struct place_result *result, const struct error *err,
		     const struct peer *viewer)
{
	struct view_owners *owners = view_owners_read(node, viewer);
	struct place_gpu place[GPUS_MAX];
	char asked[REQUEST_TEXT_SIZE];
	json_t *gpus = json_array(), *on = json_array();

	pool_place_gpus(&node->pool, place);
	for (uint32_t i = 0; i < node->pool.count; i++) {
		json_t *gpu = gpu_explained(node, request, place, i);

		json_object_set_new(gpu, "owners", view_owners_json(owners, i));
		json_array_append_new(gpus, gpu);
	}
	view_owners_free(owners);
	for (uint32_t i = 0; !err->code && i < result->count; i++)
		json_array_append_new(
			on, json_pack("{s:i, s:o}", "index",
				      (int)node->pool.gpu[result->grant[i].gpu].info.index,
				      "vram_bytes", answer_number(result->grant[i].bytes)));
	return json_pack("{s:s, s:b, s:b, s:o, s:s, s:o, s:o, s:o}", "asked",
			 request_text(&request->place, request->profile, asked), "granted",
			 !err->code, "tolerance_applied", !err->code && result->tolerance_applied,
			 "on", on, "placement", policy_text(&node->pool), "message",
			 call_words(err->message), "hint", call_words(err->hint), "gpus", gpus);
}

/* ---- sessions ---------------------------------------------------------------------------- */

/* The size of the whole: of each of its GPUs, or where those differ of the smallest. */
static void sizes(const struct store_session *record, uint64_t *ret_bytes, uint64_t *ret_requested)
{
	*ret_bytes = *ret_requested = UINT64_MAX;
	for (uint32_t i = 0; i < record->gpu_count; i++) {
		*ret_bytes = MIN(*ret_bytes, record->gpu[i].bytes);
		*ret_requested = MIN(*ret_requested, record->gpu[i].requested);
	}
}

/* How long it had the GPU; where its time is not sliced nobody knows. */
static json_t *busy_json(const struct session *session, uint32_t i)
{
	struct lease_standing standing;
	int position = session ? session->pool_gpu[i] : -1;

	if (position < 0 || session->sessions->pool->gpu[position].mode == COMPUTE_OFF)
		return json_null();
	/* No process yet; a ledger from before there were leases has none either. */
	if (!session->lease)
		return books_exist(&session->books) ? json_null() : answer_number(0);
	leases_standing(session->sessions->leases, session->lease, &standing);
	return answer_number(standing.stat.held_ns);
}

/* The share of time over its life. */
static json_t *received_json(const struct store_session *record, const struct session *session)
{
	int64_t ppm = session ? slicing_received(session) : record->received;

	return ppm < 0 ? json_null() : json_real((double)ppm / SHARE_ONE);
}

/* Where its device nodes are found: the GPU's address, and which of its instances the slice is. */
static void place_add(const struct session *session, uint32_t i, json_t *json)
{
	const struct store_gpu *gpu = session ? &session->record.gpu[i] : NULL;
	int position = session ? session->pool_gpu[i] : -1;
	uint32_t instance, compute;

	if (position < 0)
		return;
	json_object_set_new(json, "pci_bus_id",
			    json_string(session->sessions->pool->gpu[position].info.pci_bus_id));
	if (!gpu->instance[0] || !mig_instance_ids(node_of(session)->mig, (uint32_t)position,
						   gpu->instance, &instance, &compute))
		return;
	json_object_set_new(json, "gpu_instance", json_integer(instance));
	json_object_set_new(json, "compute_instance", json_integer(compute));
}

/* One GPU's entry; `session` is NULL for one that has ended. */
static json_t *session_gpu_json(const struct store_session *record, const struct session *session,
				uint32_t i, bool permitted)
{
	const struct store_gpu *gpu = &record->gpu[i];
	json_t *json =
		json_pack("{s:i, s:s, s:s, s:o}", "index", (int)gpu->index, "uuid", gpu->uuid_text,
			  "name", gpu->name, "vram_bytes", answer_number(gpu->bytes));

	if (!permitted)
		return json;
	json_object_set_new(json, "requested_bytes", answer_number(gpu->requested));
	json_object_set_new(json, "instance",
			    gpu->instance[0] ? json_string(gpu->instance) : json_null());
	json_object_set_new(json, "mig_profile",
			    gpu->profile[0] ? json_string(gpu->profile) : json_null());
	json_object_set_new(json, "used_bytes",
			    answer_number(session ? session_uses(session, i) : 0));
	uint64_t peak = session ? session_peak(session, i) : gpu->peak;
	json_object_set_new(json, "peak_bytes",
			    peak == UINT64_MAX ? json_null() : answer_number(peak));
	json_object_set_new(
		json, "refused",
		json_integer(session && books_exist(&session->books)
				     ? (json_int_t)ledger_gpu(&session->books.ledger, i)->refused
				     : 0));
	json_object_set_new(json, "busy_ns", busy_json(session, i));
	json_object_set_new(json, "gone", json_boolean(session && session->pool_gpu[i] < 0));
	place_add(session, i, json);
	return json;
}

static json_t *gpus_json(const struct store_session *record, const struct session *session,
			 bool permitted)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < record->gpu_count; i++)
		json_array_append_new(list, session_gpu_json(record, session, i, permitted));
	return list;
}

static json_t *pids_json(const struct session *session)
{
	json_t *pids = json_array();

	for (const struct process *p = session ? session->processes : NULL; p; p = p->next)
		if (!process_is_dead(p))
			json_array_append_new(pids, json_integer(p->id.pid));
	for (const struct holder *h = session ? session->holders : NULL; h; h = h->next)
		if (h->unread)
			json_array_append_new(pids, json_integer(h->process.pid));
	return pids;
}

/* Processes that have ended and whose memory the driver has not given back yet, as far as its
 * samples tell: it counts as used until then. */
static json_t *ended_pids_json(const struct session *session)
{
	json_t *pids = json_array();

	for (const struct process *p = session ? session->processes : NULL; p; p = p->next)
		if (process_is_dead(p) && process_is_charged(p))
			json_array_append_new(pids, json_integer(p->id.pid));
	return pids;
}

/* Commands of `carve run` that have not used the GPU themselves, but may yet. */
static json_t *command_pids_json(const struct session *session)
{
	json_t *pids = json_array();

	for (const struct holder *h = session ? session->holders : NULL; h; h = h->next)
		if (h->command && !session_has_attached(session, h->process.pid))
			json_array_append_new(pids, json_integer(h->process.pid));
	return pids;
}

/* The PIDs of strays that hold memory. */
static json_t *stray_pids_json(const struct session *session)
{
	json_t *pids = json_array();

	for (const struct stray *s = session ? session->sessions->settling->strays : NULL; s;
	     s = s->next)
		if (s->session == session && s->logged)
			json_array_append_new(pids, json_integer(s->id.pid));
	return pids;
}

static const char *ledger_text(const struct session *session)
{
	static const char *const texts[] = {[SESSION_LEDGER_NONE] = "none",
					    [SESSION_LEDGER_OPEN] = "open",
					    [SESSION_LEDGER_LOST] = "lost"};

	return texts[session ? session_ledger(session) : SESSION_LEDGER_NONE];
}

/* The reason that keeps new work off a GPU of a session that lives, or that the session should move
 * for. NULL: nothing. */
static json_t *gpu_reason(const struct pool *pool, uint32_t position, uint32_t index, bool instance)
{
	const struct pool_gpu *gpu = &pool->gpu[position];
	const struct store_drain *drain = gpu_drain_of(pool, position);
	const char *reason = gpu_state_reason(gpu);
	char text[GPU_DRAIN_TEXT_SIZE];

	if (gpu->state == GPU_STATE_LOST)
		return json_sprintf(
			"GPU %u is lost: nothing can be begun there; see `carve gpu list`", index);
	if (reason)
		return json_sprintf("GPU %u is %s (%s): nothing can be begun there; see `carve gpu "
				    "list`",
				    index, gpu_state_name(gpu->state), reason);
	if (gpu->info.mig && !instance)
		return json_sprintf("GPU %u is in MIG mode now: nothing can be begun there until "
				    "that is switched off",
				    index);
	if (drain)
		return json_sprintf("GPU %u was %s; the session goes on, and does not grow", index,
				    gpu_drain_text(drain, text));
	return NULL;
}

/* Why it ended; or, while it lives, what keeps it from being used. */
static json_t *reason_json(const struct store_session *record, const struct session *session)
{
	bool lives = session && !record->reason[0];

	if (lives && session_ledger(session) == SESSION_LEDGER_LOST)
		return json_string(
			"its ledger was lost when carved ended: its processes go on, and "
			"no other can join until they have ended");
	for (uint32_t i = 0; lives && i < record->gpu_count; i++) {
		json_t *reason =
			session->pool_gpu[i] < 0
				? NULL
				: gpu_reason(session->sessions->pool,
					     (uint32_t)session->pool_gpu[i], record->gpu[i].index,
					     record->gpu[i].instance[0]);

		if (reason)
			return reason;
	}
	return json_string(record->reason);
}

/* The instance's profile, and the next smaller one where it nearly holds what was asked. */
static void mig_add(const struct store_session *record, const struct session *session, json_t *json)
{
	const struct store_gpu *gpu = record->gpu;
	bool is_mig = record->gpu_count && gpu->instance[0];
	bool asked_bytes = is_mig && record->kind == PLACE_BYTES && session &&
			   session->pool_gpu[0] >= 0 && gpu->bytes > gpu->requested;
	uint64_t bytes = 0;
	double compute = 0;
	const char *near = asked_bytes
				   ? mig_near(node_of(session)->mig, (uint32_t)session->pool_gpu[0],
					      gpu->requested, record->compute, &bytes, &compute)
				   : NULL;

	const char *why = session ? cgroups_why_not(session) : NULL;
	bool held = session && !why && cgroups_held(session);

	json_object_set_new(json, "backend",
			    json_string(is_mig ? "mig"
					: held ? "cgroup"
					       : "front"));
	json_object_set_new(json, "front_only_reason", why ? json_string(why) : json_null());
	json_object_set_new(json, "mig_profile", is_mig ? json_string(gpu->profile) : json_null());
	json_object_set_new(json, "mig_shared", json_boolean(session && mig_shares(session)));
	if (near)
		json_object_set_new(json, "mig_near",
				    json_pack("{s:s, s:o, s:f}", "profile", near, "memory_bytes",
					      answer_number(bytes), "compute", compute));
}

static json_t *ended_by_json(const struct store_session *record)
{
	static const char *const texts[] = {
		[STORE_END_OWNER] = "owner",
		[STORE_END_TIME] = "time",
		[STORE_END_ADMINISTRATOR] = "administrator",
		[STORE_END_POLICY] = "policy",
		[STORE_END_SYSTEM] = "system",
	};
	bool known = (size_t)record->ended_by < ARRAY_SIZE(texts) && texts[record->ended_by];

	return known ? json_string(texts[record->ended_by]) : json_null();
}

bool view_may_ask_again(const struct store_session *session, const struct peer *viewer)
{
	return session->ended && session->uid == viewer->uid && !session->ephemeral &&
	       !session->kept && session->ended_by != STORE_END_UNKNOWN &&
	       session->ended_by != STORE_END_OWNER;
}

/* The command that requests it again; null: its owner ended it, or it lives. */
static json_t *again_json(const struct store_session *record, const struct peer *viewer)
{
	char text[REQUEST_AGAIN_SIZE];

	return view_may_ask_again(record, viewer) ? json_string(request_again(record, text))
						  : json_null();
}

static json_t *record_json(struct store *store, const struct store_session *record,
			   const struct session *session, const char *state,
			   const struct peer *viewer)
{
	bool permitted = peer_permitted(viewer, record->uid);
	/* The owners of ended sessions are nobody else's business. */
	bool shown =
		permitted || (session && view_shows_owner(node_of(session), viewer, record->uid,
							  record->gid, &record->groups));
	uint32_t request = record->compute, limit = SHARE_ONE;
	uint64_t bytes, requested;

	sizes(record, &bytes, &requested);
	json_t *json =
		json_pack("{s:o, s:s, s:o, s:o, s:o}", "id",
			  permitted ? json_string(record->id) : json_null(), "state", state,
			  "owner", shown ? user_json(record->uid) : json_null(), "vram_bytes",
			  answer_number(bytes), "gpus", gpus_json(record, session, permitted));
	if (shown)
		json_object_set_new(json, "created", view_time(record->created));
	if (!permitted)
		return json;
	char stamp[ATTACH_STAMP_SIZE];

	json_object_set_new(json, "uid", json_integer(record->uid));
	json_object_set_new(json, "stamp", json_string(session_stamp(record, stamp)));
	json_object_set_new(json, "requested",
			    view_time(record->asked ? record->asked : record->created));
	json_object_set_new(json, "ends_at", view_time(record->ends_at));
	json_object_set_new(json, "ended", view_time(record->ended));
	api_idle_add(session, json);
	json_object_set_new(json, "reason", reason_json(record, session));
	json_object_set_new(json, "ended_by", ended_by_json(record));
	json_object_set_new(json, "request_again", again_json(record, viewer));
	json_object_set_new(json, "name", json_string(record->name));
	json_object_set_new(json, "pod", *record->pod ? json_string(record->pod) : json_null());
	json_object_set_new(json, "current",
			    json_boolean(session && store_session_is_current(record)));
	json_object_set_new(json, "ephemeral", json_boolean(record->ephemeral));
	json_object_set_new(json, "kept", json_boolean(record->kept));
	json_object_set_new(json, "requested_bytes", answer_number(requested));
	json_object_set_new(json, "tolerance_applied", json_boolean(record->tolerance_applied));
	if (session)
		slicing_shares(session, &request, &limit);
	json_object_set_new(json, "compute_request", json_real(request / (double)SHARE_ONE));
	json_object_set_new(json, "compute_limit", json_real(limit / (double)SHARE_ONE));
	json_object_set_new(json, "timeslicing",
			    session ? api_slicing_session(session) : json_null());
	json_object_set_new(json, "received", received_json(record, session));
	mig_add(record, session, json);
	json_object_set_new(json, "ledger", json_string(ledger_text(session)));
	json_object_set_new(json, "pids", pids_json(session));
	json_object_set_new(json, "ended_pids", ended_pids_json(session));
	json_object_set_new(json, "command_pids", command_pids_json(session));
	json_object_set_new(json, "stray_pids", stray_pids_json(session));
	json_object_set_new(json, "over_bytes",
			    answer_number(session && session->over != SESSION_OVER_UNREPORTED
						  ? session->over_bytes
						  : 0));
	json_object_set_new(json, "over_killed", answer_number(record->over_killed));
	json_object_set_new(json, "over_killed_bytes", answer_number(record->over_killed_bytes));
	json_object_set_new(json, "commands", view_recorded(store, record->id));
	return json;
}

json_t *view_session(const struct session *session, const struct peer *viewer)
{
	return record_json(session->sessions->store, &session->record, session,
			   session->state == SESSION_ACTIVE ? "active" : "ending", viewer);
}

json_t *view_ended(struct store *store, const struct store_session *session,
		   const struct peer *viewer)
{
	return record_json(store, session, NULL, "ended", viewer);
}

json_t *view_waiter(const struct node *node, const struct waiter *waiter, unsigned position,
		    const struct peer *viewer)
{
	bool permitted = peer_permitted(viewer, waiter->peer.uid);
	bool shown = view_shows_owner(node, viewer, waiter->peer.uid, waiter->peer.gid,
				      &waiter->peer.groups);
	char asked[REQUEST_TEXT_SIZE];
	json_t *json = json_pack(
		"{s:o, s:s, s:o, s:s, s:o, s:i, s:[]}", "id",
		permitted ? json_string(waiter->id) : json_null(), "state", "waiting", "owner",
		shown ? user_json(waiter->peer.uid) : json_null(), "asked",
		request_text(&waiter->request.place, waiter->request.profile, asked), "vram_bytes",
		waiter->request.place.kind == PLACE_BYTES
			? answer_number(waiter->request.place.bytes)
			: json_null(),
		"position", (int)position, "gpus");
	if (shown)
		json_object_set_new(json, "created", view_time(waiter->created));
	if (!permitted)
		return json;
	json_object_set_new(json, "uid", json_integer(waiter->peer.uid));
	json_object_set_new(json, "requested", view_time(waiter->created));
	json_object_set_new(json, "reason", call_words(waiter->why));
	json_object_set_new(json, "name", json_string(waiter->request.name));
	json_object_set_new(json, "ephemeral", json_boolean(waiter->request.ephemeral));
	json_object_set_new(json, "kept", json_boolean(waiter->request.kept));
	json_object_set_new(json, "priority", json_integer(waiter->request.priority));
	json_object_set_new(json, "requester_pid", json_integer(waiter->peer.process.pid));
	json_object_set_new(json, "pids", json_array());
	return json;
}

json_t *view_ahead(const struct node *node, const struct waiter *waiter, int priority,
		   const struct peer *viewer)
{
	json_t *list = json_array();
	unsigned position = 0;

	for (const struct waiter *w = node->waiting.first;
	     w && w != waiter && (waiter || w->request.priority >= priority) &&
	     position < AHEAD_MAX;
	     w = w->next)
		json_array_append_new(list, view_waiter(node, w, ++position, viewer));
	return list;
}
