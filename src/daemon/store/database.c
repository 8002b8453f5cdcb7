#include "daemon/store/database.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

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
	case SQLITE_IOERR:
		/* SQLite does not tell why a file could not be written. */
		return file_size_limit() != UINT64_MAX ? -EFBIG : -EIO;
	default:
		return -EIO;
	}
}

static _Atomic unsigned faults;

int store_errno(int rc)
{
	int error = errno_of(rc);

	if (error == -ENOSPC || error == -EROFS || error == -EUCLEAN || error == -EIO)
		faults++;
	return error;
}

unsigned database_faults(void)
{
	return faults;
}

#define FILE_SIZE (PATH_MAX + 8)

#define LOG_PART_OF_LIMIT 4
/* SQLite's default, in pages, is the most; some transactions write a dozen. */
#define LOG_PAGES_LIMITED 1000ull
#define LOG_PAGES_MIN 16ull

static void file_path(const struct database *d, const char *end, char buf[static FILE_SIZE])
{
	snprintf(buf, FILE_SIZE, "%s%s", d->path, end);
}

/* 0: there is none. */
static ino_t file_inode(const struct database *d, const char *end)
{
	char path[FILE_SIZE];
	struct stat st;

	file_path(d, end, path);
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

int database_version(sqlite3 *db, int *ret)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &stmt, NULL);

	if (rc != SQLITE_OK)
		return store_errno(rc);
	rc = sqlite3_step(stmt);
	*ret = rc == SQLITE_ROW ? sqlite3_column_int(stmt, 0) : 0;
	sqlite3_finalize(stmt);
	return rc == SQLITE_ROW ? 0 : store_errno(rc);
}

static int schema_newest(const struct database_schema *schema)
{
	int count = 0;

	while (schema->migrations && schema->migrations[count])
		count++;
	return schema->base + count;
}

int database_schema_check(sqlite3 *db, const struct database_schema *schema, int *ret_version)
{
	int version = 0, rc = database_version(db, &version);

	if (rc < 0)
		return rc;
	if (version != 0 && (version < schema->base || version > schema_newest(schema)))
		return -EPROTONOSUPPORT;
	*ret_version = version;
	return 0;
}

static int schema_make(sqlite3 *db, const struct database_schema *schema)
{
	char set_version[64];
	int found, newest = schema_newest(schema);
	int rc = database_schema_check(db, schema, &found);

	if (rc < 0 || found == newest)
		return rc;
	rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	if (rc == SQLITE_OK && found == 0)
		rc = sqlite3_exec(db, schema->text, NULL, NULL, NULL);
	for (int at = MAX(found, schema->base); rc == SQLITE_OK && at < newest; at++)
		rc = sqlite3_exec(db, schema->migrations[at - schema->base], NULL, NULL, NULL);
	snprintf(set_version, sizeof(set_version), "PRAGMA user_version=%d; COMMIT;", newest);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, set_version, NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return store_errno(rc);
}

int database_check(const char *path, const struct database_schema *schema)
{
	sqlite3 *db = NULL;
	int version;
	int rc = store_errno(
		sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL));

	if (rc == 0)
		(void)sqlite3_busy_timeout(db, DATABASE_BUSY_MS);
	if (rc == 0)
		rc = database_schema_check(db, schema, &version);
	sqlite3_close(db);
	return rc;
}

const char *database_fault(int rc)
{
	return rc == -EUCLEAN           ? "it is damaged"
	       : rc == -EROFS           ? "it cannot be written"
	       : rc == -EPROTONOSUPPORT ? "another version of carve wrote it"
					: strerrordesc_np(-rc);
}

int database_log_begin(sqlite3 *db)
{
	char text[64];
	int version = 0, rc = database_version(db, &version);

	if (rc < 0)
		return rc;
	snprintf(text, sizeof(text), "PRAGMA user_version=%d", version);
	return store_errno(sqlite3_exec(db, text, NULL, NULL, NULL));
}

static int on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
	const struct database *d = arg;

	d->committed(d->arg, pages);
	return SQLITE_OK;
}

static int statements_prepare(struct database *d)
{
	for (int i = 0; i < d->count; i++) {
		int rc = sqlite3_prepare_v3(d->db, d->texts[i], -1, SQLITE_PREPARE_PERSISTENT,
					    &d->statements[i], NULL);
		if (rc != SQLITE_OK)
			return store_errno(rc);
	}
	return 0;
}

/* The number that a pragma answers; 0: none. */
static sqlite3_int64 pragma_number(sqlite3 *db, const char *pragma)
{
	sqlite3_stmt *stmt;
	sqlite3_int64 number = 0;

	if (sqlite3_prepare_v2(db, pragma, -1, &stmt, NULL) == SQLITE_OK) {
		if (sqlite3_step(stmt) == SQLITE_ROW)
			number = sqlite3_column_int64(stmt, 0);
		sqlite3_finalize(stmt);
	}
	return number;
}

