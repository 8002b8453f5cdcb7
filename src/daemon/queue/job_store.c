#include "daemon/queue/job_store.h"
#include "daemon/queue/job_store_sql.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/store/store_db.h"
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
	error_set(err, EXIT_CODE_FAILED, "cannot use the database of jobs %.300s: %s", path,
		  rc == -EUCLEAN           ? "it is damaged"
		  : rc == -EROFS           ? "it cannot be written"
		  : rc == -EPROTONOSUPPORT ? "another version of carve wrote it"
					   : strerrordesc_np(-rc));
	error_hint(err, "move it away to begin with empty queues");
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
	sqlite3_stmt *stmt = statement(store, Q_SPEC_ENTERED);

	sqlite3_bind_int64(stmt, 1, id);
	return store_step(stmt);
}

int job_store_spec_remove(struct job_store *store, int64_t id, int64_t first, int64_t last)
{
	sqlite3_stmt *stmt = statement(store, Q_REMOVE);

	disk_settle(&store->disk);
	sqlite3_bind_int64(stmt, 1, first);
	sqlite3_bind_int64(stmt, 2, last);
	int rc = store_step(stmt);
	stmt = statement(store, Q_SPEC_REMOVE);
	sqlite3_bind_int64(stmt, 1, id);
	return rc < 0 ? rc : store_step(stmt);
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
	sqlite3_stmt *stmt = statement(store, Q_SPEC_GET);

	sqlite3_bind_int64(stmt, 1, id);
	int step = sqlite3_step(stmt);
	int rc = step == SQLITE_ROW ? spec_read(stmt, ret, ret_warrant) : 0;
	sqlite3_reset(stmt);
	if (rc < 0)
		return rc;
	return step == SQLITE_DONE ? -ENOENT : store_errno(step);
}

static int number_get(sqlite3_stmt *stmt, int64_t *ret)
{
	int step = sqlite3_step(stmt);

	if (step == SQLITE_ROW)
		*ret = sqlite3_column_int64(stmt, 0);
	sqlite3_reset(stmt);
	return step == SQLITE_DONE ? -ENOENT : store_errno(step);
}

int job_store_number_last(struct job_store *store, int64_t *ret)
{
	return number_get(statement(store, Q_NUMBER_LAST), ret);
}

