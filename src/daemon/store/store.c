#include "daemon/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/store/ends.h"
#include "daemon/store/store_db.h"

/* The log (16 MiB) is put into the database itself so seldom, as that waits for the disk. */
#define IN_MEMORY "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"

static const char schema_text[] =
	"CREATE TABLE session(id TEXT PRIMARY KEY, name TEXT, uid INTEGER, gid INTEGER,"
	" ephemeral INTEGER,"
	" tolerance INTEGER, kind INTEGER, compute INTEGER, created INTEGER, ends_at INTEGER,"
	" ended INTEGER, reason TEXT,"
	/* The share of GPU time that an ended session received; -1: it is not known. */
	" received INTEGER NOT NULL DEFAULT -1,"
	/* The owner's supplementary groups when it asked, 32 bits each, and the user to whose
	 * history the session counts (daemon/host/owner.h). */
	" groups BLOB, owner INTEGER NOT NULL DEFAULT -1,"
	/* When the request came. */
	" asked INTEGER NOT NULL DEFAULT 0);"
	"CREATE INDEX session_ended ON session(ended, created);"
	"CREATE INDEX session_owner ON session(owner, ended);"
	"CREATE TABLE session_gpu(session TEXT, position INTEGER, uuid TEXT, name TEXT,"
	" number INTEGER, bytes INTEGER, requested INTEGER, peak INTEGER,"
	" instance TEXT NOT NULL DEFAULT '', profile TEXT NOT NULL DEFAULT '',"
	" PRIMARY KEY(session, position)) WITHOUT ROWID;"
	"CREATE TABLE holder(session TEXT, pid INTEGER, start_time INTEGER);"
	"CREATE INDEX holder_session ON holder(session);"
	/* Commands of `carve run`, whose descendants are the session's, and the mount namespace
	 * that was made for the command, or 0. */
	"CREATE TABLE command(session TEXT, pid INTEGER, start_time INTEGER, namespace INTEGER,"
	" PRIMARY KEY(session, pid)) WITHOUT ROWID;"
	/* Processes that the next daemon may not be allowed to look into. */
	"CREATE TABLE attached(session TEXT, slot INTEGER, pid INTEGER, start_time INTEGER,"
	" PRIMARY KEY(session, slot)) WITHOUT ROWID;"
	/* Memory that exporters left, for which nobody is ended. */
	"CREATE TABLE inherited(session TEXT PRIMARY KEY, bytes INTEGER) WITHOUT ROWID;"
	"CREATE TABLE exporter(session TEXT, position INTEGER, uuid TEXT, slice INTEGER,"
	" remains INTEGER, kept INTEGER, given INTEGER, exports INTEGER,"
	" PRIMARY KEY(session, position)) WITHOUT ROWID;"
	/* Processes of a session that the policy ended. */
	"CREATE TABLE over_killed(session TEXT PRIMARY KEY, killed INTEGER, held INTEGER)"
	" WITHOUT ROWID;"
	"CREATE TABLE quota(kind INTEGER, id INTEGER, vram INTEGER, sessions INTEGER,"
	" gpus INTEGER, PRIMARY KEY(kind, id));"
	"CREATE TABLE context(model TEXT, driver TEXT, bytes INTEGER, PRIMARY KEY(model, driver));"
	/* Where a driver shows managed memory in processes' figures (enum managed_shows). */
	"CREATE TABLE figures(model TEXT, driver TEXT, managed INTEGER,"
	" PRIMARY KEY(model, driver)) WITHOUT ROWID;"
	/* How GPUs' time is sliced. */
	"CREATE TABLE slicing(uuid TEXT PRIMARY KEY, mode INTEGER, lease INTEGER,"
	" granularity INTEGER);"
	/* The life of the host in which its sessions began; '': it was not known. */
	"CREATE TABLE host(boot TEXT NOT NULL); INSERT INTO host VALUES('');"
	/* GPUs whose MIG instances carve makes, the instances, and whose they were. */
	"CREATE TABLE mig_role(uuid TEXT PRIMARY KEY) WITHOUT ROWID;"
	"CREATE TABLE mig_instance(gpu TEXT, profile INTEGER, start INTEGER, size INTEGER,"
	" state INTEGER, generation INTEGER, instance TEXT, bytes INTEGER, session TEXT,"
	" since INTEGER, PRIMARY KEY(gpu, profile, start)) WITHOUT ROWID;"
	/* Cgroups with a limit of the driver's (daemon/settle/cgroups.h). */
	"CREATE TABLE cgroup_limit(path TEXT PRIMARY KEY, session TEXT, made INTEGER)"
	" WITHOUT ROWID;"
	/* The GPUs of the host: a lost GPU does not tell its name. */
	"CREATE TABLE gpu(uuid TEXT PRIMARY KEY, number INTEGER, name TEXT, pci TEXT,"
	" total INTEGER, reserved INTEGER, mig INTEGER) WITHOUT ROWID;"
	/* Requests that wait for room, in the order of the line. */
	"CREATE TABLE waiting(id TEXT PRIMARY KEY, uid INTEGER, since INTEGER,"
	" deadline INTEGER, created INTEGER, passed INTEGER, body BLOB) WITHOUT ROWID;";

