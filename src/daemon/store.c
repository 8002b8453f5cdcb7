#include "daemon/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "daemon/ends.h"

/* Of the schema below, to which the migrations are added. */
#define SCHEMA_VERSION 2
#define HISTORY_TRIM_EVERY 250
#define BUSY_TIMEOUT_MS 1000
/* The log (16 MiB) is put into the database itself so seldom, as that waits for the disk. */
#define ON_DISK                                               \
	"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" \
	"PRAGMA wal_autocheckpoint=4000;"
#define IN_MEMORY "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"

static const char schema[] =
	"CREATE TABLE session(id TEXT PRIMARY KEY, name TEXT, uid INTEGER, gid INTEGER,"
	" ephemeral INTEGER,"
	" tolerance INTEGER, kind INTEGER, compute INTEGER, created INTEGER, ends_at INTEGER,"
	" ended INTEGER, reason TEXT);"
	"CREATE INDEX session_ended ON session(ended, created);"
	"CREATE TABLE session_gpu(session TEXT, position INTEGER, uuid TEXT, name TEXT,"
	" number INTEGER, bytes INTEGER, requested INTEGER, peak INTEGER,"
	" PRIMARY KEY(session, position)) WITHOUT ROWID;"
	"CREATE TABLE holder(session TEXT, pid INTEGER, start_time INTEGER);"
	"CREATE INDEX holder_session ON holder(session);"
	"CREATE TABLE quota(kind INTEGER, id INTEGER, vram INTEGER, sessions INTEGER,"
	" gpus INTEGER, PRIMARY KEY(kind, id));"
	"CREATE TABLE context(model TEXT, driver TEXT, bytes INTEGER, PRIMARY KEY(model, driver));";

/* Each takes a database to the next version. What an older carve wrote is taken up by a newer one,
 * so that an upgrade loses no session; nothing here is ever changed, only added to. */
static const char *const migrations[] = {
	/* 3: the share of GPU time that an ended session received. */
	"ALTER TABLE session ADD COLUMN received INTEGER NOT NULL DEFAULT -1;",
	/* 4: how GPUs' time is sliced. */
	"CREATE TABLE slicing(uuid TEXT PRIMARY KEY, mode INTEGER, lease INTEGER,"
	" granularity INTEGER);",
	/* 5: in which life of the host its sessions began; '': it was not known. */
	"CREATE TABLE host(boot TEXT NOT NULL); INSERT INTO host VALUES('');",
	/* 6: processes that the next daemon may not be allowed to look into. */
	"CREATE TABLE IF NOT EXISTS attached(session TEXT, slot INTEGER, pid INTEGER,"
	" start_time INTEGER, PRIMARY KEY(session, slot)) WITHOUT ROWID;",
};

#define SCHEMA_NEWEST (SCHEMA_VERSION + (int)ARRAY_SIZE(migrations))

enum statement {
	BEGIN,
	COMMIT,
	ROLLBACK,
	SESSION_ADD,
	GPU_ADD,
	GPU_RESIZE,
	SESSION_RESIZE,
	SESSION_END,
	GPU_PEAK,
	HOLDERS_END,
	HISTORY_EDGE,
	HISTORY_GPUS_DELETE,
	HISTORY_DELETE,
	HOLDER_ADD,
	SESSIONS_LIVING,
	SESSIONS_ENDED,
	SESSION_FIND,
	SESSION_NAMED,
	GPUS_OF,
	HOLDERS_OF,
	QUOTA_PUT,
	QUOTA_REMOVE,
	QUOTAS,
	CONTEXT_GET,
	CONTEXT_PUT,
	ATTACHED_PUT,
	ATTACHED_REMOVE,
	ATTACHED_OF,
	ATTACHED_END,
	SLICING_PUT,
	SLICINGS,
	LIVING_COUNT,
	BOOT_GET,
	BOOT_PUT,
	BOOT_END_PEAKS,
	BOOT_END_SESSIONS,
	BOOT_END_HOLDERS,
	BOOT_END_ATTACHED,
	STATEMENTS
};

#define SESSION_COLUMNS                                                                      \
	"id, name, uid, gid, ephemeral, tolerance, kind, compute, created, ends_at, ended, " \
	"reason, received "                                                                  \
	"FROM session "