int job_store_number_set(struct job_store *store, int64_t last)
{
	sqlite3_stmt *stmt = statement(store, Q_NUMBER_SET);

	sqlite3_bind_int64(stmt, 1, last);
	return store_step(stmt);
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

static void text_bind(sqlite3_stmt *stmt, int at, const char *text)
{
	sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
}

static void record_bind(sqlite3_stmt *stmt, const struct job_record *r)
{
	const struct {
		int at;
		int64_t value;
	} numbers[] = {
		{1, r->id},
		{2, r->array},
		{3, r->index},
		{4, r->spec},
		{5, r->uid},
		{6, r->gid},
		{9, r->state},
		{10, r->priority},
		{11, r->attempt},
		{12, r->shim.pid},
		{13, (int64_t)r->shim.birth},
		{19, r->ending_as},
		{20, r->enqueued},
		{21, r->started},
		{22, r->ended},
		{23, r->exit_code},
		{24, r->signal},
		{26, (int64_t)r->peak_bytes},
		{27, (int64_t)r->gpu_ns},
		{28, (int64_t)r->rss_bytes},
		{29, r->text_bytes},
		{30, r->change},
	};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		sqlite3_bind_int64(stmt, numbers[i].at, numbers[i].value);
	text_bind(stmt, 7, r->queue);
	text_bind(stmt, 8, r->name);
	text_bind(stmt, 14, r->boot);
	text_bind(stmt, 15, r->session);
	text_bind(stmt, 16, r->place);
	text_bind(stmt, 17, r->agent);
	text_bind(stmt, 18, r->ending);
	text_bind(stmt, 25, r->reason);
}

int job_store_add(struct job_store *store, const struct job_record *record)
{
	sqlite3_stmt *stmt = statement(store, Q_JOB_ADD);

	record_bind(stmt, record);
	return store_step(stmt);
}

int job_store_put(struct job_store *store, const struct job_record *record)
{
	sqlite3_stmt *stmt = statement(store, Q_JOB_PUT);

	record_bind(stmt, record);
	/* Not set by the statement, which has these numbers all the same. */
	return store_step(stmt);
}

static const char *column_text(sqlite3_stmt *stmt, int at)
{
	const unsigned char *text = sqlite3_column_text(stmt, at);

	return text ? (const char *)text : "";
}

static void record_read(sqlite3_stmt *stmt, struct job_record *r)
{
	*r = (struct job_record){
		.id = sqlite3_column_int64(stmt, 0),
		.array = sqlite3_column_int64(stmt, 1),
		.index = sqlite3_column_int(stmt, 2),
		.spec = sqlite3_column_int64(stmt, 3),
		.uid = (uid_t)sqlite3_column_int64(stmt, 4),
		.gid = (gid_t)sqlite3_column_int64(stmt, 5),
		.state = (enum job_state)sqlite3_column_int(stmt, 8),
		.priority = sqlite3_column_int(stmt, 9),
		.attempt = (uint32_t)sqlite3_column_int64(stmt, 10),
		.shim = {.pid = sqlite3_column_int(stmt, 11),
			 .birth = (uint64_t)sqlite3_column_int64(stmt, 12)},
		.ending_as = (enum job_state)sqlite3_column_int(stmt, 18),
		.enqueued = sqlite3_column_int64(stmt, 19),
		.started = sqlite3_column_int64(stmt, 20),
		.ended = sqlite3_column_int64(stmt, 21),
		.exit_code = sqlite3_column_int(stmt, 22),
		.signal = sqlite3_column_int(stmt, 23),
		.peak_bytes = (uint64_t)sqlite3_column_int64(stmt, 25),
		.gpu_ns = (uint64_t)sqlite3_column_int64(stmt, 26),
		.rss_bytes = (uint64_t)sqlite3_column_int64(stmt, 27),
		.text_bytes = (uint32_t)sqlite3_column_int64(stmt, 28),
		.change = sqlite3_column_int64(stmt, 29),
	};
	r->queue = column_text(stmt, 6);
	r->name = column_text(stmt, 7);
	r->boot = column_text(stmt, 13);
	store_column_text(stmt, 14, r->session, sizeof(r->session));
	r->place = column_text(stmt, 15);
	store_column_text(stmt, 16, r->agent, sizeof(r->agent));
	r->ending = column_text(stmt, 17);
	r->reason = column_text(stmt, 24);
}

static int each(sqlite3_stmt *stmt, job_record_cb cb, void *arg, unsigned *ret_count)
{
	struct job_record record;
	int step, rc = 0;

	while (rc == 0 && (step = sqlite3_step(stmt)) == SQLITE_ROW) {
		record_read(stmt, &record);
		(*ret_count)++;
		rc = cb(arg, &record);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}

int job_store_each_living(struct job_store *store, job_record_cb cb, void *arg)
{
	unsigned count = 0;

	return each(statement(store, Q_LIVING), cb, arg, &count);
}

int job_store_each_ended(struct job_store *store, uid_t uid, const struct job_place *before,
			 uint32_t limit, job_record_cb cb, void *arg)
{
	bool all = uid == (uid_t)-1;
	sqlite3_stmt *stmt = statement(store, all ? Q_ENDED : Q_ENDED_OF);
	unsigned count = 0;

	sqlite3_bind_int64(stmt, 1, limit);
	if (!all)
		sqlite3_bind_int64(stmt, 2, uid);
	sqlite3_bind_int64(stmt, 3, before ? before->ended : INT64_MAX);
	sqlite3_bind_int64(stmt, 4, before ? before->id : INT64_MAX);
	return each(stmt, cb, arg, &count);
}

int job_store_each_of(struct job_store *store, int64_t id, int32_t index, job_record_cb cb,
		      void *arg)
{
	sqlite3_stmt *stmt = statement(store, index >= 0 ? Q_ELEMENT : Q_ARRAY);
	unsigned count = 0;

	sqlite3_bind_int64(stmt, 1, id);
	if (index >= 0)
		sqlite3_bind_int64(stmt, 2, index);
	int rc = each(stmt, cb, arg, &count);
	if (rc == 0 && !count && index < 0) {
		stmt = statement(store, Q_ONE);
		sqlite3_bind_int64(stmt, 1, id);
		rc = each(stmt, cb, arg, &count);
	}
	return rc == 0 && !count ? -ENOENT : rc;
}

int job_store_each_part(struct job_store *store, int64_t id, int32_t after, uint32_t limit,
			job_record_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, Q_ARRAY_PART);
	unsigned count = 0;

	sqlite3_bind_int64(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, after);
	sqlite3_bind_int64(stmt, 3, limit);
	int rc = each(stmt, cb, arg, &count);
	if (rc == 0 && !count) {
		stmt = statement(store, Q_ONE);
		sqlite3_bind_int64(stmt, 1, id);
		rc = each(stmt, cb, arg, &count);
	}
	return rc == 0 && !count ? -ENOENT : rc;
}

static int count_read(sqlite3_stmt *stmt, int64_t id, int32_t index, struct job_counts *ret)
{
	sqlite3_bind_int64(stmt, 1, id);
	if (index >= 0)
		sqlite3_bind_int64(stmt, 2, index);
	int step = sqlite3_step(stmt);
	*ret = (struct job_counts){0};
	if (step == SQLITE_ROW)
		*ret = (struct job_counts){(uint32_t)sqlite3_column_int64(stmt, 0),
					   (uint32_t)sqlite3_column_int64(stmt, 1),
					   (uint32_t)sqlite3_column_int64(stmt, 2)};
	sqlite3_reset(stmt);
	return step == SQLITE_ROW ? 0 : store_errno(step);
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
	sqlite3_stmt *stmt = statement(store, Q_ELEMENT_ID);

	sqlite3_bind_int64(stmt, 1, array);
	sqlite3_bind_int64(stmt, 2, index);
	return number_get(stmt, ret);
}

int job_store_each_oldest(struct job_store *store, uid_t uid, uint32_t limit, job_record_cb cb,
			  void *arg)
{
	sqlite3_stmt *stmt = statement(store, Q_ENDED_FIRST);
	unsigned count = 0;

	sqlite3_bind_int64(stmt, 1, limit);
	sqlite3_bind_int64(stmt, 2, uid);
	return each(stmt, cb, arg, &count);
}

int job_store_forget(struct job_store *store, const struct job_record *record)
{
	sqlite3_stmt *stmt = statement(store, Q_ENDED_REMOVE);

	sqlite3_bind_int64(stmt, 1, record->id);
	int rc = store_step(stmt);
	stmt = statement(store, Q_ASKED_FORGET);
	sqlite3_bind_int64(stmt, 1, record->id);
	rc = rc < 0 ? rc : store_step(stmt);
	stmt = statement(store, Q_SPEC_IDLE);
	sqlite3_bind_int64(stmt, 1, record->spec);
	sqlite3_bind_int64(stmt, 2, record->array);
	return rc < 0 ? rc : store_step(stmt);
}

int job_store_each_count(struct job_store *store, job_count_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, Q_ENDED_COUNTS);
	int step, rc = 0;

	while (rc == 0 && (step = sqlite3_step(stmt)) == SQLITE_ROW)
		rc = cb(arg, (uid_t)sqlite3_column_int64(stmt, 0),
			&(struct job_history){(uint64_t)sqlite3_column_int64(stmt, 1),
					      (uint64_t)sqlite3_column_int64(stmt, 2)});
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}

