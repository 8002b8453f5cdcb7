/* A broken worker owns the state directory, and each user owns a directory of jobs beside it. Root
 * removes both, so nothing in them may lead root elsewhere. So each directory is opened by
 * open_beneath(), from the descriptor of the one above it. It must have the owner that carve gave
 * it. Files in it are removed by name, never by path, and with that owner's rights (fsuid). So a
 * directory that was moved elsewhere meanwhile loses nothing that its owner could not remove.
 * Names are those of the tables below and of files of jobs. A directory in which something else is
 * stays, and is told. */
#include "daemon/purge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/trust.h"
#include "daemon/gpu/claims.h"
#include "daemon/node.h"
#include "daemon/prepare.h"
#include "proto/warden_jobs.h"
#include "warden/mig_record.h"
#include "warden/warden.h"

#define LOCK "lock"
#define JOBS "jobs"

/* In a runtime directory. The link to the database is here, too. */
static const char *const runtime_names[] = {
	"carved.sock",
	"attach.sock",
	WARDEN_SOCKET,
	"notify.sock",
	"descriptors.sock",
	"start",
	".start.new",
	"carved.log",
	"carved.log.old",
	"carved.json.last",
	"carved.json.last.new",
	"carve.db",
	"carve.db.new",
	MIG_RECORD_FILE,
	(MIG_RECORD_FILE ".new"),
	(MIG_RECORD_FILE ".lock"),
	NULL,
};
static const char *const state_names[] = {
	"carve.db",
	"carve.db-wal",
	"carve.db-shm",
	"carve.db-journal",
	"carve.db-ends",
	"carve.db-ends.new",
	"carve.db.new",
	"queue.db",
	"queue.db-wal",
	"queue.db-shm",
	"queue.db-journal",
	"queue.db.new",
	"carved.json.last",
	"carved.json.last.new",
	NULL,
};
static const char *const containers_names[] = {"attach.sock", "fresh", NULL};
static const char *const jobs_names[] = {"key", "key.new", "rights", "rights.new", NULL};
static const char *const lock_names[] = {LOCK, NULL};

struct purge {
	uid_t self, worker; /* a daemon's directories are one of these users' */
	bool any_worker;    /* or one of the IDs without a name that root's daemon takes */
};

/* ---- one directory ----------------------------------------------------------------------- */

static bool is_a_daemons(const struct purge *p, uid_t uid)
{
	return uid == p->self || uid == p->worker ||
	       (p->any_worker && uid >= WARDEN_ID_FIRST && uid <= WARDEN_ID_LAST);
}

/* Becomes a user, as far as files go. Root's rights over files are gone meanwhile. */
static void files_as(uid_t uid, gid_t gid)
{
	(void)setfsgid(gid);
	(void)setfsuid(uid);
}

static void names_remove(int dir, const char *const *names)
{
	struct stat st;

	if (fstat(dir, &st) < 0)
		return;
	files_as(st.st_uid, st.st_gid);
	for (; *names; names++)
		(void)unlinkat(dir, *names, 0);
	files_as(geteuid(), getegid());
}

/* A directory below another one. -EPERM: it has another owner than one of a daemon's. */
static int below_open(const struct purge *p, int above, const char *name)
{
	cleanup_close int fd = open_beneath(above, name, O_RDONLY | O_DIRECTORY);
	struct stat st;

	if (fd < 0)
		return fd;
	return fstat(fd, &st) < 0 ? -errno : is_a_daemons(p, st.st_uid) ? steal_fd(&fd) : -EPERM;
}

static void below_remove(const struct purge *p, int above, const char *name,
			 const char *const *names)
{
	cleanup_close int fd = below_open(p, above, name);

	if (fd < 0)
		return;
	names_remove(fd, names);
	(void)unlinkat(above, name, AT_REMOVEDIR);
}

/* ---- directories of users ---------------------------------------------------------------- */

/* "12.1.log": a job, its number in an array, and a kind. */
static bool is_jobs_file(const char *name)
{
	for (int i = 0; i < 2; i++) {
		size_t digits = strspn(name, "0123456789");

		if (!digits || name[digits] != '.')
			return false;
		name += digits + 1;
	}
	return *name && strspn(name, "abcdefghijklmnopqrstuvwxyz-.") == strlen(name);
}

