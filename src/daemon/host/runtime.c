#include "daemon/host/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "daemon/host/containers.h"
#include "daemon/host/log.h"
#include "daemon/host/sole.h"
#include "daemon/host/supervisor.h"
#include "proto/runtime.h"

#define LISTEN_BACKLOG 512
/* A daemon that was killed may leave the lock to a child that it had just forked, until that execs.
 */
#define LOCK_TRIES 100
/* One that was killed a moment ago may still be about to end. */
#define LOCK_TRIES_ALIVE 20
#define LOCK_PAUSE_NS 10000000L

int runtime_choose(struct runtime *runtime, const char *wanted, struct error *err)
{
	char path[4096];

	runtime->lock_fd = runtime->http_fd = runtime->attach_fd = runtime->dir_fd =
		runtime->sole_fd = -1;
	if (wanted && *wanted == '/')
		snprintf(path, sizeof(path), "%s", wanted);
	else if (wanted && getcwd(path, sizeof(path) / 2))
		snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%s", wanted);
	else if (geteuid() == 0)
		snprintf(path, sizeof(path), RUNTIME_DIR_SYSTEM);
	else
		(void)installed_user_dir(path, sizeof(path)); /* a path too long is refused below */
	if (strlen(path) + sizeof("/carved.sock") > sizeof(runtime->dir))
		return error_set(err, EXIT_CODE_USAGE,
				 "the runtime directory's path is too long: %s", path);
	snprintf(runtime->dir, sizeof(runtime->dir), "%s", path);
	return 0;
}

bool runtime_is_usual(const struct runtime *runtime)
{
	char path[4096];

	return installed_user_dir(path, sizeof(path)) == 0 && !strcmp(runtime->dir, path);
}

void runtime_path(const struct runtime *runtime, const char *name, char *buf, size_t size)
{
	snprintf(buf, size, "%s/%s", runtime->dir, name);
}

/* The daemon that the lock's file names; 0: it has ended. */
static pid_t lock_holder(int fd)
{
	char text[32] = {0};

	(void)!pread(fd, text, sizeof(text) - 1, 0);
	pid_t pid = (pid_t)strtol(text, NULL, 10);
	return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM) ? pid : 0;
}

int runtime_lock_dir(const char *dir, const char *does, struct error *err)
{
	struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
	char path[PATH_MAX], pid[32];

	snprintf(path, sizeof(path), "%s/lock", dir);
	cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot open %s: %s", path,
				 strerrordesc_np(errno));
	for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
		pid_t holder = lock_holder(fd);

		if ((holder && tries >= LOCK_TRIES_ALIVE) || tries == LOCK_TRIES)
			return error_set(err, EXIT_CODE_FAILED,
					 "a carved (pid %d) %s %.300s already", (int)holder, does,
					 dir);
		nanosleep(&pause, NULL);
	}
	int length = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || write_all(fd, pid, (size_t)length) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot write %s: %s", path,
				 strerrordesc_np(errno));
	return steal_fd(&fd);
}

static const char *const file_names[RUNTIME_FILES] = {
	[RUNTIME_LOCK] = "lock",
	[RUNTIME_ATTACH] = "attach.sock",
	[RUNTIME_HTTP] = "carved.sock",
};

const char *runtime_file_name(enum runtime_file file)
{
	return file_names[file];
}