/* ---- the rest ---------------------------------------------------------------------------- */

int job_store_asked_put(struct job_store *store, const char *key, uid_t uid,
			const struct job_asked *asked)
{
	sqlite3_stmt *stmt = statement(store, Q_ASKED_TRIM);
	int64_t now = now_realtime_ns();

	sqlite3_bind_int64(stmt, 1, now - ASKED_KEPT_NS);
	sqlite3_bind_int64(stmt, 2, ASKED_TRIMMED_AT_ONCE);
	(void)store_step(stmt);
	stmt = statement(store, Q_ASKED_PUT);
	text_bind(stmt, 1, key);
	sqlite3_bind_int64(stmt, 2, uid);
	sqlite3_bind_int64(stmt, 3, asked->job);
	sqlite3_bind_int64(stmt, 4, now);
	sqlite3_bind_int64(stmt, 5, asked->count);
	return store_step(stmt);
}

int job_store_asked_get(struct job_store *store, const char *key, uid_t uid, struct job_asked *ret)
{
	sqlite3_stmt *stmt = statement(store, Q_ASKED_GET);

	text_bind(stmt, 1, key);
	sqlite3_bind_int64(stmt, 2, uid);
	int step = sqlite3_step(stmt);
	if (step == SQLITE_ROW)
		*ret = (struct job_asked){sqlite3_column_int64(stmt, 0),
					  (uint32_t)sqlite3_column_int64(stmt, 1)};
	sqlite3_reset(stmt);
	return step == SQLITE_DONE ? -ENOENT : store_errno(step);
}

