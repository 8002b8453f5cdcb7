/* Sessions, who holds them, which processes have attached, and what exporters of memory left, as
 * the database has it. */
#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "daemon/host/owner.h"
#include "daemon/store/store_db.h"

/* Ended sessions: how often the history is looked at for too many of them. */
#define HISTORY_TRIM_EVERY 250

/* Values of the column `ephemeral`: what a session lives as long as. */
enum {
	LIFE_USERS,     /* until it is released; one a user */
	LIFE_EPHEMERAL, /* as long as the processes in it */
	LIFE_KEPT,      /* until it is released; any number a user */
};

/* ---- changing ---------------------------------------------------------------------------- */

static int gpu_put(struct store *store, enum statement which, const char *id, uint32_t position,
		   const struct store_gpu *gpu)
{
	sqlite3_stmt *stmt = store_statement(store, which);

	store_bind_text(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, position);
	store_bind_text(stmt, 3, gpu->uuid_text);
	store_bind_text(stmt, 4, gpu->name);
	sqlite3_bind_int64(stmt, 5, gpu->index);
	sqlite3_bind_int64(stmt, 6, (int64_t)gpu->bytes);
	sqlite3_bind_int64(stmt, 7, (int64_t)gpu->requested);
	store_bind_text(stmt, 8, gpu->instance);
	store_bind_text(stmt, 9, gpu->profile);
	return store_step(stmt);
}

static int session_insert(struct store *store, const struct store_session *session)
{
	sqlite3_stmt *stmt = store_statement(store, SESSION_ADD);

	store_bind_text(stmt, 1, session->id);
	store_bind_text(stmt, 2, session->name);
	sqlite3_bind_int64(stmt, 3, session->uid);
	sqlite3_bind_int64(stmt, 4, session->gid);
	sqlite3_bind_int(stmt, 5, session->kept ? LIFE_KEPT : session->ephemeral);
	sqlite3_bind_int(stmt, 6, session->tolerance_applied);
	sqlite3_bind_int(stmt, 7, (int)session->kind);
	sqlite3_bind_int64(stmt, 8, session->compute);
	sqlite3_bind_int64(stmt, 9, session->created);
	sqlite3_bind_int64(stmt, 10, session->ends_at);
	sqlite3_bind_blob(stmt, 11, session->groups.gid,
			  (int)(session->groups.count * sizeof(gid_t)), SQLITE_TRANSIENT);
	sqlite3_bind_int64(stmt, 12, owner_of(session->uid));
	sqlite3_bind_int64(stmt, 13, session->asked);
	return store_step(stmt);
}

/* Its first parameters are the session and the process. */
static sqlite3_stmt *process_statement(struct store *store, enum statement which, const char *id,
				       const struct process_id *process)
{
	sqlite3_stmt *stmt = store_statement(store, which);

	store_bind_text(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, process->pid);
	sqlite3_bind_int64(stmt, 3, (int64_t)process->birth);
	return stmt;
}

/* One of (pid, start_time, more), of a session. */
static int processes_each(struct store *store, enum statement which, const char *id,
			  store_process_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, which);
	int step, rc = 0;

	store_bind_text(stmt, 1, id);
	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct process_id process = {
			.pid = (pid_t)sqlite3_column_int64(stmt, 0),
			.birth = (uint64_t)sqlite3_column_int64(stmt, 1),
		};

		rc = cb(arg, &process, (uint64_t)sqlite3_column_int64(stmt, 2));
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}

int store_unrecorded_add(void *arg, const struct store_session *session)
{
	struct store *store = arg;
	struct unrecorded *entry = calloc(1, sizeof(*entry));
	struct store_gpu *gpus = calloc(session->gpu_count, sizeof(*gpus));

	if (!entry || !gpus) {
		free(entry);
		free(gpus);
		return -ENOMEM;
	}
	memcpy(gpus, session->gpu, session->gpu_count * sizeof(*gpus));
	entry->session = *session;
	entry->session.gpu = gpus;
	entry->next = store->unrecorded;
	store->unrecorded = entry;
	return 0;
}

