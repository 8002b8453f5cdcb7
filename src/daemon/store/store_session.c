/* Sessions, who holds them, which processes have attached, and what exporters of memory left, as
 * the database has it. */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/host/owner.h"
#include "daemon/store/store_db.h"

/* Values of the column `ephemeral`: what a session lives as long as. */
enum {
	LIFE_USERS,     /* until it is released; one a user */
	LIFE_EPHEMERAL, /* as long as the processes in it */
	LIFE_KEPT,      /* until it is released; any number a user */
};

/* ---- changing ---------------------------------------------------------------------------- */

/* The columns of a session, as SESSION_COLUMNS has them; a new one's row has those up to `timeout`.
 * Behind them come two that are no members. */
static const struct record_field session_fields[] = {
	RECORD_FIELD(struct store_session, id, "id"),
	RECORD_FIELD(struct store_session, name, "name"),
	RECORD_FIELD(struct store_session, uid, "uid"),
	RECORD_FIELD(struct store_session, gid, "gid"),
	RECORD_FIELD(struct store_session, tolerance_applied, "tolerance"),
	RECORD_FIELD(struct store_session, kind, "kind"),
	RECORD_FIELD(struct store_session, compute, "compute"),
	RECORD_FIELD(struct store_session, created, "created"),
	RECORD_FIELD(struct store_session, ends_at, "ends_at"),
	RECORD_FIELD(struct store_session, asked, "asked"),
	RECORD_FIELD(struct store_session, timeout_ns, "timeout"),
	RECORD_FIELD(struct store_session, ended, "ended"),
	RECORD_FIELD(struct store_session, reason, "reason"),
	RECORD_FIELD(struct store_session, received, "received"),
	RECORD_FIELD(struct store_session, over_killed, "killed"),
	RECORD_FIELD(struct store_session, over_killed_bytes, "held"),
	RECORD_FIELD(struct store_session, row, "rowid"),
	RECORD_FIELD(struct store_session, ended_by, "ended_by"),
	RECORD_FIELD(struct store_session, pod, "pod"),
	{0},
};
enum { LIFE_COLUMN = ARRAY_SIZE(session_fields) - 1, GROUPS_COLUMN };

/* A GPU of a session, with the two numbers that name it. */
struct gpu_row {
	char session[STORE_ID_SIZE];
	uint32_t position;
	struct store_gpu gpu;
};

static const struct record_field gpu_fields[] = {
	RECORD_FIELD(struct gpu_row, session, "session"),
	RECORD_FIELD(struct gpu_row, position, "position"),
	RECORD_FIELD(struct gpu_row, gpu.uuid_text, "uuid"),
	RECORD_FIELD(struct gpu_row, gpu.name, "name"),
	RECORD_FIELD(struct gpu_row, gpu.index, "number"),
	RECORD_FIELD(struct gpu_row, gpu.bytes, "bytes"),
	RECORD_FIELD(struct gpu_row, gpu.requested, "requested"),
	RECORD_FIELD(struct gpu_row, gpu.instance, "instance"),
	RECORD_FIELD(struct gpu_row, gpu.profile, "profile"),
	RECORD_FIELD(struct gpu_row, gpu.peak, "peak"),
	{0},
};

/* Runs a statement for each of a session's GPUs. */
static int gpus_put(struct store *store, enum statement which, const struct store_session *session)
{
	struct gpu_row row = {0};
	int rc = 0;

	snprintf(row.session, sizeof(row.session), "%s", session->id);
	for (; rc == 0 && row.position < session->gpu_count; row.position++) {
		row.gpu = session->gpu[row.position];
		rc = store_put(store, which, gpu_fields, &row);
	}
	return rc;
}

static int session_insert(struct store *store, const struct store_session *session)
{
	sqlite3_stmt *stmt =
		row_bind_record(store_statement(store, SESSION_ADD), session_fields, session);

	row_bind_at(stmt, LIFE_COLUMN + 1,
		    ROW_NUMBER(session->kept ? LIFE_KEPT : session->ephemeral));
	sqlite3_bind_blob(stmt, GROUPS_COLUMN + 1, session->groups.gid,
			  (int)(session->groups.count * sizeof(gid_t)), SQLITE_STATIC);
	row_bind_at(stmt, GROUPS_COLUMN + 2, ROW_NUMBER(owner_of(session->uid)));
	return store_step(stmt);
}

/* Rows of (pid, start_time, more), of a session. */
static int processes_each(struct store *store, enum statement which, const char *id,
			  store_process_cb cb, void *arg)
{
	sqlite3_stmt *stmt = row_bind(store_statement(store, which), ROW_TEXT(id));
	int64_t row[3];
	int rc;

	while ((rc = row_next_numbers(stmt, row, 3)) > 0) {
		struct process_id process = {.pid = (pid_t)row[0], .birth = (uint64_t)row[1]};

		rc = cb(arg, &process, (uint64_t)row[2]);
		if (rc != 0)
			break;
	}
	return row_end(stmt, rc);
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
	static const enum statement all[] = {SESSION_RENAME, GPUS_RENAME, OVER_RENAME,
					     RECORDED_RENAME};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(all) && rc == 0; i++)
		rc = store_run(store, all[i], ROW_TEXT(id), ROW_TEXT(former));
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
	if (rc == 0)
		rc = gpus_put(store, GPU_ADD, session);
	if (rc == 0 && owner)
		rc = store_holder_add(store, session->id, owner);
	return store_finish(store, rc);
}

