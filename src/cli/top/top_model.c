#include "cli/top/top_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/columns.h"
#include "client/sessions.h"

/* The name in rows of what belongs to users who may not be told. */
#define OTHERS "(others)"

/* ---- values ------------------------------------------------------------------------------ */

static void number_set(json_t *object, const char *key, uint64_t number)
{
	json_object_set_new(object, key,
			    number == COLUMN_NONE ? json_null() : json_integer((json_int_t)number));
}

/* Numbers that are not known add nothing. */
static void number_add(json_t *object, const char *key, uint64_t number)
{
	uint64_t before = column_number(object, key);

	if (number != COLUMN_NONE)
		number_set(object, key, (before == COLUMN_NONE ? 0 : before) + number);
}

static void share_set(json_t *object, const char *key, const json_t *from, const char *name)
{
	json_t *value = json_object_get(from, name);

	if (json_is_number(value))
		json_object_set(object, key, value);
}

/* The object that has a row's figures for the screen. */
static json_t *shown(const json_t *row)
{
	return json_object_get(row, "shown");
}

json_t *top_processes(const json_t *row)
{
	return json_object_get(shown(row), "processes");
}

/* A copy of each object of an answer, which gets figures of its own. */
static json_t *row_add(json_t *list, const json_t *answer)
{
	json_t *row = json_is_object(answer) ? json_deep_copy(answer) : json_object();

	json_object_set_new(row, "shown", json_object());
	return json_array_append_new(list, row) == 0 ? row : NULL;
}

/* ---- GPUs and sessions --------------------------------------------------------------------- */

static void gpus_read(struct top_model *model, const json_t *answer)
{
	size_t i;
	json_t *gpu;

	json_array_foreach(answer, i, gpu)
	{
		json_t *row = row_add(model->list[TOP_GPUS], gpu), *figures = shown(row);
		const char *mode = json_is_true(json_object_get(gpu, "mig"))
					   ? "mig"
					   : json_text(gpu, "compute_mode");

		json_object_set_new(figures, "mode", json_string(mode));
		number_add(figures, "claimed", column_number(gpu, "outside_bytes"));
		number_add(figures, "claimed", column_number(gpu, "promised_bytes"));
		json_object_set(figures, "processes", json_object_get(row, "outside_processes"));
	}
}

static json_t *processes_make(const json_t *pids)
{
	json_t *list = json_array(), *pid;
	size_t i;

	json_array_foreach(pids, i, pid)
		json_array_append_new(list, json_pack("{s:I}", "pid", json_integer_value(pid)));
	return list;
}

static bool waits(const json_t *session)
{
	return !strcmp(json_text(session, "state"), "waiting");
}

static void sessions_read(struct top_model *model, const json_t *answer)
{
	size_t i;
	json_t *session;

	json_array_foreach(answer, i, session)
	{
		json_t *list = model->list[waits(session) ? TOP_WAITING : TOP_SESSIONS];
		json_t *figures = shown(row_add(list, session));
		uint64_t size = column_number(session, "gpus.vram_bytes");
		char gpus[48];

		session_indexes_text(json_object_get(session, "gpus"), gpus, sizeof(gpus));
		json_object_set_new(figures, "gpus", json_string(gpus));
		number_set(figures, "size",
			   size != COLUMN_NONE && json_is_array(json_object_get(session, "gpus"))
				   ? size
				   : column_number(session, "vram_bytes"));
		share_set(figures, "request", session, "compute_request");
		share_set(figures, "limit", session, "compute_limit");
		json_object_set_new(figures, "processes",
				    processes_make(json_object_get(session, "pids")));
	}
}

/* ---- queues and jobs ----------------------------------------------------------------------- */

static void queues_read(struct top_model *model, const json_t *answer)
{
	size_t i;
	json_t *queue;

	json_array_foreach(answer, i, queue) row_add(model->list[TOP_QUEUES], queue);
}

/* Jobs that ended are left out. */
static void jobs_read(struct top_model *model, const json_t *answer)
{
	static const char *const states[] = {"running", "starting", "queued", "held"};
	size_t i;
	json_t *job;

	for (size_t s = 0; s < ARRAY_SIZE(states); s++)
		json_array_foreach(answer, i, job)
		{
			if (!strcmp(json_text(job, "state"), states[s]))
				row_add(model->list[TOP_JOBS], job);
		}
}

/* ---- leases ------------------------------------------------------------------------------ */

static json_t *row_find(const json_t *list, const char *key, const json_t *value)
{
	size_t i;
	json_t *row;

	json_array_foreach(list, i, row)
	{
		if (value && !json_is_null(value) && json_equal(json_object_get(row, key), value))
			return row;
	}
	return NULL;
}

/* One session's turns on one GPU. On several GPUs turns add up, and of the shares the smallest
 * counts: that one holds the session up. */
