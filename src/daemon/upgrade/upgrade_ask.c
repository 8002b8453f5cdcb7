/* The two small programs inside carved that an upgrade needs beside the daemon itself: the one that
 * asks for it, and the one that says whether it can. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/trust.h"
#include "daemon/host/handover.h"
#include "daemon/node.h"
#include "daemon/upgrade/upgrade.h"

/* The daemon's own patience is below it: the check, the calls under way, the start. */
#define ANSWER_PATIENCE_S 60
#define ANSWER_SIZE 65536

int upgrade_check(const char *version, const struct node *node, struct error *err)
{
	if (strtol(version, NULL, 10) != HANDOVER_VERSION) {
		error_set(err, EXIT_CODE_FAILED,
			  "carved %s does not know what a daemon with handover %s leaves",
			  CARVE_VERSION, version);
		error_hint(err, "end that daemon and start this one: sessions survive it");
		return EXIT_CODE_FAILED;
	}
	if (state_check(&node->state, &node->runtime, err) < 0)
		return EXIT_CODE_FAILED;
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

/* One POST over the connection. The answer's JSON, or NULL; *ret_status is HTTP's. */
static json_t *post(int fd, const char *path, const json_t *body, long *ret_status)
{
	cleanup_free char *text = json_dumps(body, JSON_COMPACT);
	static char answer[ANSWER_SIZE];
	char head[256];
	size_t length = 0;
	ssize_t n = 0;

	if (!text)
		return NULL;
	int size = snprintf(head, sizeof(head),
			    "POST %s HTTP/1.1\r\nHost: carve\r\nConnection: close\r\n"
			    "Content-Length: %zu\r\n\r\n",
			    path, strlen(text));
	if (write_all(fd, head, (size_t)size) < 0 || write_all(fd, text, strlen(text)) < 0)
		return NULL;
	while (length < ANSWER_SIZE - 1 &&
	       (n = recv(fd, answer + length, ANSWER_SIZE - 1 - length, 0)) > 0)
		length += (size_t)n;
	const char *content = strstr(answer, "\r\n\r\n");
	*ret_status = strncmp(answer, "HTTP/1.1 ", 9) == 0 ? strtol(answer + 9, NULL, 10) : 0;
	return content ? json_loads(content + 4, 0, NULL) : NULL;
}

static int answer_tell(json_t *answer, long status, struct error *err)
{
	const json_t *error = json_object_get(answer, "error");
	const char *message = json_string_value(json_object_get(error, "message"));
	const char *hint = json_string_value(json_object_get(error, "hint"));
	const char *version = json_string_value(json_object_get(answer, "version"));

	if (status == 200 && version) {
		printf("carved %s runs now, as process %d\n", version,
		       (int)json_integer_value(json_object_get(answer, "pid")));
		return EXIT_CODE_OK;
	}
	if (status == 404) {
		error_set(err, EXIT_CODE_FAILED, "the daemon is too old to be upgraded in place");
		error_hint(err, "end it and start this one: sessions survive it");
		return EXIT_CODE_FAILED;
	}
	error_set(err, EXIT_CODE_FAILED, "%s",
		  message ? message : "the daemon ended while it was asked; its log says more");
	error_hint(err, "%s", hint ? hint : "");
	return (int)json_integer_value(json_object_get(error, "code")) ?: EXIT_CODE_FAILED;
}

int upgrade_ask(const char *dir, struct error *err)
{
	char program[PATH_MAX];
	long status = 0;
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (n < 0)
		return error_set(err, EXIT_CODE_FAILED, "/proc/self/exe: %s",
				 strerrordesc_np(errno)),
		       EXIT_CODE_FAILED;
	program[n] = '\0';
	cleanup_close int fd = daemon_connect(dir, err);
	if (fd < 0)
		return err->code;
	json_t *body = json_pack("{s:s}", "program", program);
	json_t *answer = post(fd, "/v1/upgrade", body, &status);
	int code = answer_tell(answer, status, err);

	json_decref(body);
	json_decref(answer);
	return code;
}