void store_unrecorded_drop(struct unrecorded **at)
{
	struct unrecorded *entry = *at;

	*at = entry->next;
	free(entry->session.gpu);
	free(entry);
}

/* Its history goes on under the other ID. Where it is living, the new one's record
 * is refused afterwards, and all of this undone. */
static int session_rename(struct store *store, const char *id, const char *former)
{
	static const enum statement all[] = {SESSION_RENAME, GPUS_RENAME, OVER_RENAME};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(all) && rc == 0; i++) {
		sqlite3_stmt *stmt = store_statement(store, all[i]);

		store_bind_text(stmt, 1, id);
		store_bind_text(stmt, 2, former);
		rc = store_step(stmt);
	}
	return rc;
}

int store_session_add(struct store *store, const struct store_session *session,
		      const struct process_id *owner)
{
	int rc = store_boot_record(store);

	if (rc == 0)
		rc = store_begin(store);
	if (rc < 0)
		return rc;
	if (session->former[0])
		rc = session_rename(store, session->id, session->former);
	if (rc == 0)
		rc = session_insert(store, session);
	for (uint32_t i = 0; rc == 0 && i < session->gpu_count; i++)
		rc = gpu_put(store, GPU_ADD, session->id, i, &session->gpu[i]);
	if (rc == 0 && owner)
		rc = store_step(process_statement(store, HOLDER_ADD, session->id, owner));
	return store_finish(store, rc);
}

/* A statement for one GPU of a session; ID and position are its first parameters. */
static sqlite3_stmt *gpu_statement(struct store *store, enum statement which, const char *id,
				   uint32_t position)
{
	sqlite3_stmt *stmt = store_statement(store, which);

	store_bind_text(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, position);
	return stmt;
}

int store_session_resize(struct store *store, const struct store_session *session)
{
	int rc = store_begin(store);

	if (rc < 0)
		return rc;
	sqlite3_stmt *stmt = store_statement(store, SESSION_RESIZE);
	store_bind_text(stmt, 1, session->id);
	sqlite3_bind_int64(stmt, 2, session->compute);
	sqlite3_bind_int(stmt, 3, session->tolerance_applied);
	sqlite3_bind_int64(stmt, 4, session->ends_at);
	rc = store_step(stmt);
	for (uint32_t i = 0; rc == 0 && i < session->gpu_count; i++) {
		stmt = gpu_statement(store, GPU_RESIZE, session->id, i);
		sqlite3_bind_int64(stmt, 3, (int64_t)session->gpu[i].bytes);
		sqlite3_bind_int64(stmt, 4, (int64_t)session->gpu[i].requested);
		rc = store_step(stmt);
	}
	return store_finish(store, rc);
}

int store_session_move(struct store *store, const struct store_session *session)
{
	int rc = store_begin(store);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; rc == 0 && i < session->gpu_count; i++)
		rc = gpu_put(store, GPU_MOVE, session->id, i, &session->gpu[i]);
	return store_finish(store, rc);
}

static int step_with_id(struct store *store, enum statement which, const char *id)
{
	sqlite3_stmt *stmt = store_statement(store, which);

	store_bind_text(stmt, 1, id);
	return store_step(stmt);
}

void store_keep_history(struct store *store, uint32_t sessions, uint32_t per_minute)
{
	store->history = sessions;
	store->history_rate.most = per_minute;
	store->ended_untrimmed = HISTORY_TRIM_EVERY;
}

/* The end of the newest session that is to be forgotten. 0: there is none; or -errno. */
static int64_t edge_find(sqlite3_stmt *stmt)
{
	int step = sqlite3_step(stmt);
	int64_t edge = step == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;

	sqlite3_reset(stmt);
	return step == SQLITE_ROW ? edge : store_errno(step);
}