static void lease_read(json_t *session, const json_t *lease)
{
	json_t *figures = shown(session), *before = json_object_get(figures, "received");
	const json_t *received = json_object_get(lease, "received");

	share_set(figures, "request", lease, "request");
	share_set(figures, "limit", lease, "limit");
	if (json_is_number(received) && json_number_value(received) >= 0 &&
	    (!before || json_number_value(received) < json_number_value(before)))
		share_set(figures, "received", lease, "received");
	number_add(session, "leases", column_number(lease, "leases"));
	number_add(session, "waited_ns", column_number(lease, "waited_ns"));
	number_add(session, "overrun_ns", column_number(lease, "overrun_ns"));
}

/* A session of memory alone that did no work had no share to have. */
static void unshared_hide(const json_t *sessions)
{
	size_t i;
	json_t *session;

	json_array_foreach(sessions, i, session)
	{
		const json_t *request = json_object_get(shown(session), "request");

		if (!(json_number_value(request) > 0) && column_number(session, "leases") == 0)
			json_object_del(shown(session), "received");
	}
}

static void timeslicing_read(struct top_model *model, const json_t *answer)
{
	size_t i, j;
	json_t *entry, *lease;

	json_array_foreach(answer, i, entry)
	{
		json_t *mode = json_object_get(entry, "mode");
		json_t *gpu =
			row_find(model->list[TOP_GPUS], "index", json_object_get(entry, "gpu"));

		if (gpu && mode && strcmp(json_text(shown(gpu), "mode"), "mig") != 0)
			json_object_set(shown(gpu), "mode", mode);
		json_array_foreach(json_object_get(entry, "sessions"), j, lease)
		{
			json_t *session = row_find(model->list[TOP_SESSIONS], "id",
						   json_object_get(lease, "id"));

			model->leases |= session != NULL;
			/* Nobody measures what is not sliced. */
			if (session && strcmp(json_text(entry, "mode"), "off") != 0)
				lease_read(session, lease);
		}
	}
	unshared_hide(model->list[TOP_SESSIONS]);
}

/* ---- users ------------------------------------------------------------------------------- */

static bool user_is(const json_t *user, const char *kind, uint64_t id, const char *name)
{
	uint64_t its = column_number(user, "shown.id");

	if (strcmp(json_text(user, "kind"), kind) != 0)
		return false;
	return its == COLUMN_NONE || id == COLUMN_NONE ? !strcmp(json_text(user, "name"), name)
						       : its == id;
}

/* A number may change its name between two answers: the row has the later one. `id` COLUMN_NONE: a
 * daemon of an earlier version, or others. */
static json_t *user_find(struct top_model *model, const char *kind, uint64_t id, const char *name)
{
	json_t *users = model->list[TOP_USERS], *user;
	size_t i;

	json_array_foreach(users, i, user)
	{
		if (!user_is(user, kind, id, name))
			continue;
		json_object_set_new(user, "name", json_string(name));
		return user;
	}
	user = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:{s:n, s:n, s:n}, s:{}}", "kind",
			 kind, "name", name, "sessions", 0, "waiting", 0, "gpus", 0, "vram_bytes",
			 0, "used_bytes", 0, "quota", "vram_bytes", "sessions", "gpus", "shown");
	number_set(shown(user), "id", id);
	return json_array_append_new(users, user) == 0 ? user : NULL;
}

static json_t *owner_find(struct top_model *model, const json_t *session)
{
	const char *name = json_text(session, "owner");

	return user_find(model, "user", column_number(session, "uid"), *name ? name : OTHERS);
}

/* GPUs are counted by their index, which is below 64 for all that the daemon offers. */
static void gpus_count(json_t *user, const json_t *gpus)
{
	uint64_t mask = column_number(user, "shown.mask");
	size_t i;
	json_t *gpu;

	mask = mask == COLUMN_NONE ? 0 : mask;
	json_array_foreach(gpus, i, gpu)
	{
		uint64_t index = column_number(gpu, "index");

		mask |= index < 63 ? 1ull << index : 0;
	}
	number_set(shown(user), "mask", mask);
	number_set(user, "gpus", (uint64_t)__builtin_popcountll(mask));
}

static void users_count(struct top_model *model)
{
	size_t i;
	json_t *session;

	json_array_foreach(model->list[TOP_SESSIONS], i, session)
	{
		json_t *user = owner_find(model, session);

		number_add(user, "sessions", 1);
		number_add(shown(user), "waiting", 0);
		number_add(user, "vram_bytes", column_number(session, "shown.size"));
		number_add(user, "used_bytes", column_number(session, "gpus.used_bytes"));
		gpus_count(user, json_object_get(session, "gpus"));
	}
	json_array_foreach(model->list[TOP_WAITING], i, session)
	{
		json_t *user = owner_find(model, session);

		number_add(user, "waiting", 1);
		number_add(shown(user), "waiting", 1);
	}
}

