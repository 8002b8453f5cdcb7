#include "daemon/queue/job_store_sql.h"

#include <stddef.h>

static const char text[] =
	/* `entered`: all jobs of the text are there. */
	"CREATE TABLE spec(id INTEGER PRIMARY KEY, text TEXT NOT NULL, warrant BLOB,"
	" entered INTEGER NOT NULL DEFAULT 1);"
	"CREATE INDEX spec_entering ON spec(id) WHERE entered=0;"
	"CREATE TABLE job(id INTEGER PRIMARY KEY AUTOINCREMENT, array INTEGER, idx INTEGER,"
	" spec INTEGER, uid INTEGER, gid INTEGER, queue TEXT, name TEXT, state INTEGER,"
	" priority INTEGER, attempt INTEGER, pid INTEGER, birth INTEGER, boot TEXT, session TEXT,"
	" place TEXT, agent TEXT, ending TEXT, ending_as INTEGER, enqueued INTEGER, started "
	"INTEGER,"
	" ended INTEGER, exit_code INTEGER, signal INTEGER, reason TEXT, peak INTEGER,"
	" gpu_ns INTEGER, rss INTEGER, text_bytes INTEGER NOT NULL DEFAULT 0,"
	/* The place among the ends of jobs, in the order in which they are told. */
	" change INTEGER NOT NULL DEFAULT 0);"
	"CREATE INDEX job_living ON job(id) WHERE state < 4;"
	"CREATE INDEX job_ended ON job(ended) WHERE state >= 4;"
	/* The index has all that is summed up at a start. */
	"CREATE INDEX job_ended_of ON job(uid, ended, text_bytes) WHERE state >= 4;"
	"CREATE INDEX job_array ON job(array, idx) WHERE array > 0;"
	"CREATE INDEX job_change ON job(change) WHERE change > 0;"
	/* The last number of a job or an array. */
	"CREATE TABLE number(last INTEGER NOT NULL); INSERT INTO number VALUES(0);"
	/* `count`: the number of jobs that a request made. To count those of a long array takes
	 * tens of milliseconds. */
	"CREATE TABLE asked(key TEXT, uid INTEGER, job INTEGER, at INTEGER,"
	" count INTEGER NOT NULL DEFAULT 1, PRIMARY KEY(key, uid)) WITHOUT ROWID;"
	"CREATE INDEX asked_at ON asked(at);"
	"CREATE INDEX asked_job ON asked(job);"
	"CREATE TABLE agent(id TEXT PRIMARY KEY, text TEXT NOT NULL);"
	"CREATE TABLE told(agent TEXT PRIMARY KEY, change INTEGER NOT NULL) WITHOUT ROWID;"
	/* Rights that are over, of which the warden is still to be told. */
	"CREATE TABLE over(number INTEGER PRIMARY KEY, count INTEGER NOT NULL);"
	"CREATE TABLE use(uid INTEGER PRIMARY KEY, use REAL, at INTEGER);";

static const char *const migrations[] = {
	/* The last number of an end, and the random name of this database, whose numbers they are.
	 * The table `told` said how far an agent's hook was; agents have no hooks any more. */
	"ALTER TABLE number ADD COLUMN change INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE number ADD COLUMN id TEXT NOT NULL DEFAULT '';"
	"UPDATE number SET id=lower(hex(randomblob(8))),"
	" change=max(ifnull((SELECT max(change) FROM job WHERE change > 0), 0),"
	" ifnull((SELECT max(change) FROM told), 0));"
	"DROP TABLE told;",
	NULL,
};

const struct database_schema job_schema = {.base = 8, .text = text, .migrations = migrations};

/* job_id_rank() of an ID. */
#define RANK "CASE WHEN id < 1000000000000000 THEN id * 1000000 ELSE id - 1000000000000000 END"

#define COLUMNS                                                                                    \
	"id, array, idx, spec, uid, gid, queue, name, state, priority, attempt, pid, birth, boot," \
	" session, place, agent, ending, ending_as, enqueued, started, ended, exit_code, signal,"  \
	" reason, peak, gpu_ns, rss, text_bytes, change"

