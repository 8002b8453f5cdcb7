#include "base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

/* As which the kernel shows users that a namespace does not map, unless root has chosen another
 * number. */
#define OVERFLOW_UID 65534u
#define OVERFLOW_FILE "/proc/sys/kernel/overflowuid"
/* The first fields of /proc/self/uid_map where all users are mapped to themselves. */
#define UIDS_ALL 4294967295ul

bool process_is_privileged(void)
{
	return getauxval(AT_SECURE) != 0;
}

/* Whether there are users whom this process's user namespace does not map. */
static bool some_are_unmapped(void)
{
	char text[256], *at = text;

	/* A new namespace maps nobody, so that the file is empty. */
	if (file_read("/proc/self/uid_map", text, sizeof(text)) <= 0)
		return true;
	unsigned long inside = strtoul(at, &at, 10), outside = strtoul(at, &at, 10);

	return inside || outside || strtoul(at, &at, 10) != UIDS_ALL;
}

/* Whether that is how this process's user namespace shows users that it does not map, root perhaps
 * among them. */
static bool uid_is_unmapped(uid_t uid)
{
	char text[32];
	uid_t overflow = file_read(OVERFLOW_FILE, text, sizeof(text)) > 0
				 ? (uid_t)strtoul(text, NULL, 10)
				 : OVERFLOW_UID;

	return (uid == overflow || uid == OVERFLOW_UID) && some_are_unmapped();
}

bool trust_uid_is_own(uid_t uid)
{
	return uid == geteuid() && !uid_is_unmapped(uid);
}

/* A user whom this one believes. */
static bool uid_is_ours(uid_t uid)
{
	return (uid == 0 || uid == geteuid()) && !uid_is_unmapped(uid);
}

/* Whether it is a directory that only its owner changes. */
static bool is_closed(const struct statx *st)
{
	return S_ISDIR(st->stx_mode) && !(st->stx_mode & (S_IWGRP | S_IWOTH));
}

/* Whether only their owners change the directories of a fixed path, down to its last '/'. An owner
 * is root, this user, or a user that the namespace does not map. No link is followed.
 */
static bool is_protected(const char *path)
{
	char there[PATH_MAX];
	struct statx st;

	if (path[0] != '/' || strlen(path) >= sizeof(there))
		return false;
	for (const char *slash = path; slash; slash = strchr(slash + 1, '/')) {
		size_t length = slash == path ? 1 : (size_t)(slash - path);

		memcpy(there, path, length);
		there[length] = '\0';
		if (statx(AT_FDCWD, there, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_MODE | STATX_UID,
			  &st) < 0 ||
		    !is_closed(&st) || !(uid_is_ours(st.stx_uid) || uid_is_unmapped(st.stx_uid)))
			return false;
	}
	return true;
}

/* Whether a socket of a user that is not mapped may be believed at this path. */
static bool is_fixed(const char *path)
{
	/* proto/attach.h has the second one. */
	static const char *const directories[] = {TRUST_SYSTEM_DIR "/", "/run/carve-slice/"};
	bool found = false;

	for (size_t i = 0; i < sizeof(directories) / sizeof(*directories); i++)
		found |= !strncmp(path, directories[i], strlen(directories[i]));
	return found && !strstr(path, "/../") && is_protected(path);
}

/* Whether only a trusted user can have written it (file_open_trusted()). It looks at the open file:
 * a path may lead elsewhere a moment later. */
static bool is_trusted(int fd, mode_t type, const char *directory)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_MODE | STATX_UID, &st) < 0 ||
	    (st.stx_mode & S_IFMT) != type || st.stx_mode & (S_IWGRP | S_IWOTH))
		return false;
	if (process_is_privileged())
		return st.stx_uid == 0;
	return uid_is_ours(st.stx_uid) || (uid_is_unmapped(st.stx_uid) && is_protected(directory));
}

int file_open_trusted(const char *directory, const char *name)
{
	cleanup_close int dir = open(directory, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir < 0)
		return -errno;
	if (!is_trusted(dir, S_IFDIR, directory))
		return -EPERM;
	cleanup_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return is_trusted(fd, S_IFREG, directory) ? steal_fd(&fd) : -EPERM;
}

/* Directories that are root's on every host, for namespaces in which root is nobody. */
static bool is_roots_by_name(const char *path)
{
	static const char *const names[] = {"/",    "/home",    "/run",     "/run/user", "/tmp",
					    "/var", "/var/lib", "/var/tmp", "/usr",      "/mnt"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(path, names[i]))
			return true;
	return false;
}

/* Group members are the user's own choice. `sticky`: everybody may make entries there, as long as
 * nobody changes those of others. */
