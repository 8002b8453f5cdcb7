/* A SQLite database whose files somebody removed while it was open. */
#pragma once

#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <sys/types.h>

/* The files of a database that is open, as they were when it was opened. Zeroed: not known. */
struct database_files {
	char path[PATH_MAX];
	ino_t database, wal;
};

/* Notes them. `path` is the database's. */
void database_note(struct database_files *files, const char *path);
/* Whether they are where they were. */
bool database_intact(const struct database_files *files);
/* Writes all of the database to its path anew. Its connection is of no use from then on: it is to
 * be closed, then database_settle() called, then the path opened. 0 or -errno: nothing has changed.
 */
int database_write(sqlite3 *db, const struct database_files *files);
/* Puts what was written in place. 0 or -errno. */
int database_settle(const struct database_files *files);