static const char *const texts[STATEMENTS] = {
	[BEGIN] = "BEGIN IMMEDIATE",
	[COMMIT] = "COMMIT",
	[ROLLBACK] = "ROLLBACK",
	[SESSION_ADD] =
		"INSERT INTO session(id, name, uid, gid, ephemeral, tolerance, kind, "
		"compute, created, ends_at, ended, reason) VALUES(?,?,?,?,?,?,?,?,?,?,0,'')",
	[GPU_ADD] = "INSERT INTO session_gpu VALUES(?,?,?,?,?,?,?,0)",
	[GPU_RESIZE] = "UPDATE session_gpu SET bytes=?3, requested=?4 WHERE session=?1 AND "
		       "position=?2",
	[SESSION_RESIZE] = "UPDATE session SET compute=?2, tolerance=?3 WHERE id=?1",
	[SESSION_END] = "UPDATE session SET ended=?2, reason=?3, received=?4 WHERE id=?1",
	[GPU_PEAK] = "UPDATE session_gpu SET peak=?3 WHERE session=?1 AND position=?2",
	[HOLDERS_END] = "DELETE FROM holder WHERE session=?1",
	[HISTORY_EDGE] = "SELECT ended FROM session WHERE ended > 0 ORDER BY ended DESC LIMIT 1 "
			 "OFFSET ?1",
	[HISTORY_GPUS_DELETE] = "DELETE FROM session_gpu WHERE session IN (SELECT id FROM session "
				"WHERE ended > 0 AND ended <= ?1)",
	[HISTORY_DELETE] = "DELETE FROM session WHERE ended > 0 AND ended <= ?1",
	[HOLDER_ADD] = "INSERT INTO holder VALUES(?,?,?)",
	[SESSIONS_LIVING] = "SELECT " SESSION_COLUMNS "WHERE ended=0 ORDER BY created",
	[SESSIONS_ENDED] = "SELECT * FROM (SELECT " SESSION_COLUMNS "WHERE ended>0 ORDER BY ended "
			   "DESC LIMIT ?1) ORDER BY ended",
	[SESSION_FIND] = "SELECT " SESSION_COLUMNS "WHERE id=?1",
	[SESSION_NAMED] = "SELECT " SESSION_COLUMNS
			  "WHERE ended>0 AND uid=?1 AND name=?2 ORDER BY ended DESC LIMIT 1",
	[GPUS_OF] = "SELECT uuid, name, number, bytes, requested, peak FROM session_gpu WHERE "
		    "session=?1 ORDER BY position",
	[HOLDERS_OF] = "SELECT pid, start_time FROM holder WHERE session=?1",
	[QUOTA_PUT] = "INSERT OR REPLACE INTO quota VALUES(?,?,?,?,?)",
	[QUOTA_REMOVE] = "DELETE FROM quota WHERE kind=?1 AND id=?2",
	[QUOTAS] = "SELECT kind, id, vram, sessions, gpus FROM quota",
	[CONTEXT_GET] = "SELECT bytes FROM context WHERE model=?1 AND driver=?2",
	[CONTEXT_PUT] = "INSERT OR REPLACE INTO context VALUES(?,?,?)",
	[ATTACHED_PUT] = "INSERT OR REPLACE INTO attached VALUES(?1,?2,?3,?4)",
	[ATTACHED_REMOVE] = "DELETE FROM attached WHERE session=?1 AND slot=?2",
	[ATTACHED_OF] = "SELECT slot, pid, start_time FROM attached WHERE session=?1",
	[ATTACHED_END] = "DELETE FROM attached WHERE session=?1",
	[SLICING_PUT] = "INSERT OR REPLACE INTO slicing VALUES(?,?,?,?)",
	[SLICINGS] = "SELECT uuid, mode, lease, granularity FROM slicing",
	[LIVING_COUNT] = "SELECT count(*) FROM session WHERE ended=0",
	[BOOT_GET] = "SELECT boot FROM host",
	[BOOT_PUT] = "UPDATE host SET boot=?1",
	[BOOT_END_PEAKS] = "UPDATE session_gpu SET peak=-1 WHERE session IN (SELECT id FROM "
			   "session WHERE ended=0)",
	[BOOT_END_SESSIONS] = "UPDATE session SET ended=max(created, ?1), reason=?2 WHERE ended=0",
	[BOOT_END_HOLDERS] = "DELETE FROM holder",
	[BOOT_END_ATTACHED] = "DELETE FROM attached",
};

/* The end of a session that the database does not have yet. */
struct unrecorded {
	struct unrecorded *next;
	struct store_session session;
};

struct store {
	sqlite3 *db;
	struct unrecorded *unrecorded;
	struct ends ends; /* where those are meanwhile */
	sqlite3_stmt *statement[STATEMENTS];
	uint32_t history;
	unsigned ended_untrimmed; /* sessions since history_trim() last looked */
	struct store_boot boot;
	bool on_disk;              /* it is to survive a power cut */
	bool boot_due;             /* the database does not have it yet */
	bool living_are_of_before; /* and its living sessions are of another life of the host */
};