/* The figures of struct tally. */
#define TALLY_COLUMNS                                                                       \
	" held INTEGER NOT NULL, gpu_ns INTEGER NOT NULL, used INTEGER NOT NULL,"           \
	" measured INTEGER NOT NULL, asked INTEGER NOT NULL, peak INTEGER NOT NULL,"        \
	" peak_bytes INTEGER NOT NULL, sessions INTEGER NOT NULL, slices INTEGER NOT NULL," \
	" jobs INTEGER NOT NULL, refusals INTEGER NOT NULL, waits INTEGER NOT NULL,"        \
	" wait INTEGER NOT NULL,"
#define TALLY_NAMES_OF                                                                    \
	"held, gpu_ns, used, measured, asked, peak, peak_bytes, sessions, slices, jobs, " \
	"refusals, waits, wait"
#define TALLY_ADDED                                                                            \
	"held=held+?1, gpu_ns=gpu_ns+?2, used=used+?3, measured=measured+?4, asked=asked+?5, " \
	"peak=peak+?6, peak_bytes=max(peak_bytes, ?7), sessions=sessions+?8, "                 \
	"slices=slices+?9, jobs=jobs+?10, refusals=refusals+?11, waits=waits+?12, wait=wait+?13"

static const char *const migrations[] = {
	/* Tallies of users and of names, by days (core/tally.h). The table tally_state has the
	 * moment up to which living sessions are counted, in the life of the host that it names. */
	"CREATE TABLE tally(day INTEGER, uid INTEGER, gid INTEGER, gpu TEXT," TALLY_COLUMNS
	" PRIMARY KEY(day, uid, gid, gpu)) WITHOUT ROWID;"
	"CREATE TABLE tally_name(day INTEGER, uid INTEGER, name TEXT," TALLY_COLUMNS
	" PRIMARY KEY(day, uid, name)) WITHOUT ROWID;"
	"CREATE TABLE tally_state(one INTEGER PRIMARY KEY CHECK(one = 1), until INTEGER,"
	" until_realtime INTEGER, began INTEGER, boot TEXT);",
	/* Events. `charged`: the user against whose events it counts, or -1. The random ID is that
	 * of this database, whose numbers the events have. */
	"CREATE TABLE event(number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL,"
	" kind TEXT NOT NULL, uid INTEGER, login INTEGER, pid INTEGER, process TEXT,"
	" owner INTEGER, charged INTEGER NOT NULL, subject TEXT, before TEXT, after TEXT,"
	" text TEXT);"
	"CREATE INDEX event_at ON event(at);"
	"CREATE INDEX event_charged ON event(charged, number);"
	"CREATE INDEX event_of_users ON event(number) WHERE charged >= 0;"
	"CREATE TABLE event_log(id TEXT NOT NULL, boot TEXT NOT NULL);"
	"INSERT INTO event_log VALUES(lower(hex(randomblob(8))), '');",
	/* The cause of a session's end (enum store_end), and the time that was requested. A user's
	 * session is found by its name, and the last current one without a name. */
	"ALTER TABLE session ADD COLUMN ended_by INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE session ADD COLUMN timeout INTEGER NOT NULL DEFAULT 0;"
	"CREATE INDEX session_name ON session(uid, name, ended) WHERE name<>'';"
	"CREATE INDEX session_current ON session(uid, ended) WHERE ephemeral=0 AND name='';",
	/* The notice, and the users who have seen it. */
	"CREATE TABLE notice(one INTEGER PRIMARY KEY CHECK(one = 1), number INTEGER, at INTEGER,"
	" uid INTEGER, text TEXT);"
	"CREATE TABLE notice_seen(uid INTEGER PRIMARY KEY);",
	/* GPUs that an administrator drained. */
	"CREATE TABLE drain(uuid TEXT PRIMARY KEY, reason TEXT NOT NULL, uid INTEGER NOT NULL,"
	" since INTEGER NOT NULL) WITHOUT ROWID;",
	/* GPU-hours of a month, in milliseconds; -1: no limit is set. */
	"ALTER TABLE quota ADD COLUMN hours INTEGER NOT NULL DEFAULT -1;",
	/* The pod of Kubernetes for which a session is. */
	"ALTER TABLE session ADD COLUMN pod TEXT NOT NULL DEFAULT '';",
	/* How many ended sessions there are: of each owner, and of all (owner -2). To count them
	 * takes tens of milliseconds. */
	"CREATE TABLE history(owner INTEGER PRIMARY KEY, count INTEGER NOT NULL);"
	"INSERT INTO history SELECT owner, count(*) FROM session WHERE ended > 0 GROUP BY owner;"
	"INSERT INTO history SELECT -2, count(*) FROM session WHERE ended > 0;"
	"CREATE TRIGGER session_ends AFTER UPDATE OF ended ON session"
	" WHEN OLD.ended=0 AND NEW.ended > 0 BEGIN"
	" INSERT OR IGNORE INTO history VALUES(NEW.owner, 0);"
	" UPDATE history SET count=count+1 WHERE owner IN (NEW.owner, -2); END;"
	"CREATE TRIGGER session_forgotten AFTER DELETE ON session WHEN OLD.ended > 0 BEGIN"
	" UPDATE history SET count=count-1 WHERE owner IN (OLD.owner, -2); END;",
	/* Commands that users had recorded with their sessions. */
	"CREATE TABLE recorded(number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL,"
	" uid INTEGER NOT NULL, began INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0,"
	" exit_code INTEGER NOT NULL DEFAULT 0, text TEXT NOT NULL);"
	"CREATE INDEX recorded_session ON recorded(session, number);",
	/* The processes above the process that caused an event. */
	"ALTER TABLE event ADD COLUMN parents TEXT NOT NULL DEFAULT '';",
	NULL,
};

