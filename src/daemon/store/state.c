#include "daemon/store/state.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/trust.h"
#include "daemon/host/keep.h"
#include "daemon/host/log.h"
#include "daemon/host/runtime.h"
#include "daemon/store/store.h"
#include "proto/warden_jobs.h"
#include "warden/warden.h"

#define DATABASE "carve.db"
/* Names of the copies, as the keep has them. */
#define COPIES SUPERVISOR_DATABASE
#define COPY_OF_SESSIONS "sessions"
#define COPY_OF_JOBS "jobs"

/* ---- where ------------------------------------------------------------------------------- */

static void database_path(const char *dir, char buf[static PATH_MAX])
{
	snprintf(buf, PATH_MAX, "%s/" DATABASE, dir);
}

static int dir_set(char to[static PATH_MAX / 2], const char *path, struct error *err)
{
	if (*path != '/')
		return error_set(err, EXIT_CODE_USAGE,
				 "the state directory takes an absolute path, not '%.200s'", path);
	if (snprintf(to, PATH_MAX / 2, "%s", path) >= PATH_MAX / 2)
		return error_set(err, EXIT_CODE_USAGE,
				 "the state directory's path is too long: %.200s...", path);
	for (size_t end = strlen(to); end > 1 && to[end - 1] == '/'; end--)
		to[end - 1] = '\0';
	return 0;
}

/* The path of the database, by the link in the runtime directory. False: there is none. */
static bool linked_dir(const struct runtime *runtime, char ret[static PATH_MAX / 2])
{
	char link[PATH_MAX], target[PATH_MAX / 2];

	runtime_path(runtime, DATABASE, link, sizeof(link));
	ssize_t n = readlink(link, target, sizeof(target) - 1);
	if (n <= 0 || target[0] != '/')
		return false;
	target[n] = '\0';
	*strrchr(target, '/') = '\0';
	snprintf(ret, PATH_MAX / 2, "%s", target[0] ? target : "/");
	return true;
}

/* A home may be shared by hosts: each has a directory there. One that another user can change, as
 * where root was given that user's environment, is none: jobs are in the database. */
static bool users_dir(const struct runtime *runtime, char ret[static PATH_MAX / 2])
{
	const char *home = getenv("XDG_STATE_HOME"); // NOLINT(concurrency-mt-unsafe): at start
	struct utsname host;

	return home && *home == '/' && trust_path_is_own(home) && runtime_is_usual(runtime) &&
	       uname(&host) == 0 &&
	       snprintf(ret, PATH_MAX / 2, "%s/carve/%s", home, host.nodename) < PATH_MAX / 2;
}

int state_choose(struct state *state, const struct runtime *runtime, const char *named,
		 const char *configured, struct error *err)
{
	state->lock_fd = -1;
	state->named = named && *named;
	if (state->named)
		return dir_set(state->wanted, named, err);
	if (configured && *configured)
		return dir_set(state->wanted, configured, err);
	if (!strcmp(runtime->dir, RUNTIME_DIR_SYSTEM))
		return dir_set(state->wanted, STATE_DIR_SYSTEM, err);
	if (!users_dir(runtime, state->wanted) && !linked_dir(runtime, state->wanted))
		return dir_set(state->wanted, runtime->dir, err);
	return 0;
}

/* ---- its directory and lock -------------------------------------------------------------- */

static int dir_error(const char *dir, int error, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED, "cannot write the state directory %.300s: %s", dir,
		  strerrordesc_np(error));
	error_hint(err, "sessions, quotas and history are kept there; name another with "
			"--state-dir DIR");
	return -error;
}

static int dirs_make(const char *dir)
{
	char path[PATH_MAX / 2];

	snprintf(path, sizeof(path), "%s", dir);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		/* Those above may be nobody's to make, and there. */
		(void)mkdir(path, 0700);
		*slash = '/';
	}
	return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* Makes the directory and takes its lock. */