static bool is_nobody_elses(const char *path, bool sticky)
{
	struct statx st;

	return statx(AT_FDCWD, path, 0, STATX_TYPE | STATX_MODE | STATX_UID, &st) == 0 &&
	       S_ISDIR(st.stx_mode) &&
	       (uid_is_ours(st.stx_uid) ||
		(uid_is_unmapped(st.stx_uid) && is_roots_by_name(path))) &&
	       (!(st.stx_mode & S_IWOTH) || (sticky && st.stx_mode & S_ISVTX));
}

bool trust_path_is_own(const char *path)
{
	char there[PATH_MAX], real[PATH_MAX];
	bool whole = true;
	char *slash;

	if (snprintf(there, sizeof(there), "%s", path) >= (int)sizeof(there))
		return false;
	while (!realpath(there, real)) {
		if (errno != ENOENT || !(slash = strrchr(there, '/')) || slash == there)
			return false;
		*slash = '\0';
		whole = false;
	}
	/* Anybody may make what is missing in a directory that is open to all. */
	if (!is_nobody_elses(real, whole))
		return false;
	while ((slash = strrchr(real, '/')) && slash != real) {
		*slash = '\0';
		if (!is_nobody_elses(real, true))
			return false;
	}
	return is_nobody_elses("/", true);
}

void server_join_directory(char *buf, size_t size)
{
	snprintf(buf, size, "/tmp/carve-%u", (unsigned)geteuid());
}

int server_join_record(const char *host, char *buf, size_t size)
{
	char dir[64];
	struct statx st;

	if (statx(AT_FDCWD, host, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st) < 0)
		return -errno;
	if (!is_closed(&st))
		return -ENOTDIR;
	if (!(st.stx_mask & STATX_BTIME))
		st.stx_btime = (struct statx_timestamp){0};
	server_join_directory(dir, sizeof(dir));
	int n = snprintf(buf, size, "%s/joined-%x-%x-%llx-%llx.%x-%u", dir, st.stx_dev_major,
			 st.stx_dev_minor, (unsigned long long)st.stx_ino,
			 (unsigned long long)st.stx_btime.tv_sec, st.stx_btime.tv_nsec, st.stx_uid);
	return n < (int)size ? 0 : -ENAMETOOLONG;
}

/* Whether this user alone can have made it. */
static bool is_own(const char *path, bool directory)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_MODE | STATX_UID, &st) <
		    0 ||
	    !trust_uid_is_own(st.stx_uid))
		return false;
	return directory ? is_closed(&st) : S_ISREG(st.stx_mode);
}

/* Whether this user joined the simulated host that has its daemon's socket at `path`
 * (HOST/carve/NAME), and `uid` is its owner. */
static bool is_joined(const char *path, uid_t uid)
{
	char host[PATH_MAX], record[SERVER_JOIN_SIZE], dir[64];
	struct statx st;

	if (process_is_privileged() || strlen(path) >= sizeof(host))
		return false;
	memcpy(host, path, strlen(path) + 1);
	for (int i = 0; i < 2; i++) {
		char *slash = strrchr(host, '/');

		if (!slash || slash == host)
			return false;
		*slash = '\0';
	}
	server_join_directory(dir, sizeof(dir));
	return statx(AT_FDCWD, host, AT_SYMLINK_NOFOLLOW, STATX_UID, &st) == 0 &&
	       st.stx_uid == uid && server_join_record(host, record, sizeof(record)) == 0 &&
	       is_own(dir, true) && is_own(record, false);
}

/* 0 where that user is believed, and negative as server_check(). */
static int user_check(const char *path, uid_t uid, unsigned flags, uid_t *ret_uid)
{
	if (uid_is_unmapped(uid))
		return flags & SERVER_VOUCHED || is_fixed(path) ? 0 : -SERVER_UNKNOWN;
	if (uid_is_ours(uid) || is_joined(path, uid))
		return 0;
	*ret_uid = uid;
	return -EPERM;
}

int server_directory_check(const char *path, unsigned flags, uid_t *ret_uid)
{
	char dir[PATH_MAX];
	struct statx st;
	const char *slash = strrchr(path, '/');
	int n = slash == path ? snprintf(dir, sizeof(dir), "/")
		: slash       ? snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path)
			      : snprintf(dir, sizeof(dir), ".");

	if (n >= (int)sizeof(dir))
		return -ENAMETOOLONG;
	if (statx(AT_FDCWD, dir, 0, STATX_UID, &st) < 0)
		return -errno;
	return user_check(path, st.stx_uid, flags, ret_uid);
}

int server_check(int fd, const char *path, unsigned flags, uid_t *ret_uid)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	/* The kernel noted these when the server began to listen: nobody listens in another's
	 * name. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return -errno;
	return user_check(path, peer.uid, flags, ret_uid);
}
