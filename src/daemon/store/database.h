/* A SQLite database of the daemon's: its file, its connection and the statements that are prepared
 * once. A copy of it can be had where somebody removed its files while it was open. Loop thread. */
#pragma once

#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <sys/types.h>

/* The version of a database is SQLite's user_version; an empty database has 0. Versions below
 * `base` were never released. Their databases are refused, as those of newer versions are. */
struct database_schema {
	int base;         /* the version that `text` makes */
	const char *text; /* makes the tables of an empty database */
	/* The first takes a database of version `base` to the next version, and so on; NULL ends
	 * the list. A migration is never changed, as databases have it; NULL: there is none. */
	const char *const *migrations;
};

struct database {
	/* Its owner's, set before it is opened. */
	const char *settings; /* pragmas, run when it is opened */
	const struct database_schema *schema;
	const char *const *texts;  /* the SQL of its statements */
	sqlite3_stmt **statements; /* as many */
	int count;
	/* Told of each commit, and how many pages its log has then, which somebody else merges into
	 * the database. NULL: SQLite does, in some commits. */
	void (*committed)(void *arg, int pages);
	void *arg;
	/* Its room is taken beforehand, on a disk that has enough: users may fill the disk. */
	bool keeps_room;

	sqlite3 *db; /* NULL: it is not open */
	/* The pages of the log at which the listener to commits merges it: INT_MAX, or less under
	 * ulimit -f. */
	int log_pages;
	char path[PATH_MAX];
	/* As they were when it was opened; 0: not known, or none. */
	ino_t file, wal, shm;
};

/* The -errno of an error of SQLite's, or 0: of the result of a call, a step or a row. */
int store_errno(int rc);
/* The number of errors of disks and files among these, since the program started. Any thread. */
unsigned database_faults(void);
/* Opens the file, made with mode 0600 where it is missing, and brings it to the schema's newest
 * version: wholly or not at all. 0 or -errno; -EPROTONOSUPPORT as database_schema_check(). After an
 * error, too, the caller closes it. */
int database_open(struct database *database, const char *path);
void database_close(struct database *database);
/* The end of the name of a file that is not where it was: "", "-wal" or "-shm". NULL: all are. */
const char *database_missing(const struct database *database);
/* All of it in memory, as the content of its file would be. The descriptor, which is the caller's,
 * or -errno. */
int database_copy(const struct database *database);
/* The version of an open database; 0: it is empty. 0 or -errno. */
int database_version(sqlite3 *db, int *ret);
/* Like database_version(), and -EPROTONOSUPPORT if another version of carve made the database. */
int database_schema_check(sqlite3 *db, const struct database_schema *schema, int *ret_version);
/* Whether database_open() would take this file, without touching it. 0 or -errno. */
int database_check(const char *path, const struct database_schema *schema);
/* Why a database cannot be used, by the -errno: "it is damaged". */
const char *database_fault(int rc);
/* Writes to an empty log: that waits for the disk once, and later commits need not. 0 or -errno. */
int database_log_begin(sqlite3 *db);
/* Settings of one that is a database still after a power cut, without a sync on each commit. */
#define DATABASE_ON_DISK                                      \
	"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" \
	"PRAGMA wal_autocheckpoint=4000;"
/* How long another process may have a database locked, ms. */
#define DATABASE_BUSY_MS 1000