static int dir_take(const char *dir, int *ret_fd, struct error *err)
{
	struct stat st;
	int rc = dirs_make(dir);

	if (rc < 0)
		return dir_error(dir, -rc, err);
	if (stat(dir, &st) < 0)
		return dir_error(dir, errno, err);
	if (!S_ISDIR(st.st_mode))
		return dir_error(dir, ENOTDIR, err);
	if (st.st_uid != geteuid() || (st.st_mode & 022)) {
		error_set(err, EXIT_CODE_FAILED,
			  "the state directory %.300s is not one of yours that only you can write",
			  dir);
		error_hint(err, "name another with --state-dir DIR");
		return -EPERM;
	}
	if (access(dir, W_OK) < 0)
		return dir_error(dir, errno, err);
	int fd = runtime_lock_dir(dir, "keeps its sessions in", err);
	if (fd < 0)
		return -EBUSY;
	*ret_fd = fd;
	return 0;
}

/* EACCES: the directory is the worker's, and this root may not look into it. */
static bool exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 || errno == EACCES;
}

/* The directory that has the living sessions. False: there are none. */
static bool current_dir(const struct runtime *runtime, char ret[static PATH_MAX / 2])
{
	char path[PATH_MAX];

	if (!linked_dir(runtime, ret))
		snprintf(ret, PATH_MAX / 2, "%s", runtime->dir);
	database_path(ret, path);
	return exists(path);
}

/* From here on the database is the one in `dir`: one step, for whoever looks at any moment. */
static int link_set(const struct runtime *runtime, const char *dir, struct error *err)
{
	char link[PATH_MAX], fresh[PATH_MAX], target[PATH_MAX];

	if (linked_dir(runtime, fresh) && !strcmp(fresh, dir))
		return 0;
	runtime_path(runtime, DATABASE, link, sizeof(link));
	runtime_path(runtime, DATABASE ".new", fresh, sizeof(fresh));
	database_path(dir, target);
	unlink(fresh);
	if (symlink(target, fresh) == 0 && rename(fresh, link) == 0)
		return 0;
	int rc = -errno;
	error_set(err, EXIT_CODE_FAILED, "cannot make the link %s: %s", link, strerrordesc_np(-rc));
	return rc;
}

static int lock_take(const struct runtime *runtime, const char *dir, int *ret_fd, struct error *err)
{
	return strcmp(dir, runtime->dir) != 0 ? dir_take(dir, ret_fd, err) : 0;
}

/* The link is followed wherever it leads, but carve moves no databases. A daemon that is killed in
 * a move would leave two places, of which the next daemon has to choose. */
static bool kept_elsewhere(const struct state *state, const struct runtime *runtime,
			   char ret_from[static PATH_MAX / 2])
{
	return current_dir(runtime, ret_from) && strcmp(ret_from, state->wanted) != 0;
}

/* A command that is cut off would move the files into a wrong place, and messages have an end. */
#define COMMAND_MAX 190

static void move_hint(const struct state *state, const struct runtime *runtime, const char *from,
		      struct error *err)
{
	const char *to = state->wanted;
	char own[PATH_MAX], users[PATH_MAX], command[COMMAND_MAX];
	int length;

	snprintf(own, sizeof(own), "%s/jobs", from);
	snprintf(users, sizeof(users), "%s" WARDEN_JOBS, from);
	if (!strcmp(from, runtime->dir) || !strcmp(to, runtime->dir))
		length = snprintf(command, sizeof(command),
				  "cd %s && mkdir -pm700 %s && mv *.db*%s %s", from, to,
				  exists(own) ? " jobs" : "", to);
	else if (exists(users))
		length = snprintf(command, sizeof(command),
				  "mv -T %s %s && mv -T %s %s" WARDEN_JOBS, from, to, users, to);
	else
		length = snprintf(command, sizeof(command), "mv -T %s %s", from, to);
	if (length < COMMAND_MAX)
		error_hint(err, "stop carved, and type: %s", command);
	else
		error_hint(err, "stop carved, and move the files there");
}

static int elsewhere_error(const struct state *state, const struct runtime *runtime,
			   const char *from, struct error *err)
{
	char path[PATH_MAX];

	database_path(state->wanted, path);
	error_set(err, EXIT_CODE_FAILED, "the sessions are kept in %.120s, not in %.120s", from,
		  state->wanted);
	/* In the runtime directory it is the link to the sessions. */
	if (strcmp(state->wanted, runtime->dir) != 0 && access(path, F_OK) == 0)
		error_hint(err, "%.150s is another database: move it away", path);
	else
		move_hint(state, runtime, from, err);
	return -EEXIST;
}

