#include "client/http.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/text_escape.h"
#include "client/text.h"
#include "http/http_ask.h"
#include "slice/runtime_dir.h"

/* A daemon's largest honest answer (sessions of a big host) is far below it. */
#define ANSWER_MAX (64u << 20)
#define READ_BYTES 16384u
#define SLOW_AFTER_MS 500
#define SLOW_AGAIN_MS 1000
/* The daemon may just be slow (a driver that wakes a GPU up, a wait for room), or hang. Which it
 * is, is asked again after each such time: the daemon always has an answer to what its version
 * is. */
#define ALIVE_AFTER_MS 4000
#define ALIVE_TIMEOUT_MS 1500
/* Room for a process's name, as /proc/PID/comm has it. */
#define NAME_SIZE 32

enum outcome {
	OUTCOME_DONE,
	OUTCOME_TIMED_OUT,
	OUTCOME_HANGS,
	OUTCOME_ENDED,
	OUTCOME_FOREIGN,
	OUTCOME_NO_MEMORY,
};

struct exchange {
	const struct http_request *request;
	int fd;
	long long began_ms;
	long long told_ms;  /* when the caller was last told that it takes long; 0: not yet */
	long long asked_ms; /* when the daemon was last asked whether it lives */
	bool looked_after;  /* it is asked whether it lives */
	struct http_ask ask;
};

static bool daemon_is_alive(const char *socket);

/* ---- waiting ----------------------------------------------------------------------------- */

static long long slow_due(const struct exchange *x)
{
	return x->told_ms ? x->told_ms + SLOW_AGAIN_MS : SLOW_AFTER_MS;
}

/* The step that is due; *ret_ms: until when nothing is to be done, of the exchange's time. */
static enum outcome time_look(struct exchange *x, long long *ret_ms)
{
	long long at = now_monotonic_ms() - x->began_ms, next = at + ALIVE_AFTER_MS;
	const struct http_request *request = x->request;

	if (request->timeout_ms && at >= request->timeout_ms)
		return OUTCOME_TIMED_OUT;
	if (request->slow && at >= slow_due(x)) {
		x->told_ms = at;
		request->slow(request->slow_context);
	}
	if (x->looked_after && at - x->asked_ms >= ALIVE_AFTER_MS) {
		x->asked_ms = at;
		if (!daemon_is_alive(request->socket))
			return OUTCOME_HANGS;
	}
	if (request->slow)
		next = MIN(next, slow_due(x));
	if (request->timeout_ms)
		next = MIN(next, request->timeout_ms);
	*ret_ms = next - at;
	return OUTCOME_DONE;
}

static enum outcome fd_wait(struct exchange *x, short events)
{
	struct pollfd poll_fd = {.fd = x->fd, .events = events};

	for (;;) {
		long long ms = 0;
		enum outcome outcome = time_look(x, &ms);

		if (outcome != OUTCOME_DONE)
			return outcome;
		int ready = poll(&poll_fd, 1, (int)MAX(ms, 1));
		if (ready > 0)
			return OUTCOME_DONE;
		if (ready < 0 && errno != EINTR)
			return OUTCOME_ENDED;
	}
}

/* ---- sending and receiving --------------------------------------------------------------- */

/* A daemon that has answered and ended the connection has not read all: that is no error yet. */
static enum outcome text_send(struct exchange *x, const char *text, size_t size)
{
	while (size) {
		ssize_t n = send(x->fd, text, size, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0) {
			text += n;
			size -= (size_t)n;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			return OUTCOME_DONE;
		enum outcome outcome = fd_wait(x, POLLOUT);
		if (outcome != OUTCOME_DONE)
			return outcome;
	}
	return OUTCOME_DONE;
}

static enum outcome answer_receive(struct exchange *x)
{
	static const enum outcome outcomes[] = {
		[HTTP_ASK_ANSWERED] = OUTCOME_DONE,
		[HTTP_ASK_ENDED] = OUTCOME_ENDED,
		[HTTP_ASK_FOREIGN] = OUTCOME_FOREIGN,
		[HTTP_ASK_NO_MEMORY] = OUTCOME_NO_MEMORY,
	};
	char data[READ_BYTES];

	for (;;) {
		enum outcome outcome = fd_wait(x, POLLIN);

		if (outcome != OUTCOME_DONE)
			return outcome;
		ssize_t n = recv(x->fd, data, sizeof(data), MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		enum http_ask_progress progress =
			http_ask_take(&x->ask, data, n > 0 ? (size_t)n : 0);
		if (progress != HTTP_ASK_MORE)
			return outcomes[progress];
	}
}

static enum outcome request_send(struct exchange *x, const char *body)
{
	const struct http_request *request = x->request;
	char head[1024];
	size_t size = body ? strlen(body) : 0;
	size_t n = http_ask_head(head, sizeof(head), request->method, request->path, size);