static const struct database_schema schema = {
	.base = 17, .text = schema_text, .migrations = migrations};

/* As session_fields of store_session.c, and the two columns behind them. */
#define SESSION_COLUMNS                                                                           \
	"id, name, uid, gid, tolerance, kind, compute, created, ends_at, asked, timeout, ended, " \
	"reason, received, ifnull(killed, 0), ifnull(held, 0), session.rowid, ended_by, pod, "    \
	"ephemeral, groups "                                                                      \
	"FROM session LEFT JOIN over_killed ON session=id "

/* The ?1 oldest ended sessions, of all or of owner ?2. Many may have ended at one moment. */
#define HISTORY_OLDEST "FROM session WHERE ended > 0 ORDER BY ended, created, rowid LIMIT ?1"
#define HISTORY_OWNER_OLDEST \
	"FROM session WHERE owner=?2 AND ended > 0 ORDER BY ended, rowid LIMIT ?1"

static const char *const texts[STATEMENTS] = {
	[BEGIN] = "BEGIN IMMEDIATE",
	[COMMIT] = "COMMIT",
	[ROLLBACK] = "ROLLBACK",
	[SESSION_ADD] =
		"INSERT INTO session(id, name, uid, gid, tolerance, kind, compute, "
		"created, ends_at, asked, timeout, ended, reason, ephemeral, groups, owner, pod) "
		"VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,0,'',?20,?21,?22,?19)",
	/* Parameters of session_gpu are those of gpu_fields in store_session.c. */
	[GPU_ADD] = "INSERT INTO session_gpu(session, position, uuid, name, number, bytes, "
		    "requested, peak, instance, profile) VALUES(?1,?2,?3,?4,?5,?6,?7,0,?8,?9)",
	[GPU_MOVE] = "UPDATE session_gpu SET uuid=?3, name=?4, number=?5, bytes=?6, "
		     "requested=?7, instance=?8, profile=?9 WHERE session=?1 AND position=?2",
	[GPU_RESIZE] = "UPDATE session_gpu SET bytes=?6, requested=?7 WHERE session=?1 AND "
		       "position=?2",
	[SESSION_RESIZE] = "UPDATE session SET compute=?2, tolerance=?3, ends_at=?4 WHERE id=?1",
	[SESSION_END] = "UPDATE session SET ended=?2, reason=?3, received=?4, ended_by=?5 WHERE "
			"id=?1",
	[SESSION_RENAME] = "UPDATE session SET id=?2 WHERE id=?1 AND ended > 0",
	[GPUS_RENAME] = "UPDATE session_gpu SET session=?2 WHERE session=?1",
	[OVER_RENAME] = "UPDATE over_killed SET session=?2 WHERE session=?1",
	[GPU_PEAK] = "UPDATE session_gpu SET peak=?10 WHERE session=?1 AND position=?2",
	[HOLDERS_END] = "DELETE FROM holder WHERE session=?1",
	[HISTORY_COUNT] = "SELECT count FROM history WHERE owner=?1",
	[HISTORY_OWNER_GPUS_DELETE] =
		"DELETE FROM session_gpu WHERE session IN (SELECT id " HISTORY_OWNER_OLDEST ")",
	[HISTORY_OWNER_OVER_DELETE] =
		"DELETE FROM over_killed WHERE session IN (SELECT id " HISTORY_OWNER_OLDEST ")",
	[HISTORY_OWNER_RECORDED_DELETE] =
		"DELETE FROM recorded WHERE session IN (SELECT id " HISTORY_OWNER_OLDEST ")",
	[HISTORY_OWNER_DELETE] =
		"DELETE FROM session WHERE rowid IN (SELECT rowid " HISTORY_OWNER_OLDEST ")",
	[HISTORY_GPUS_DELETE] =
		"DELETE FROM session_gpu WHERE session IN (SELECT id " HISTORY_OLDEST ")",
	[HISTORY_OVER_DELETE] =
		"DELETE FROM over_killed WHERE session IN (SELECT id " HISTORY_OLDEST ")",
	[HISTORY_RECORDED_DELETE] =
		"DELETE FROM recorded WHERE session IN (SELECT id " HISTORY_OLDEST ")",
	[HISTORY_DELETE] = "DELETE FROM session WHERE rowid IN (SELECT rowid " HISTORY_OLDEST ")",
	[HOLDER_ADD] = "INSERT INTO holder VALUES(?,?,?)",
	[COMMAND_PUT] = "INSERT OR REPLACE INTO command VALUES(?1,?2,?3,?4)",
	[COMMAND_REMOVE] = "DELETE FROM command WHERE session=?1 AND pid=?2 AND start_time=?3",
	[COMMANDS_OF] = "SELECT pid, start_time, namespace FROM command WHERE session=?1",
	[COMMANDS_END] = "DELETE FROM command WHERE session=?1",
	[SESSIONS_LIVING] = "SELECT " SESSION_COLUMNS "WHERE ended=0 ORDER BY created",
	[SESSIONS_ENDED] = "SELECT * FROM (SELECT " SESSION_COLUMNS "WHERE ended>0 ORDER BY ended "
			   "DESC LIMIT ?1) ORDER BY ended",
	[SESSIONS_ENDED_AFTER] =
		"SELECT " SESSION_COLUMNS "WHERE ended>0 AND (ended, created, session.rowid) > "
		"(?1, ?2, ?3) ORDER BY ended, created, session.rowid LIMIT ?4",
	[SESSION_FIND] = "SELECT " SESSION_COLUMNS "WHERE id=?1",
	[SESSION_NAMED] = "SELECT " SESSION_COLUMNS
			  "WHERE ended>0 AND uid=?1 AND name=?2 AND name<>'' ORDER BY ended DESC "
			  "LIMIT 1",
	[SESSION_LAST_CURRENT] =
		"SELECT " SESSION_COLUMNS "WHERE ended>0 AND uid=?1 AND ephemeral=0 AND name='' "
		"ORDER BY ended DESC LIMIT 1",
	[GPUS_OF] = "SELECT session, position, uuid, name, number, bytes, requested, instance, "
		    "profile, peak FROM session_gpu WHERE session=?1 ORDER BY position",
	[HOLDERS_OF] = "SELECT pid, start_time, 0 FROM holder WHERE session=?1",
	[QUOTA_PUT] = "INSERT OR REPLACE INTO quota(kind, id, vram, sessions, gpus, hours) "
		      "VALUES(?,?,?,?,?,?)",
	[QUOTA_REMOVE] = "DELETE FROM quota WHERE kind=?1 AND id=?2",
	[QUOTAS] = "SELECT kind, id, vram, sessions, gpus, hours FROM quota",
	[CONTEXT_GET] = "SELECT bytes, ifnull(managed, 2) FROM context LEFT JOIN figures "
			"USING(model, driver) WHERE model=?1 AND driver=?2",
	[CONTEXT_PUT] = "INSERT OR REPLACE INTO context VALUES(?,?,?)",
	[FIGURES_PUT] = "INSERT OR REPLACE INTO figures VALUES(?,?,?)",
	[ATTACHED_PUT] = "INSERT OR REPLACE INTO attached VALUES(?1,?4,?2,?3)",
	[ATTACHED_REMOVE] = "DELETE FROM attached WHERE session=?1 AND slot=?2",
	[ATTACHED_OF] = "SELECT pid, start_time, slot FROM attached WHERE session=?1",
	[ATTACHED_END] = "DELETE FROM attached WHERE session=?1",
	[SLICING_PUT] = "INSERT OR REPLACE INTO slicing VALUES(?,?,?,?)",
	[SLICINGS] = "SELECT uuid, mode, lease, granularity FROM slicing",
	[DRAIN_PUT] = "INSERT OR REPLACE INTO drain VALUES(?1,?2,?3,?4)",
	[DRAIN_REMOVE] = "DELETE FROM drain WHERE uuid=?1",
	[DRAINS] = "SELECT uuid, reason, uid, since FROM drain ORDER BY since, uuid",
	[GPU_PUT] = "INSERT OR REPLACE INTO gpu VALUES(?1,?2,?3,?4,?5,?6,?7)",
	[GPU_REMOVE] = "DELETE FROM gpu WHERE uuid=?1",
	[GPUS] = "SELECT uuid, number, name, pci, total, reserved, mig FROM gpu",
	[LIVING_COUNT] = "SELECT count(*) FROM session WHERE ended=0",
	[BOOT_GET] = "SELECT boot FROM host",
	[BOOT_PUT] = "UPDATE host SET boot=?1",
	[BOOT_END_PEAKS] = "UPDATE session_gpu SET peak=-1 WHERE session IN (SELECT id FROM "
			   "session WHERE ended=0)",
	[BOOT_END_SESSIONS] = "UPDATE session SET ended=max(created, ?1), reason=?2, ended_by=?3 "
			      "WHERE ended=0",

	[BOOT_END_HOLDERS] = "DELETE FROM holder",
	[BOOT_END_COMMANDS] = "DELETE FROM command",
	[BOOT_END_ATTACHED] = "DELETE FROM attached",
	[BOOT_END_INHERITED] = "DELETE FROM inherited",
	[BOOT_END_EXPORTERS] = "DELETE FROM exporter",
	[BOOT_END_INSTANCES] = "DELETE FROM mig_instance",
	[BOOT_END_LIMITS] = "DELETE FROM cgroup_limit",
	[BOOT_END_WAITING] = "DELETE FROM waiting",
	[WAITING_PUT] = "INSERT OR REPLACE INTO waiting VALUES(?1,?2,?3,?4,?5,?6,?7)",
	[WAITING_PASSED] = "UPDATE waiting SET passed=?2 WHERE id=?1",
	[WAITING_REMOVE] = "DELETE FROM waiting WHERE id=?1",
	[WAITINGS] = "SELECT id, uid, since, deadline, created, passed, body FROM waiting "
		     "ORDER BY since, id",
	[LIMIT_PUT] = "INSERT OR REPLACE INTO cgroup_limit VALUES(?1,?2,?3)",
	[LIMIT_REMOVE] = "DELETE FROM cgroup_limit WHERE path=?1",
	[LIMITS] = "SELECT path, session, made FROM cgroup_limit",
	[MIG_ROLE_PUT] = "INSERT OR REPLACE INTO mig_role VALUES(?1)",
	[MIG_ROLE_REMOVE] = "DELETE FROM mig_role WHERE uuid=?1",
	[MIG_ROLES] = "SELECT uuid FROM mig_role",
	[MIG_PUT] = "INSERT OR REPLACE INTO mig_instance VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)",
	[MIG_REMOVE] = "DELETE FROM mig_instance WHERE gpu=?1 AND profile=?2 AND start=?3",
	[MIG_ALL] = "SELECT gpu, profile, start, size, state, generation, instance, bytes, "
		    "session, since FROM mig_instance",
	[INHERITED_PUT] = "INSERT OR REPLACE INTO inherited VALUES(?1,?2)",
	[INHERITED_REMOVE] = "DELETE FROM inherited WHERE session=?1",
	[INHERITED_OF] = "SELECT bytes FROM inherited WHERE session=?1",
	[OVER_PUT] = "INSERT OR REPLACE INTO over_killed VALUES(?1,?2,?3)",
	[EXPORTER_PUT] = "INSERT OR REPLACE INTO exporter VALUES(?1,?2,?3,?4,?5,?6,?7,?8)",
	[EXPORTER_REMOVE] = "DELETE FROM exporter WHERE session=?1 AND position=?2",
	[EXPORTERS] = "SELECT session, position, uuid, slice, remains, kept, given, exports "
		      "FROM exporter",
	[RECORDED_ADD] = "INSERT INTO recorded(session, uid, began, text) VALUES(?1,?2,?3,?4)",
	[RECORDED_TRIM] =
		"DELETE FROM recorded WHERE session=?1 AND number <= (SELECT number FROM recorded "
		"WHERE session=?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
	[RECORDED_END] = "UPDATE recorded SET ended=?2, exit_code=?3 WHERE number=?1",
	[RECORDED_FIND] = "SELECT number, session, uid, began, ended, exit_code, text FROM "
			  "recorded WHERE number=?1",
	[RECORDED_OF] = "SELECT number, session, uid, began, ended, exit_code, text FROM recorded "
			"WHERE session=?1 ORDER BY number",
	[RECORDED_RENAME] = "UPDATE recorded SET session=?2 WHERE session=?1",
	[TALLY_STATE_GET] = "SELECT iif(boot=?1 AND boot<>'', until, 0), until_realtime, began "
			    "FROM tally_state",
	[TALLY_STATE_PUT] = "INSERT OR REPLACE INTO tally_state VALUES(1,?1,?2,?3,?4)",
	[TALLY_GROUPS] = "SELECT sum(gid=?3), count(DISTINCT gid) FROM tally WHERE day=?1 AND "
			 "uid=?2",
	[TALLY_NAMES] = "SELECT sum(name=?3), count(*) FROM tally_name WHERE day=?1 AND uid=?2",
	[TALLY_PUT] = "INSERT INTO tally(day, uid, gid, gpu, " TALLY_NAMES_OF
		      ") VALUES(?14,?15,?16,?17,?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13) ON "
		      "CONFLICT(day, uid, gid, gpu) DO UPDATE SET " TALLY_ADDED,
	[TALLY_NAME_PUT] = "INSERT INTO tally_name(day, uid, name, " TALLY_NAMES_OF
			   ") VALUES(?14,?15,?16,?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13) ON "
			   "CONFLICT(day, uid, name) DO UPDATE SET " TALLY_ADDED,
	[TALLY_SUMS] = "SELECT uid, gid, sum(gpu_ns) FROM tally WHERE day >= ?1 GROUP BY uid, gid",
	[TALLY_RECENT] = "SELECT 1 FROM tally WHERE EXISTS(SELECT 1 FROM tally WHERE day < ?1) AND "
			 "day >= ?2 AND day < ?3 LIMIT 1",
	[TALLY_TRIM] = "DELETE FROM tally WHERE (day, uid, gid, gpu) IN (SELECT day, uid, gid, gpu "
		       "FROM tally WHERE day < ?1 ORDER BY day, uid, gid, gpu LIMIT ?2)",
	[TALLY_NAME_TRIM] = "DELETE FROM tally_name WHERE (day, uid, name) IN (SELECT day, uid, "
			    "name FROM tally_name WHERE day < ?1 ORDER BY day, uid, name LIMIT ?2)",
	[EVENT_LOG] = "SELECT id, boot, ifnull((SELECT seq FROM sqlite_sequence WHERE "
		      "name='event'), 0) FROM event_log",
	[EVENT_BOOT] = "UPDATE event_log SET boot=?1",
	/* As event_fields of store_events.c. */
	[EVENT_ADD] = "INSERT INTO event(number, at, kind, uid, login, pid, process, owner, "
		      "charged, subject, before, after, text, parents) "
		      "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)",
	[EVENTS_FROM] = "SELECT number, at, kind, uid, login, pid, process, owner, charged, "
			"subject, before, after, text, parents FROM event WHERE number>=?1 ORDER "
			"BY number "
			"LIMIT ?2",
	[EVENT_SINCE] = "SELECT number FROM event WHERE at>=?1 ORDER BY at LIMIT 1",
	[EVENTS_COUNT] = "SELECT (SELECT count(*) FROM event WHERE charged >= 0), "
			 "(SELECT count(*) FROM event WHERE charged=-1)",
	[EVENTS_TRIM_USER] = "DELETE FROM event WHERE charged=?1 AND number <= (SELECT number FROM "
			     "event WHERE charged=?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
	[EVENT_TRIM_USERS] = "DELETE FROM event WHERE number=(SELECT number FROM event WHERE "
			     "charged >= 0 ORDER BY number LIMIT 1)",
	[EVENT_TRIM_NODE] = "DELETE FROM event WHERE number=(SELECT number FROM event WHERE "
			    "charged=-1 ORDER BY number LIMIT 1)",
	[EVENTS_EXPIRE] = "DELETE FROM event WHERE number IN (SELECT number FROM event WHERE "
			  "at < ?1 ORDER BY at LIMIT 64)",
	[NOTICE_GET] = "SELECT number, at, uid, text FROM notice",
	[NOTICE_PUT] = "INSERT OR REPLACE INTO notice VALUES(1,?1,?2,?3,?4)",
	[NOTICE_FORGET] = "DELETE FROM notice_seen",
	[NOTICE_SEEN] = "SELECT count(*) FROM notice_seen WHERE uid=?1",
	[NOTICE_SEE] = "INSERT OR IGNORE INTO notice_seen VALUES(?1)",
};

