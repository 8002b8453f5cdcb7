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
#include "daemon/host/handover.h"
#include "daemon/host/log.h"
#include "daemon/host/sole.h"
#include "daemon/host/supervisor.h"
#include "proto/warden.h"
#include "warden/containers.h"

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

void runtime_hand_over(const struct runtime *runtime, struct handover *h)
{
	json_t *to =
		json_pack("{s:o, s:o, s:o, s:b}", "lock", handover_fd(h, runtime->lock_fd), "http",
			  handover_fd(h, runtime->http_fd), "attach",
			  handover_fd(h, runtime->attach_fd), "supervised", runtime->handed_over);

	if (runtime->sole_fd >= 0)
		json_object_set_new(to, "sole", handover_fd(h, runtime->sole_fd));
	json_object_set_new(h->root, "runtime", to);
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

bool runtime_take_over(struct runtime *runtime, struct handover *h)
{
	const json_t *from = json_object_get(h->root, "runtime");
	struct error ignored;

	runtime->lock_fd = handover_take(h, json_object_get(from, "lock"));
	runtime->http_fd = handover_take(h, json_object_get(from, "http"));
	runtime->attach_fd = handover_take(h, json_object_get(from, "attach"));
	runtime->handed_over = json_is_true(json_object_get(from, "supervised"));
	if (runtime->lock_fd >= 0 && runtime->http_fd >= 0 && runtime->attach_fd >= 0) {
		runtime->inode[RUNTIME_LOCK] = file_inode(runtime, RUNTIME_LOCK);
		dir_hold(runtime);
		/* An earlier version noted nothing. */
		runtime->start_noted = true;
		runtime->start_noted = !runtime_start_missing(runtime);
		/* An earlier version took no name. */
		runtime->sole_fd = handover_take(h, json_object_get(from, "sole"));
		if (runtime->sole_fd < 0)
			(void)sole_take(runtime->dir, &runtime->sole_fd, &ignored);
		return true;
	}
	close_fd(&runtime->lock_fd);
	close_fd(&runtime->http_fd);
	close_fd(&runtime->attach_fd);
	return false;
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

int runtime_lock_again(struct runtime *runtime, bool system, const char *config, struct error *err)
{
	int before = runtime->lock_fd;

	if (runtime_lock(runtime, system, config, err) < 0) {
		runtime->lock_fd = before;
		return -1;
	}
	close_fd(&before);
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

/* The process that began to listen at a socket: at this one, or at the one it is connected to. */
static pid_t listener_of(int fd)
{
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : -1;
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

static int lock_adopt(struct runtime *runtime, int fd, const char *config, struct error *err)
{
	char pid[16];
	int n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());

	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close_fd(&fd);
		return error_set(err, EXIT_CODE_FAILED, "another daemon has locked %s",
				 runtime->dir);
	}
	if (ftruncate(fd, 0) == 0 && write_all(fd, pid, (size_t)n) == 0)
		successor_note(fd, true, config);
	close_fd(&runtime->lock_fd);
	runtime->lock_fd = fd;
	return 0;
}

int runtime_adopt(struct runtime *runtime, enum runtime_file file, int fd, const char *config,
		  struct error *err)
{
	if (file == RUNTIME_LOCK && lock_adopt(runtime, fd, config, err) < 0)
		return -1;
	if (file == RUNTIME_ATTACH)
		runtime->attach_fd = fd;
	else if (file == RUNTIME_HTTP)
		runtime->http_fd = fd;
	runtime->inode[file] = file_inode(runtime, file);
	orphan_note(runtime, file, fd);
	dir_hold(runtime);
	return 0;
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
		return steal_fd(&owned);
	}
	if (handed >= 0) {
		runtime->orphaned |= 1u << file;
		log_event(LOG_WARNING, "runtime.vanished file=%s made=%s", file_names[file],
			  is_kept ? "earlier" : "anew");
	}
	if (is_kept)
		return steal_fd(&kept);
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

int runtime_containers_again(const struct runtime *runtime, struct error *err)
{
	int rc = containers_make(runtime);

	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "%s", strerrordesc_np(-rc)) : 1;
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

int runtime_listen_again(struct runtime *runtime, enum runtime_file file, bool system,
			 struct error *err)
{
	bool http = file == RUNTIME_HTTP;

	if (dir_make(runtime, system, err) < 0)
		return -1;
	int fd = socket_listen(runtime, file_names[file], http ? SOCK_STREAM : SOCK_SEQPACKET,
			       system ? 0666 : 0600, err);
	if (fd < 0)
		return -1;
	*(http ? &runtime->http_fd : &runtime->attach_fd) = fd;
	orphan_note(runtime, file, fd);
	runtime->inode[file] = file_inode(runtime, file);
	if (!http)
		containers_begin(runtime);
	return fd;
}

void runtime_leave(struct runtime *runtime)
{
	char path[128];

	/* Sockets of a supervisor go on listening for the next daemon. */
	if (runtime->inode[RUNTIME_HTTP] && !runtime->handed_over &&
	    runtime_look(runtime, RUNTIME_HTTP) != RUNTIME_REPLACED) {
		runtime_path(runtime, file_names[RUNTIME_HTTP], path, sizeof(path));
		unlink(path);
		runtime_path(runtime, file_names[RUNTIME_ATTACH], path, sizeof(path));
		unlink(path);
	}
	if (runtime->lock_fd >= 0)
		(void)!ftruncate(runtime->lock_fd, 0);
	close_fd(&runtime->lock_fd);
	close_fd(&runtime->dir_fd);
	close_fd(&runtime->sole_fd);
}