static int errno_of(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_DONE:
	case SQLITE_ROW:
		return 0;
	case SQLITE_CONSTRAINT:
		return -EEXIST;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
		return -EROFS;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EUCLEAN;
	case SQLITE_NOMEM:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

/* ---- statements -------------------------------------------------------------------------- */

static sqlite3_stmt *statement(struct store *store, enum statement which)
{
	sqlite3_stmt *stmt = store->statement[which];

	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return stmt;
}

static void bind_text(sqlite3_stmt *stmt, int at, const char *text)
{
	sqlite3_bind_text(stmt, at, text, -1, SQLITE_TRANSIENT);
}

static void column_text(sqlite3_stmt *stmt, int at, char *to, size_t size)
{
	const unsigned char *text = sqlite3_column_text(stmt, at);

	snprintf(to, size, "%s", text ? (const char *)text : "");
}

/* For statements without rows. */
static int step_once(sqlite3_stmt *stmt)
{
	int rc = sqlite3_step(stmt);

	sqlite3_reset(stmt);
	return errno_of(rc);
}

static int begin(struct store *store)
{
	return step_once(statement(store, BEGIN));
}

/* Ends a transaction whose steps came to `rc`. */
static int finish(struct store *store, int rc)
{
	if (rc == 0)
		rc = step_once(statement(store, COMMIT));
	if (rc < 0)
		(void)step_once(statement(store, ROLLBACK));
	return rc;
}

/* What an administrator set is on the disk itself when he is told so. */
static void sync_each_commit(struct store *store, bool wanted)
{
	if (!store->on_disk)
		return;
	(void)sqlite3_exec(store->db,
			   wanted ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", NULL,
			   NULL, NULL);
}

static int step_synced(struct store *store, sqlite3_stmt *stmt)
{
	sync_each_commit(store, true);
	int rc = step_once(stmt);
	sync_each_commit(store, false);
	return rc;
}

/* ---- opening ----------------------------------------------------------------------------- */

/* The database's version; 0: it is empty. */
static int version_read(sqlite3 *db, int *ret)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &stmt, NULL);

	if (rc != SQLITE_OK)
		return errno_of(rc);
	rc = sqlite3_step(stmt);
	*ret = rc == SQLITE_ROW ? sqlite3_column_int(stmt, 0) : 0;
	sqlite3_finalize(stmt);
	return rc == SQLITE_ROW ? 0 : errno_of(rc);
}

static bool version_known(int version)
{
	return version == 0 || (version >= SCHEMA_VERSION && version <= SCHEMA_NEWEST);
}

/* Makes the schema, or brings it up to date: wholly or not at all. */
static int schema_make(sqlite3 *db)
{
	char set_version[64];
	int found = 0, rc = version_read(db, &found);

	if (rc < 0 || found == SCHEMA_NEWEST)
		return rc;
	if (!version_known(found))
		return -EPROTONOSUPPORT;
	rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	if (rc == SQLITE_OK && found == 0)
		rc = sqlite3_exec(db, schema, NULL, NULL, NULL);
	for (int version = found ? found : SCHEMA_VERSION;
	     rc == SQLITE_OK && version < SCHEMA_NEWEST; version++)
		rc = sqlite3_exec(db, migrations[version - SCHEMA_VERSION], NULL, NULL, NULL);
	snprintf(set_version, sizeof(set_version), "PRAGMA user_version=%d; COMMIT;",
		 SCHEMA_NEWEST);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, set_version, NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return errno_of(rc);
}

static int prepare_all(struct store *store)
{
	for (int i = 0; i < STATEMENTS; i++) {
		int rc = sqlite3_prepare_v3(store->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
					    &store->statement[i], NULL);
		if (rc != SQLITE_OK)
			return errno_of(rc);
	}
	return 0;
}

static int database_open(struct store *store, const char *path)
{
	/* Made by us first, so that it never exists with a wider mode. */
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return errno == EROFS || errno == EACCES ? -EROFS : -errno;
	close(fd);
	int rc = sqlite3_open_v2(path, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
				 NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
	/* Sessions need to survive this process, not the machine: no sync on each grant. But where
	 * it is on a disk, what a power cut leaves has to be a database still. */
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(store->db, store->on_disk ? ON_DISK : IN_MEMORY, NULL, NULL,
				  NULL);
	if (rc != SQLITE_OK)
		return errno_of(rc);
	rc = schema_make(store->db);
	return rc < 0 ? rc : prepare_all(store);
}

static void open_error(const char *path, int rc, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED, "cannot use the session database %s: %s", path,
		  rc == -EUCLEAN           ? "it is damaged"
		  : rc == -EROFS           ? "it cannot be written"
		  : rc == -EPROTONOSUPPORT ? "another version of carve wrote it"
					   : strerrordesc_np(-rc));
	if (rc == -EUCLEAN || rc == -EPROTONOSUPPORT)
		error_hint(err, "move it away, best after running workloads have ended: they keep "
				"their limits, but their sessions are forgotten, and what they "
				"may still take is promised to others");
}