static const char *const limit_keys[] = {"vram_bytes", "sessions", "gpus"};

/* The use in a quota is the daemon's own count; for a group nothing else is known. */
static void quota_read(struct top_model *model, const json_t *quota, bool group)
{
	json_t *user = user_find(model, group ? "group" : "user", column_number(quota, "id"),
				 json_text(quota, "name"));
	json_t *limits = json_object_get(user, "quota");

	for (size_t k = 0; k < ARRAY_SIZE(limit_keys); k++) {
		const char *key = limit_keys[k];
		json_t *limit = json_object_get(quota, key);
		uint64_t used = column_number(json_object_get(quota, "used"), key);

		json_object_set_new(limits, key, limit ? json_incref(limit) : json_null());
		if (used != COLUMN_NONE)
			number_set(user, key, used);
	}
	if (group)
		number_set(user, "used_bytes", COLUMN_NONE);
	else
		number_add(shown(user), "waiting", 0);
}

/* A quota of each user holds where no more specific one says anything. */
static void quota_spread(struct top_model *model, const json_t *quota)
{
	size_t i;
	json_t *user;

	json_array_foreach(model->list[TOP_USERS], i, user)
	{
		json_t *limits = json_object_get(user, "quota");

		for (size_t k = 0;
		     !strcmp(json_text(user, "kind"), "user") && k < ARRAY_SIZE(limit_keys); k++)
			if (json_is_null(json_object_get(limits, limit_keys[k])))
				number_set(limits, limit_keys[k],
					   column_number(quota, limit_keys[k]));
	}
}

/* Quotas come with the most specific ones first. Those of each member of a group are left out: the
 * members are not known here. */
static void quotas_read(struct top_model *model, const json_t *answer)
{
	size_t i;
	json_t *quota;

	json_array_foreach(answer, i, quota)
	{
		const char *kind = json_text(quota, "kind");

		if (!strcmp(kind, "user") || !strcmp(kind, "group"))
			quota_read(model, quota, *kind == 'g');
		else if (strcmp(kind, "each") != 0)
			quota_spread(model, quota);
	}
}

/* ---- the whole --------------------------------------------------------------------------- */

struct top_model *top_model_read(const struct top_answers *answers, int64_t now)
{
	struct top_model *model = calloc(1, sizeof(*model));
	const char *driver = json_text(answers->version, "driver_version");

	if (!model)
		return NULL;
	for (int list = 0; list < TOP_LISTS; list++)
		model->list[list] = json_array();
	model->now = now;
	snprintf(model->version, sizeof(model->version), "%s",
		 json_text(answers->version, "version"));
	snprintf(model->driver, sizeof(model->driver), "%s", *driver ? driver : "none");
	model->daemon_pid = json_integer_value(json_object_get(answers->version, "pid"));
	gpus_read(model, answers->gpus);
	sessions_read(model, answers->sessions);
	timeslicing_read(model, answers->timeslicing);
	queues_read(model, answers->queues);
	jobs_read(model, answers->jobs);
	users_count(model);
	quotas_read(model, answers->quotas);
	return model;
}

void top_model_free(struct top_model *model)
{
	for (int list = 0; model && list < TOP_LISTS; list++)
		json_decref(model->list[list]);
	free(model);
}

void top_answers_free(struct top_answers *answers)
{
	json_decref(answers->version);
	json_decref(answers->gpus);
	json_decref(answers->sessions);
	json_decref(answers->quotas);
	json_decref(answers->timeslicing);
	json_decref(answers->queues);
	json_decref(answers->jobs);
	*answers = (struct top_answers){0};
}

/* The rows of a list without what is made for the screen. */
static json_t *list_json(const struct top_model *model, enum top_list list)
{
	json_t *copies = json_array(), *row;
	size_t i;

	json_array_foreach(model->list[list], i, row)
	{
		json_t *copy = json_copy(row);

		json_object_del(copy, "shown");
		json_array_append_new(copies, copy);
	}
	return copies;
}

json_t *top_model_json(const struct top_model *model, const struct top_answers *answers)
{
	char now[UNITS_TEXT_SIZE];

	units_format_time(model->now * 1000000000, UNITS_SECONDS, now);
	json_t *json = json_pack(
		"{s:s, s:O?, s:O?, s:o, s:o, s:o, s:o, s:o}", "time", now, "daemon",
		answers->version, "gpus", answers->gpus, "sessions", list_json(model, TOP_SESSIONS),
		"waiting", list_json(model, TOP_WAITING), "queues", list_json(model, TOP_QUEUES),
		"jobs", list_json(model, TOP_JOBS), "users", list_json(model, TOP_USERS));
	if (json && answers->timeslicing)
		json_object_set(json, "timeslicing", answers->timeslicing);
	return json;
}