	if (!n)
		return OUTCOME_NO_MEMORY;
	enum outcome outcome = text_send(x, head, n);
	return outcome == OUTCOME_DONE && body ? text_send(x, body, size) : outcome;
}

static enum outcome exchange_run(struct exchange *x, const char *body)
{
	http_ask_begin(&x->ask, ANSWER_MAX);
	enum outcome outcome = request_send(x, body);
	return outcome == OUTCOME_DONE ? answer_receive(x) : outcome;
}

static bool daemon_is_alive(const char *socket)
{
	struct http_request request = {.socket = socket,
				       .method = "GET",
				       .path = "/v1/version",
				       .timeout_ms = ALIVE_TIMEOUT_MS};
	struct error ignored;
	cleanup_close int fd = runtime_connect(socket, SOCK_STREAM, &ignored);
	struct exchange x = {.request = &request, .fd = fd, .began_ms = now_monotonic_ms()};

	/* One that has ended is known otherwise. */
	enum outcome outcome = fd < 0 ? OUTCOME_ENDED : exchange_run(&x, NULL);
	http_ask_free(&x.ask);
	return outcome != OUTCOME_TIMED_OUT;
}

/* A service manager listens before the service does, and goes on when that has ended. */
static bool listens_for_another(pid_t pid, char name[static NAME_SIZE])
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	if (pid <= 0 || file_read(path, name, NAME_SIZE) <= 0)
		return false;
	name[strcspn(name, "\n")] = '\0';
	return strcmp(name, "carved") != 0;
}

static void hangs_error(const char *socket, struct error *err)
{
	pid_t pid = runtime_socket_pid(socket);
	char name[NAME_SIZE], shown[TEXT_ESCAPE_SIZE * NAME_SIZE + 1];

	if (listens_for_another(pid, name)) {
		error_set(err, EXIT_CODE_UNREACHABLE,
			  "carved does not answer; %s (process %d) listens at %s for it",
			  text_escape(name, true, shown), (int)pid, socket);
		error_hint(err, "carved.service does not run, fails at each start, or hangs: "
				"systemctl status carved.service says which of these, "
				"journalctl -u carved says why");
		return;
	}
	error_set(err, EXIT_CODE_UNREACHABLE, "the daemon (process %d) does not answer", (int)pid);
	error_hint(err, "it hangs or is stopped; its socket is %s", socket);
}

static int exchange_error(const struct http_request *request, enum outcome outcome,
			  enum http_reach *ret_reach, struct error *err)
{
	*ret_reach = HTTP_BROKE_OFF;
	switch (outcome) {
	case OUTCOME_DONE:
		return 0;
	case OUTCOME_TIMED_OUT:
		*ret_reach = HTTP_TIMED_OUT;
		error_set(err, EXIT_CODE_UNREACHABLE,
			  "the daemon at %s did not answer within %ld s", request->socket,
			  request->timeout_ms / 1000);
		break;
	case OUTCOME_HANGS:
		*ret_reach = HTTP_TIMED_OUT;
		hangs_error(request->socket, err);
		break;
	case OUTCOME_ENDED:
		error_set(err, EXIT_CODE_UNREACHABLE, "the daemon at %s ended while it was asked",
			  request->socket);
		error_hint(err, "try again; its log is carved.log in that directory, or that of "
				"journalctl -u carved");
		break;
	case OUTCOME_NO_MEMORY:
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	case OUTCOME_FOREIGN:
		error_set(err, EXIT_CODE_UNREACHABLE,
			  "%s answers, but not as a daemon that carve understands",
			  request->socket);
		break;
	}
	return -EXIT_CODE_UNREACHABLE;
}

static int connect_error(const struct http_request *request, int rc, enum http_reach *ret_reach,
			 struct error *err)
{
	if (rc == -EPERM) {
		*ret_reach = HTTP_REFUSED;
		return -EXIT_CODE_NOT_PERMITTED;
	}
	error_set(err, EXIT_CODE_UNREACHABLE, "no daemon answers at %s", request->socket);
	runtime_silent_hint(request->socket, err);
	return -EXIT_CODE_UNREACHABLE;
}

int http_exchange(const struct http_request *request, struct http_answer *ret, struct error *err)
{
	cleanup_free char *body = request->body ? json_dumps(request->body, JSON_COMPACT) : NULL;
	struct exchange x = {
		.request = request, .began_ms = now_monotonic_ms(), .looked_after = true};

	*ret = (struct http_answer){.reach = HTTP_NOT_SENT};
	if (request->body && !body)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	cleanup_close int fd = runtime_connect(request->socket, SOCK_STREAM, err);
	if (fd < 0)
		return connect_error(request, fd, &ret->reach, err);
	x.fd = fd;
	int rc = exchange_error(request, exchange_run(&x, body), &ret->reach, err);
	if (rc == 0) {
		ret->reach = HTTP_ANSWERED;
		ret->status = x.ask.status;
		ret->body =
			text_clean_json(json_loadb(x.ask.body, x.ask.size, JSON_DECODE_ANY, NULL));
	}
	http_ask_free(&x.ask);
	return rc;
}