int store_check(const char *path, struct error *err)
{
	sqlite3 *db = NULL;
	int version = 0;
	int rc = errno_of(
		sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL));

	if (rc == 0)
		(void)sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS);
	if (rc == 0)
		rc = version_read(db, &version);
	if (rc == 0 && !version_known(version))
		rc = -EPROTONOSUPPORT;
	sqlite3_close(db);
	if (rc < 0)
		open_error(path, rc, err);
	return rc;
}

static int unrecorded_add(void *arg, const struct store_session *session)
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

/* What the last daemon could not record. Without that file a full disk keeps sessions from ending,
 * no more. */
static int ends_take_up(struct store *store, const char *path)
{
	(void)ends_open(&store->ends, path);
	int rc = ends_each(&store->ends, unrecorded_add, store);
	if (rc == 0)
		(void)store_retry(store);
	return rc;
}

int store_open(struct store **ret, const char *path, bool on_disk, struct error *err)
{
	struct store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	store->history = STORE_HISTORY_DEFAULT;
	store->ends = ENDS_NONE;
	store->on_disk = on_disk;
	int rc = database_open(store, path);
	if (rc == 0)
		rc = ends_take_up(store, path);
	if (rc == 0) {
		*ret = store;
		return 0;
	}
	open_error(path, rc, err);
	store_close(store);
	return rc;
}

/* ---- moving ------------------------------------------------------------------------------ */

/* The living sessions are those of `old`, whatever the new place was left with. */
static const char merge[] =
	"BEGIN IMMEDIATE;"
	"UPDATE main.session SET ended=created, reason='forgotten' WHERE ended=0;"
	"DELETE FROM main.holder;"
	"DELETE FROM main.session_gpu WHERE session IN (SELECT id FROM old.session);"
	"INSERT OR REPLACE INTO main.session SELECT * FROM old.session;"
	"INSERT INTO main.session_gpu SELECT * FROM old.session_gpu;"
	"INSERT INTO main.holder SELECT * FROM old.holder;"
	"INSERT OR REPLACE INTO main.quota SELECT * FROM old.quota;"
	"INSERT OR REPLACE INTO main.context SELECT * FROM old.context;"
	"INSERT OR REPLACE INTO main.slicing SELECT * FROM old.slicing;"
	"UPDATE main.host SET boot=(SELECT boot FROM old.host);"
	"COMMIT;";