int store_session_resize(struct store *store, const struct store_session *session)
{
	int rc = store_begin(store);

	if (rc < 0)
		return rc;
	rc = store_run(store, SESSION_RESIZE, ROW_TEXT(session->id), ROW_NUMBER(session->compute),
		       ROW_NUMBER(session->tolerance_applied), ROW_NUMBER(session->ends_at));
	if (rc == 0)
		rc = gpus_put(store, GPU_RESIZE, session);
	return store_finish(store, rc);
}

int store_session_move(struct store *store, const struct store_session *session)
{
	int rc = store_begin(store);

	return rc < 0 ? rc : store_finish(store, gpus_put(store, GPU_MOVE, session));
}

int store_over_put(struct store *store, const struct store_session *session)
{
	return store_run(store, OVER_PUT, ROW_TEXT(session->id), ROW_NUMBER(session->over_killed),
			 ROW_NUMBER(session->over_killed_bytes));
}

int store_session_end(struct store *store, const struct store_session *session)
{
	static const enum statement gone[] = {HOLDERS_END, COMMANDS_END, ATTACHED_END,
					      INHERITED_REMOVE};
	int rc = store_begin(store);

	if (rc < 0)
		return rc;
	rc = store_run(store, SESSION_END, ROW_TEXT(session->id), ROW_NUMBER(session->ended),
		       ROW_TEXT(session->reason), ROW_NUMBER(session->received),
		       ROW_NUMBER(session->ended_by));
	if (rc == 0)
		rc = gpus_put(store, GPU_PEAK, session);
	if (rc == 0 && session->over_killed)
		rc = store_over_put(store, session);
	for (size_t i = 0; i < ARRAY_SIZE(gone) && rc == 0; i++)
		rc = store_run(store, gone[i], ROW_TEXT(session->id));
	if (rc == 0)
		rc = store_history_ended(store, owner_of(session->uid));
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
	sqlite3_stmt *stmt = row_bind(store_statement(store, GPUS_OF), ROW_TEXT(session->id));
	struct gpu_row row;
	int rc = 0;

	session->gpu_count = 0;
	while (session->gpu_count < PLACE_GPUS_MAX && (rc = row_next(stmt, gpu_fields, &row)) > 0)
		session->gpu[session->gpu_count++] = row.gpu;
	return row_end(stmt, rc);
}

static void groups_column(sqlite3_stmt *stmt, int column, struct groups *ret)
{
	size_t size = (size_t)sqlite3_column_bytes(stmt, column);

	ret->count = (unsigned)MIN(size / sizeof(gid_t), PEER_GROUPS_MAX);
	if (ret->count)
		memcpy(ret->gid, sqlite3_column_blob(stmt, column), ret->count * sizeof(gid_t));
}

/* The next session of a statement; as row_next(). */
static int session_next(struct store *store, sqlite3_stmt *stmt, struct store_session *ret)
{
	int rc = row_next(stmt, session_fields, ret);

	if (rc <= 0)
		return rc;
	ret->ephemeral = sqlite3_column_int(stmt, LIFE_COLUMN) == LIFE_EPHEMERAL;
	ret->kept = sqlite3_column_int(stmt, LIFE_COLUMN) == LIFE_KEPT;
	groups_column(stmt, GROUPS_COLUMN, &ret->groups);
	rc = gpus_read(store, ret);
	return rc < 0 ? rc : 1;
}

int store_sessions_page(struct store *store, const struct store_place *after, uint32_t limit,
			store_session_cb cb, void *arg)
{
	sqlite3_stmt *stmt =
		row_bind(store_statement(store, SESSIONS_ENDED_AFTER), ROW_NUMBER(after->ended),
			 ROW_NUMBER(after->created), ROW_NUMBER(after->row), ROW_NUMBER(limit));
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session session = {.gpu = gpus};
	int rc;

	while ((rc = session_next(store, stmt, &session)) > 0 && (rc = cb(arg, &session)) == 0)
		;
	return row_end(stmt, rc);
}

int store_sessions_each(struct store *store, bool ended, uint32_t limit, store_session_cb cb,
			void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, ended ? SESSIONS_ENDED : SESSIONS_LIVING);
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session session = {.gpu = gpus};
	int rc;

	if (!ended && store->living_are_of_before)
		return 0;
	if (ended)
		row_bind(stmt, ROW_NUMBER(limit));
	while ((rc = session_next(store, stmt, &session)) > 0)
		if ((ended || !unrecorded_find(store, session.id)) && (rc = cb(arg, &session)) != 0)
			break;
	return row_end(stmt, rc);
}

