#include "daemon/database.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/store_db.h"

#define FILE_SIZE (PATH_MAX + 8)

static void file_path(const struct database_files *files, const char *end,
		      char buf[static FILE_SIZE])
{
	snprintf(buf, FILE_SIZE, "%s%s", files->path, end);
}

/* 0: there is none. */
static ino_t file_inode(const struct database_files *files, const char *end)
{
	char path[FILE_SIZE];
	struct stat st;

	file_path(files, end, path);
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

void database_note(struct database_files *files, const char *path)
{
	snprintf(files->path, sizeof(files->path), "%s", path);
	files->database = file_inode(files, "");
	files->wal = file_inode(files, "-wal");
}

bool database_intact(const struct database_files *files)
{
	return !files->database || (file_inode(files, "") == files->database &&
				    (!files->wal || file_inode(files, "-wal") == files->wal));
}

int database_write(sqlite3 *db, const struct database_files *files)
{
	char fresh[FILE_SIZE];
	sqlite3_stmt *stmt = NULL;

	file_path(files, ".new", fresh);
	unlink(fresh);
	/* Its mode is that of a new file: the daemon's umask keeps others out. */
	int rc = sqlite3_prepare_v2(db, "VACUUM INTO ?1", -1, &stmt, NULL);
	if (rc == SQLITE_OK) {
		store_bind_text(stmt, 1, fresh);
		rc = sqlite3_step(stmt);
	}
	sqlite3_finalize(stmt);
	if (rc != SQLITE_DONE) {
		unlink(fresh);
		return store_errno(rc);
	}
	cleanup_close int fd = open(fresh, O_RDONLY | O_CLOEXEC);
	return fd < 0 || fchmod(fd, 0600) < 0 || fsync(fd) < 0 ? -errno : 0;
}

int database_settle(const struct database_files *files)
{
	static const char *const beside[] = {"-wal", "-shm"};
	char fresh[FILE_SIZE], path[FILE_SIZE];

	/* They belong to the database that was there. */
	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		file_path(files, beside[i], path);
		unlink(path);
	}
	file_path(files, ".new", fresh);
	return rename(fresh, files->path) < 0 ? -errno : 0;
}