/* ---- statements -------------------------------------------------------------------------- */

sqlite3_stmt *store_statement(struct store *store, enum statement which)
{
	sqlite3_stmt *stmt = store->statement[which];

	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return stmt;
}

int store_put(struct store *store, enum statement which, const struct record_field *fields,
	      const void *record)
{
	return store_step(row_bind_record(store_statement(store, which), fields, record));
}

int store_begin(struct store *store)
{
	return store_step(store_statement(store, BEGIN));
}

int store_finish(struct store *store, int rc)
{
	if (rc == 0)
		rc = store_step(store_statement(store, COMMIT));
	if (rc < 0)
		(void)store_step(store_statement(store, ROLLBACK));
	return rc;
}

void store_sync_each_commit(struct store *store, bool wanted)
{
	if (!store->on_disk)
		return;
	(void)sqlite3_exec(store->database.db,
			   wanted ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", NULL,
			   NULL, NULL);
}

int store_step_synced(struct store *store, sqlite3_stmt *stmt)
{
	store_sync_each_commit(store, true);
	int rc = store_step(stmt);
	store_sync_each_commit(store, false);
	return rc;
}

/* ---- opening ----------------------------------------------------------------------------- */

/* A path that cannot be written is said in one word, whichever of them it is. */
static int file_open(struct store *store, const char *path)
{
	int rc = database_open(&store->database, path);

	return rc == -EACCES ? -EROFS : rc;
}

