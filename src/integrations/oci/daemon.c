#include "integrations/oci/daemon.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/installed.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/trust.h"
#include "http/http_ask.h"

#define SOCKET "carved.sock"
#define ATTACH "attach.sock"
#define ANSWER_MAX (1u << 20)
#define AWAY_LOOK_NS 100000000 /* between two looks for a daemon that is away */
#define CUT_TRIES 10           /* calls in place of one that was cut off: one second */

/* A connection to a daemon that may be believed, or -errno. */
static int daemon_connect(const char *path, unsigned flags)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uid_t uid;

	if (fd < 0)
		return -errno;
	if (snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >=
	    (int)sizeof(address.sun_path))
		return -ENAMETOOLONG;
	int rc = server_directory_check(path, flags, &uid);
	if (rc == -EPERM || rc == -SERVER_UNKNOWN)
		return rc;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	rc = server_check(fd, path, flags, &uid);
	return rc < 0 ? rc : steal_fd(&fd);
}

static int paths_make(const char *dir, struct oci_daemon *ret, struct error *err)
{
	if (snprintf(ret->socket, sizeof(ret->socket), "%s/" SOCKET, dir) <
		    (int)sizeof(ret->socket) &&
	    snprintf(ret->attach, sizeof(ret->attach), "%s/" ATTACH, dir) <
		    (int)sizeof(ret->attach))
		return 0;
	return error_set(err, EXIT_CODE_UNREACHABLE, "the daemon's path %.100s is too long", dir);
}

static int socket_choose(const char *host, struct oci_daemon *ret, struct error *err)
{
	const char *dir = secure_getenv("CARVE_RUNTIME_DIR");
	char own[PATH_MAX];

	if (host && *host) {
		const char *slash = strrchr(host, '/');

		snprintf(own, sizeof(own), "%.*s", (int)(slash ? slash - host : 0), host);
		int rc = paths_make(own, ret, err);
		if (rc == 0)
			snprintf(ret->socket, sizeof(ret->socket), "%s", host);
		return rc;
	}
	if (dir && *dir)
		return paths_make(dir, ret, err);
	if (installed_for_all() || installed_user_dir(own, sizeof(own)) < 0)
		return paths_make(RUNTIME_DIR_SYSTEM, ret, err);
	cleanup_close int system = daemon_connect(RUNTIME_DIR_SYSTEM "/" SOCKET, 0);
	return paths_make(system >= 0 ? RUNTIME_DIR_SYSTEM : own, ret, err);
}

/* `carve gpu list` starts the user's daemon, and waits until it serves. */
static void daemon_start(void)
{
	char path[PATH_MAX];
	char *argv[] = {path, (char *)"gpu", (char *)"list", (char *)"--json", NULL};
	posix_spawn_file_actions_t actions;
	pid_t child;

	if (executable_beside("carve", path, sizeof(path)) < 0)
		return;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", 1, 0);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1, 0);
	if (posix_spawn(&child, path, &actions, NULL, argv, environ) == 0)
		(void)waitpid(child, NULL, 0);
	posix_spawn_file_actions_destroy(&actions);
}

int oci_daemon_find(const char *host, struct oci_daemon *ret, struct error *err)
{
	ret->vouched = host != NULL;
	return socket_choose(host ? host : secure_getenv("CARVE_HOST"), ret, err);
}

static bool is_away(int fd)
{
	return fd == -ENOENT || fd == -ECONNREFUSED;
}