const char *const job_statements[Q_COUNT] = {
	[Q_BEGIN] = "BEGIN IMMEDIATE",
	[Q_COMMIT] = "COMMIT",
	[Q_ROLLBACK] = "ROLLBACK",
	[Q_SPEC_ADD] = "INSERT INTO spec(text, warrant, entered) VALUES(?, ?, ?)",
	[Q_SPEC_GET] = "SELECT text, warrant FROM spec WHERE id=?1",
	[Q_SPEC_ENTERED] = "UPDATE spec SET entered=1 WHERE id=?1",
	[Q_REMOVE] = "DELETE FROM job WHERE id BETWEEN ?1 AND ?2",
	[Q_SPEC_REMOVE] = "DELETE FROM spec WHERE id=?1",
	/* The jobs of a text are one, or all of an array. */
	[Q_SPEC_IDLE] = "DELETE FROM spec WHERE id=?1 AND NOT EXISTS"
			" (SELECT 1 FROM job WHERE array=?2 AND array > 0 AND spec=?1)",
	[Q_ENDED_COUNTS] =
		"SELECT uid, count(*), sum(text_bytes) FROM job WHERE state >= 4 GROUP BY uid",
	[Q_ENDED_FIRST] =
		"SELECT " COLUMNS " FROM job WHERE state >= 4 AND uid=?2 ORDER BY ended LIMIT ?1",
	[Q_ENDED_REMOVE] = "DELETE FROM job WHERE id=?1 AND state >= 4",
	[Q_NUMBER_LAST] = "SELECT last FROM number",
	[Q_NUMBER_SET] = "UPDATE number SET last=?1",
	[Q_JOB_ADD] = "INSERT INTO job(" COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,"
		      "?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24,?25,?26,?27,?28,?29,?30)",
	[Q_JOB_PUT] = "UPDATE job SET spec=?4, queue=?7, name=?8, state=?9, priority=?10,"
		      " attempt=?11, pid=?12, birth=?13, boot=?14, session=?15, place=?16,"
		      " agent=?17, ending=?18, ending_as=?19, started=?21, ended=?22,"
		      " exit_code=?23, signal=?24, reason=?25, peak=?26, gpu_ns=?27, rss=?28, "
		      "text_bytes=?29, change=?30"
		      " WHERE id=?1",
	[Q_LIVING] = "SELECT " COLUMNS " FROM job WHERE state < 4 ORDER BY " RANK,
	[Q_ENDED] = "SELECT " COLUMNS " FROM job WHERE state >= 4 AND (ended, id) < (?3, ?4)"
		    " ORDER BY ended DESC, id DESC LIMIT ?1",
	[Q_ENDED_OF] =
		"SELECT " COLUMNS " FROM job WHERE state >= 4 AND uid=?2 AND (ended, id) < (?3, ?4)"
		" ORDER BY ended DESC, id DESC LIMIT ?1",
	[Q_ONE] = "SELECT " COLUMNS " FROM job WHERE id=?1 AND array=0",
	[Q_ARRAY] = "SELECT " COLUMNS " FROM job WHERE array=?1 AND array > 0 ORDER BY idx",
	[Q_ARRAY_PART] = "SELECT " COLUMNS " FROM job WHERE array=?1 AND array > 0 AND idx > ?2"
			 " ORDER BY idx LIMIT ?3",
	[Q_COUNT_ONE] =
		"SELECT count(*), sum(state = 4), sum(state >= 4) FROM job WHERE id=?1 AND array=0",
	[Q_COUNT_ARRAY] = "SELECT count(*), sum(state = 4), sum(state >= 4) FROM job WHERE "
			  "array=?1 AND array > 0",
	[Q_COUNT_ELEMENT] = "SELECT count(*), sum(state = 4), sum(state >= 4) FROM job"
			    " WHERE array=?1 AND idx=?2 AND array > 0",
	[Q_ELEMENT] = "SELECT " COLUMNS " FROM job WHERE array=?1 AND idx=?2 AND array > 0",
	[Q_ELEMENT_ID] = "SELECT id FROM job WHERE array=?1 AND idx=?2 AND array > 0",
	[Q_ASKED_PUT] = "INSERT INTO asked(key, uid, job, at, count) VALUES(?,?,?,?,?)",
	[Q_ASKED_GET] = "SELECT job, count FROM asked WHERE key=?1 AND uid=?2",
	[Q_ASKED_TRIM] = "DELETE FROM asked WHERE (key, uid) IN"
			 " (SELECT key, uid FROM asked WHERE at < ?1 ORDER BY at LIMIT ?2)",
	[Q_ASKED_FORGET] = "DELETE FROM asked WHERE job=?1",
	[Q_AGENT_PUT] = "INSERT OR REPLACE INTO agent VALUES(?,?)",
	[Q_AGENT_REMOVE] = "DELETE FROM agent WHERE id=?1",
	[Q_AGENTS] = "SELECT id, text FROM agent ORDER BY rowid",
	[Q_OVER_PUT] = "INSERT INTO over VALUES(?1,?2) ON CONFLICT(number) DO UPDATE"
		       " SET count=max(count, ?2)",
	[Q_OVERS] = "SELECT number, count FROM over ORDER BY number LIMIT ?1",
	[Q_OVER_REMOVE] =
		"DELETE FROM over WHERE number >= ?1 AND number < ?2 AND number + count <= ?2",
	[Q_CHANGED] = "SELECT " COLUMNS " FROM job WHERE change > 0 AND change > ?1"
		      " ORDER BY change LIMIT ?2",
	[Q_CHANGE_LAST] = "SELECT change FROM number",
	[Q_CHANGE_SET] = "UPDATE number SET change=?1",
	[Q_ID] = "SELECT id FROM number",
	[Q_USE_PUT] = "INSERT OR REPLACE INTO use VALUES(?,?,?)",
	[Q_USES] = "SELECT uid, use, at FROM use",
};
