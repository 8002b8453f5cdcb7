#include "cli/top/top_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"
#include "cli/moment.h"
#include "client/gpu_holder.h"
#include "client/sessions.h"

/* The name in rows of what belongs to users who may not be told. */
#define OTHERS "(others)"

/* ---- values ------------------------------------------------------------------------------ */

static void text_get(const json_t *object, const char *key, char *buf, size_t size)
{
	const char *text = json_string_value(json_object_get(object, key));

	snprintf(buf, size, "%s", text ? text : "");
}

static uint64_t number_get(const json_t *object, const char *key, uint64_t otherwise)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) && json_integer_value(value) >= 0
		       ? (uint64_t)json_integer_value(value)
		       : otherwise;
}

static double share_get(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : -1;
}

static int64_t moment_get(const json_t *object, const char *key)
{
	return moment_parse(json_string_value(json_object_get(object, key)));
}

/* Sum over a session's GPUs; TOP_NONE where none of them tells. */
static uint64_t gpus_sum(const json_t *session, const char *key)
{
	uint64_t sum = TOP_NONE;
	size_t i;
	json_t *gpu;

	json_array_foreach(json_object_get(session, "gpus"), i, gpu)
	{
		uint64_t value = number_get(gpu, key, TOP_NONE);

		if (value != TOP_NONE)
			sum = (sum == TOP_NONE ? 0 : sum) + value;
	}
	return sum;
}

/* ---- GPUs -------------------------------------------------------------------------------- */

static void outside_read(const json_t *list, struct top_gpu *ret)
{
	size_t i;
	json_t *process;

	ret->processes = calloc(json_array_size(list) + 1, sizeof(*ret->processes));
	json_array_foreach(list, i, process)
	{
		if (!ret->processes)
			return;
		ret->processes[ret->process_count++] = (struct top_process){
			.pid = (pid_t)number_get(process, "pid", 0),
			.bytes = number_get(process, "memory_bytes", TOP_NONE),
			.stray = json_is_true(json_object_get(process, "stray")),
		};
	}
}

static void gpu_read(const json_t *json, struct top_gpu *ret)
{
	const json_t *holder = json_object_get(json, "held_by");

	ret->index = number_get(json, "index", 0);
	text_get(json, "name", ret->name, sizeof(ret->name));
	text_get(json, "compute_mode", ret->mode, sizeof(ret->mode));
	if (json_is_true(json_object_get(json, "mig")))
		snprintf(ret->mode, sizeof(ret->mode), "mig");
	ret->memory = number_get(json, "memory_bytes", 0);
	ret->reserved = number_get(json, "reserved_bytes", 0);
	ret->promised = number_get(json, "promised_bytes", 0);
	ret->outside = number_get(json, "outside_bytes", 0);
	ret->available = number_get(json, "available_bytes", 0);
	ret->used = number_get(json, "used_bytes", TOP_NONE);
	ret->utilization = (int)MIN(number_get(json, "utilization", 101), 101);
	if (ret->utilization > 100)
		ret->utilization = -1;
	ret->sessions = number_get(json, "sessions", 0);
	if (json_is_object(holder))
		gpu_holder_text(holder, ret->held_by);
	text_get(json, "state", ret->state, sizeof(ret->state));
	ret->state_since = moment_get(json, "state_since");
	outside_read(json_object_get(json, "outside_processes"), ret);
}

static void gpus_read(struct top_model *model, const json_t *list)
{
	size_t i;
	json_t *gpu;

	model->gpus = calloc(json_array_size(list) + 1, sizeof(*model->gpus));
	json_array_foreach(list, i, gpu) if (model->gpus)
		gpu_read(gpu, &model->gpus[model->gpu_count++]);
}

/* ---- sessions ---------------------------------------------------------------------------- */

static void pids_read(const json_t *pids, struct top_session *ret)
{
	size_t i;
	json_t *pid;

	ret->processes = calloc(json_array_size(pids) + 1, sizeof(*ret->processes));
	json_array_foreach(pids, i, pid) if (ret->processes) ret->processes[ret->process_count++] =
		(struct top_process){.pid = (pid_t)json_integer_value(pid), .bytes = TOP_NONE};
}