#define DATABASE_GUIDE "; /usr/share/doc/carve/admin/backup.md says how to restore a copy"

void store_explain(const char *path, int rc, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED, "cannot use the session database %s: %s", path,
		  database_fault(rc));
	if (rc == -EUCLEAN || rc == -EPROTONOSUPPORT)
		error_hint(err,
			   "%smove it away, best after running workloads have ended: they keep "
			   "their limits, but their sessions are forgotten, and what they "
			   "may still take is promised to others%s",
			   rc == -EUCLEAN ? "" : "install that version again, or ",
			   rc == -EUCLEAN ? DATABASE_GUIDE : "");
}

int store_check(const char *path, struct error *err)
{
	int rc = database_check(path, &schema);

	if (rc < 0)
		store_explain(path, rc, err);
	return rc;
}

/* The ends that the last daemon could not record. Without that file a full disk keeps sessions from
 * ending, no more. */
static int ends_take_up(struct store *store, const char *path)
{
	(void)ends_open(&store->ends, path);
	int rc = ends_each(&store->ends, store_unrecorded_add, store);
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
	store->history_rate.most = STORE_HISTORY_PER_MINUTE_DEFAULT;
	store->ends = ENDS_NONE;
	store->on_disk = on_disk;
	/* Sessions need to survive this process, not the machine: no sync on each grant. But where
	 * it is on a disk, what a power cut leaves has to be a database still. */
	store->database = (struct database){.settings = on_disk ? DATABASE_ON_DISK : IN_MEMORY,
					    .keeps_room = on_disk,
					    .schema = &schema,
					    .texts = texts,
					    .statements = store->statement,
					    .count = STATEMENTS};
	int rc = file_open(store, path);
	if (rc == 0)
		rc = ends_take_up(store, path);
	if (rc == 0) {
		*ret = store;
		return 0;
	}
	store_explain(path, rc, err);
	store_close(store);
	return rc;
}

