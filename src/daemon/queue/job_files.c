/* The files of jobs. A shim runs as the job's user, so its files are in a directory that the user
 * owns. The user can replace a file by anything: a link, a pipe, another user's file. The user can
 * also mount a file system there that never answers. So files are opened below that directory
 * without following links, must be regular files of that user, and are read up to a bound. The
 * launcher makes the directory of another user, and this process makes its own user's. A directory
 * that somebody removed is made anew while a job of that user runs. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"
#include "proto/shim.h"

/* Larger numbers are no job's, but a user's own idea. */
#define JOB_ID_LIKELY (INT64_C(1) << 40)

const char *job_directory(const struct queues *q)
{
	struct stat st;
	bool users = launcher_is_there(q->host.launcher) || (lstat(q->places.users_dir, &st) == 0 &&
							     S_ISDIR(st.st_mode) && st.st_uid == 0);

	return users ? q->places.users_dir : q->places.dir;
}

void job_file(const struct queues *q, const struct job_record *record, const char *suffix,
	      char buf[static PATH_MAX])
{
	snprintf(buf, PATH_MAX, "%s/%u/%" PRId64 ".%u%s", job_directory(q), record->uid, record->id,
		 record->attempt, suffix);
}

/* The file's name in its user's directory. */
static void file_name(const struct job_record *record, const char *suffix,
		      char ret[static NAME_MAX])
{
	snprintf(ret, NAME_MAX, "%" PRId64 ".%u%s", record->id, record->attempt, suffix);
}

/* The user's directory, or -errno; -EXDEV: the user mounted a file system there, which may never
 * answer. */
