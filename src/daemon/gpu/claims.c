#include "daemon/gpu/claims.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/installed.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"

#define LOCK "lock"
#define NAME_BACKLOG 16
/* "PID BIRTH\n" */
#define CLAIM_TEXT_SIZE 48
#define CLAIM_PATH_SIZE 64

/* ---- the files of system daemons --------------------------------------------------------- */

/* A directory of `owner` that everybody reads and nobody else writes to; made where it is missing.
 * Or -errno. */
static int directory_make(int at, const char *name, uid_t owner)
{
	struct stat st;
	bool made = mkdirat(at, name, 0700) == 0;

	if (!made && errno != EEXIST)
		return -errno;
	cleanup_close int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* The umask is no concern of those who look for claims. Root may lack the capability to
	 * change the mode of what it gave away. */
	if (fd < 0 || (made && fchmod(fd, 0755) < 0) ||
	    (made && fchown(fd, owner, (gid_t)-1) < 0) || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != owner)
		return -EPERM;
	if ((st.st_mode & ALLPERMS) != 0755 && fchmod(fd, 0755) < 0)
		return -errno;
	return steal_fd(&fd);
}

/* Whether the process that filed a claim lives. One that cannot be looked at (hidepid) does, as
 * long as its PID is taken. */
static bool filer_lives(struct process_id filer)
{
	cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, filer.pid, 0);
	struct process_id now = {0};

	if (pidfd < 0)
		return false;
	if (process_identify(filer.pid, &now) < 0)
		return true;
	return process_same(now, filer) && !process_is_headless(filer.pid);
}

bool claim_parse(const char *text, struct process_id *ret)
{
	char *rest;

	if (*text < '1' || *text > '9')
		return false;
	errno = 0;
	long pid = strtol(text, &rest, 10);
	if (errno || pid > INT32_MAX || rest[0] != ' ' || rest[1] < '0' || rest[1] > '9')
		return false;
	uint64_t birth = strtoull(rest + 1, &rest, 10);
	*ret = (struct process_id){.pid = (pid_t)pid, .birth = birth};
	return !errno && !strcmp(rest, "\n");
}

