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
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
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

static void start_note(struct runtime *runtime, const struct runtime_start *start)
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

int runtime_make(const struct runtime *runtime, bool system, struct error *err)
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

static int lock_take(struct runtime *runtime, bool system, const char *config, struct error *err)
{
	if (runtime_make(runtime, system, err) < 0 ||
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

static int type_of(enum runtime_file file)
{
	return file == RUNTIME_HTTP ? SOCK_STREAM : SOCK_SEQPACKET;
}

static int socket_listen(const struct runtime *runtime, enum runtime_file file, mode_t mode,
			 struct error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, type_of(file) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	runtime_path(runtime, file_names[file], address.sun_path, sizeof(address.sun_path));
	/* Left by a daemon that was killed: the lock says that none lives. */
	unlink(address.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chmod(address.sun_path, mode) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot listen on %s: %s", address.sun_path,
				 strerrordesc_np(errno));
	return steal_fd(&fd);
}

void runtime_name_as_own(const struct runtime *runtime)
{
	const int fds[] = {runtime->attach_fd, runtime->http_fd};
	struct ucred listening;
	socklen_t size = sizeof(listening);

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (getsockopt(fds[i], SOL_SOCKET, SO_PEERCRED, &listening, &size) == 0 &&
		    listening.uid == geteuid())
			(void)listen(fds[i], LISTEN_BACKLOG);
}

/* Not where the file was removed, or the process that listened there has ended. */
static bool is_listened_at(const struct runtime *runtime, enum runtime_file file)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, type_of(file) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	runtime_path(runtime, file_names[file], address.sun_path, sizeof(address.sun_path));
	return fd >= 0 && (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ||
			   (errno != ENOENT && errno != ECONNREFUSED));
}

static int *socket_of(struct runtime *runtime, enum runtime_file file)
{
	return file == RUNTIME_HTTP ? &runtime->http_fd : &runtime->attach_fd;
}

/* Containers get a directory with a second name of the attach socket. They get no other socket, and
 * not the socket alone: a mounted file would stay the socket of a daemon that has ended. Makes the
 * directory, and the name in place of an older one. 0 or -errno. */
static int containers_make(const struct runtime *runtime)
{
	cleanup_close int fd = open(runtime->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || (mkdirat(fd, RUNTIME_CONTAINERS_DIR, 0755) < 0 && errno != EEXIST))
		return -errno;
	/* The mode does not depend on the umask, nor on what was made of it meanwhile. */
	if (fchmodat(fd, RUNTIME_CONTAINERS_DIR, 0755, 0) < 0)
		return -errno;
	(void)unlinkat(fd, RUNTIME_CONTAINERS_DIR "/fresh", 0);
	if (linkat(fd, "attach.sock", fd, RUNTIME_CONTAINERS_DIR "/fresh", 0) < 0 ||
	    renameat(fd, RUNTIME_CONTAINERS_DIR "/fresh", fd,
		     RUNTIME_CONTAINERS_DIR "/attach.sock") < 0)
		return -errno;
	return 0;
}

/* Without it containers have that of before. */
static void containers_begin(const struct runtime *runtime)
{
	int rc = containers_make(runtime);

	if (rc < 0)
		log_event(LOG_WARNING,
			  "runtime.containers dir=%s/" RUNTIME_CONTAINERS_DIR " error=\"%s\"",
			  runtime->dir, strerrordesc_np(-rc));
}

bool runtime_containers_there(const struct runtime *runtime)
{
	char path[128];
	struct stat st;

	runtime_path(runtime, RUNTIME_CONTAINERS_DIR "/attach.sock", path, sizeof(path));
	return stat(path, &st) == 0 && st.st_ino == file_inode(runtime, RUNTIME_ATTACH);
}

/* ---- the supervisor's part --------------------------------------------------------------- */

static int sockets_hold(struct runtime *runtime, bool system, struct error *err)
{
	bool made = false;

	runtime->made_anew = 0;
	for (enum runtime_file file = RUNTIME_ATTACH; file <= RUNTIME_HTTP; file++) {
		int *fd = socket_of(runtime, file);
		bool own = *fd >= 0 && runtime->inode[file];

		if (own && runtime_look(runtime, file) == RUNTIME_THERE)
			continue;
		/* The service manager's goes before one that was made in its place. */
		bool others = runtime->handed_over && is_listened_at(runtime, file);
		if (own || !others)
			close_fd(fd);
		if (others)
			continue;
		*fd = socket_listen(runtime, file, system ? 0666 : 0600, err);
		if (*fd < 0)
			return -1;
		runtime->inode[file] = file_inode(runtime, file);
		runtime->made_anew |= (unsigned)runtime->handed_over << file;
		made = true;
	}
	return made;
}

int runtime_hold(struct runtime *runtime, const struct runtime_start *start, struct error *err)
{
	int made = 0;

	if (runtime->lock_fd < 0 || runtime_look(runtime, RUNTIME_LOCK) != RUNTIME_THERE) {
		int before = runtime->lock_fd;

		if (lock_take(runtime, start->system, start->config, err) < 0) {
			runtime->lock_fd = before;
			return -1;
		}
		close_fd(&before);
		made = 1;
	}
	int rc = sockets_hold(runtime, start->system, err);
	if (rc < 0)
		return rc;
	made |= rc;
	if (!runtime_containers_there(runtime))
		containers_begin(runtime);
	if (made || runtime_start_missing(runtime))
		start_note(runtime, start);
	return made;
}

/* ---- the worker's part -------------------------------------------------------------------- */

int runtime_follow(struct runtime *runtime, const struct runtime_given *given, struct error *err)
{
	for (enum runtime_file file = RUNTIME_LOCK; file < RUNTIME_FILES; file++) {
		runtime->inode[file] = file_inode(runtime, file);
		if (!runtime->inode[file])
			return error_set(err, EXIT_CODE_FAILED, "%s/%s is not there", runtime->dir,
					 file_names[file]);
		if (given->made_anew >> file & 1)
			log_event(LOG_WARNING, "runtime.vanished file=%s made=anew",
				  file_names[file]);
	}
	runtime->made_anew = given->made_anew;
	runtime->attach_fd =
		given->attach_fd >= 0 ? given->attach_fd : supervisor_socket(SUPERVISOR_ATTACH);
	runtime->http_fd =
		given->http_fd >= 0 ? given->http_fd : supervisor_socket(SUPERVISOR_HTTP);
	if (runtime->attach_fd < 0 || runtime->http_fd < 0)
		return error_set(err, EXIT_CODE_FAILED, "no socket called `%s` was handed over",
				 runtime->attach_fd < 0 ? SUPERVISOR_ATTACH : SUPERVISOR_HTTP);
	/* The process that prepared this start has noted the options. */
	runtime->start_noted = true;
	return 0;
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

void runtime_let_go(struct runtime *runtime)
{
	close_fd(&runtime->lock_fd);
	close_fd(&runtime->dir_fd);
	close_fd(&runtime->sole_fd);
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
	if (runtime->lock_fd >= 0)
		(void)!ftruncate(runtime->lock_fd, 0);
	runtime_let_go(runtime);
}