static int directory_open(const struct queues *q, uid_t uid)
{
	char user[16];
	cleanup_close int all = open(job_directory(q), O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (all < 0)
		return -errno;
	snprintf(user, sizeof(user), "%u", uid);
	return open_beneath(all, user, O_PATH | O_DIRECTORY);
}

bool job_directory_missing(const struct queues *q, uid_t uid)
{
	cleanup_close int dir = directory_open(q, uid);

	return dir == -ENOENT;
}

int job_files_look(const struct queues *q, uid_t uid)
{
	struct statvfs room;
	cleanup_close int own = directory_open(q, uid), above = -1;
	/* A launcher makes the directory, and only its user writes to it. */
	bool launched = launcher_is_there(q->host.launcher);

	/* The directory is made with the user's first job. */
	if (own == -ENOENT)
		above = open(q->host.state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int dir = own == -ENOENT ? above : own;
	if (dir < 0)
		return own == -ENOENT ? -errno : own;
	if ((!launched && faccessat(dir, ".", W_OK | X_OK, AT_EACCESS) < 0) ||
	    fstatvfs(dir, &room) < 0)
		return -errno;
	return !room.f_bavail || (room.f_files && !room.f_favail) ? -ENOSPC : 0;
}

static DIR *directory_list(int fd)
{
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

/* A user may have made files of any name. */
static int64_t last_in(DIR *dir, int64_t last)
{
	const struct dirent *entry;

	// NOLINTNEXTLINE(concurrency-mt-unsafe): its own list
	while ((entry = readdir(dir))) {
		char *end;
		int64_t id = job_id_number(strtoll(entry->d_name, &end, 10));

		if (*end == '.' && id > last && id < JOB_ID_LIKELY)
			last = id;
	}
	return last;
}

int64_t job_files_last(const struct queues *q)
{
	DIR *all = directory_list(open(job_directory(q), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	const struct dirent *entry;
	int64_t last = 0;

	// NOLINTNEXTLINE(concurrency-mt-unsafe): its own list
	while (all && (entry = readdir(all))) {
		DIR *one = !isdigit((unsigned char)*entry->d_name)
				   ? NULL
				   : directory_list(open_beneath(dirfd(all), entry->d_name,
								 O_RDONLY | O_DIRECTORY));

		if (one) {
			last = last_in(one, last);
			closedir(one);
		}
	}
	if (all)
		closedir(all);
	return last;
}

static int file_open(const struct queues *q, const struct job_record *record, const char *suffix)
{
	char name[NAME_MAX];
	struct stat st;
	cleanup_close int dir = directory_open(q, record->uid);

	if (dir < 0)
		return dir;
	file_name(record, suffix, name);
	cleanup_close int fd = open_beneath(dir, name, O_RDONLY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return fd < 0 ? fd : -errno;
	return S_ISREG(st.st_mode) && st.st_uid == record->uid ? steal_fd(&fd) : -EPERM;
}

ssize_t job_file_read(const struct queues *q, const struct job_record *record, const char *suffix,
		      char *text, size_t size)
{
	cleanup_close int fd = file_open(q, record, suffix);

	if (fd < 0)
		return fd;
	ssize_t n = read(fd, text, size);
	if (n < 0)
		return -errno;
	if (n == (ssize_t)size)
		return -EFBIG;
	text[n] = '\0';
	return n;
}

/* File systems that have no such read keep their files in memory, or are not waited for here alone.
 */
static ssize_t read_from_memory(int fd, char *bytes, size_t size, int64_t from)
{
	struct iovec room = {bytes, size};
	ssize_t n = preadv2(fd, &room, 1, from, RWF_NOWAIT);

	if (n < 0 && errno == EOPNOTSUPP)
		n = pread(fd, bytes, size, from);
	if (n < 0 && errno == EAGAIN) {
		(void)posix_fadvise(fd, from, (off_t)size, POSIX_FADV_WILLNEED);
		n = 0;
	}
	return n < 0 ? -errno : n;
}

int job_file_read_part(const struct queues *q, const struct job_record *record, const char *suffix,
		       struct job_file_part *part)
{
	struct stat st = {0};
	cleanup_close int fd = file_open(q, record, suffix);

	if (fd < 0 && fd != -ENOENT)
		return fd;
	if (fd >= 0 && fstat(fd, &st) < 0)
		return -errno;
	int64_t from = part->from < 0 ? st.st_size - (int64_t)part->size : part->from;
	from = MIN(MAX(from, 0), st.st_size);
	ssize_t n = fd < 0 ? 0 : read_from_memory(fd, part->bytes, part->size, from);
	if (n < 0)
		return (int)n;
	part->from = from;
	part->length = st.st_size;
	part->size = (size_t)n;
	return 0;
}

bool job_file_is_locked(const struct queues *q, const struct job_record *record, const char *suffix)
{
	cleanup_close int fd = file_open(q, record, suffix);

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

int job_file_link(const struct queues *q, const struct job_record *record, const char *suffix)
{
	char name[NAME_MAX], text[16];
	struct stat st;
	cleanup_close int dir = directory_open(q, record->uid);

	file_name(record, suffix, name);
	if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_uid != record->uid)
		return 0;
	ssize_t n = readlinkat(dir, name, text, sizeof(text) - 1);
	if (n < 0)
		return 0;
	text[n] = '\0';
	return (int)strtol(text, NULL, 10);
}

void job_files_remove(const struct queues *q, const struct job_record *record, uint32_t files)
{
	char name[NAME_MAX];

	/* If it is away, the files go with the job's log, or stay. */
	if (launcher_is_there(q->host.launcher)) {
		(void)launcher_remove(q->host.launcher, record->uid, record->id, record->attempt,
				      files);
		return;
	}
	cleanup_close int dir = directory_open(q, record->uid);
	file_name(record, "", name);
	if (dir >= 0)
		shim_files_remove(dir, name, files);
}

/* ---- directories --------------------------------------------------------------------------- */

int job_directory_make(const struct queues *q, uid_t uid, char buf[static PATH_MAX])
{
	if (snprintf(buf, PATH_MAX, "%s/%u", q->places.dir, uid) >= PATH_MAX)
		return -ENAMETOOLONG;
	if (mkdir(buf, 0700) == 0)
		return 0;
	if (errno == ENOENT && (mkdir(q->places.dir, 0700) == 0 || errno == EEXIST) &&
	    mkdir(buf, 0700) == 0)
		return 0;
	return errno == EEXIST ? 0 : -errno;
}

/* That it fails is said once. */
static void files_tell(struct queues *q, int rc)
{
	if (rc >= 0)
		log_event(LOG_WARNING, "runtime.vanished file=jobs made=anew");
	else if (rc != q->places.made)
		log_event(LOG_ERROR, "runtime.vanished file=jobs error=\"%s\"",
			  strerrordesc_np(-rc));
	q->places.made = MIN(rc, 0);
}

static void on_files(void *arg, int rc, const void *reply, int *fd)
{
	struct queues *q = arg;

	q->places.asked = 0;
	files_tell(q, rc);
}

/* The user of a job that runs whose directory is missing; (uid_t)-1: nobody. */
static uid_t directory_missing(const struct queues *q)
{
	uid_t looked = (uid_t)-1;

	for (const struct job *job = q->jobs->running.first; job; job = job->next) {
		if (job->record.uid == looked)
			continue;
		looked = job->record.uid;
		if (!job->starting && job_directory_missing(q, looked))
			return looked;
	}
	return (uid_t)-1;
}

/* Users' directories are there from the start of their first job on. Without a launcher that start
 * makes the directory of all, too. */
void job_directories_look(struct queues *q)
{
	char path[PATH_MAX];

	if (q->places.asked)
		return;
	bool all = launcher_is_there(q->host.launcher) && access(q->places.users_dir, F_OK) < 0 &&
		   errno == ENOENT;
	uid_t uid = all ? (uid_t)-1 : directory_missing(q);
	if (!all && uid == (uid_t)-1)
		return;
	bool launched = launcher_is_there(q->host.launcher);
	int rc = launched ? launcher_files(q->host.launcher, uid, on_files, q, &q->places.asked)
			  : job_directory_make(q, uid, path);
	/* A warden's answer comes later. */
	if (rc < 0 || !launched)
		files_tell(q, rc);
}