static int merge_from(struct store *store, const char *path)
{
	sqlite3_stmt *attach = NULL;
	int rc = sqlite3_prepare_v2(store->db, "ATTACH ?1 AS old", -1, &attach, NULL);

	if (rc != SQLITE_OK)
		return errno_of(rc);
	bind_text(attach, 1, path);
	rc = sqlite3_step(attach);
	sqlite3_finalize(attach);
	sync_each_commit(store, true);
	if (rc == SQLITE_DONE)
		rc = sqlite3_exec(store->db, merge, NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		(void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
	return errno_of(rc);
}

static int unrecorded_move(const struct store *from, struct store *to)
{
	int rc = 0;

	for (struct unrecorded *entry = from->unrecorded; entry && rc == 0; entry = entry->next)
		rc = store_session_end(to, &entry->session);
	return rc;
}

int store_move(const char *from_path, const char *to_path, struct error *err)
{
	struct store *from = NULL, *to = NULL;
	int rc = store_open(&from, from_path, false, err);

	if (rc == 0)
		rc = store_open(&to, to_path, true, err);
	if (rc == 0) {
		rc = merge_from(to, from_path);
		if (rc == 0)
			rc = unrecorded_move(from, to);
		if (rc < 0)
			error_set(err, EXIT_CODE_FAILED,
				  "cannot move the session database %s to %s: %s", from_path,
				  to_path, strerrordesc_np(-rc));
	}
	store_close(to);
	store_close(from);
	return rc;
}

void store_keep_history(struct store *store, uint32_t sessions)
{
	store->history = sessions;
	store->ended_untrimmed = HISTORY_TRIM_EVERY;
}

static void unrecorded_drop(struct unrecorded **at)
{
	struct unrecorded *entry = *at;

	*at = entry->next;
	free(entry->session.gpu);
	free(entry);
}

void store_close(struct store *store)
{
	if (!store)
		return;
	while (store->unrecorded)
		unrecorded_drop(&store->unrecorded);
	ends_close(&store->ends);
	for (int i = 0; i < STATEMENTS; i++)
		sqlite3_finalize(store->statement[i]);
	sqlite3_close(store->db);
	free(store);
}

/* ---- sessions ---------------------------------------------------------------------------- */

static int gpu_insert(struct store *store, const char *id, uint32_t position,
		      const struct store_gpu *gpu)
{
	sqlite3_stmt *stmt = statement(store, GPU_ADD);

	bind_text(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, position);
	bind_text(stmt, 3, gpu->uuid_text);
	bind_text(stmt, 4, gpu->name);
	sqlite3_bind_int64(stmt, 5, gpu->index);
	sqlite3_bind_int64(stmt, 6, (int64_t)gpu->bytes);
	sqlite3_bind_int64(stmt, 7, (int64_t)gpu->requested);
	return step_once(stmt);
}

static int session_insert(struct store *store, const struct store_session *session)
{
	sqlite3_stmt *stmt = statement(store, SESSION_ADD);

	bind_text(stmt, 1, session->id);
	bind_text(stmt, 2, session->name);
	sqlite3_bind_int64(stmt, 3, session->uid);
	sqlite3_bind_int64(stmt, 4, session->gid);
	sqlite3_bind_int(stmt, 5, session->ephemeral);
	sqlite3_bind_int(stmt, 6, session->tolerance_applied);
	sqlite3_bind_int(stmt, 7, (int)session->kind);
	sqlite3_bind_int64(stmt, 8, session->compute);
	sqlite3_bind_int64(stmt, 9, session->created);
	sqlite3_bind_int64(stmt, 10, session->ends_at);
	return step_once(stmt);
}

static int holder_insert(struct store *store, const char *id, const struct process_id *process)
{
	sqlite3_stmt *stmt = statement(store, HOLDER_ADD);

	bind_text(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, process->pid);
	sqlite3_bind_int64(stmt, 3, (int64_t)process->birth);
	return step_once(stmt);
}

/* ---- the life of the host ---------------------------------------------------------------- */

static int living_end(struct store *store)
{
	int rc = step_once(statement(store, BOOT_END_PEAKS));

	if (rc < 0)
		return rc;
	sqlite3_stmt *stmt = statement(store, BOOT_END_SESSIONS);
	sqlite3_bind_int64(stmt, 1, store->boot.began);
	bind_text(stmt, 2, "host restarted");
	rc = step_once(stmt);
	if (rc == 0)
		rc = step_once(statement(store, BOOT_END_HOLDERS));
	return rc < 0 ? rc : step_once(statement(store, BOOT_END_ATTACHED));
}

static unsigned living_count(struct store *store)
{
	sqlite3_stmt *stmt = statement(store, LIVING_COUNT);
	unsigned count =
		sqlite3_step(stmt) == SQLITE_ROW ? (unsigned)sqlite3_column_int64(stmt, 0) : 0;

	sqlite3_reset(stmt);
	return count;
}

/* Before anything else of this life is recorded, the sessions of the one before are ended. */
static int boot_record(struct store *store)
{
	int rc = store->boot_due ? begin(store) : 0;

	if (rc < 0 || !store->boot_due)
		return rc;
	if (store->living_are_of_before)
		rc = living_end(store);
	if (rc == 0) {
		sqlite3_stmt *stmt = statement(store, BOOT_PUT);

		bind_text(stmt, 1, store->boot.id);
		rc = step_once(stmt);
	}
	rc = finish(store, rc);
	if (rc == 0)
		store->boot_due = store->living_are_of_before = false;
	return rc;
}

int store_boot(struct store *store, const struct store_boot *boot, unsigned *ret_ended)
{
	sqlite3_stmt *stmt = statement(store, BOOT_GET);
	char recorded[STORE_BOOT_SIZE] = "";
	int step = sqlite3_step(stmt);

	*ret_ended = 0;
	if (step == SQLITE_ROW)
		column_text(stmt, 0, recorded, sizeof(recorded));
	sqlite3_reset(stmt);
	if (step != SQLITE_ROW)
		return step == SQLITE_DONE ? -EUCLEAN : errno_of(step);
	store->boot = *boot;
	store->boot_due = boot->id[0] && strcmp(recorded, boot->id) != 0;
	store->living_are_of_before = store->boot_due && recorded[0];
	if (store->living_are_of_before)
		*ret_ended = living_count(store);
	/* On a full disk later, by store_retry(). */
	int rc = boot_record(store);
	return rc == -EUCLEAN ? rc : 0;
}

int store_session_add(struct store *store, const struct store_session *session,
		      const struct process_id *owner)
{
	int rc = boot_record(store);

	if (rc == 0)
		rc = begin(store);
	if (rc < 0)
		return rc;
	rc = session_insert(store, session);
	for (uint32_t i = 0; rc == 0 && i < session->gpu_count; i++)
		rc = gpu_insert(store, session->id, i, &session->gpu[i]);
	if (rc == 0 && owner)
		rc = holder_insert(store, session->id, owner);
	return finish(store, rc);
}

int store_session_resize(struct store *store, const struct store_session *session)
{
	int rc = begin(store);

	if (rc < 0)
		return rc;
	sqlite3_stmt *stmt = statement(store, SESSION_RESIZE);
	bind_text(stmt, 1, session->id);
	sqlite3_bind_int64(stmt, 2, session->compute);
	sqlite3_bind_int(stmt, 3, session->tolerance_applied);
	rc = step_once(stmt);
	for (uint32_t i = 0; rc == 0 && i < session->gpu_count; i++) {
		stmt = statement(store, GPU_RESIZE);

		bind_text(stmt, 1, session->id);
		sqlite3_bind_int64(stmt, 2, i);
		sqlite3_bind_int64(stmt, 3, (int64_t)session->gpu[i].bytes);
		sqlite3_bind_int64(stmt, 4, (int64_t)session->gpu[i].requested);
		rc = step_once(stmt);
	}
	return finish(store, rc);
}

static int step_with_id(struct store *store, enum statement which, const char *id)
{
	sqlite3_stmt *stmt = statement(store, which);

	bind_text(stmt, 1, id);
	return step_once(stmt);
}

/* Forgets what lies behind the last store->history ended sessions. Finding the edge walks over
 * all of those, so it is looked for once in a while only. */
static int history_trim(struct store *store)
{
	if (store->ended_untrimmed++ < HISTORY_TRIM_EVERY)
		return 0;
	store->ended_untrimmed = 0;
	sqlite3_stmt *stmt = statement(store, HISTORY_EDGE);
	sqlite3_bind_int64(stmt, 1, store->history);
	int step = sqlite3_step(stmt);
	int64_t edge = step == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
	sqlite3_reset(stmt);
	if (step != SQLITE_ROW)
		return errno_of(step);
	stmt = statement(store, HISTORY_GPUS_DELETE);
	sqlite3_bind_int64(stmt, 1, edge);
	int rc = step_once(stmt);
	if (rc < 0)
		return rc;
	stmt = statement(store, HISTORY_DELETE);
	sqlite3_bind_int64(stmt, 1, edge);
	return step_once(stmt);
}

int store_session_end(struct store *store, const struct store_session *session)
{
	int rc = begin(store);

	if (rc < 0)
		return rc;
	sqlite3_stmt *stmt = statement(store, SESSION_END);
	bind_text(stmt, 1, session->id);
	sqlite3_bind_int64(stmt, 2, session->ended);
	bind_text(stmt, 3, session->reason);
	sqlite3_bind_int64(stmt, 4, session->received);
	rc = step_once(stmt);
	for (uint32_t i = 0; rc == 0 && i < session->gpu_count; i++) {
		stmt = statement(store, GPU_PEAK);
		bind_text(stmt, 1, session->id);
		sqlite3_bind_int64(stmt, 2, i);
		sqlite3_bind_int64(stmt, 3, (int64_t)session->gpu[i].peak);
		rc = step_once(stmt);
	}
	if (rc == 0)
		rc = step_with_id(store, HOLDERS_END, session->id);
	if (rc == 0)
		rc = step_with_id(store, ATTACHED_END, session->id);
	if (rc == 0)
		rc = history_trim(store);
	return finish(store, rc);
}

int store_session_end_later(struct store *store, const struct store_session *session)
{
	int rc = unrecorded_add(store, session);

	if (rc < 0)
		return rc;
	rc = ends_write(&store->ends, session);
	if (rc < 0)
		unrecorded_drop(&store->unrecorded);
	return rc;
}

bool store_has_unrecorded(const struct store *store)
{
	return store->unrecorded != NULL;
}

unsigned store_retry(struct store *store)
{
	unsigned count = 0;

	(void)boot_record(store);
	for (struct unrecorded **at = &store->unrecorded; *at;) {
		if (store_session_end(store, &(*at)->session) < 0) {
			at = &(*at)->next;
			continue;
		}
		unrecorded_drop(at);
		count++;
	}
	if (count && !store->unrecorded)
		ends_empty(&store->ends);
	return count;
}

int store_holder_add(struct store *store, const char *id, const struct process_id *process)
{
	return holder_insert(store, id, process);
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
	sqlite3_stmt *stmt = statement(store, GPUS_OF);
	int step;

	bind_text(stmt, 1, session->id);
	session->gpu_count = 0;
	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && session->gpu_count < PLACE_GPUS_MAX) {
		struct store_gpu *gpu = &session->gpu[session->gpu_count++];

		column_text(stmt, 0, gpu->uuid_text, sizeof(gpu->uuid_text));
		column_text(stmt, 1, gpu->name, sizeof(gpu->name));
		gpu->index = (uint32_t)sqlite3_column_int64(stmt, 2);
		gpu->bytes = (uint64_t)sqlite3_column_int64(stmt, 3);
		gpu->requested = (uint64_t)sqlite3_column_int64(stmt, 4);
		gpu->peak = (uint64_t)sqlite3_column_int64(stmt, 5);
	}
	sqlite3_reset(stmt);
	return errno_of(step);
}

static int session_read(struct store *store, sqlite3_stmt *stmt, struct store_session *ret)
{
	column_text(stmt, 0, ret->id, sizeof(ret->id));
	column_text(stmt, 1, ret->name, sizeof(ret->name));
	ret->uid = (uid_t)sqlite3_column_int64(stmt, 2);
	ret->gid = (gid_t)sqlite3_column_int64(stmt, 3);
	ret->ephemeral = sqlite3_column_int(stmt, 4) != 0;
	ret->tolerance_applied = sqlite3_column_int(stmt, 5) != 0;
	ret->kind = (enum place_kind)sqlite3_column_int(stmt, 6);
	ret->compute = (uint32_t)sqlite3_column_int64(stmt, 7);
	ret->created = sqlite3_column_int64(stmt, 8);
	ret->ends_at = sqlite3_column_int64(stmt, 9);
	ret->ended = sqlite3_column_int64(stmt, 10);
	column_text(stmt, 11, ret->reason, sizeof(ret->reason));
	ret->received = sqlite3_column_int64(stmt, 12);
	return gpus_read(store, ret);
}

int store_sessions_each(struct store *store, bool ended, uint32_t limit, store_session_cb cb,
			void *arg)
{
	sqlite3_stmt *stmt = statement(store, ended ? SESSIONS_ENDED : SESSIONS_LIVING);
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
	return rc < 0 ? rc : errno_of(step);
}

static int session_found(struct store *store, sqlite3_stmt *stmt, struct store_session *ret)
{
	int step = sqlite3_step(stmt);
	int rc = step == SQLITE_ROW    ? session_read(store, stmt, ret)
		 : step == SQLITE_DONE ? -ENOENT
				       : errno_of(step);
	sqlite3_reset(stmt);
	return rc;
}

int store_session_find(struct store *store, const char *id, struct store_session *ret)
{
	sqlite3_stmt *stmt = statement(store, SESSION_FIND);

	bind_text(stmt, 1, id);
	return session_found(store, stmt, ret);
}

int store_session_named(struct store *store, uid_t uid, const char *name, struct store_session *ret)
{
	sqlite3_stmt *stmt = statement(store, SESSION_NAMED);

	sqlite3_bind_int64(stmt, 1, uid);
	bind_text(stmt, 2, name);
	return session_found(store, stmt, ret);
}

int store_holders_each(struct store *store, const char *id, store_holder_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, HOLDERS_OF);
	int step, rc = 0;

	bind_text(stmt, 1, id);
	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct process_id process = {
			.pid = (pid_t)sqlite3_column_int64(stmt, 0),
			.birth = (uint64_t)sqlite3_column_int64(stmt, 1),
		};

		rc = cb(arg, &process);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : errno_of(step);
}