static ino_t file_inode(const struct runtime *runtime, enum runtime_file file)
{
	char path[128];
	struct stat st;

	runtime_path(runtime, file_names[file], path, sizeof(path));
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

enum runtime_found runtime_look(const struct runtime *runtime, enum runtime_file file)
{
	ino_t now = file_inode(runtime, file);

	if (!runtime->inode[file] || now == runtime->inode[file])
		return RUNTIME_THERE;
	return now ? RUNTIME_REPLACED : RUNTIME_MISSING;
}

/* Cleaners that respect locks leave the directory alone. */
static void dir_hold(struct runtime *runtime)
{
	close_fd(&runtime->dir_fd);
	runtime->dir_fd = open(runtime->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (runtime->dir_fd >= 0)
		(void)flock(runtime->dir_fd, LOCK_SH | LOCK_NB);
}

/* Without it the next daemon would have other settings: that is no reason not to serve. */
static void successor_note(int fd, bool system, const char *config)
{
	char path[PATH_MAX], text[PATH_MAX + 32];
	bool found = config && realpath(config, path);
	int length = snprintf(text, sizeof(text), "%s%s%s%s", system ? "system\n" : "",
			      found ? "config " : "", found ? path : "", found ? "\n" : "");

	(void)!write_all(fd, text, (size_t)length);
}

/* A line for each that was named. */
static void start_line(FILE *to, const char *name, const char *value)
{
	if (value && *value && !strchr(value, '\n'))
		fprintf(to, "%s %s\n", name, value);
}

void runtime_start_note(struct runtime *runtime, const struct runtime_start *start)
{
	char path[128], temporary[128];
	cleanup_free char *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);

	runtime_path(runtime, RUNTIME_START_FILE, path, sizeof(path));
	runtime_path(runtime, "." RUNTIME_START_FILE ".new", temporary, sizeof(temporary));
	/* One of an earlier daemon would be worse than none. */
	unlink(path);
	unlink(temporary);
	if (!to)
		return;
	if (start->system)
		fputs("system\n", to);
	start_line(to, "config", start->config);
	start_line(to, "state-dir", start->state_dir);
	start_line(to, "user", start->user);
	if (start->idle_exit_ns)
		fprintf(to, "idle-exit %" PRIu64 "\n", start->idle_exit_ns / 1000000000);
	if (fclose(to) != 0)
		return;
	cleanup_close int fd =
		open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int rc = fd < 0 ? -errno : write_all(fd, text, size);
	if (rc == 0 && rename(temporary, path) < 0)
		rc = -errno;
	runtime->start_noted |= rc == 0;
	if (rc < 0)
		log_event(LOG_WARNING, "runtime.no_start_file error=\"%s\"", strerrordesc_np(-rc));
}

bool runtime_start_missing(const struct runtime *runtime)
{
	char path[128];

	runtime_path(runtime, RUNTIME_START_FILE, path, sizeof(path));
	return runtime->start_noted && access(path, F_OK) < 0 && errno == ENOENT;
}

static int dir_make(const struct runtime *runtime, bool system, struct error *err)
{
	struct stat st;
	bool made = mkdir(runtime->dir, 0700) == 0;

	/* The umask is no concern of users who look for the system's daemon. */
	if ((!made && errno != EEXIST) || (made && system && chmod(runtime->dir, 0755) < 0))
		return error_set(err, EXIT_CODE_FAILED, "cannot make %s: %s", runtime->dir,
				 strerrordesc_np(errno));
	if (lstat(runtime->dir, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & 022)) {
		error_set(err, EXIT_CODE_FAILED,
			  "%s is not a directory of yours that only you can write", runtime->dir);
		error_hint(err, "name another with --runtime-dir DIR");
		return -1;
	}
	return 0;
}

/* The lock that carve's own supervisor has. False: there is no such supervisor. */
static bool lock_receive(struct runtime *runtime)
{
	struct stat st;

	runtime->lock_fd = supervisor_socket(SUPERVISOR_LOCK);
	runtime->lock_is_supervisors = runtime->lock_fd >= 0 && fstat(runtime->lock_fd, &st) == 0;
	if (runtime->lock_is_supervisors)
		runtime->inode[RUNTIME_LOCK] = st.st_ino;
	/* The supervisor has noted them, and does so anew at the next start. */
	runtime->start_noted = runtime->lock_is_supervisors && !runtime_start_missing(runtime);
	return runtime->lock_is_supervisors;
}

int runtime_lock_daemon(struct runtime *runtime, bool system, const char *config, struct error *err)
{
	return lock_receive(runtime) ? 0 : runtime_lock(runtime, system, config, err);
}

int runtime_lock(struct runtime *runtime, bool system, const char *config, struct error *err)
{
	if (dir_make(runtime, system, err) < 0 ||
	    (runtime->sole_fd < 0 && sole_take(runtime->dir, &runtime->sole_fd, err) < 0))
		return -1;
	runtime->lock_fd = runtime_lock_dir(runtime->dir, "serves", err);
	if (runtime->lock_fd < 0)
		return -1;
	runtime->inode[RUNTIME_LOCK] = file_inode(runtime, RUNTIME_LOCK);
	successor_note(runtime->lock_fd, system, config);
	dir_hold(runtime);
	return 0;
}

static int socket_listen(const struct runtime *runtime, const char *name, int type, mode_t mode,
			 struct error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	runtime_path(runtime, name, address.sun_path, sizeof(address.sun_path));
	/* Left by a daemon that was killed: the lock says that none lives. */
	unlink(address.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chmod(address.sun_path, mode) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot listen on %s: %s", address.sun_path,
				 strerrordesc_np(errno));
	return steal_fd(&fd);
}

/* The process that listened last at a socket: at this one, or at the one it is connected to. */
static struct ucred listening_at(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		peer = (struct ucred){.pid = -1, .uid = (uid_t)-1};
	return peer;
}

static pid_t listener_of(int fd)
{
	return listening_at(fd).pid;
}

/* Clients that are told of a listener hear of the process that serves, and not of its supervisor.
 * The user has to stay: they believe root's sockets. */
static int socket_name_as_own(int fd)
{
	if (listening_at(fd).uid == geteuid())
		(void)listen(fd, LISTEN_BACKLOG);
	return fd;
}

enum listens { LISTENS_NOBODY, LISTENS_SOMEBODY, LISTENS_KNOWN };

/* Nobody: where the file was removed, or its daemon has ended. */
static enum listens listener_at(const struct runtime *runtime, const char *name, int type,
				pid_t *ret)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	runtime_path(runtime, name, address.sun_path, sizeof(address.sun_path));
	if (fd < 0)
		return LISTENS_NOBODY;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == ENOENT || errno == ECONNREFUSED ? LISTENS_NOBODY : LISTENS_SOMEBODY;
	*ret = listener_of(fd);
	return *ret >= 0 ? LISTENS_KNOWN : LISTENS_SOMEBODY;
}