/* Three statements of which ?1 is the edge and ?2 the owner. */
static int forget(struct store *store, enum statement first, int64_t edge, uid_t owner)
{
	int rc = 0;

	for (enum statement which = first; which < first + 3 && rc == 0; which++) {
		sqlite3_stmt *stmt = store_statement(store, which);

		sqlite3_bind_int64(stmt, 1, edge);
		if (sqlite3_bind_parameter_count(stmt) > 1)
			sqlite3_bind_int64(stmt, 2, owner);
		rc = store_step(stmt);
	}
	return rc;
}

/* Others' sessions are in the history, too. */
static bool others_have_some(struct store *store, uid_t owner)
{
	sqlite3_stmt *stmt = store_statement(store, HISTORY_OTHERS);

	sqlite3_bind_int64(stmt, 1, owner);
	bool some = sqlite3_step(stmt) == SQLITE_ROW;
	sqlite3_reset(stmt);
	return some;
}

/* Forgets those of this owner beyond half of the history, where others are in it, too. */
static int owner_trim(struct store *store, uid_t owner)
{
	if (!others_have_some(store, owner))
		return 0;
	sqlite3_stmt *stmt = store_statement(store, HISTORY_OWNER_EDGE);
	sqlite3_bind_int64(stmt, 1, owner);
	sqlite3_bind_int64(stmt, 2, store->history / 2);
	int64_t edge = edge_find(stmt);
	return edge > 0 ? forget(store, HISTORY_OWNER_GPUS_DELETE, edge, owner) : (int)edge;
}

/* Forgets what lies behind the last store->history ended sessions; those of this owner first, where
 * it has more than half of them, so that nobody fills the history. Finding the edge walks over all
 * of those, so it is looked for once in a while only. */