/* ---- attached processes ------------------------------------------------------------------ */

int store_attached_put(struct store *store, const char *id, uint32_t slot,
		       const struct process_id *process)
{
	sqlite3_stmt *stmt = statement(store, ATTACHED_PUT);

	bind_text(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, slot);
	sqlite3_bind_int64(stmt, 3, process->pid);
	sqlite3_bind_int64(stmt, 4, (int64_t)process->birth);
	return step_once(stmt);
}

int store_attached_remove(struct store *store, const char *id, uint32_t slot)
{
	sqlite3_stmt *stmt = statement(store, ATTACHED_REMOVE);

	bind_text(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, slot);
	return step_once(stmt);
}

int store_attached_each(struct store *store, const char *id, store_attached_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, ATTACHED_OF);
	int step, rc = 0;

	bind_text(stmt, 1, id);
	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct process_id process = {
			.pid = (pid_t)sqlite3_column_int64(stmt, 1),
			.birth = (uint64_t)sqlite3_column_int64(stmt, 2),
		};

		rc = cb(arg, (uint32_t)sqlite3_column_int64(stmt, 0), &process);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : errno_of(step);
}

/* ---- quotas ------------------------------------------------------------------------------ */

int store_quota_put(struct store *store, const struct store_quota *quota)
{
	sqlite3_stmt *stmt = statement(store, QUOTA_PUT);

	sqlite3_bind_int(stmt, 1, (int)quota->kind);
	sqlite3_bind_int64(stmt, 2, quota->id);
	/* QUOTA_NONE comes out as -1, and back. */
	sqlite3_bind_int64(stmt, 3, (int64_t)quota->quota.vram_bytes);
	sqlite3_bind_int64(stmt, 4, (int64_t)quota->quota.sessions);
	sqlite3_bind_int64(stmt, 5, (int64_t)quota->quota.gpus);
	return step_synced(store, stmt);
}

