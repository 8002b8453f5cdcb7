/* The database of jobs: rows of jobs, texts of requests, agents, answers, and past use.
 *
 * A row of a job is bound and read by one table, job_fields. The statements and the schema are in
 * job_store_sql.c. A step is a transaction of SQLite, and steps may be within each other: the
 * outermost one commits. A commit is with the kernel at once, and on the disk later; whoever needs
 * the disk waits for it with job_store_await(), and the loop goes on meanwhile (disk.h).
 *
 * While the log is merged into the database, a write would make the loop wait. Callers ask
 * job_store_holds() before a step. Writes that cannot come back later call disk_settle(), which
 * waits. An array that was not written whole when a daemon died is removed by the next one. Loop
 * thread. */
#include "daemon/queue/job_store.h"
#include "daemon/queue/job_store_sql.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/store/database.h"
#include "daemon/store/row.h"
#include "proto/warden_jobs.h"

/* A client that lost its answer asks again at once. */
#define ASKED_KEPT_NS (24ll * 3600 * 1000000000)
/* More than are added in the same step: a day later many may be due at one moment. */
#define ASKED_TRIMMED_AT_ONCE 10

struct job_store {
	struct database database;
	struct disk disk;
	sqlite3_stmt *statement[Q_COUNT];
	unsigned depth; /* the number of transactions within each other */
};

static sqlite3_stmt *statement(struct job_store *store, int which)
{
	sqlite3_stmt *stmt = store->statement[which];

	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return stmt;
}

/* Binds values and runs a statement without rows. 0 or -errno. */
#define run(store, which, ...) row_run(statement(store, which), __VA_ARGS__)

/* ---- opening ----------------------------------------------------------------------------- */

/* Removes arrays that the last daemon had not written whole. */
static int unentered_remove(struct job_store *store)
{
	return store_errno(sqlite3_exec(store->database.db,
					"DELETE FROM job WHERE state < 4 AND spec IN"
					" (SELECT id FROM spec WHERE entered=0);"
					"DELETE FROM spec WHERE entered=0;",
					NULL, NULL, NULL));
}

int job_store_copy(const struct job_store *store)
{
	return database_copy(&store->database);
}

const char *job_store_missing(const struct job_store *store)
{
	bool busy = store->depth || store->disk.work;
	const char *end = busy ? NULL : database_missing(&store->database);

	if (!end)
		return NULL;
	return !*end ? "queue.db" : !strcmp(end, "-wal") ? "queue.db-wal" : "queue.db-shm";
}

static void explain(const char *path, int rc, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED, "cannot use the database of jobs %.300s: %s", path,
		  database_fault(rc));
	/* After other faults, as a disk that cannot be written, the jobs are in it still. */
	if (rc == -EUCLEAN)
		error_hint(err, "move it away to begin with empty queues");
	else if (rc == -EPROTONOSUPPORT)
		error_hint(err, "install that version again, or move the database away to begin "
				"with empty queues");
}

int job_store_check(const char *dir, struct error *err)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/queue.db", dir);
	if (database_check(path, &job_schema) != -EPROTONOSUPPORT)
		return 0;
	explain(path, -EPROTONOSUPPORT, err);
	return -EPROTONOSUPPORT;
}

int job_store_open(struct job_store **ret, const char *path, bool keeps_room, uv_loop_t *loop,
		   void (*freed)(void *arg), void *arg, struct error *err)
{
	struct job_store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	store->database = (struct database){.settings = DATABASE_ON_DISK,
					    .keeps_room = keeps_room,
					    .schema = &job_schema,
					    .texts = job_statements,
					    .statements = store->statement,
					    .count = Q_COUNT};
	disk_begin(&store->disk, loop, &store->database, freed, arg);
	int rc = database_open(&store->database, path);
	if (rc == 0)
		rc = unentered_remove(store);
	/* The last daemon may have been killed between a commit and its sync. */
	if (rc == 0)
		rc = job_store_sync(store);
	if (rc == 0) {
		*ret = store;
		return 0;
	}
	explain(path, rc, err);
	job_store_close(store);
	return rc;
}

void job_store_close(struct job_store *store)
{
	if (!store)
		return;
	disk_end(&store->disk);
	database_close(&store->database);
	free(store);
}

