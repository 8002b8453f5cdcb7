/* Brings the commits of a database to the disk, while the loop does not wait for it. The database's
 * own connection commits without a sync, into SQLite's log (WAL). A thread of libuv's pool syncs
 * the log: once for all that wait for it at that moment. When the log has grown long, the thread
 * merges it into the database. A commit has to wait until that is done, or to be tried again.
 *
 * Loop thread. Nothing here logs or reads the database. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct database;
struct disk_work;
struct sqlite3;

enum disk_state {
	DISK_IDLE,
	DISK_SYNCS,  /* commits go on meanwhile */
	DISK_MERGES, /* nothing may be committed meanwhile: it would wait for the disk */
};

/* Its owner keeps it until it is called, which is never at once. `rc`: 0, or -errno where the disk
 * failed. */
struct disk_waiter {
	struct disk_waiter *next;
	uint64_t commit;
	void (*cb)(struct disk_waiter *waiter, int rc);
};

struct disk {
	uv_loop_t *loop;
	struct database *database;
	enum disk_state state;
	struct disk_work *work; /* NULL: nothing runs */
	uint64_t committed;     /* commits so far */
	int pages;              /* the log's size */
	int merged_pages;       /* the pages it had after the last merge: 0, or it failed */
	struct disk_waiter *first, **end;
	void (*merged)(void *arg); /* commits may go on */
	void *arg;
};

/* Before the database is opened: it tells of its commits. `loop` NULL: the log is never merged, and
 * nobody can wait. */
void disk_begin(struct disk *disk, uv_loop_t *loop, struct database *database,
		void (*merged)(void *arg), void *arg);
/* Waits for the disk, and calls all who wait. */
void disk_end(struct disk *disk);
/* Calls when all commits so far are on the disk. */
void disk_await(struct disk *disk, struct disk_waiter *waiter);
/* Starts what is to be done. In each round of the loop, outside of commits. */
void disk_run(struct disk *disk);
/* For those who cannot come back: waits while the log is being merged, which takes as long as the
 * disk; a merge that has not begun is called off. */
void disk_settle(struct disk *disk);
