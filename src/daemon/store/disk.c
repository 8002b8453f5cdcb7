#include "daemon/store/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "daemon/store/database.h"

/* 16 MiB: seconds of a busy queue, and some 50 ms to merge. */
#define MERGE_PAGES 4000

struct disk_work {
	uv_work_t work;
	struct disk *disk; /* NULL: it is gone */
	enum disk_state kind;
	uint64_t commit; /* all up to this one are on the disk afterwards */
	char path[PATH_MAX];
	int rc;
	sem_t done;
};

/* ---- the thread's -------------------------------------------------------------------------- */

static int log_sync(const char *path)
{
	char log[PATH_MAX + 8];

	snprintf(log, sizeof(log), "%s-wal", path);
	cleanup_close int fd = open(log, O_RDONLY | O_CLOEXEC);
	return fd < 0 || fdatasync(fd) < 0 ? -errno : 0;
}

/* Begins the log anew, too: the first commit into a new log waits for the disk, and is none of the
 * loop's. */
static int log_merge(const char *path)
{
	sqlite3 *db = NULL;
	int version,
		rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(db, DATABASE_BUSY_MS);
	rc = store_errno(rc);
	/* A connection that has read nothing knows of no log. */
	if (rc == 0)
		rc = database_version(db, &version);
	if (rc == 0)
		rc = store_errno(
			sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL));
	if (rc == 0)
		rc = database_log_begin(db);
	sqlite3_close(db);
	return rc;
}

static void on_work(uv_work_t *request)
{
	struct disk_work *work = request->data;

	work->rc = work->kind == DISK_SYNCS ? log_sync(work->path) : log_merge(work->path);
	sem_post(&work->done);
}

/* ---- the loop's ---------------------------------------------------------------------------- */

static void waiters_call(struct disk *disk, uint64_t commit, int rc)
{
	/* One that is called may wait again: for a later commit. */
	while (disk->first && disk->first->commit <= commit) {
		struct disk_waiter *waiter = disk->first;

		disk->first = waiter->next;
		if (!disk->first)
			disk->end = &disk->first;
		waiter->cb(waiter, rc);
	}
}

static void work_free(struct disk_work *work)
{
	sem_destroy(&work->done);
	free(work);
}

static int merge_pages(const struct disk *disk)
{
	return MIN(MERGE_PAGES, disk->database->log_pages);
}

static void on_worked(uv_work_t *request, int status)
{
	struct disk_work *work = request->data;
	struct disk *disk = work->disk;
	uint64_t commit = work->commit;
	bool merged = work->kind == DISK_MERGES;
	int rc = status < 0 ? -ECANCELED : work->rc;

	work_free(work);
	if (!disk)
		return;
	disk->work = NULL;
	disk->state = DISK_IDLE;
	if (merged && rc == 0)
		disk->pages = 0;
	if (merged)
		disk->merged_pages = disk->pages;
	/* If merging failed, a sync may do. */
	if (rc == 0 || !merged)
		waiters_call(disk, commit, rc);
	if (merged && disk->merged)
		disk->merged(disk->arg);
}

static bool work_start(struct disk *disk, enum disk_state kind)
{
	struct disk_work *work = calloc(1, sizeof(*work));

	if (!work)
		return false;
	work->work.data = work;
	work->disk = disk;
	work->kind = kind;
	work->commit = disk->committed;
	snprintf(work->path, sizeof(work->path), "%s", disk->database->path);
	sem_init(&work->done, 0, 0);
	if (uv_queue_work(disk->loop, &work->work, on_work, on_worked) < 0) {
		work_free(work);
		return false;
	}
	disk->work = work;
	disk->state = kind;
	return true;
}

void disk_run(struct disk *disk)
{
	if (!disk->loop || disk->work)
		return;
	if (disk->pages - disk->merged_pages >= merge_pages(disk))
		(void)work_start(disk, DISK_MERGES);
	else if (disk->first && !work_start(disk, DISK_SYNCS))
		waiters_call(disk, disk->committed, -ENOMEM);
}

void disk_await(struct disk *disk, struct disk_waiter *waiter)
{
	waiter->next = NULL;
	waiter->commit = disk->committed;
	*disk->end = waiter;
	disk->end = &waiter->next;
}

static void work_wait(struct disk_work *work)
{
	while (sem_wait(&work->done) < 0 && errno == EINTR)
		;
}

void disk_settle(struct disk *disk)
{
	if (disk->state != DISK_MERGES)
		return;
	/* The threads are everybody's, and the driver may hold up all of them: one that has not
	 * begun is called off, and the log goes on growing. */
	if (uv_cancel((uv_req_t *)&disk->work->work) < 0)
		work_wait(disk->work);
	/* The rest is done when the loop hears of it. */
	disk->state = DISK_IDLE;
}

static void on_commit(void *arg, int pages)
{
	struct disk *disk = arg;

	disk->committed++;
	disk->pages = pages;
}

void disk_begin(struct disk *disk, uv_loop_t *loop, struct database *database,
		void (*merged)(void *arg), void *arg)
{
	*disk = (struct disk){.loop = loop, .database = database, .merged = merged, .arg = arg};
	disk->end = &disk->first;
	database->committed = on_commit;
	database->arg = disk;
}

void disk_end(struct disk *disk)
{
	/* One that waits for its turn still is none of this daemon's. */
	if (disk->work) {
		if (uv_cancel((uv_req_t *)&disk->work->work) < 0 && disk->state != DISK_IDLE)
			work_wait(disk->work);
		disk->work->disk = NULL;
		disk->work = NULL;
	}
	disk->state = DISK_IDLE;
	if (disk->first)
		waiters_call(disk, UINT64_MAX, log_sync(disk->database->path));
}