int store_quota_remove(struct store *store, enum quota_kind kind, uint32_t id)
{
	sqlite3_stmt *stmt = statement(store, QUOTA_REMOVE);

	sqlite3_bind_int(stmt, 1, (int)kind);
	sqlite3_bind_int64(stmt, 2, id);
	return step_synced(store, stmt);
}

int store_quotas_each(struct store *store, store_quota_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, QUOTAS);
	int step, rc = 0;

	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct store_quota quota = {
			.kind = (enum quota_kind)sqlite3_column_int(stmt, 0),
			.id = (uint32_t)sqlite3_column_int64(stmt, 1),
			.quota = {.vram_bytes = (uint64_t)sqlite3_column_int64(stmt, 2),
				  .sessions = (uint64_t)sqlite3_column_int64(stmt, 3),
				  .gpus = (uint64_t)sqlite3_column_int64(stmt, 4)},
		};

		rc = cb(arg, &quota);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : errno_of(step);
}

/* ---- context costs ----------------------------------------------------------------------- */

int store_context_get(struct store *store, const char *model, const char *driver,
		      uint64_t *ret_bytes)
{
	sqlite3_stmt *stmt = statement(store, CONTEXT_GET);

	bind_text(stmt, 1, model);
	bind_text(stmt, 2, driver);
	int step = sqlite3_step(stmt);
	if (step == SQLITE_ROW)
		*ret_bytes = (uint64_t)sqlite3_column_int64(stmt, 0);
	sqlite3_reset(stmt);
	return step == SQLITE_DONE ? -ENOENT : errno_of(step);
}