/* ---- steps ------------------------------------------------------------------------------- */

bool job_store_holds(const struct job_store *store)
{
	return store->disk.state == DISK_MERGES;
}

void job_store_await(struct job_store *store, struct disk_waiter *waiter)
{
	disk_await(&store->disk, waiter);
}

void job_store_run(struct job_store *store)
{
	disk_run(&store->disk);
}

void job_store_end(struct job_store *store)
{
	if (store)
		disk_end(&store->disk);
}

int job_store_begin(struct job_store *store)
{
	disk_settle(&store->disk);
	int rc = store->depth ? 0 : store_step(statement(store, Q_BEGIN));

	store->depth += rc == 0;
	return rc;
}

bool job_store_is_in_step(const struct job_store *store)
{
	return store->depth > 0;
}

void job_store_rollback(struct job_store *store)
{
	store->depth = 0;
	(void)store_step(statement(store, Q_ROLLBACK));
}

int job_store_sync(struct job_store *store)
{
	const char *path = sqlite3_db_filename(store->database.db, "main");
	cleanup_close int fd =
		path && *path ? open(sqlite3_filename_wal(path), O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return path && !*path ? 0 : -errno;
	return fdatasync(fd) < 0 ? -errno : 0;
}

int job_store_commit(struct job_store *store)
{
	if (!store->depth)
		return -EIO; /* a step within this one was given up, and so was this one */
	if (store->depth > 1) {
		store->depth--;
		return 0;
	}
	int rc = store_step(statement(store, Q_COMMIT));
	store->depth = 0;
	if (rc < 0)
		job_store_rollback(store);
	return rc;
}

int job_store_spec_add(struct job_store *store, const char *text, const struct warrant *warrant,
		       bool entered, int64_t *ret)
{
	sqlite3_stmt *stmt = statement(store, Q_SPEC_ADD);

	sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC);
	if (warrant)
		sqlite3_bind_blob(stmt, 2, warrant, sizeof(*warrant), SQLITE_STATIC);
	sqlite3_bind_int(stmt, 3, entered);
	int rc = store_step(stmt);
	if (rc == 0)
		*ret = sqlite3_last_insert_rowid(store->database.db);
	return rc;
}

int job_store_spec_entered(struct job_store *store, int64_t id)
{
	return run(store, Q_SPEC_ENTERED, ROW_NUMBER(id));
}

int job_store_spec_remove(struct job_store *store, int64_t id, int64_t first, int64_t last)
{
	disk_settle(&store->disk);
	int rc = run(store, Q_REMOVE, ROW_NUMBER(first), ROW_NUMBER(last));
	return rc < 0 ? rc : run(store, Q_SPEC_REMOVE, ROW_NUMBER(id));
}

static int spec_read(sqlite3_stmt *stmt, char **ret, struct warrant **ret_warrant)
{
	const void *blob = sqlite3_column_blob(stmt, 1);
	cleanup_free char *text = strdup((const char *)sqlite3_column_text(stmt, 0));
	cleanup_free struct warrant *warrant = NULL;

	if (ret_warrant && sqlite3_column_bytes(stmt, 1) == sizeof(*warrant)) {
		warrant = malloc(sizeof(*warrant));
		if (warrant)
			memcpy(warrant, blob, sizeof(*warrant));
		else
			return -ENOMEM; // NOLINT(clang-analyzer-unix.Malloc): freed by its cleanup
	}
	if (!text)
		return -ENOMEM; // NOLINT(clang-analyzer-unix.Malloc): likewise
	*ret = steal_ptr(&text);
	if (ret_warrant)
		*ret_warrant = steal_ptr(&warrant);
	return 0;
}

int job_store_spec_get(struct job_store *store, int64_t id, char **ret,
		       struct warrant **ret_warrant)
{
	sqlite3_stmt *stmt = row_bind(statement(store, Q_SPEC_GET), ROW_NUMBER(id));
	int step = sqlite3_step(stmt);
	int rc = step == SQLITE_ROW ? spec_read(stmt, ret, ret_warrant) : 0;
	sqlite3_reset(stmt);
	if (rc < 0)
		return rc;
	return step == SQLITE_DONE ? -ENOENT : store_errno(step);
}