static int session_found(struct store *store, sqlite3_stmt *stmt, struct store_session *ret)
{
	int rc = session_next(store, stmt, ret);

	return row_end(stmt, rc == 0 ? -ENOENT : rc);
}

int store_session_find(struct store *store, const char *id, struct store_session *ret)
{
	return session_found(store, row_bind(store_statement(store, SESSION_FIND), ROW_TEXT(id)),
			     ret);
}

int store_session_named(struct store *store, uid_t uid, const char *name, struct store_session *ret)
{
	return session_found(
		store,
		row_bind(store_statement(store, SESSION_NAMED), ROW_NUMBER(uid), ROW_TEXT(name)),
		ret);
}

int store_session_last_current(struct store *store, uid_t uid, struct store_session *ret)
{
	return session_found(
		store, row_bind(store_statement(store, SESSION_LAST_CURRENT), ROW_NUMBER(uid)),
		ret);
}

int store_holder_add(struct store *store, const char *id, const struct process_id *process)
{
	return store_run(store, HOLDER_ADD, ROW_TEXT(id), ROW_NUMBER(process->pid),
			 ROW_NUMBER(process->birth));
}

int store_holders_each(struct store *store, const char *id, store_process_cb cb, void *arg)
{
	return processes_each(store, HOLDERS_OF, id, cb, arg);
}

/* ---- commands ---------------------------------------------------------------------------- */

int store_command_put(struct store *store, const char *id, const struct process_id *process,
		      uint64_t mount_namespace)
{
	return store_run(store, COMMAND_PUT, ROW_TEXT(id), ROW_NUMBER(process->pid),
			 ROW_NUMBER(process->birth), ROW_NUMBER(mount_namespace));
}

int store_command_remove(struct store *store, const char *id, const struct process_id *process)
{
	return store_run(store, COMMAND_REMOVE, ROW_TEXT(id), ROW_NUMBER(process->pid),
			 ROW_NUMBER(process->birth));
}

int store_commands_each(struct store *store, const char *id, store_process_cb cb, void *arg)
{
	return processes_each(store, COMMANDS_OF, id, cb, arg);
}

/* ---- attached processes ------------------------------------------------------------------ */

int store_attached_put(struct store *store, const char *id, uint32_t slot,
		       const struct process_id *process)
{
	return store_run(store, ATTACHED_PUT, ROW_TEXT(id), ROW_NUMBER(process->pid),
			 ROW_NUMBER(process->birth), ROW_NUMBER(slot));
}

int store_attached_remove(struct store *store, const char *id, uint32_t slot)
{
	return store_run(store, ATTACHED_REMOVE, ROW_TEXT(id), ROW_NUMBER(slot));
}

int store_attached_each(struct store *store, const char *id, store_process_cb cb, void *arg)
{
	return processes_each(store, ATTACHED_OF, id, cb, arg);
}

/* ---- memory that exporters left ---------------------------------------------------------- */

int store_inherited_put(struct store *store, const char *id, uint64_t bytes)
{
	return bytes ? store_run(store, INHERITED_PUT, ROW_TEXT(id), ROW_NUMBER(bytes))
		     : store_run(store, INHERITED_REMOVE, ROW_TEXT(id));
}

int store_inherited_get(struct store *store, const char *id, uint64_t *ret_bytes)
{
	int64_t bytes = 0;
	int rc = row_get_numbers(row_bind(store_statement(store, INHERITED_OF), ROW_TEXT(id)),
				 &bytes, 1);

	if (rc < 0 && rc != -ENOENT)
		return rc;
	*ret_bytes = (uint64_t)bytes;
	return 0;
}

static const struct record_field exporter_fields[] = {
	RECORD_FIELD(struct store_exporter, session, "session"),
	RECORD_FIELD(struct store_exporter, position, "position"),
	RECORD_FIELD(struct store_exporter, uuid_text, "uuid"),
	RECORD_FIELD(struct store_exporter, slice, "slice"),
	RECORD_FIELD(struct store_exporter, remains, "remains"),
	RECORD_FIELD(struct store_exporter, kept, "kept"),
	RECORD_FIELD(struct store_exporter, given, "given"),
	RECORD_FIELD(struct store_exporter, exports, "exports"),
	{0},
};

int store_exporter_put(struct store *store, const struct store_exporter *exporter)
{
	return store_put(store, EXPORTER_PUT, exporter_fields, exporter);
}

int store_exporter_remove(struct store *store, const struct store_exporter *exporter)
{
	return store_run(store, EXPORTER_REMOVE, ROW_TEXT(exporter->session),
			 ROW_NUMBER(exporter->position));
}

int store_exporters_each(struct store *store, store_exporter_cb cb, void *arg)
{
	/* They are of another life of the host, as its sessions. */
	if (store->living_are_of_before)
		return 0;
	return row_each(store_statement(store, EXPORTERS), exporter_fields, struct store_exporter,
			cb, arg);
}