static int history_trim(struct store *store, uid_t owner)
{
	if (store->ended_untrimmed++ < HISTORY_TRIM_EVERY)
		return 0;
	store->ended_untrimmed = 0;
	int64_t edge = 0;
	for (int i = 0; i < 2; i++) {
		sqlite3_stmt *stmt = store_statement(store, HISTORY_EDGE);
		sqlite3_bind_int64(stmt, 1, store->history);
		edge = edge_find(stmt);
		if (edge <= 0)
			return (int)edge;
		int rc = i == 0 ? owner_trim(store, owner)
				: forget(store, HISTORY_GPUS_DELETE, edge, owner);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* One that ends many sessions a minute keeps the newest of them, and nobody else's history gets
 * shorter by them. */
static int rate_trim(struct store *store, uid_t owner)
{
	/* As with all budgets. */
	if (owner == 0 || owner == geteuid())
		return 0;
	enum rate_verdict verdict = rate_note(&store->history_rate, owner, now_monotonic_ns());

	if (verdict == RATE_WITHIN)
		return 0;
	if (verdict == RATE_FIRST_BEYOND)
		log_event(
			LOG_WARNING,
			"history.dropped uid=%u reason=\"more than %u of its sessions ended within "
			"a minute: its oldest are forgotten\"",
			(unsigned)owner, store->history_rate.most);
	sqlite3_stmt *stmt = store_statement(store, HISTORY_OWNER_OLDEST);
	sqlite3_bind_int64(stmt, 1, owner);
	int64_t edge = edge_find(stmt);
	return edge > 0 ? forget(store, HISTORY_OWNER_GPUS_DELETE, edge, owner) : (int)edge;
}

int store_over_put(struct store *store, const struct store_session *session)
{
	sqlite3_stmt *stmt = store_statement(store, OVER_PUT);

	store_bind_text(stmt, 1, session->id);
	sqlite3_bind_int64(stmt, 2, session->over_killed);
	sqlite3_bind_int64(stmt, 3, (int64_t)session->over_killed_bytes);
	return store_step(stmt);
}

int store_session_end(struct store *store, const struct store_session *session)
{
	int rc = store_begin(store);

	if (rc < 0)
		return rc;
	sqlite3_stmt *stmt = store_statement(store, SESSION_END);
	store_bind_text(stmt, 1, session->id);
	sqlite3_bind_int64(stmt, 2, session->ended);
	store_bind_text(stmt, 3, session->reason);
	sqlite3_bind_int64(stmt, 4, session->received);
	rc = store_step(stmt);
	for (uint32_t i = 0; rc == 0 && i < session->gpu_count; i++) {
		stmt = gpu_statement(store, GPU_PEAK, session->id, i);
		sqlite3_bind_int64(stmt, 3, (int64_t)session->gpu[i].peak);
		rc = store_step(stmt);
	}
	if (rc == 0 && session->over_killed)
		rc = store_over_put(store, session);
	if (rc == 0)
		rc = step_with_id(store, HOLDERS_END, session->id);
	if (rc == 0)
		rc = step_with_id(store, COMMANDS_END, session->id);
	if (rc == 0)
		rc = step_with_id(store, ATTACHED_END, session->id);
	if (rc == 0)
		rc = step_with_id(store, INHERITED_REMOVE, session->id);
	if (rc == 0)
		rc = rate_trim(store, owner_of(session->uid));
	if (rc == 0)
		rc = history_trim(store, owner_of(session->uid));
	return store_finish(store, rc);
}

int store_session_end_later(struct store *store, const struct store_session *session)
{
	int rc = store_unrecorded_add(store, session);

	if (rc < 0)
		return rc;
	rc = ends_write(&store->ends, session);
	if (rc < 0)
		store_unrecorded_drop(&store->unrecorded);
	return rc;
}

bool store_has_unrecorded(const struct store *store)
{
	return store->unrecorded != NULL;
}

unsigned store_retry(struct store *store)
{
	unsigned count = 0;

	(void)store_boot_record(store);
	for (struct unrecorded **at = &store->unrecorded; *at;) {
		if (store_session_end(store, &(*at)->session) < 0) {
			at = &(*at)->next;
			continue;
		}
		store_unrecorded_drop(at);
		count++;
	}
	if (count && !store->unrecorded)
		ends_empty(&store->ends);
	return count;
}

static struct unrecorded *unrecorded_find(const struct store *store, const char *id)
{
	struct unrecorded *entry = store->unrecorded;

	while (entry && strcmp(entry->session.id, id) != 0)
		entry = entry->next;
	return entry;
}

static int gpus_read(struct store *store, struct store_session *session)
{
	sqlite3_stmt *stmt = store_statement(store, GPUS_OF);
	int step;

	store_bind_text(stmt, 1, session->id);
	session->gpu_count = 0;
	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && session->gpu_count < PLACE_GPUS_MAX) {
		struct store_gpu *gpu = &session->gpu[session->gpu_count++];

		store_column_text(stmt, 0, gpu->uuid_text, sizeof(gpu->uuid_text));
		store_column_text(stmt, 1, gpu->name, sizeof(gpu->name));
		gpu->index = (uint32_t)sqlite3_column_int64(stmt, 2);
		gpu->bytes = (uint64_t)sqlite3_column_int64(stmt, 3);
		gpu->requested = (uint64_t)sqlite3_column_int64(stmt, 4);
		gpu->peak = (uint64_t)sqlite3_column_int64(stmt, 5);
		store_column_text(stmt, 6, gpu->instance, sizeof(gpu->instance));
		store_column_text(stmt, 7, gpu->profile, sizeof(gpu->profile));
	}
	sqlite3_reset(stmt);
	return store_errno(step);
}

static void groups_column(sqlite3_stmt *stmt, int column, struct groups *ret)
{
	size_t size = (size_t)sqlite3_column_bytes(stmt, column);

	ret->count = (unsigned)MIN(size / sizeof(gid_t), PEER_GROUPS_MAX);
	if (ret->count)
		memcpy(ret->gid, sqlite3_column_blob(stmt, column), ret->count * sizeof(gid_t));
}

static int session_read(struct store *store, sqlite3_stmt *stmt, struct store_session *ret)
{
	store_column_text(stmt, 0, ret->id, sizeof(ret->id));
	store_column_text(stmt, 1, ret->name, sizeof(ret->name));
	ret->uid = (uid_t)sqlite3_column_int64(stmt, 2);
	ret->gid = (gid_t)sqlite3_column_int64(stmt, 3);
	ret->ephemeral = sqlite3_column_int(stmt, 4) == LIFE_EPHEMERAL;
	ret->kept = sqlite3_column_int(stmt, 4) == LIFE_KEPT;
	ret->tolerance_applied = sqlite3_column_int(stmt, 5) != 0;
	ret->kind = (enum place_kind)sqlite3_column_int(stmt, 6);
	ret->compute = (uint32_t)sqlite3_column_int64(stmt, 7);
	ret->created = sqlite3_column_int64(stmt, 8);
	ret->ends_at = sqlite3_column_int64(stmt, 9);
	ret->ended = sqlite3_column_int64(stmt, 10);
	store_column_text(stmt, 11, ret->reason, sizeof(ret->reason));
	ret->received = sqlite3_column_int64(stmt, 12);
	ret->over_killed = (uint32_t)sqlite3_column_int64(stmt, 13);
	ret->over_killed_bytes = (uint64_t)sqlite3_column_int64(stmt, 14);
	groups_column(stmt, 15, &ret->groups);
	ret->row = sqlite3_column_int64(stmt, 16);
	ret->asked = sqlite3_column_int64(stmt, 17);
	return gpus_read(store, ret);
}

int store_sessions_page(struct store *store, const struct store_place *after, uint32_t limit,
			store_session_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, SESSIONS_ENDED_AFTER);
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session session = {.gpu = gpus};
	int step, rc = 0;

	sqlite3_bind_int64(stmt, 1, after->ended);
	sqlite3_bind_int64(stmt, 2, after->created);
	sqlite3_bind_int64(stmt, 3, after->row);
	sqlite3_bind_int64(stmt, 4, limit);
	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		rc = session_read(store, stmt, &session);
		if (rc == 0)
			rc = cb(arg, &session);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}