static void session_read(const json_t *json, struct top_session *ret)
{
	const json_t *gpus = json_object_get(json, "gpus");

	text_get(json, "id", ret->id, sizeof(ret->id));
	text_get(json, "owner", ret->owner, sizeof(ret->owner));
	ret->uid = number_get(json, "uid", TOP_NONE);
	text_get(json, "name", ret->name, sizeof(ret->name));
	text_get(json, "state", ret->state, sizeof(ret->state));
	text_get(json, "asked", ret->asked, sizeof(ret->asked));
	text_get(json, "reason", ret->reason, sizeof(ret->reason));
	session_indexes_text(gpus, ret->gpus, sizeof(ret->gpus));
	ret->size = gpus_sum(json, "vram_bytes");
	if (ret->size == TOP_NONE)
		ret->size = number_get(json, "vram_bytes", TOP_NONE);
	ret->used = gpus_sum(json, "used_bytes");
	ret->over = number_get(json, "over_bytes", 0);
	ret->peak = gpus_sum(json, "peak_bytes");
	ret->request = share_get(json, "compute_request");
	ret->limit = share_get(json, "compute_limit");
	ret->received = -1;
	ret->leases = ret->waited_ns = ret->overrun_ns = TOP_NONE;
	ret->position = number_get(json, "position", 0);
	ret->created = moment_get(json, "created");
	pids_read(json_object_get(json, "pids"), ret);
}

static void sessions_read(struct top_model *model, const json_t *list)
{
	size_t i;
	json_t *session;

	model->sessions = calloc(json_array_size(list) + 1, sizeof(*model->sessions));
	model->waiting = calloc(json_array_size(list) + 1, sizeof(*model->waiting));
	json_array_foreach(list, i, session)
	{
		const char *state = json_string_value(json_object_get(session, "state"));

		if (!model->sessions || !model->waiting)
			return;
		session_read(session, state && !strcmp(state, "waiting")
					      ? &model->waiting[model->waiting_count++]
					      : &model->sessions[model->session_count++]);
	}
}

/* ---- leases ------------------------------------------------------------------------------ */

static struct top_session *session_find(struct top_model *model, const char *id)
{
	for (size_t i = 0; id && i < model->session_count; i++)
		if (!strcmp(model->sessions[i].id, id))
			return &model->sessions[i];
	return NULL;
}

static void add_known(uint64_t *to, uint64_t value)
{
	if (value != TOP_NONE)
		*to = (*to == TOP_NONE ? 0 : *to) + value;
}

/* One session's turns on one GPU. On several GPUs turns add up, and of the shares the smallest
 * counts: that one holds the session up. */
static void lease_read(struct top_session *s, const json_t *json)
{
	double received = share_get(json, "received");

	if (json_is_number(json_object_get(json, "request")))
		s->request = share_get(json, "request");
	if (json_is_number(json_object_get(json, "limit")))
		s->limit = share_get(json, "limit");
	if (received >= 0)
		s->received = s->received < 0 ? received : MIN(s->received, received);
	add_known(&s->leases, number_get(json, "leases", TOP_NONE));
	add_known(&s->waited_ns, number_get(json, "waited_ns", TOP_NONE));
	add_known(&s->overrun_ns, number_get(json, "overrun_ns", TOP_NONE));
}

static void timeslicing_read(struct top_model *model, const json_t *list)
{
	size_t i, j;
	json_t *entry, *session;

	json_array_foreach(list, i, entry)
	{
		uint64_t index = number_get(entry, "gpu", TOP_NONE);
		const char *mode = json_string_value(json_object_get(entry, "mode"));

		for (size_t g = 0; g < model->gpu_count; g++)
			if (model->gpus[g].index == index && json_object_get(entry, "mode") &&
			    strcmp(model->gpus[g].mode, "mig") != 0)
				text_get(entry, "mode", model->gpus[g].mode,
					 sizeof(model->gpus[g].mode));
		json_array_foreach(json_object_get(entry, "sessions"), j, session)
		{
			struct top_session *s = session_find(
				model, json_string_value(json_object_get(session, "id")));

			if (!s)
				continue;
			model->leases = true;
			/* Nobody measures what is not sliced. */
			if (!mode || strcmp(mode, "off") != 0)
				lease_read(s, session);
		}
	}
}