/* The UUID of a GPU. */
static bool is_claim(const char *name)
{
	return !strncmp(name, "GPU-", 4) &&
	       strspn(name + 4, "0123456789abcdef-") == strlen(name + 4);
}

static bool is_user(const char *name)
{
	size_t digits = strspn(name, "0123456789");

	return digits && digits <= 10 && !name[digits];
}

/* Goes through the names in a directory, whose descriptor stays the caller's. */
static DIR *names_open(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list && fd >= 0)
		close(fd);
	return list;
}

/* Removes a user's directory, called by the user's number, which is that user's or still root's.
 * The user may have shut it. */
static void user_remove(int above, const char *name, bool (*is_ours)(const char *name))
{
	struct stat st;
	cleanup_close int fd = open_beneath(above, name, O_RDONLY | O_DIRECTORY);
	struct dirent *entry;

	if (fd < 0 || fstat(fd, &st) < 0 ||
	    (st.st_uid != geteuid() && st.st_uid != (uid_t)strtoul(name, NULL, 10)))
		return;
	files_as(st.st_uid, st.st_gid);
	(void)fchmod(fd, (st.st_mode & 0777) | 0700);
	DIR *list = names_open(fd);
	while (list && (entry = readdir(list))) // NOLINT(concurrency-mt-unsafe): one thread
		if (is_ours(entry->d_name))
			(void)unlinkat(fd, entry->d_name, 0);
	if (list)
		closedir(list);
	files_as(geteuid(), getegid());
}