int store_sessions_each(struct store *store, bool ended, uint32_t limit, store_session_cb cb,
			void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, ended ? SESSIONS_ENDED : SESSIONS_LIVING);
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session session = {.gpu = gpus};
	int step, rc = 0;

	if (!ended && store->living_are_of_before)
		return 0;
	if (ended)
		sqlite3_bind_int64(stmt, 1, limit);
	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		rc = session_read(store, stmt, &session);
		if (rc == 0 && (ended || !unrecorded_find(store, session.id)))
			rc = cb(arg, &session);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}

static int session_found(struct store *store, sqlite3_stmt *stmt, struct store_session *ret)
{
	int step = sqlite3_step(stmt);
	int rc = step == SQLITE_ROW    ? session_read(store, stmt, ret)
		 : step == SQLITE_DONE ? -ENOENT
				       : store_errno(step);
	sqlite3_reset(stmt);
	return rc;
}

int store_session_find(struct store *store, const char *id, struct store_session *ret)
{
	sqlite3_stmt *stmt = store_statement(store, SESSION_FIND);

	store_bind_text(stmt, 1, id);
	return session_found(store, stmt, ret);
}

int store_session_named(struct store *store, uid_t uid, const char *name, struct store_session *ret)
{
	sqlite3_stmt *stmt = store_statement(store, SESSION_NAMED);

	sqlite3_bind_int64(stmt, 1, uid);
	store_bind_text(stmt, 2, name);
	return session_found(store, stmt, ret);
}

int store_holder_add(struct store *store, const char *id, const struct process_id *process)
{
	return store_step(process_statement(store, HOLDER_ADD, id, process));
}

int store_holders_each(struct store *store, const char *id, store_process_cb cb, void *arg)
{
	return processes_each(store, HOLDERS_OF, id, cb, arg);
}

/* ---- commands ---------------------------------------------------------------------------- */