int job_store_number_last(struct job_store *store, int64_t *ret)
{
	return row_get_numbers(statement(store, Q_NUMBER_LAST), ret, 1);
}

int job_store_number_set(struct job_store *store, int64_t last)
{
	return run(store, Q_NUMBER_SET, ROW_NUMBER(last));
}

int job_store_number_take(struct job_store *store, int64_t *ret)
{
	int64_t last = 0;
	int rc = job_store_number_last(store, &last);

	if (rc == 0)
		rc = job_store_number_set(store, last + 1);
	if (rc == 0)
		*ret = last + 1;
	return rc;
}

/* ---- jobs -------------------------------------------------------------------------------- */

/* As COLUMNS of job_store_sql.c. */
static const struct record_field job_fields[] = {
	RECORD_FIELD(struct job_record, id, "id"),
	RECORD_FIELD(struct job_record, array, "array"),
	RECORD_FIELD(struct job_record, index, "idx"),
	RECORD_FIELD(struct job_record, spec, "spec"),
	RECORD_FIELD(struct job_record, uid, "uid"),
	RECORD_FIELD(struct job_record, gid, "gid"),
	RECORD_FIELD(struct job_record, queue, "queue"),
	RECORD_FIELD(struct job_record, name, "name"),
	RECORD_FIELD(struct job_record, state, "state"),
	RECORD_FIELD(struct job_record, priority, "priority"),
	RECORD_FIELD(struct job_record, attempt, "attempt"),
	RECORD_FIELD(struct job_record, shim.pid, "pid"),
	RECORD_FIELD(struct job_record, shim.birth, "birth"),
	RECORD_FIELD(struct job_record, boot, "boot"),
	RECORD_FIELD(struct job_record, session, "session"),
	RECORD_FIELD(struct job_record, place, "place"),
	RECORD_FIELD(struct job_record, agent, "agent"),
	RECORD_FIELD(struct job_record, ending, "ending"),
	RECORD_FIELD(struct job_record, ending_as, "ending_as"),
	RECORD_FIELD(struct job_record, enqueued, "enqueued"),
	RECORD_FIELD(struct job_record, started, "started"),
	RECORD_FIELD(struct job_record, ended, "ended"),
	RECORD_FIELD(struct job_record, exit_code, "exit_code"),
	RECORD_FIELD(struct job_record, signal, "signal"),
	RECORD_FIELD(struct job_record, reason, "reason"),
	RECORD_FIELD(struct job_record, peak_bytes, "peak"),
	RECORD_FIELD(struct job_record, gpu_ns, "gpu_ns"),
	RECORD_FIELD(struct job_record, rss_bytes, "rss"),
	RECORD_FIELD(struct job_record, text_bytes, "text_bytes"),
	RECORD_FIELD(struct job_record, change, "change"),
	{0},
};

int job_store_add(struct job_store *store, const struct job_record *record)
{
	return store_step(row_bind_record(statement(store, Q_JOB_ADD), job_fields, record));
}

/* The statement does not set all of them, but its parameters have the same numbers. */
int job_store_put(struct job_store *store, const struct job_record *record)
{
	return store_step(row_bind_record(statement(store, Q_JOB_PUT), job_fields, record));
}

static int each(sqlite3_stmt *stmt, job_record_cb cb, void *arg)
{
	return row_each(stmt, job_fields, struct job_record, cb, arg);
}

/* -ENOENT: there was none. */
static int each_some(sqlite3_stmt *stmt, job_record_cb cb, void *arg)
{
	struct job_record record;
	int rc = row_next(stmt, job_fields, &record);

	if (rc == 0)
		rc = -ENOENT;
	while (rc > 0 && (rc = cb(arg, &record)) == 0)
		rc = row_next(stmt, job_fields, &record);
	return row_end(stmt, rc);
}

int job_store_each_living(struct job_store *store, job_record_cb cb, void *arg)
{
	return each(statement(store, Q_LIVING), cb, arg);
}