/* ---- users ------------------------------------------------------------------------------- */

static bool user_is(const struct top_user *user, bool group, uint64_t id, const char *name)
{
	if (user->group != group)
		return false;
	return user->id == TOP_NONE || id == TOP_NONE ? !strcmp(user->name, name) : user->id == id;
}

/* A number may change its name between two answers: the row has the later one. `id` TOP_NONE: a
 * daemon of an earlier version, or others. */
static struct top_user *user_find(struct top_model *model, bool group, uint64_t id,
				  const char *name)
{
	for (size_t i = 0; i < model->user_count; i++) {
		struct top_user *user = &model->users[i];

		if (!user_is(user, group, id, name))
			continue;
		snprintf(user->name, sizeof(user->name), "%s", name);
		return user;
	}
	struct top_user *grown =
		reallocarray(model->users, model->user_count + 1, sizeof(*model->users));
	if (!grown)
		return NULL;
	model->users = grown;
	struct top_user *user = &grown[model->user_count++];
	*user = (struct top_user){.group = group,
				  .id = id,
				  .max_sessions = TOP_NONE,
				  .max_gpus = TOP_NONE,
				  .max_size = TOP_NONE};
	snprintf(user->name, sizeof(user->name), "%s", name);
	return user;
}

/* GPUs are counted by their index, which is below 64 for all that the daemon offers. */
static uint64_t indexes_mask(const char *text)
{
	uint64_t mask = 0;

	for (char *end; *text; text = *end == ',' ? end + 1 : end) {
		unsigned long index = strtoul(text, &end, 10);

		if (end == text)
			break;
		mask |= index < 64 ? 1ull << index : 0;
	}
	return mask;
}

static void users_count(struct top_model *model)
{
	for (size_t i = 0; i < model->session_count; i++) {
		const struct top_session *s = &model->sessions[i];
		struct top_user *user =
			user_find(model, false, s->uid, *s->owner ? s->owner : OTHERS);

		if (!user)
			return;
		user->sessions++;
		user->size += s->size == TOP_NONE ? 0 : s->size;
		user->used += s->used == TOP_NONE ? 0 : s->used;
		user->gpu_mask |= indexes_mask(s->gpus);
		user->gpus = (uint64_t)__builtin_popcountll(user->gpu_mask);
	}
	for (size_t i = 0; model->waiting && i < model->waiting_count; i++) {
		const struct top_session *s = &model->waiting[i];
		struct top_user *user =
			user_find(model, false, s->uid, *s->owner ? s->owner : OTHERS);

		if (user)
			user->waiting++;
	}
}

/* The use in a quota is the daemon's own count; for a group nothing else is known. */
static void quotas_read(struct top_model *model, const json_t *list)
{
	size_t i;
	json_t *quota;

	json_array_foreach(list, i, quota)
	{
		const char *kind = json_string_value(json_object_get(quota, "kind"));
		const json_t *used = json_object_get(quota, "used");
		char name[sizeof(model->users->name)];

		text_get(quota, "name", name, sizeof(name));
		bool group = kind && !strcmp(kind, "group");
		struct top_user *user =
			user_find(model, group, number_get(quota, "id", TOP_NONE), name);
		if (!user)
			return;
		user->max_size = number_get(quota, "vram_bytes", TOP_NONE);
		user->max_sessions = number_get(quota, "sessions", TOP_NONE);
		user->max_gpus = number_get(quota, "gpus", TOP_NONE);
		user->size = number_get(used, "vram_bytes", user->size);
		user->sessions = number_get(used, "sessions", user->sessions);
		user->gpus = number_get(used, "gpus", user->gpus);
		if (group)
			user->used = TOP_NONE;
	}
}