/* The claim on a GPU in a directory of claims. False: there is none. */
static bool claim_read(int dir, const char *uuid, struct process_id *ret)
{
	cleanup_close int fd = openat(dir, uuid, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char text[CLAIM_TEXT_SIZE];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return false;
	text[n] = '\0';
	return claim_parse(text, ret);
}

/* Removes what daemons left that were killed; not what a service left that comes back. */
static void directory_sweep(const struct claims *claims)
{
	int copy = installed_for_all() ? -1 : fcntl(claims->dir_fd, F_DUPFD_CLOEXEC, 0);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	struct process_id filer;

	if (!list)
		close_fd(&copy);
	while (list && (entry = readdir(list))) // NOLINT(concurrency-mt-unsafe): its own list
		if (claim_read(claims->dir_fd, entry->d_name, &filer) && !filer_lives(filer))
			unlinkat(claims->dir_fd, entry->d_name, 0);
	if (list)
		closedir(list);
}

int claims_open(struct claims *claims, uid_t owner)
{
	char name[16];

	*claims = (struct claims){0};
	cleanup_close int top = directory_make(AT_FDCWD, CLAIMS_DIR, 0);
	if (top < 0)
		return top;
	snprintf(name, sizeof(name), "%u", (unsigned)owner);
	cleanup_close int lock = openat(top, LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	cleanup_close int dir = lock < 0 ? -errno : directory_make(top, name, owner);
	if (dir < 0)
		return dir;
	*claims = (struct claims){
		.system = true, .dir_fd = steal_fd(&dir), .lock_fd = steal_fd(&lock)};
	if (flock(claims->lock_fd, LOCK_EX | LOCK_NB) == 0) {
		directory_sweep(claims);
		flock(claims->lock_fd, LOCK_UN);
	}
	return 0;
}

bool claims_gone(const struct claims *claims)
{
	char path[64];

	/* It serves as the owner of its directory. */
	snprintf(path, sizeof(path), CLAIMS_DIR "/%u", (unsigned)geteuid());
	return claims->system && !file_is_at(claims->dir_fd, path);
}

void claims_close(struct claims *claims)
{
	if (claims->system) {
		close_fd(&claims->dir_fd);
		close_fd(&claims->lock_fd);
	}
	*claims = (struct claims){0};
}

/* Only what nobody else writes to counts: /run is root's, and so is what root made in it. */
static int directory_open(int at, const char *name, uid_t *ret_owner)
{
	cleanup_close int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_mode & (S_IWGRP | S_IWOTH))
		return -1;
	*ret_owner = st.st_uid;
	return steal_fd(&fd);
}

enum filed { FILED_NONE, FILED_LEFT, FILED_HOLDS };

/* Whether another process than this one filed a claim: one that holds, or one that it left behind.
 */
static enum filed filed_find(const char *uuid, struct process_id *ret, uid_t *ret_uid)
{
	uid_t owner;
	int top = directory_open(AT_FDCWD, CLAIMS_DIR, &owner);
	DIR *list = top < 0 ? NULL : fdopendir(top);
	struct dirent *entry;
	enum filed found = FILED_NONE;

	if (!list)
		close_fd(&top);
	while (list && found != FILED_HOLDS &&
	       (entry = readdir(list))) { // NOLINT(concurrency-mt-unsafe): its own list
		struct process_id filer;
		cleanup_close int dir =
			*entry->d_name == '.' ? -1 : directory_open(top, entry->d_name, &owner);

		if (dir < 0 || !claim_read(dir, uuid, &filer) || filer.pid == getpid())
			continue;
		found = filer_lives(filer) ? FILED_HOLDS : FILED_LEFT;
		*ret = filer;
		*ret_uid = owner;
	}
	if (list)
		closedir(list);
	return found;
}

static int claim_file(const struct claims *claims, const char *uuid)
{
	char temporary[CLAIM_PATH_SIZE], text[CLAIM_TEXT_SIZE];
	struct process_id self = {0};
	int rc = process_identify(getpid(), &self);

	if (rc < 0)
		return rc;
	snprintf(temporary, sizeof(temporary), ".%s", uuid);
	int length = snprintf(text, sizeof(text), "%d %" PRIu64 "\n", (int)self.pid, self.birth);
	cleanup_close int fd = openat(claims->dir_fd, temporary,
				      O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0 || fchmod(fd, 0644) < 0)
		return -errno;
	rc = write_all(fd, text, (size_t)length);
	if (rc == 0 && renameat(claims->dir_fd, temporary, claims->dir_fd, uuid) < 0)
		rc = -errno;
	return rc;
}

/* Whether this daemon's claim is still there: cleaners of /run may take it away. */
static bool is_filed(const struct claims *claims, const char *uuid)
{
	struct process_id filer;

	return claim_read(claims->dir_fd, uuid, &filer) && filer.pid == getpid();
}

static void file_update(struct claims *claims, struct claim *claim, const char *uuid)
{
	enum claim_state before = claim->state;

	if (before == CLAIM_OURS && is_filed(claims, uuid))
		return;
	/* The process that holds it has but to look and to file: it is tried again soon. */
	if (flock(claims->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return;
	bool taken = filed_find(uuid, &claim->holder, &claim->holder_uid) == FILED_HOLDS;
	int rc = taken ? 0 : claim_file(claims, uuid);
	flock(claims->lock_fd, LOCK_UN);
	/* Without room for its claim (a full /run) it serves all the same, and tries again. */
	claim->state = taken ? CLAIM_OTHERS : CLAIM_OURS;
	if (rc < 0 && before != CLAIM_OURS)
		log_event(LOG_ERROR, "claim.failed uuid=%s error=\"%s\"", uuid,
			  strerrordesc_np(-rc));
}

/* ---- the names of others ----------------------------------------------------------------- */

static socklen_t name_address(const char *uuid, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	int length = snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1, "carve-gpu-%s", uuid);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* A client that connects only wants to know who we are: the kernel has told already. */
static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct claim *claim = poll->data;
	int fd = accept4(claim->name_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	close_fd(&fd);
}

static void free_handle(uv_handle_t *handle)
{
	free(handle);
}

static void name_release(struct claim *claim)
{
	if (claim->poll)
		uv_close((uv_handle_t *)steal_ptr(&claim->poll), free_handle);
	close_fd(&claim->name_fd);
}

void claim_inherit(uv_loop_t *loop, struct claim *claim, int name_fd)
{
	uv_poll_t *poll = calloc(1, sizeof(*poll));

	/* A process that asks for the owner is told of the process that listened last. */
	if (!poll || listen(name_fd, NAME_BACKLOG) < 0 || uv_poll_init(loop, poll, name_fd) < 0) {
		free(poll);
		close_fd(&name_fd);
		return;
	}
	poll->data = claim;
	uv_poll_start(poll, UV_READABLE, on_connection);
	claim->poll = poll;
	claim->name_fd = name_fd;
	claim->state = CLAIM_OURS;
}

static void holder_ask(struct claim *claim, const struct sockaddr_un *address, socklen_t size)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct peer peer;

	claim->holder = (struct process_id){0};
	if (fd < 0 || connect(fd, (const struct sockaddr *)address, size) < 0 ||
	    peer_identify(fd, &peer) < 0 || process_is_headless(peer.process.pid))
		return;
	claim->holder = peer.process;
	claim->holder_uid = peer.uid;
}

static void name_take(uv_loop_t *loop, struct claim *claim, const char *uuid)
{
	struct sockaddr_un address;
	socklen_t size = name_address(uuid, &address);
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	claim->state = CLAIM_OTHERS;
	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0)
		claim_inherit(loop, claim, steal_fd(&fd));
	else
		holder_ask(claim, &address, size);
}

static void name_update(uv_loop_t *loop, struct claim *claim, const char *uuid, bool simulated)
{
	struct process_id filer;
	uid_t uid;
	enum filed filed = filed_find(uuid, &filer, &uid);

	if (filed == FILED_HOLDS) {
		claim->state = CLAIM_SYSTEM;
		claim->holder = filer;
		claim->holder_uid = uid;
		name_release(claim);
	} else if ((!simulated || filed == FILED_LEFT) && installed_for_all()) {
		claim->state = CLAIM_RESERVED;
		name_release(claim);
	} else if (claim->state != CLAIM_OURS) {
		name_take(loop, claim, uuid);
	}
}

/* ---- both -------------------------------------------------------------------------------- */

bool claim_update(struct claims *claims, uv_loop_t *loop, struct claim *claim, const char *uuid,
		  bool simulated)
{
	enum claim_state before = claim->state;

	if (claims->system)
		file_update(claims, claim, uuid);
	else
		name_update(loop, claim, uuid, simulated);
	return claim->state != before;
}

void claim_release(struct claims *claims, struct claim *claim, const char *uuid)
{
	if (claims->system && !claims->stays && claim->state == CLAIM_OURS &&
	    is_filed(claims, uuid))
		unlinkat(claims->dir_fd, uuid, 0);
	name_release(claim);
	claim->state = CLAIM_NONE;
}