int job_store_each_ended(struct job_store *store, uid_t uid, const struct job_place *before,
			 uint32_t limit, job_record_cb cb, void *arg)
{
	bool all = uid == (uid_t)-1;

	return each(row_bind(statement(store, all ? Q_ENDED : Q_ENDED_OF), ROW_NUMBER(limit),
			     ROW_NUMBER(uid), ROW_NUMBER(before ? before->ended : INT64_MAX),
			     ROW_NUMBER(before ? before->id : INT64_MAX)),
		    cb, arg);
}

int job_store_each_of(struct job_store *store, int64_t id, int32_t index, job_record_cb cb,
		      void *arg)
{
	int rc = each_some(row_bind(statement(store, index >= 0 ? Q_ELEMENT : Q_ARRAY),
				    ROW_NUMBER(id), ROW_NUMBER(index)),
			   cb, arg);

	if (rc == -ENOENT && index < 0)
		rc = each_some(row_bind(statement(store, Q_ONE), ROW_NUMBER(id)), cb, arg);
	return rc;
}

int job_store_each_part(struct job_store *store, int64_t id, int32_t after, uint32_t limit,
			job_record_cb cb, void *arg)
{
	int rc = each_some(row_bind(statement(store, Q_ARRAY_PART), ROW_NUMBER(id),
				    ROW_NUMBER(after), ROW_NUMBER(limit)),
			   cb, arg);

	if (rc == -ENOENT)
		rc = each_some(row_bind(statement(store, Q_ONE), ROW_NUMBER(id)), cb, arg);
	return rc;
}

static int count_read(sqlite3_stmt *stmt, int64_t id, int32_t index, struct job_counts *ret)
{
	int64_t row[3] = {0};
	int rc = row_get_numbers(row_bind(stmt, ROW_NUMBER(id), ROW_NUMBER(index)), row, 3);

	*ret = (struct job_counts){(uint32_t)row[0], (uint32_t)row[1], (uint32_t)row[2]};
	return rc;
}

int job_store_count(struct job_store *store, int64_t id, int32_t index, struct job_counts *ret)
{
	int rc = count_read(statement(store, index >= 0 ? Q_COUNT_ELEMENT : Q_COUNT_ARRAY), id,
			    index, ret);

	if (rc == 0 && !ret->all && index < 0)
		rc = count_read(statement(store, Q_COUNT_ONE), id, -1, ret);
	return rc;
}

int job_store_element(struct job_store *store, int64_t array, int32_t index, int64_t *ret)
{
	return row_get_numbers(
		row_bind(statement(store, Q_ELEMENT_ID), ROW_NUMBER(array), ROW_NUMBER(index)), ret,
		1);
}

int job_store_each_oldest(struct job_store *store, uid_t uid, uint32_t limit, job_record_cb cb,
			  void *arg)
{
	return each(row_bind(statement(store, Q_ENDED_FIRST), ROW_NUMBER(limit), ROW_NUMBER(uid)),
		    cb, arg);
}

int job_store_forget(struct job_store *store, const struct job_record *record)
{
	int rc = run(store, Q_ENDED_REMOVE, ROW_NUMBER(record->id));

	if (rc == 0)
		rc = run(store, Q_ASKED_FORGET, ROW_NUMBER(record->id));
	if (rc == 0)
		rc = run(store, Q_SPEC_IDLE, ROW_NUMBER(record->spec), ROW_NUMBER(record->array));
	return rc;
}

int job_store_each_count(struct job_store *store, job_count_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, Q_ENDED_COUNTS);
	int64_t row[3];
	int rc;

	while ((rc = row_next_numbers(stmt, row, 3)) > 0) {
		rc = cb(arg, (uid_t)row[0],
			&(struct job_history){(uint64_t)row[1], (uint64_t)row[2]});
		if (rc != 0)
			break;
	}
	return row_end(stmt, rc);
}

/* ---- the rest ---------------------------------------------------------------------------- */

int job_store_asked_put(struct job_store *store, const char *key, uid_t uid,
			const struct job_asked *asked)
{
	int64_t now = now_realtime_ns();

	(void)run(store, Q_ASKED_TRIM, ROW_NUMBER(now - ASKED_KEPT_NS),
		  ROW_NUMBER(ASKED_TRIMMED_AT_ONCE));
	return run(store, Q_ASKED_PUT, ROW_TEXT(key), ROW_NUMBER(uid), ROW_NUMBER(asked->job),
		   ROW_NUMBER(now), ROW_NUMBER(asked->count));
}