/* A supervisor keeps the sockets that the daemon made in place of its own, under these names. So
 * clients of a daemon that was killed wait for the next one at them, too. */
static const char *const kept_names[RUNTIME_FILES] = {
	[RUNTIME_ATTACH] = "anew-attach",
	[RUNTIME_HTTP] = "anew-http",
};

static void kept_forget(enum runtime_file file)
{
	char text[64];

	snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", kept_names[file]);
	supervisor_tell(text);
}

/* One socket of the supervisor's is not reached any more: this one is in its place. */
static void orphan_note(struct runtime *runtime, enum runtime_file file, int fd)
{
	char text[64];

	if (!runtime->handed_over || !kept_names[file] || !supervisor_keeps())
		return;
	kept_forget(file);
	snprintf(text, sizeof(text), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", kept_names[file]);
	int rc = supervisor_tell_with(text, fd);
	if (rc < 0)
		log_event(LOG_WARNING, "runtime.not_kept file=%s error=\"%s\"", file_names[file],
			  strerrordesc_np(-rc));
}

/* A supervisor's, whose file may have been removed since it made that: it would hand the socket
 * over that nobody can reach for ever. Then it is the one that the last daemon made, or a new one.
 */
static int socket_get(struct runtime *runtime, int handed, enum runtime_file file, int type,
		      mode_t mode, struct error *err)
{
	cleanup_close int owned = handed, kept = supervisor_socket(kept_names[file]);
	pid_t pid = 0;
	enum listens listens =
		handed < 0 ? LISTENS_NOBODY : listener_at(runtime, file_names[file], type, &pid);
	bool is_kept = kept >= 0 && listens == LISTENS_KNOWN && listener_of(kept) == pid &&
		       listener_of(handed) != pid;

	if (listens != LISTENS_NOBODY && !is_kept) {
		if (kept >= 0)
			kept_forget(file);
		return socket_name_as_own(steal_fd(&owned));
	}
	if (handed >= 0) {
		runtime->orphaned |= (unsigned)!is_kept << file;
		log_event(LOG_WARNING, "runtime.vanished file=%s made=%s", file_names[file],
			  is_kept ? "earlier" : "anew");
	}
	if (is_kept)
		return socket_name_as_own(steal_fd(&kept));
	int fd = socket_listen(runtime, file_names[file], type, mode, err);
	if (fd >= 0)
		orphan_note(runtime, file, fd);
	return fd;
}

static int sockets_make(struct runtime *runtime, bool system, struct error *err)
{
	mode_t mode = system ? 0666 : 0600;
	int attach = supervisor_socket("attach"), http = supervisor_socket("http");

	runtime->handed_over = attach >= 0;
	if (attach >= 0 && http < 0) {
		close_fd(&attach);
		return error_set(err, EXIT_CODE_FAILED,
				 "a socket `attach` was handed over, but none called `http`");
	}
	/* The one that the command looks for comes last: when it is there, both are. */
	runtime->attach_fd = socket_get(runtime, attach, RUNTIME_ATTACH, SOCK_SEQPACKET, mode, err);
	if (runtime->attach_fd < 0) {
		close_fd(&http);
		return -1;
	}
	runtime->http_fd = socket_get(runtime, http, RUNTIME_HTTP, SOCK_STREAM, mode, err);
	return runtime->http_fd < 0 ? -1 : 0;
}

static int *socket_of(struct runtime *runtime, enum runtime_file file)
{
	return file == RUNTIME_HTTP ? &runtime->http_fd : &runtime->attach_fd;
}

static int containers_make(const struct runtime *runtime)
{
	cleanup_close int fd = open(runtime->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : containers_link(fd);
}

/* Without it containers have that of before. */
static void containers_begin(const struct runtime *runtime)
{
	int rc = containers_make(runtime);

	if (rc < 0)
		log_event(LOG_WARNING, "runtime.containers dir=%s/" CONTAINERS_DIR " error=\"%s\"",
			  runtime->dir, strerrordesc_np(-rc));
}

bool runtime_containers_there(const struct runtime *runtime)
{
	char path[128];
	struct stat st;

	runtime_path(runtime, CONTAINERS_DIR "/attach.sock", path, sizeof(path));
	return stat(path, &st) == 0 && st.st_ino == file_inode(runtime, RUNTIME_ATTACH);
}

int runtime_listen(struct runtime *runtime, bool system, struct error *err)
{
	if (runtime->http_fd < 0) {
		if (sockets_make(runtime, system, err) < 0)
			return -1;
		containers_begin(runtime);
	}
	for (enum runtime_file file = RUNTIME_ATTACH; file <= RUNTIME_HTTP; file++) {
		runtime->inode[file] = file_inode(runtime, file);
		if (!runtime->inode[file])
			return error_set(err, EXIT_CODE_FAILED, "%s/%s is not there", runtime->dir,
					 file_names[file]);
	}
	return 0;
}

/* ---- the supervisor's part --------------------------------------------------------------- */

int runtime_hold(struct runtime *runtime, bool system, const char *config, struct error *err)
{
	bool made = false;

	if (runtime->lock_fd < 0 || runtime_look(runtime, RUNTIME_LOCK) != RUNTIME_THERE) {
		int before = runtime->lock_fd;

		if (runtime_lock(runtime, system, config, err) < 0) {
			runtime->lock_fd = before;
			return -1;
		}
		close_fd(&before);
		made = true;
	}
	for (enum runtime_file file = RUNTIME_ATTACH; file <= RUNTIME_HTTP; file++) {
		int *fd = socket_of(runtime, file);

		if (*fd >= 0 &&
		    (runtime->handed_over || runtime_look(runtime, file) == RUNTIME_THERE))
			continue;
		close_fd(fd);
		*fd = socket_listen(runtime, file_names[file],
				    file == RUNTIME_HTTP ? SOCK_STREAM : SOCK_SEQPACKET,
				    system ? 0666 : 0600, err);
		if (*fd < 0)
			return -1;
		runtime->inode[file] = file_inode(runtime, file);
		made = true;
	}
	return made;
}

void runtime_continue(struct runtime *runtime)
{
	int sockets = supervisor_socket(SUPERVISOR_ATTACH);

	runtime->lock_fd = supervisor_socket(RUNTIME_LOCK_HELD);
	runtime->sole_fd = supervisor_socket(RUNTIME_SOLE);
	runtime->attach_fd = sockets;
	runtime->http_fd = supervisor_socket(SUPERVISOR_HTTP);
	runtime->handed_over = sockets >= 0 && runtime->lock_fd < 0;
	/* A file that is missing by now is to be missed: no inode has that number. */
	for (enum runtime_file file = 0; runtime->lock_fd >= 0 && file < RUNTIME_FILES; file++)
		runtime->inode[file] = file_inode(runtime, file) ?: (ino_t)-1;
	if (runtime->lock_fd >= 0)
		dir_hold(runtime);
	runtime->start_noted = runtime->lock_fd >= 0;
}

void runtime_end(struct runtime *runtime)
{
	char path[128];

	/* Sockets of a supervisor above this one go on listening for the next daemon. */
	for (enum runtime_file file = RUNTIME_ATTACH; file <= RUNTIME_HTTP; file++)
		if (!runtime->handed_over && runtime->inode[file] &&
		    runtime_look(runtime, file) != RUNTIME_REPLACED) {
			runtime_path(runtime, file_names[file], path, sizeof(path));
			unlink(path);
		}
	runtime_leave(runtime);
}

void runtime_leave(struct runtime *runtime)
{
	if (runtime->lock_fd >= 0 && !runtime->lock_is_supervisors)
		(void)!ftruncate(runtime->lock_fd, 0);
	close_fd(&runtime->lock_fd);
	close_fd(&runtime->dir_fd);
	close_fd(&runtime->sole_fd);
}