/* ---- files that were removed ------------------------------------------------------------- */

const char *store_missing(const struct store *store)
{
	const char *end = database_missing(&store->database);

	if (!end)
		return ends_intact(&store->ends, store->database.path) ? NULL : "carve.db-ends";
	return !*end ? "carve.db" : !strcmp(end, "-wal") ? "carve.db-wal" : "carve.db-shm";
}

int store_copy(const struct store *store)
{
	return database_copy(&store->database);
}

const char *store_path(const struct store *store)
{
	return store->database.path;
}

void store_close(struct store *store)
{
	if (!store)
		return;
	while (store->unrecorded)
		store_unrecorded_drop(&store->unrecorded);
	ends_close(&store->ends);
	rate_free(&store->history_rate);
	database_close(&store->database);
	free(store);
}

/* ---- the life of the host ---------------------------------------------------------------- */

static int living_end(struct store *store)
{
	static const enum statement all[] = {
		BOOT_END_HOLDERS,   BOOT_END_COMMANDS, BOOT_END_ATTACHED, BOOT_END_INHERITED,
		BOOT_END_INSTANCES, BOOT_END_LIMITS,   BOOT_END_WAITING,  BOOT_END_EXPORTERS};
	int rc = store_step(store_statement(store, BOOT_END_PEAKS));

	if (rc == 0)
		rc = store_run(store, BOOT_END_SESSIONS, ROW_NUMBER(store->boot.began),
			       ROW_TEXT("host restarted"), ROW_NUMBER(STORE_END_SYSTEM));
	for (size_t i = 0; i < ARRAY_SIZE(all) && rc == 0; i++)
		rc = store_step(store_statement(store, all[i]));
	return rc;
}