int job_store_asked_get(struct job_store *store, const char *key, uid_t uid, struct job_asked *ret)
{
	sqlite3_stmt *stmt = statement(store, Q_ASKED_GET);
	int64_t row[2];
	int rc = row_get_numbers(row_bind(stmt, ROW_TEXT(key), ROW_NUMBER(uid)), row, 2);

	if (rc == 0)
		*ret = (struct job_asked){row[0], (uint32_t)row[1]};
	return rc;
}

int job_store_agent_put(struct job_store *store, const char *id, const char *text)
{
	disk_settle(&store->disk);
	return run(store, Q_AGENT_PUT, ROW_TEXT(id), ROW_TEXT(text));
}

int job_store_agent_remove(struct job_store *store, const char *id)
{
	disk_settle(&store->disk);
	return run(store, Q_AGENT_REMOVE, ROW_TEXT(id));
}

int job_store_over_put(struct job_store *store, const struct over *over)
{
	disk_settle(&store->disk);
	return run(store, Q_OVER_PUT, ROW_NUMBER(over->number), ROW_NUMBER(over->count));
}

int job_store_over_first(struct job_store *store, uint32_t most, struct over *ret)
{
	sqlite3_stmt *stmt = row_bind(statement(store, Q_OVERS), ROW_NUMBER(most));
	int64_t row[2];
	int rc;

	*ret = (struct over){0};
	while ((rc = row_next_numbers(stmt, row, 2)) > 0) {
		uint64_t number = (uint64_t)row[0], end = number + (uint64_t)row[1];

		if (!ret->count)
			ret->number = number;
		else if (number > ret->number + ret->count)
			break;
		if (end - ret->number > most)
			break;
		ret->count = MAX(ret->count, (uint32_t)(end - ret->number));
	}
	return row_end(stmt, rc);
}

int job_store_over_remove(struct job_store *store, const struct over *over)
{
	disk_settle(&store->disk);
	return run(store, Q_OVER_REMOVE, ROW_NUMBER(over->number),
		   ROW_NUMBER(over->number + over->count));
}

int job_store_change_last(struct job_store *store, int64_t *ret)
{
	return row_get_numbers(statement(store, Q_CHANGE_LAST), ret, 1);
}

int job_store_change_set(struct job_store *store, int64_t last)
{
	return run(store, Q_CHANGE_SET, ROW_NUMBER(last));
}

int job_store_id(struct job_store *store, char ret[static JOB_STORE_ID_SIZE])
{
	sqlite3_stmt *stmt = statement(store, Q_ID);
	int rc = row_step(stmt);

	if (rc > 0)
		snprintf(ret, JOB_STORE_ID_SIZE, "%s", (const char *)sqlite3_column_text(stmt, 0));
	return row_end(stmt, rc == 0 ? -ENOENT : rc);
}

int job_store_each_changed(struct job_store *store, int64_t after, uint32_t limit, job_record_cb cb,
			   void *arg)
{
	return each(row_bind(statement(store, Q_CHANGED), ROW_NUMBER(after), ROW_NUMBER(limit)), cb,
		    arg);
}

int job_store_each_agent(struct job_store *store, agent_text_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, Q_AGENTS);
	int rc;

	while ((rc = row_step(stmt)) > 0 &&
	       (rc = cb(arg, (const char *)sqlite3_column_text(stmt, 0),
			(const char *)sqlite3_column_text(stmt, 1))) == 0)
		;
	return row_end(stmt, rc);
}

int job_store_use_put(struct job_store *store, uid_t uid, double use, int64_t at)
{
	return run(store, Q_USE_PUT, ROW_NUMBER(uid), ROW_REAL(use), ROW_NUMBER(at));
}

int job_store_each_use(struct job_store *store, job_use_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, Q_USES);
	int rc;

	while ((rc = row_step(stmt)) > 0 &&
	       (rc = cb(arg, (uid_t)sqlite3_column_int64(stmt, 0), sqlite3_column_double(stmt, 1),
			sqlite3_column_int64(stmt, 2))) == 0)
		;
	return row_end(stmt, rc);
}
