#include "client/client.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "client/daemon_start.h"
#include "client/http.h"
#include "slice/runtime_dir.h"

/* A daemon asks the driver, which may have to wake a GPU up first. */
#define CALL_TIMEOUT_MS 60000u
/* For how long a call is tried again when the daemon went away under it: one second. */
#define SUCCESSOR_TRIES 10
#define SUCCESSOR_PAUSE_NS 100000000L

static int path_error(const char *path, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "%.300s is too long for a socket", path);
	error_hint(err, "a socket's path has at most %zu bytes", CLIENT_PATH_MAX - 1);
	return -EXIT_CODE_USAGE;
}

/* Fills both paths: a socket, and the attach socket in the same directory. */
static int client_place(struct client *client, const char *socket, struct error *err)
{
	const char *slash = strrchr(socket, '/');
	int directory = slash ? (int)(slash - socket) + 1 : 0;

	if (snprintf(client->socket, CLIENT_PATH_MAX, "%s", socket) >= (int)CLIENT_PATH_MAX ||
	    snprintf(client->attach, CLIENT_PATH_MAX, "%.*s%s", directory, socket,
		     RUNTIME_ATTACH_SOCKET) >= (int)CLIENT_PATH_MAX)
		return path_error(socket, err);
	return 0;
}

/* A daemon that somebody named: used as it is. Its path is made absolute, as workloads get it. */
static int client_open_host(struct client *ret, const char *host, struct error *err)
{
	char absolute[PATH_MAX];
	int rc = client_place(ret, realpath(host, absolute) ? absolute : host, err);

	if (rc < 0)
		return rc;
	ret->own = false;
	cleanup_close int fd = runtime_connect(ret->socket, SOCK_STREAM, err);
	if (fd < 0 && err->code == EXIT_CODE_UNREACHABLE) {
		error_set(err, EXIT_CODE_UNREACHABLE, "no daemon answers at %.200s", host);
		error_hint(err, "start carved there, or leave --host and CARVE_HOST out");
	}
	return fd < 0 ? fd : 0;
}

static int client_open_any(struct client *ret, const char *host, bool start, struct error *err)
{
	char dir[PATH_MAX], socket[PATH_MAX + sizeof(RUNTIME_SOCKET) + 1];

	if (!host)
		host = secure_getenv("CARVE_HOST");
	if (host && *host)
		return client_open_host(ret, host, err);
	int rc = runtime_dir_choose(dir, sizeof(dir), err);
	if (rc < 0)
		return rc;
	snprintf(socket, sizeof(socket), "%s/%s", dir, RUNTIME_SOCKET);
	rc = client_place(ret, socket, err);
	if (rc < 0)
		return rc;
	ret->own = strcmp(dir, RUNTIME_DIR_SYSTEM) != 0;
	cleanup_close int fd = runtime_connect(ret->socket, SOCK_STREAM, err);
	if (fd >= 0)
		return 0;
	/* Another user's is no reason to start one in the same place. */
	if (!start || err->code != EXIT_CODE_UNREACHABLE)
		return fd;
	*err = (struct error){0};
	return daemon_start(dir, ret->socket, err);
}

int client_open(struct client *ret, const char *host, struct error *err)
{
	return client_open_any(ret, host, true, err);
}

int client_open_running(struct client *ret, const char *host, struct error *err)
{
	int rc = client_open_any(ret, host, false, err);

	ret->own = false;
	return rc;
}

/* A request that was not sent can be sent again. One that broke off may have been carried out: only
 * a request for a session without an ID would then do something else the second time. */
static bool may_repeat(const struct http_request *request, enum http_reach reach)
{
	return reach == HTTP_NOT_SENT ||
	       (reach == HTTP_BROKE_OFF &&
		(strcmp(request->method, "POST") != 0 || json_object_get(request->body, "id")));
}

/* The daemon worded its error; where it did not, the status has to do. */
static int answer_error(const struct client *client, long status, const json_t *answer,
			struct error *err)
{
	const json_t *error = json_object_get(answer, "error");
	const char *message = json_string_value(json_object_get(error, "message"));
	const char *hint = json_string_value(json_object_get(error, "hint"));
	int code = (int)json_integer_value(json_object_get(error, "code"));

	if (!message)
		return error_set(err, EXIT_CODE_FAILED,
				 "the daemon at %s answered %ld and said "
				 "nothing that carve understands",
				 client->socket, status);
	error_set(err, code > 0 && code < EXIT_CODE_RUN_FAILED ? code : EXIT_CODE_FAILED, "%s",
		  message);
	if (hint && *hint)
		error_hint(err, "%s", hint);
	return -err->code;
}

/* A daemon that was killed with its supervisor is started as by any command. It may still have
 * answered its socket when this command chose it. */
static void successor_start(const struct client *client)
{
	char dir[CLIENT_PATH_MAX];
	struct error ignored = {0};

	snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(client->socket, '/') - client->socket),
		 client->socket);
	if (client->own && daemon_was_killed(dir))
		(void)daemon_start(dir, client->socket, &ignored);
}

int client_call(const struct client *client, const char *method, const char *path,
		const json_t *body, const struct client_patience *patience, json_t **ret,
		struct error *err)
{
	uint64_t wait_ms = patience ? patience->wait_ns / 1000000 : 0;
	struct http_request request = {
		.socket = client->socket,
		.method = method,
		.path = path,
		.body = body,
		/* libcurl counts in an int; who waits for weeks waits without a limit of ours. */
		.timeout_ms = wait_ms < INT_MAX / 2 ? (long)(CALL_TIMEOUT_MS + wait_ms) : 0,
		.slow = patience ? patience->slow : NULL,
		.slow_context = patience ? patience->slow_context : NULL,
	};
	struct http_answer answer;
	int rc = http_exchange(&request, &answer, err);

	for (int tries = 0; tries < SUCCESSOR_TRIES && rc < 0 && may_repeat(&request, answer.reach);
	     tries++) {
		/* Its supervisor starts the next one, and its socket is there meanwhile. */
		nanosleep(&(struct timespec){.tv_nsec = SUCCESSOR_PAUSE_NS}, NULL);
		successor_start(client);
		rc = http_exchange(&request, &answer, err);
	}
	if (rc < 0)
		return rc;
	cleanup_json json_t *body_got = answer.body;
	if (answer.status < 200 || answer.status > 299 || !body_got)
		return answer_error(client, answer.status, body_got, err);
	if (ret)
		*ret = steal_ptr(&body_got);
	return 0;
}

/* The session's ID is chosen here, so that a request whose answer was lost with its daemon can be
 * made again: it gets the session that it got. */
static json_t *id_make(void)
{
	static const char letters[] = "abcdefghjkmnpqrstuvwxyz23456789";
	unsigned char random[6];
	char id[sizeof("s-") + sizeof(random)] = "s-";

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return NULL;
	for (size_t i = 0; i < sizeof(random); i++)
		id[2 + i] = letters[random[i] % (sizeof(letters) - 1)];
	return json_string(id);
}

int client_session_request(const struct client *client, const json_t *request,
			   const struct client_patience *patience, json_t **ret, struct error *err)
{
	cleanup_json json_t *body = json_copy((json_t *)request);
	json_t *id = id_make();

	if (!body || (id && json_object_set_new(body, "id", id) < 0))
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	return client_call(client, "POST", "/v1/sessions", body, patience, ret, err);
}
