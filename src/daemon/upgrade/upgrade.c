/* The two small programs inside carved that an upgrade needs beside the daemon itself: the one that
 * asks for it, and the one that says whether it can. */
#include "daemon/upgrade/upgrade.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/trust.h"
#include "http/http_ask.h"

/* The daemon's own patience is below it: the check, the start. */
#define ANSWER_PATIENCE_S 60
#define ANSWER_MAX 65536u
#define LOOK_PAUSE_NS 20000000L

int upgrade_check(const char *version, struct error *err)
{
	if (strtol(version, NULL, 10) != UPGRADE_VERSION) {
		error_set(err, EXIT_CODE_FAILED,
			  "carved %s does not follow on a daemon that asks for takeover %s",
			  CARVE_VERSION, version);
		error_hint(err, "end that daemon and start this one: sessions survive it");
		return EXIT_CODE_FAILED;
	}
	fputs(UPGRADE_CHECKED, stdout);
	return fflush(stdout) == 0 ? EXIT_CODE_OK : EXIT_CODE_FAILED;
}

/* ---- asking ------------------------------------------------------------------------------- */

static int daemon_connect(const char *dir, struct error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = ANSWER_PATIENCE_S};
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uid_t uid = (uid_t)-1;
	int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/carved.sock", dir);

	if (length < 0 || (size_t)length >= sizeof(address.sun_path))
		return error_set(err, EXIT_CODE_USAGE, "%.200s is too long for a socket", dir);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		error_set(err, EXIT_CODE_UNREACHABLE, "no daemon answers at %s: %s",
			  address.sun_path, strerrordesc_np(errno));
		error_hint(err, "start one: carved --runtime-dir %.200s", dir);
		return -1;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	int rc = server_check(fd, address.sun_path, 0, &uid);
	if (rc == 0)
		return steal_fd(&fd);
	if (rc == -SERVER_UNKNOWN)
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "nobody can tell in this user namespace whose daemon is at %s",
			  address.sun_path);
	else
		error_set(err, EXIT_CODE_NOT_PERMITTED, "user %u listens at %s, not root or you",
			  (unsigned)uid, address.sun_path);
	error_hint(err, "name the daemon's directory with --runtime-dir");
	return -1;
}

/* One call over a connection of its own. The answer's JSON, or NULL; *ret_status is HTTP's, 0 where
 * the daemon did not answer. */
static json_t *ask(int fd, const char *method, const char *path, const char *text, long *ret_status)
{
	struct http_ask ask;
	json_t *answer = NULL;

	*ret_status = 0;
	http_ask_begin(&ask, ANSWER_MAX);
	if (http_ask_call(&ask, fd, method, path, text) == 0) {
		*ret_status = ask.status;
		answer = json_loadb(ask.body, ask.size, 0, NULL);
	}
	http_ask_free(&ask);
	return answer;
}

/* The daemon that serves now: its PID, and its version as text. 0: none answers; -1: *err. */
static pid_t daemon_now(const char *dir, char *version, size_t size, struct error *err)
{
	cleanup_close int fd = daemon_connect(dir, err);
	long status;

	if (fd < 0)
		return -1;
	json_t *answer = ask(fd, "GET", "/v1/version", NULL, &status);
	const char *text = json_string_value(json_object_get(answer, "version"));
	pid_t pid = (pid_t)json_integer_value(json_object_get(answer, "pid"));
	snprintf(version, size, "%s", text ? text : "");
	json_decref(answer);
	return text ? pid : 0;
}

static int refusal_take(const json_t *answer, long status, struct error *err)
{
	const json_t *error = json_object_get(answer, "error");
	const char *message = json_string_value(json_object_get(error, "message"));
	const char *hint = json_string_value(json_object_get(error, "hint"));

	if (status == 404) {
		error_set(err, EXIT_CODE_FAILED, "the daemon is too old to be upgraded in place");
		error_hint(err, "end it and start this one: sessions survive it");
		return EXIT_CODE_FAILED;
	}
	error_set(err, EXIT_CODE_FAILED, "%s", message ? message : "the daemon said nothing clear");
	error_hint(err, "%s", hint ? hint : "");
	return (int)json_integer_value(json_object_get(error, "code")) ?: EXIT_CODE_FAILED;
}

/* Waits until another process serves than `before`. */
static int successor_await(const char *dir, pid_t before, struct error *err)
{
	uint64_t until = now_monotonic_ns() + ANSWER_PATIENCE_S * 1000000000ull;
	char version[64];

	while (now_monotonic_ns() < until) {
		struct error ignored = {0};
		pid_t now = daemon_now(dir, version, sizeof(version), &ignored);

		if (now > 0 && now != before) {
			printf("carved %s runs now, as process %d\n", version, (int)now);
			return EXIT_CODE_OK;
		}
		nanosleep(&(struct timespec){.tv_nsec = LOOK_PAUSE_NS}, NULL);
	}
	error_set(err, EXIT_CODE_FAILED,
		  "the daemon ended, and the next one does not serve; its "
		  "log says more");
	return EXIT_CODE_FAILED;
}

int upgrade_ask(const char *dir, struct error *err)
{
	char program[PATH_MAX], version[64];
	long status = 0;
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (n < 0)
		return error_set(err, EXIT_CODE_FAILED, "/proc/self/exe: %s",
				 strerrordesc_np(errno)),
		       EXIT_CODE_FAILED;
	program[n] = '\0';
	pid_t before = daemon_now(dir, version, sizeof(version), err);
	if (before < 0)
		return err->code;
	cleanup_close int fd = daemon_connect(dir, err);
	if (fd < 0)
		return err->code;
	json_t *body = json_pack("{s:s}", "program", program);
	cleanup_free char *text = json_dumps(body, JSON_COMPACT);
	json_t *answer = ask(fd, "POST", "/v1/upgrade", text, &status);
	int code = status ? refusal_take(answer, status, err) : successor_await(dir, before, err);

	json_decref(body);
	json_decref(answer);
	return code;
}