static void users_remove(int dir, bool (*is_ours)(const char *name))
{
	DIR *list = names_open(dir);
	struct dirent *entry;

	while (list && (entry = readdir(list))) { // NOLINT(concurrency-mt-unsafe): one thread
		if (!is_user(entry->d_name))
			continue;
		user_remove(dir, entry->d_name, is_ours);
		if (unlinkat(dir, entry->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			printf("kept: what user %s has in a directory of carve's, as carve did not "
			       "make it\n",
			       entry->d_name);
	}
	if (list)
		closedir(list);
}

static void jobs_remove(const struct purge *p, int state)
{
	cleanup_close int jobs = below_open(p, state, JOBS);

	if (jobs < 0)
		return;
	users_remove(jobs, is_jobs_file);
	(void)unlinkat(state, JOBS, AT_REMOVEDIR);
}

/* ---- a daemon's directories -------------------------------------------------------------- */

static int dir_error(const char *dir, const char *why, struct error *err)
{
	error_set(err, EXIT_CODE_NOT_PERMITTED, "%.300s is not removed: %s", dir, why);
	error_hint(err, "its owner removes it: carved --purge --runtime-dir DIR");
	return -EPERM;
}

/* A descriptor, -ENOENT where it is not there, or negative with *err set. */
static int top_open(const struct purge *p, const char *dir, struct error *err)
{
	char above[PATH_MAX];
	struct stat st;

	snprintf(above, sizeof(above), "%s", dir);
	char *slash = strrchr(above, '/');
	slash[slash == above] = '\0';
	cleanup_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0 || fstat(fd, &st) < 0)
		return dir_error(dir, strerrordesc_np(errno), err);
	if (!is_a_daemons(p, st.st_uid))
		return dir_error(dir, "it belongs to another user", err);
	if (!trust_path_is_own(above) || st.st_mode & (S_IWGRP | S_IWOTH))
		return dir_error(dir, "another user can change what is there", err);
	return steal_fd(&fd);
}

/* Holds the lock of a daemon, as long as the descriptor is open. -ENOENT: there is none. */
static int lock_hold(int dir, const char *path, struct error *err)
{
	cleanup_close int fd = openat(dir, LOCK, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		return steal_fd(&fd);
	error_set(err, EXIT_CODE_FAILED, "a carved serves in %.300s: nothing is removed", path);
	error_hint(err, "end it first: systemctl stop carved.socket carved-attach.socket "
			"carved.service carve-warden.service, or kill it");
	return -EBUSY;
}

/* As long as they are there, users' daemons leave the GPUs to a system daemon. */
static void claims_remove(const struct purge *p)
{
	struct error ignored = {0};
	cleanup_close int top = top_open(p, CLAIMS_DIR, &ignored);

	if (top < 0)
		return;
	users_remove(top, is_claim);
	names_remove(top, lock_names);
	(void)rmdir(CLAIMS_DIR);
}

/* The directory of jobs that a launcher starts is root's, and beside the state directory. */
static void users_jobs_remove(const struct purge *p, const char *state_dir)
{
	struct error why = {0};
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s" WARDEN_JOBS, state_dir) >= (int)sizeof(path))
		return;
	cleanup_close int jobs = top_open(p, path, &why);
	if (jobs >= 0) {
		users_remove(jobs, is_jobs_file);
		names_remove(jobs, jobs_names);
	}
	if (jobs != -ENOENT && rmdir(path) < 0)
		printf("kept: %s, in which is what carve did not make\n", path);
}

static int users_find(const struct node *node, const char *user, struct purge *ret,
		      struct error *err)
{
	// NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
	const struct passwd *entry = getpwnam(user ? user : PREPARE_USER);

	*ret = (struct purge){.self = geteuid(), .worker = geteuid()};
	if (!prepare_wanted(node))
		return 0;
	if (!entry && user)
		return error_set(err, EXIT_CODE_FAILED, "--user: there is no user %.64s", user);
	/* Where there is no such user, a daemon takes a free ID. */
	ret->any_worker = true;
	if (entry)
		ret->worker = entry->pw_uid;
	return 0;
}

/* A directory, and a daemon's lock in it. Either descriptor is -ENOENT where it is not there. */
struct place {
	int fd, lock;
};

static int place_open(const struct purge *p, const char *dir, struct place *ret, struct error *err)
{
	ret->fd = top_open(p, dir, err);
	ret->lock = ret->fd < 0 ? -ENOENT : lock_hold(ret->fd, dir, err);
	return -err->code;
}

static void place_close(const struct place *place)
{
	if (place->lock >= 0)
		close(place->lock);
	if (place->fd >= 0)
		close(place->fd);
}

static void state_remove(const struct purge *p, int state)
{
	jobs_remove(p, state);
	names_remove(state, state_names);
}

static void runtime_remove(const struct purge *p, int runtime)
{
	below_remove(p, runtime, "containers", containers_names);
	names_remove(runtime, runtime_names);
}

/* The locks are removed last: until then no other daemon begins. */
static void dir_remove(int fd, const char *dir)
{
	names_remove(fd, lock_names);
	if (rmdir(dir) < 0 && (errno == ENOTEMPTY || errno == EEXIST))
		printf("kept: %s, in which are files that carve did not make\n", dir);
}

int purge(struct node *node, const char *user, bool with_state, struct error *err)
{
	const char *runtime_dir = node->runtime.dir, *state_dir = node->state.wanted;
	bool apart = with_state && strcmp(runtime_dir, state_dir) != 0;
	struct place runtime = {-ENOENT, -ENOENT}, state = runtime;
	struct purge p;
	int rc = users_find(node, user, &p, err);

	if (rc == 0)
		rc = place_open(&p, runtime_dir, &runtime, err);
	if (rc == 0 && apart)
		rc = place_open(&p, state_dir, &state, err);
	if (rc == 0 && with_state)
		users_jobs_remove(&p, state_dir);
	if (rc == 0 && state.fd >= 0) {
		state_remove(&p, state.fd);
		dir_remove(state.fd, state_dir);
	}
	if (rc == 0 && runtime.fd >= 0) {
		if (with_state && !apart)
			state_remove(&p, runtime.fd);
		runtime_remove(&p, runtime.fd);
		dir_remove(runtime.fd, runtime_dir);
	}
	if (rc == 0 && node->options.system && !strcmp(runtime_dir, RUNTIME_DIR_SYSTEM))
		claims_remove(&p);
	place_close(&state);
	place_close(&runtime);
	return -rc;
}