static sqlite3_int64 page_size(sqlite3 *db)
{
	return MAX(pragma_number(db, "PRAGMA page_size"), 512);
}

/* Under ulimit -f the log goes into the database before it has a quarter of what a file may have:
 * else it would be full long before the database is. */
static int log_bound(struct database *d)
{
	uint64_t limit = file_size_limit();

	d->log_pages = INT_MAX;
	if (limit == UINT64_MAX)
		return SQLITE_OK;
	uint64_t pages = limit / LOG_PART_OF_LIMIT / (uint64_t)page_size(d->db);
	d->log_pages = (int)MIN(MAX(pages, LOG_PAGES_MIN), LOG_PAGES_LIMITED);
	return sqlite3_wal_autocheckpoint(d->db, d->log_pages);
}

/* Room that the file takes beforehand, in steps of as many bytes: sessions with the usual history
 * take some 15 MiB. The log is merged before it has as much, and gets a quarter more. */
#define ROOM (16 << 20)
/* On a disk that has less than this many times that, nothing is taken. */
#define ROOM_PART 8u

static bool room_is_kept(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && st.st_size && st.st_size % ROOM == 0;
}

static bool room_is_there(const char *path)
{
	struct statvfs disk;

	return statvfs(path, &disk) == 0 &&
	       (uint64_t)disk.f_bavail * disk.f_frsize / ROOM_PART > ROOM &&
	       file_size_limit() == UINT64_MAX;
}

/* A write in the file's and the log's room needs none of the disk's. At each start the file has
 * half a step that is not used. SQLite keeps the file at whole steps, and the log in place when it
 * is closed. The log's room is behind its end, so that SQLite does not see it. */
static void room_take(const struct database *d, const char *path)
{
	char log[FILE_SIZE];
	int step = ROOM, stay = 1;
	sqlite3_int64 used = pragma_number(d->db, "PRAGMA page_count") * page_size(d->db);
	sqlite3_int64 least = used + ROOM / 2;
	bool there = d->keeps_room && room_is_there(path);

	if (!there && !(d->keeps_room && room_is_kept(path)))
		return;
	(void)sqlite3_file_control(d->db, "main", SQLITE_FCNTL_CHUNK_SIZE, &step);
	(void)sqlite3_file_control(d->db, "main", SQLITE_FCNTL_PERSIST_WAL, &stay);
	if (!there)
		return;
	(void)sqlite3_file_control(d->db, "main", SQLITE_FCNTL_SIZE_HINT, &least);
	snprintf(log, sizeof(log), "%s-wal", path);
	cleanup_close int fd = open(log, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0)
		(void)fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, ROOM + ROOM / 4);
}

int database_open(struct database *d, const char *path)
{
	/* Made by us first, so that it never exists with a wider mode. */
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	close(fd);
	int rc = sqlite3_open_v2(path, &d->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(d->db, DATABASE_BUSY_MS);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(d->db, d->settings, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = log_bound(d);
	if (rc != SQLITE_OK)
		return store_errno(rc);
	if (d->committed)
		sqlite3_wal_hook(d->db, on_commit, d);
	rc = schema_make(d->db, d->schema);
	if (rc == 0 && d->committed)
		rc = database_log_begin(d->db);
	if (rc == 0)
		rc = statements_prepare(d);
	if (rc < 0)
		return rc;
	room_take(d, path);
	if (path != d->path)
		snprintf(d->path, sizeof(d->path), "%s", path);
	d->file = file_inode(d, "");
	d->wal = file_inode(d, "-wal");
	d->shm = file_inode(d, "-shm");
	return 0;
}

void database_close(struct database *d)
{
	for (int i = 0; i < d->count; i++) {
		sqlite3_finalize(d->statements[i]);
		d->statements[i] = NULL;
	}
	sqlite3_close(d->db);
	d->db = NULL;
}

/* ---- files that were removed ------------------------------------------------------------- */

static bool is_missing(const struct database *d, const char *end, ino_t opened)
{
	return opened && file_inode(d, end) != opened;
}

const char *database_missing(const struct database *d)
{
	if (is_missing(d, "", d->file))
		return "";
	if (is_missing(d, "-wal", d->wal))
		return "-wal";
	return is_missing(d, "-shm", d->shm) ? "-shm" : NULL;
}

int database_copy(const struct database *d)
{
	sqlite3_int64 size = 0;
	unsigned char *bytes = d->db ? sqlite3_serialize(d->db, "main", &size, 0) : NULL;
	cleanup_close int fd = memfd_create("carve-database", MFD_CLOEXEC);
	int rc = !bytes ? -ENOMEM : fd < 0 ? -errno : write_all(fd, bytes, (size_t)size);

	sqlite3_free(bytes);
	return rc < 0 ? rc : steal_fd(&fd);
}