int store_boot_record(struct store *store)
{
	int rc = store->boot_due ? store_begin(store) : 0;

	if (rc < 0 || !store->boot_due)
		return rc;
	if (store->living_are_of_before)
		rc = living_end(store);
	if (rc == 0)
		rc = store_run(store, BOOT_PUT, ROW_TEXT(store->boot.id));
	rc = store_finish(store, rc);
	if (rc == 0)
		store->boot_due = store->living_are_of_before = false;
	return rc;
}

const char *store_boot_id(const struct store *store)
{
	return store->boot.id;
}

int store_boot(struct store *store, const struct store_boot *boot, unsigned *ret_ended)
{
	static const struct record_field id[] = {RECORD_FIELD(struct store_boot, id, "boot"), {0}};
	struct store_boot recorded;
	int64_t living = 0;
	int rc = row_get(store_statement(store, BOOT_GET), id, &recorded);

	*ret_ended = 0;
	if (rc < 0)
		return rc == -ENOENT ? -EUCLEAN : rc;
	store->boot = *boot;
	store->boot_due = boot->id[0] && strcmp(recorded.id, boot->id) != 0;
	store->living_are_of_before = store->boot_due && recorded.id[0];
	if (store->living_are_of_before)
		(void)row_get_numbers(store_statement(store, LIVING_COUNT), &living, 1);
	*ret_ended = (unsigned)living;
	/* On a full disk later, by store_retry(). */
	rc = store_boot_record(store);
	return rc == -EUCLEAN ? rc : 0;
}