int store_command_put(struct store *store, const char *id, const struct process_id *process,
		      uint64_t mount_namespace)
{
	sqlite3_stmt *stmt = process_statement(store, COMMAND_PUT, id, process);

	sqlite3_bind_int64(stmt, 4, (int64_t)mount_namespace);
	return store_step(stmt);
}

int store_command_remove(struct store *store, const char *id, const struct process_id *process)
{
	return store_step(process_statement(store, COMMAND_REMOVE, id, process));
}

int store_commands_each(struct store *store, const char *id, store_process_cb cb, void *arg)
{
	return processes_each(store, COMMANDS_OF, id, cb, arg);
}

/* ---- attached processes ------------------------------------------------------------------ */

int store_attached_put(struct store *store, const char *id, uint32_t slot,
		       const struct process_id *process)
{
	sqlite3_stmt *stmt = process_statement(store, ATTACHED_PUT, id, process);

	sqlite3_bind_int64(stmt, 4, slot);
	return store_step(stmt);
}

int store_attached_remove(struct store *store, const char *id, uint32_t slot)
{
	sqlite3_stmt *stmt = store_statement(store, ATTACHED_REMOVE);

	store_bind_text(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, slot);
	return store_step(stmt);
}

int store_attached_each(struct store *store, const char *id, store_process_cb cb, void *arg)
{
	return processes_each(store, ATTACHED_OF, id, cb, arg);
}

/* ---- memory that exporters left ---------------------------------------------------------- */

int store_inherited_put(struct store *store, const char *id, uint64_t bytes)
{
	if (!bytes)
		return step_with_id(store, INHERITED_REMOVE, id);
	sqlite3_stmt *stmt = store_statement(store, INHERITED_PUT);

	store_bind_text(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, (int64_t)bytes);
	return store_step(stmt);
}

int store_inherited_get(struct store *store, const char *id, uint64_t *ret_bytes)
{
	sqlite3_stmt *stmt = store_statement(store, INHERITED_OF);

	store_bind_text(stmt, 1, id);
	int step = sqlite3_step(stmt);
	int rc = store_errno(step);
	if (rc == 0)
		*ret_bytes = step == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(stmt, 0) : 0;
	sqlite3_reset(stmt);
	return rc;
}

int store_exporter_put(struct store *store, const struct store_exporter *exporter)
{
	sqlite3_stmt *stmt =
		gpu_statement(store, EXPORTER_PUT, exporter->session, exporter->position);

	store_bind_text(stmt, 3, exporter->uuid_text);
	sqlite3_bind_int64(stmt, 4, (int64_t)exporter->slice);
	sqlite3_bind_int64(stmt, 5, (int64_t)exporter->remains);
	sqlite3_bind_int64(stmt, 6, (int64_t)exporter->kept);
	sqlite3_bind_int64(stmt, 7, (int64_t)exporter->given);
	sqlite3_bind_int(stmt, 8, exporter->exports);
	return store_step(stmt);
}

int store_exporter_remove(struct store *store, const struct store_exporter *exporter)
{
	return store_step(
		gpu_statement(store, EXPORTER_REMOVE, exporter->session, exporter->position));
}

int store_exporters_each(struct store *store, store_exporter_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, EXPORTERS);
	int step, rc = 0;

	/* They are of another life of the host, as its sessions. */
	if (store->living_are_of_before)
		return 0;
	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct store_exporter exporter = {
			.position = (uint32_t)sqlite3_column_int64(stmt, 1),
			.slice = (uint64_t)sqlite3_column_int64(stmt, 3),
			.remains = (uint64_t)sqlite3_column_int64(stmt, 4),
			.kept = (uint64_t)sqlite3_column_int64(stmt, 5),
			.given = (uint64_t)sqlite3_column_int64(stmt, 6),
			.exports = sqlite3_column_int(stmt, 7) != 0,
		};

		store_column_text(stmt, 0, exporter.session, sizeof(exporter.session));
		store_column_text(stmt, 2, exporter.uuid_text, sizeof(exporter.uuid_text));
		rc = cb(arg, &exporter);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}