/* Settles state->dir as the wanted one. */
static int place(struct state *state, const struct runtime *runtime, struct error *err)
{
	char from[PATH_MAX / 2];

	if (kept_elsewhere(state, runtime, from))
		return elsewhere_error(state, runtime, from, err);
	snprintf(state->dir, sizeof(state->dir), "%s", state->wanted);
	int rc = lock_take(runtime, state->dir, &state->lock_fd, err);
	return rc == 0 && strcmp(state->dir, runtime->dir) != 0 ? link_set(runtime, state->dir, err)
								: rc;
}

/* A file that names another place stops no service, and no upgrade. */
static void stay(struct state *state, const char *from, struct error *why)
{
	snprintf(state->stays, sizeof(state->stays), "%.250s; %.250s", why->message, why->hint);
	log_event(LOG_WARNING, "state.stays error=\"%s\"", state->stays);
	snprintf(state->wanted, sizeof(state->wanted), "%s", from);
	*why = (struct error){0};
}

/* ---- before it gives up being root -------------------------------------------------------- */

/* Root, or a worker: this one, or one before it. Nobody else can have been told to keep carve's. */
static bool is_carves(const struct stat *st, uid_t uid)
{
	return st->st_uid == 0 || st->st_uid == uid ||
	       (st->st_uid >= WARDEN_ID_FIRST && st->st_uid <= WARDEN_ID_LAST);
}

/* A worker could have put links to other files where these were: it is not followed, and a file
 * that has another name, too, is not given away. */
static int file_give(int dir, const char *name, uid_t uid, gid_t gid)
{
	struct stat st;
	cleanup_close int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	/* EACCES: the directory is the worker's already, and this root may not look into it. */
	if (fd < 0)
		return errno == ENOENT || errno == EACCES ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || !is_carves(&st, uid))
		return -EPERM;
	if (st.st_uid == uid && st.st_gid == gid)
		return 0;
	return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

int state_directory_give(const char *dir, uid_t uid, gid_t gid)
{
	static const char *const files[] = {DATABASE,          DATABASE "-wal",
					    DATABASE "-shm",   DATABASE "-journal",
					    DATABASE "-ends",  "lock",
					    "queue.db",        "queue.db-wal",
					    "queue.db-shm",    "queue.db-journal",
					    "carved.json.last"};
	struct stat st;
	int rc = 0;
	cleanup_close int fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!is_carves(&st, uid) || (st.st_mode & 022))
		return -EPERM;
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(files); i++)
		rc = file_give(fd, files[i], uid, gid);
	if (rc == 0 && (st.st_uid != uid || st.st_gid != gid) &&
	    fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0)
		rc = -errno;
	return rc;
}

static int give(const char *dir, uid_t uid, gid_t gid, struct error *err)
{
	int rc = state_directory_give(dir, uid, gid);

	if (rc == 0)
		return 0;
	error_set(err, EXIT_CODE_FAILED,
		  "the state directory %.300s cannot be given to user %u: %s", dir, uid,
		  rc == -EPERM ? "it, or a file in it, may be another's" : strerrordesc_np(-rc));
	error_hint(err, "look at its files: they are to be root's, with one name each");
	return rc;
}

int state_prepare(struct state *state, const struct runtime *runtime, uid_t uid, gid_t gid,
		  struct error *err)
{
	char from[PATH_MAX / 2];
	bool in_runtime = !strcmp(state->wanted, runtime->dir);

	/* The runtime directory is root's: its database needs a directory of the worker's own. */
	if (in_runtime && uid)
		snprintf(state->wanted, sizeof(state->wanted), "%s/state", runtime->dir);
	else if (in_runtime)
		return 0;
	if (kept_elsewhere(state, runtime, from)) {
		int rc = elsewhere_error(state, runtime, from, err);

		/* Nobody but root writes in the runtime directory. */
		if (state->named || (uid && !strcmp(from, runtime->dir)))
			return rc;
		stay(state, from, err);
		return give(from, uid, gid, err);
	}
	int rc = dirs_make(state->wanted);
	if (rc < 0)
		return dir_error(state->wanted, -rc, err);
	rc = give(state->wanted, uid, gid, err);
	return rc < 0 ? rc : link_set(runtime, state->wanted, err);
}

/* ---- the life of the host ---------------------------------------------------------------- */