/* A connection, to a daemon that is started where there is none; or negative with *err set. */
static int daemon_reach(const struct oci_daemon *daemon, struct error *err)
{
	long long until = now_monotonic_ms() + daemon->away_s * 1000LL;
	const unsigned flags = daemon->vouched ? SERVER_VOUCHED : 0;
	int fd = daemon_connect(daemon->socket, flags);

	if (is_away(fd)) {
		daemon_start();
		fd = daemon_connect(daemon->socket, flags);
	}
	while (is_away(fd) && now_monotonic_ms() < until) {
		nanosleep(&(struct timespec){.tv_nsec = AWAY_LOOK_NS}, NULL);
		fd = daemon_connect(daemon->socket, flags);
	}
	if (fd >= 0)
		return fd;
	if (fd == -SERVER_UNKNOWN) {
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "nobody can tell in this user namespace whose daemon is at %s",
			  daemon->socket);
		error_hint(err, "name it in the hook's arguments: --host SOCKET");
		return -err->code;
	}
	error_set(err, fd == -EPERM ? EXIT_CODE_NOT_PERMITTED : EXIT_CODE_UNREACHABLE,
		  "no daemon answers at %s: %s", daemon->socket, strerrordesc_np(-fd));
	error_hint(err, "is carved running there? `carve check` looks");
	return -err->code;
}

static int daemon_error(const json_t *answer, struct error *err)
{
	const json_t *error = json_object_get(answer, "error");
	const char *message = json_string_value(json_object_get(error, "message"));
	const char *hint = json_string_value(json_object_get(error, "hint"));
	json_int_t code = json_integer_value(json_object_get(error, "code"));

	error_set(err, code > 0 && code < 128 ? (int)code : EXIT_CODE_FAILED, "%s",
		  message ? message : "the daemon's answer cannot be read");
	if (hint && *hint)
		error_hint(err, "%s", hint);
	return -err->code;
}

/* One call over a connection of its own. 0 or -errno; -ECONNRESET: the daemon ended before it
 * answered; or, with *err set, what daemon_reach() returns. The answer is the caller's, to free. */
static int exchange(const struct oci_daemon *daemon, const char *method, const char *path,
		    const json_t *body, struct http_ask *ask, struct error *err)
{
	const struct timeval patience = {.tv_sec = daemon->patience_s};
	cleanup_close int fd = daemon_reach(daemon, err);

	http_ask_begin(ask, ANSWER_MAX);
	if (fd < 0)
		return fd;
	cleanup_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	if (body && !text)
		return -ENOMEM;
	if (daemon->patience_s)
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return http_ask_call(ask, fd, method, path, text);
}

/* A change that has an ID is made once, however often it is asked for. So is a command's
 * registration, which names a process. */
static bool may_repeat(const char *method, const json_t *body)
{
	return strcmp(method, "POST") != 0 || json_object_get(body, "id") ||
	       json_object_get(body, "pid");
}

/* Takes what exchange() returned. */
static int answer_take(const struct oci_daemon *daemon, int rc, const struct http_ask *ask,
		       json_t **ret, struct error *err)
{
	if (err->code)
		return rc;
	if (rc == -EAGAIN)
		return error_set(err, EXIT_CODE_UNREACHABLE,
				 "the daemon at %s does not answer within %u s", daemon->socket,
				 daemon->patience_s);
	if (rc < 0 && rc != -EPROTO)
		return error_set(err, EXIT_CODE_UNREACHABLE, "the daemon at %s: %s", daemon->socket,
				 strerrordesc_np(-rc));
	json_t *answer = json_loadb(ask->body, ask->size, JSON_DECODE_ANY, NULL);
	rc = rc == 0 && ask->status >= 200 && ask->status < 300 ? 0 : daemon_error(answer, err);
	if (rc == 0 && ret)
		*ret = answer;
	else
		json_decref(answer);
	return rc;
}

int oci_daemon_call(const struct oci_daemon *daemon, const char *method, const char *path,
		    const json_t *body, json_t **ret, struct error *err)
{
	struct http_ask ask;
	int rc = exchange(daemon, method, path, body, &ask, err);

	/* Its supervisor starts the next one. */
	for (int tries = 0; rc == -ECONNRESET && tries < CUT_TRIES && may_repeat(method, body);
	     tries++) {
		nanosleep(&(struct timespec){.tv_nsec = AWAY_LOOK_NS}, NULL);
		http_ask_free(&ask);
		rc = exchange(daemon, method, path, body, &ask, err);
	}
	rc = answer_take(daemon, rc, &ask, ret, err);
	http_ask_free(&ask);
	return rc;
}