int job_store_agent_put(struct job_store *store, const char *id, const char *text)
{
	sqlite3_stmt *stmt = statement(store, Q_AGENT_PUT);

	disk_settle(&store->disk);
	text_bind(stmt, 1, id);
	text_bind(stmt, 2, text);
	return store_step(stmt);
}

int job_store_agent_remove(struct job_store *store, const char *id)
{
	sqlite3_stmt *stmt = statement(store, Q_AGENT_REMOVE);

	disk_settle(&store->disk);
	text_bind(stmt, 1, id);
	int rc = store_step(stmt);
	stmt = statement(store, Q_TOLD_REMOVE);
	text_bind(stmt, 1, id);
	return rc < 0 ? rc : store_step(stmt);
}

int job_store_told_put(struct job_store *store, const char *agent, int64_t change)
{
	sqlite3_stmt *stmt = statement(store, Q_TOLD_PUT);

	disk_settle(&store->disk);
	text_bind(stmt, 1, agent);
	sqlite3_bind_int64(stmt, 2, change);
	return store_step(stmt);
}

int job_store_told_get(struct job_store *store, const char *agent, int64_t *ret)
{
	sqlite3_stmt *stmt = statement(store, Q_TOLD_GET);

	text_bind(stmt, 1, agent);
	return number_get(stmt, ret);
}

int job_store_over_put(struct job_store *store, const struct over *over)
{
	sqlite3_stmt *stmt = statement(store, Q_OVER_PUT);

	disk_settle(&store->disk);
	sqlite3_bind_int64(stmt, 1, (int64_t)over->number);
	sqlite3_bind_int64(stmt, 2, over->count);
	return store_step(stmt);
}

int job_store_over_first(struct job_store *store, uint32_t most, struct over *ret)
{
	sqlite3_stmt *stmt = statement(store, Q_OVERS);
	int step;

	*ret = (struct over){0};
	sqlite3_bind_int64(stmt, 1, most);
	while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
		uint64_t number = (uint64_t)sqlite3_column_int64(stmt, 0);
		uint64_t end = number + (uint64_t)sqlite3_column_int64(stmt, 1);

		if (!ret->count)
			ret->number = number;
		else if (number > ret->number + ret->count)
			break;
		if (end - ret->number > most)
			break;
		ret->count = MAX(ret->count, (uint32_t)(end - ret->number));
	}
	sqlite3_reset(stmt);
	return step == SQLITE_ROW || step == SQLITE_DONE ? 0 : store_errno(step);
}

int job_store_over_remove(struct job_store *store, const struct over *over)
{
	sqlite3_stmt *stmt = statement(store, Q_OVER_REMOVE);

	disk_settle(&store->disk);
	sqlite3_bind_int64(stmt, 1, (int64_t)over->number);
	sqlite3_bind_int64(stmt, 2, (int64_t)(over->number + over->count));
	return store_step(stmt);
}

int job_store_change_last(struct job_store *store, int64_t *ret)
{
	return number_get(statement(store, Q_CHANGE_LAST), ret);
}

int job_store_each_changed(struct job_store *store, int64_t after, uint32_t limit, job_record_cb cb,
			   void *arg)
{
	sqlite3_stmt *stmt = statement(store, Q_CHANGED);
	unsigned count = 0;

	sqlite3_bind_int64(stmt, 1, after);
	sqlite3_bind_int64(stmt, 2, limit);
	return each(stmt, cb, arg, &count);
}

int job_store_each_agent(struct job_store *store, agent_text_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, Q_AGENTS);
	int step, rc = 0;

	while (rc == 0 && (step = sqlite3_step(stmt)) == SQLITE_ROW)
		rc = cb(arg, (const char *)sqlite3_column_text(stmt, 0),
			(const char *)sqlite3_column_text(stmt, 1));
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}

int job_store_use_put(struct job_store *store, uid_t uid, double use, int64_t at)
{
	sqlite3_stmt *stmt = statement(store, Q_USE_PUT);

	sqlite3_bind_int64(stmt, 1, uid);
	sqlite3_bind_double(stmt, 2, use);
	sqlite3_bind_int64(stmt, 3, at);
	return store_step(stmt);
}

int job_store_each_use(struct job_store *store, job_use_cb cb, void *arg)
{
	sqlite3_stmt *stmt = statement(store, Q_USES);
	int step, rc = 0;

	while (rc == 0 && (step = sqlite3_step(stmt)) == SQLITE_ROW)
		rc = cb(arg, (uid_t)sqlite3_column_int64(stmt, 0), sqlite3_column_double(stmt, 1),
			sqlite3_column_int64(stmt, 2));
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}