static void boot_read(struct store_boot *ret)
{
	struct timespec up;
	ssize_t n = file_read("/proc/sys/kernel/random/boot_id", ret->id, sizeof(ret->id));

	ret->id[n > 0 ? strcspn(ret->id, "\n") : 0] = '\0';
	clock_gettime(CLOCK_BOOTTIME, &up);
	ret->began = now_realtime_ns() - ((int64_t)up.tv_sec * 1000000000 + up.tv_nsec);
}

static int copy_write(int copy, const char *path)
{
	char fresh[PATH_MAX + 8];
	struct stat st;
	off_t at = 0;
	ssize_t n = 1;

	snprintf(fresh, sizeof(fresh), "%s.new", path);
	(void)unlink(fresh);
	cleanup_close int fd =
		open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fstat(copy, &st) < 0)
		return -errno;
	while (n > 0 && at < st.st_size)
		n = sendfile(fd, copy, &at, (size_t)(st.st_size - at));
	if (n < 0 || fsync(fd) < 0 || rename(fresh, path) < 0)
		return -errno;
	return 0;
}

/* A copy is newer than what the removal has left of the database's files. */
static void copy_restore(const struct state *state, struct keep *keep, const char *part,
			 const char *file)
{
	static const char *const beside[] = {"-wal", "-shm"};
	char path[PATH_MAX], other[PATH_MAX + 8];
	cleanup_close int copy = keep_take(keep, COPIES, part);

	snprintf(path, sizeof(path), "%s/%s", state->dir, file);
	if (copy < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
		snprintf(other, sizeof(other), "%s%s", path, beside[i]);
		(void)unlink(other);
	}
	int rc = copy_write(copy, path);
	log_event(rc < 0 ? LOG_ERROR : LOG_WARNING, "state.restored file=%s error=\"%s\"", file,
		  rc < 0 ? strerrordesc_np(-rc) : "");
	/* From here on the file is newer. */
	keep_drop(keep, COPIES, part);
	keep_flush(keep);
}

int state_open(struct state *state, const struct runtime *runtime, struct keep *keep,
	       struct store **ret, struct error *err)
{
	char path[PATH_MAX], from[PATH_MAX / 2];
	struct store_boot boot;
	unsigned ended = 0;

	if (!state->named && kept_elsewhere(state, runtime, from)) {
		(void)elsewhere_error(state, runtime, from, err);
		stay(state, from, err);
	}
	int rc = place(state, runtime, err);
	if (rc < 0)
		return rc;
	copy_restore(state, keep, COPY_OF_SESSIONS, DATABASE);
	copy_restore(state, keep, COPY_OF_JOBS, "queue.db");
	database_path(state->dir, path);
	rc = store_open(ret, path, strcmp(state->dir, runtime->dir) != 0, err);
	if (rc < 0)
		return rc;
	boot_read(&boot);
	rc = store_boot(*ret, &boot, &ended);
	if (rc < 0) {
		store_explain(path, rc, err);
		return rc;
	}
	if (ended)
		log_event(LOG_INFO, "host.restarted sessions_ended=%u", ended);
	return 0;
}

void state_explain(const struct state *state, int rc, struct error *err)
{
	char path[PATH_MAX];

	database_path(state->dir, path);
	store_explain(path, rc, err);
}

static bool lock_is_there(const struct state *state)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/lock", state->dir);
	return file_is_at(state->lock_fd, path);
}

/* ---- files that were removed ------------------------------------------------------------- */

bool state_lock_missing(const struct state *state, const struct runtime *runtime)
{
	/* All of it may be the runtime directory's. */
	return strcmp(state->dir, runtime->dir) != 0 && !lock_is_there(state);
}

int state_leave_copies(struct keep *keep, int sessions_fd, int jobs_fd)
{
	keep_put(keep, COPIES, COPY_OF_SESSIONS, sessions_fd);
	keep_put(keep, COPIES, COPY_OF_JOBS, jobs_fd);
	keep_flush(keep);
	return keep->first ? -EAGAIN : 0;
}

bool state_link_missing(const struct state *state, const struct runtime *runtime)
{
	char target[PATH_MAX / 2];

	return strcmp(state->dir, runtime->dir) != 0 && !linked_dir(runtime, target);
}

int state_check(const struct runtime *runtime, char ret_dir[static PATH_MAX / 2], struct error *err)
{
	char path[PATH_MAX];

	(void)current_dir(runtime, ret_dir);
	database_path(ret_dir, path);
	return store_check(path, err);
}

void state_close(struct state *state)
{
	close_fd(&state->lock_fd);
}