int store_context_put(struct store *store, const char *model, const char *driver, uint64_t bytes)
{
	sqlite3_stmt *stmt = statement(store, CONTEXT_PUT);

	bind_text(stmt, 1, model);
	bind_text(stmt, 2, driver);
	sqlite3_bind_int64(stmt, 3, (int64_t)bytes);
	return step_once(stmt);
}

/* ---- time-slicing ------------------------------------------------------------------------ */

static int slicing_put(struct store *store, const struct store_slicing *slicing)
{
	sqlite3_stmt *stmt = statement(store, SLICING_PUT);

	bind_text(stmt, 1, slicing->uuid_text);
	sqlite3_bind_int(stmt, 2, (int)slicing->setting.mode);
	sqlite3_bind_int64(stmt, 3, (int64_t)slicing->setting.lease_ns);
	sqlite3_bind_int64(stmt, 4, slicing->setting.granularity_ppm);
	return step_once(stmt);
}

int store_slicing_put(struct store *store, const struct store_slicing *slicing, uint32_t count)
{
	sync_each_commit(store, true);
	int rc = begin(store);
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = slicing_put(store, &slicing[i]);
	rc = finish(store, rc);
	sync_each_commit(store, false);
	return rc;
}

int store_slicing_each(struct store *store, store_slicing_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, SLICINGS);
	int step, rc = 0;

	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct store_slicing slicing = {
			.setting = {.mode = (enum compute_mode)sqlite3_column_int(stmt, 1),
				    .lease_ns = (uint64_t)sqlite3_column_int64(stmt, 2),
				    .granularity_ppm = (uint32_t)sqlite3_column_int64(stmt, 3)},
		};

		column_text(stmt, 0, slicing.uuid_text, sizeof(slicing.uuid_text));
		rc = cb(arg, &slicing);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : errno_of(step);
}