/* ---- the whole --------------------------------------------------------------------------- */

struct top_model *top_model_read(const struct top_answers *answers, int64_t now)
{
	struct top_model *model = calloc(1, sizeof(*model));

	if (!model)
		return NULL;
	model->now = now;
	text_get(answers->version, "version", model->version, sizeof(model->version));
	text_get(answers->version, "driver_version", model->driver, sizeof(model->driver));
	if (!model->driver[0])
		snprintf(model->driver, sizeof(model->driver), "none");
	model->daemon_pid = number_get(answers->version, "pid", 0);
	gpus_read(model, answers->gpus);
	sessions_read(model, answers->sessions);
	timeslicing_read(model, answers->timeslicing);
	users_count(model);
	quotas_read(model, answers->quotas);
	return model;
}

void top_model_free(struct top_model *model)
{
	if (!model)
		return;
	for (size_t i = 0; i < model->gpu_count; i++)
		free(model->gpus[i].processes);
	for (size_t i = 0; i < model->session_count; i++)
		free(model->sessions[i].processes);
	for (size_t i = 0; i < model->waiting_count; i++)
		free(model->waiting[i].processes);
	free(model->gpus);
	free(model->sessions);
	free(model->waiting);
	free(model->users);
	free(model);
}

void top_answers_free(struct top_answers *answers)
{
	json_decref(answers->version);
	json_decref(answers->gpus);
	json_decref(answers->sessions);
	json_decref(answers->quotas);
	json_decref(answers->timeslicing);
	*answers = (struct top_answers){0};
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *known_json(uint64_t value)
{
	return value == TOP_NONE ? json_null() : json_integer((json_int_t)value);
}

static json_t *users_json(const struct top_model *model)
{
	json_t *list = json_array();

	for (size_t i = 0; i < model->user_count; i++) {
		const struct top_user *u = &model->users[i];

		json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:{s:o, s:o, s:o}}", "kind",
				  u->group ? "group" : "user", "name", u->name, "sessions",
				  (json_int_t)u->sessions, "waiting", (json_int_t)u->waiting,
				  "gpus", (json_int_t)u->gpus, "vram_bytes", (json_int_t)u->size,
				  "used_bytes", known_json(u->used), "quota", "vram_bytes",
				  known_json(u->max_size), "sessions", known_json(u->max_sessions),
				  "gpus", known_json(u->max_gpus)));
	}
	return list;
}

/* The sessions that wait, or those that don't, as the daemon told of them. */
static json_t *sessions_json(const struct top_model *model, const json_t *sessions, bool waiting)
{
	json_t *list = json_array();
	size_t i, at = 0;
	json_t *session;

	json_array_foreach(sessions, i, session)
	{
		const char *state = json_string_value(json_object_get(session, "state"));

		if ((state && !strcmp(state, "waiting")) != waiting)
			continue;
		json_t *copy = json_copy(session);
		const struct top_session *s = waiting ? NULL : &model->sessions[at++];
		if (s && s->leases != TOP_NONE) {
			json_object_set_new(copy, "leases", known_json(s->leases));
			json_object_set_new(copy, "waited_ns", known_json(s->waited_ns));
			json_object_set_new(copy, "overrun_ns", known_json(s->overrun_ns));
		}
		json_array_append_new(list, copy);
	}
	return list;
}

json_t *top_model_json(const struct top_model *model, const struct top_answers *answers)
{
	char now[UNITS_TEXT_SIZE];

	units_format_time(model->now * 1000000000, UNITS_SECONDS, now);
	json_t *json = json_pack("{s:s, s:O?, s:O?, s:o, s:o, s:o}", "time", now, "daemon",
				 answers->version, "gpus", answers->gpus, "sessions",
				 sessions_json(model, answers->sessions, false), "waiting",
				 sessions_json(model, answers->sessions, true), "users",
				 users_json(model));
	if (json && answers->timeslicing)
		json_object_set(json, "timeslicing", answers->timeslicing);
	return json;
}
