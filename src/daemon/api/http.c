#include "daemon/api/http.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/api/http_private.h"
#include "daemon/host/limited.h"
#include "daemon/host/log.h"
#include "daemon/host/names.h"
#include "daemon/host/owner.h"
#include "daemon/host/rights.h"
#include "daemon/node.h"

#define CONNECTIONS_MAX 4096u
/* Room (KiB) for all answers that clients have not read yet, those of ANSWER_SMALL and less left
 * out. One user has half of it. */
#define ANSWERS_KIB_MAX (64u << 10)
#define ANSWER_SMALL 16384u
/* Room (KiB) for all bodies of requests that are not answered yet, those of BODY_SMALL and less
 * left out. */
#define BODIES_KIB_MAX (64u << 10)
#define BODY_SMALL 4096u
/* libmicrohttpd is given connections that were counted: it is never the one that has too many. */
#define CONNECTIONS_SPARE 64u
#define CONNECTION_TIMEOUT_S 15u
/* The part of a request that libmicrohttpd may keep. A request that does not fit in it gets the
 * library's own page (it has no hook for that), so it is larger than what we take. */
#define CONNECTION_MEMORY 65536u
/* Request line and header fields together. */
#define HEADER_MAX 16384u
/* A body that is too large is read to its end all the same, as many clients look for an answer only
 * then. A client that sends more than this is cut off. */
#define BODY_DISCARD_MAX ((size_t)1 << 28)

/* ---- waiting for an answer --------------------------------------------------------------- */

struct watch {
	uv_poll_t poll;
	int fd; /* a duplicate: the poll handle needs a descriptor that stays its own */
};

static void on_watch_closed(uv_handle_t *handle)
{
	struct watch *watch = (struct watch *)handle;

	close_fd(&watch->fd);
	free(watch);
}

static void watch_stop(struct http_call *c)
{
	if (c->watch)
		uv_close((uv_handle_t *)steal_ptr(&c->watch), on_watch_closed);
}

static void call_abort(struct http_call *c, const char *why)
{
	struct error err = {0};

	c->on_gone(&c->call);
	error_set(&err, EXIT_CODE_UNREACHABLE, "%s", why);
	call_reply_error(&c->call, MHD_HTTP_SERVICE_UNAVAILABLE, &err);
}

static void on_disconnect(uv_poll_t *poll, int status, int events)
{
	call_abort(poll->data, "the client went away");
}

int http_connection_fd(struct MHD_Connection *connection)
{
	return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

int call_socket(const struct call *call)
{
	return http_connection_fd(((const struct http_call *)call)->connection);
}

static void watch_start(struct http_call *c)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return;
	watch->fd = fcntl(call_socket(&c->call), F_DUPFD_CLOEXEC, 0);
	if (watch->fd < 0 || uv_poll_init(&c->call.node->loop, &watch->poll, watch->fd) < 0) {
		close_fd(&watch->fd);
		free(watch);
		return;
	}
	watch->poll.data = c;
	uv_poll_start(&watch->poll, UV_DISCONNECT, on_disconnect);
	c->watch = &watch->poll;
}

void call_defer(struct call *call, void (*on_gone)(struct call *call))
{
	struct http_call *c = http_call(call);

	struct http_server *server = call->node->http;

	c->on_gone = on_gone;
	if (c->deferred)
		return; /* it was handled anew, and waits for something else */
	c->deferred = true;
	c->next = server->deferred;
	c->previous = NULL;
	if (c->next)
		c->next->previous = c;
	server->deferred = c;
	server->deferred_count++;
	if (c->connection)
		MHD_suspend_connection(c->connection);
	watch_start(c);
}

/* ---- users' turns ----------------------------------------------------------------------- */

static void turn_free(struct http_call *c)
{
	fair_withdraw(&c->turn);
	free(steal_ptr(&c->answer_arg));
}

static void on_gone_from_line(struct call *call)
{
	turn_free(http_call(call));
}

static void on_turn(struct fair_work *turn)
{
	struct http_call *c = (struct http_call *)((char *)turn - offsetof(struct http_call, turn));
	/* The call may be gone with its answer, or wait for another turn. */
	void *arg = steal_ptr(&c->answer_arg);

	c->answer(&c->call, arg);
	free(arg);
}

void call_fairly(struct call *call, call_answer answer, void *arg)
{
	struct http_call *c = http_call(call);
	struct fair *fair = &call->node->turns;

	c->answer = answer;
	c->answer_arg = arg;
	c->turn.run = on_turn;
	if (!fair_do(fair, owner_of(call->peer.uid), &c->turn))
		call_defer(call, on_gone_from_line);
}

static void body_drop(struct http_call *c)
{
	if (c->body_kib)
		crowd_leave_many(&c->call.node->http->bodies, c->body_owner, c->body_kib);
	c->body_kib = 0;
	free(steal_ptr(&c->buffer));
}

void http_call_free(struct http_call *c)
{
	watch_stop(c);
	turn_free(c);
	if (c->response)
		MHD_destroy_response(c->response);
	body_drop(c);
	free(c);
}

/* ---- answers ----------------------------------------------------------------------------- */

const char *call_argument(struct call *call, const char *name)
{
	const char *value = NULL;
	size_t size;

	if (MHD_lookup_connection_value_n(http_call(call)->connection, MHD_GET_ARGUMENT_KIND, name,
					  strlen(name), &value, &size) == MHD_NO)
		return NULL;
	return value ? value : "";
}

/* The answer is known: the call is no longer one that waits for it. */
static void undefer(struct http_call *c)
{
	struct http_server *server = c->call.node->http;

	if (!c->deferred)
		return;
	c->deferred = false;
	if (c->next)
		c->next->previous = c->previous;
	*(c->previous ? &c->previous->next : &server->deferred) = c->next;
	server->deferred_count--;
	watch_stop(c);
}

static struct http_connection *connection_of(struct MHD_Connection *connection)
{
	return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
		->socket_context;
}

/* An answer is out, or its connection is gone. */
static void answer_read(struct http_server *server, struct http_connection *open)
{
	if (open->answer_kib)
		crowd_leave_many(&server->answers, open->answer_owner, open->answer_kib);
	open->answer_kib = 0;
}

/* Large answers that a user does not read count against that user. NULL: there are too many of
 * them; the text is freed. */
static char *answer_count(struct http_call *c, char *text)
{
	struct http_server *server = c->call.node->http;
	struct http_connection *open = connection_of(c->connection);
	size_t size = text ? strlen(text) : 0;
	unsigned kib = (unsigned)MIN(size / 1024 + 1, UINT_MAX);

	if (!open || size <= ANSWER_SMALL)
		return text;
	answer_read(server, open);
	if (crowd_enter_many(&server->answers, c->call.peer.uid, kib, &open->answer_owner)) {
		open->answer_kib = kib;
		return text;
	}
	free(text);
	return NULL;
}

char *call_text(json_t *body)
{
	char *text = body ? json_dumps(body, JSON_COMPACT | JSON_PRESERVE_ORDER |
						     JSON_REAL_PRECISION(SHARE_DIGITS))
			  : NULL;

	json_decref(body);
	return text;
}

void call_reply(struct call *call, unsigned status, json_t *body)
{
	call_reply_text(call, status, call_text(body));
}

void call_reply_text(struct call *call, unsigned status, char *text)
{
	struct http_call *c = http_call(call);

	if (text && !(text = answer_count(c, text))) {
		status = MHD_HTTP_TOO_MANY_REQUESTS;
		text = strdup("{\"error\":{\"code\":1,\"message\":\"you have too many answers of "
			      "carved that you do not read\",\"hint\":\"read them, or close their "
			      "connections\"}}");
	}
	if (!text) {
		status = MHD_HTTP_INTERNAL_SERVER_ERROR;
		text = strdup(
			"{\"error\":{\"code\":1,\"message\":\"out of memory\",\"hint\":\"\"}}");
	}
	c->status = status;
	c->response = MHD_create_response_from_buffer(text ? strlen(text) : 0, text,
						      MHD_RESPMEM_MUST_FREE);
	MHD_add_response_header(c->response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
	if (!c->deferred)
		return;
	undefer(c);
	MHD_resume_connection(c->connection);
	call->node->http->resumed = true;
}

void call_reply_error(struct call *call, unsigned status, const struct error *err)
{
	call_reply(call, status,
		   json_pack("{s:{s:i, s:s, s:s}}", "error", "code", err->code, "message",
			     err->message, "hint", err->hint));
}

/* ---- libmicrohttpd's callbacks ----------------------------------------------------------- */

static struct http_call *call_open(struct http_server *server, struct MHD_Connection *connection,
				   const char *url, const char *method, const char *version)
{
	struct http_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->connection = connection;
	c->call.node = server->node;
	c->call.method = method;
	c->call.path = url;
	if (peer_identify(http_connection_fd(connection), &c->call.peer) < 0) {
		free(c);
		return NULL;
	}
	(void)names_of(NAMES_OF_USERS, c->call.peer.uid); /* has it looked for where need be */
	struct http_connection *open = connection_of(connection);
	if (open)
		open->in_call = true;
	server->calls++;
	return c;
}

static size_t body_max(const struct http_call *c)
{
	return !strcmp(c->call.path, HTTP_JOBS_PATH) ? HTTP_BODY_JOB_MAX : HTTP_BODY_MAX;
}

/* Large bodies count against their user from their first bytes on, as a client decides how long the
 * rest takes. False: there is no room for this one, and what was kept of it is freed. */
static bool body_count(struct http_call *c)
{
	struct crowd *bodies = &c->call.node->http->bodies;
	unsigned kib = (unsigned)(c->received / 1024 + 1);

	if (c->received <= BODY_SMALL || kib == c->body_kib)
		return true;
	if (c->body_kib)
		crowd_leave_many(bodies, c->body_owner, c->body_kib);
	c->body_kib = 0;
	if (crowd_enter_many(bodies, c->call.peer.uid, kib, &c->body_owner)) {
		c->body_kib = kib;
		return true;
	}
	c->body_refused = true;
	body_drop(c);
	return false;
}

static bool body_take(struct http_call *c, const char *data, size_t size)
{
	c->received += size;
	if (c->received > body_max(c))
		body_drop(c);
	if (c->received > body_max(c) || c->body_refused || !body_count(c))
		return c->received <= BODY_DISCARD_MAX;
	char *buffer = realloc(c->buffer, c->received);
	if (!buffer)
		return false;
	memcpy(buffer + c->received - size, data, size);
	c->buffer = buffer;
	return true;
}

static enum MHD_Result add_length(void *sum, enum MHD_ValueKind kind, const char *key,
				  const char *value)
{
	*(size_t *)sum += strlen(key) + (value ? strlen(value) : 0);
	return MHD_YES;
}

/* 0: the request's head is as short as it should be; else HTTP's status for it. */
static unsigned head_too_long(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	size_t fields = 0;

	if (!info || info->header_size <= HEADER_MAX)
		return 0;
	MHD_get_connection_values(connection, MHD_HEADER_KIND, add_length, &fields);
	return fields > info->header_size / 2 ? MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE
					      : MHD_HTTP_URI_TOO_LONG;
}

static void dispatch(struct http_call *c)
{
	struct error err = {.code = EXIT_CODE_USAGE};
	unsigned status = head_too_long(c->connection);

	c->dispatched = true;
	c->call.node->busy_ns = now_monotonic_ns();
	c->call.body = c->buffer ? c->buffer : "";
	c->call.body_size = c->received;
	if (status) {
		snprintf(err.message, sizeof(err.message),
			 "the request's head is larger than %u bytes", HEADER_MAX);
		call_reply_error(&c->call, status, &err);
		return;
	}
	if (c->body_refused && c->received <= body_max(c)) {
		error_set(&err, EXIT_CODE_USAGE,
			  "you have too much in requests to carved that are not answered");
		error_hint(&err, "send fewer of them at once");
		call_reply_error(&c->call, MHD_HTTP_TOO_MANY_REQUESTS, &err);
		return;
	}
	if (c->received <= body_max(c)) {
		call_fairly(&c->call, c->call.node->http->answer, NULL);
		return;
	}
	error_set(&err, EXIT_CODE_USAGE, "the body is larger than %zu bytes", body_max(c));
	if (body_max(c) == HTTP_BODY_JOB_MAX)
		error_hint(&err, "a job's command and environment have 512 KiB: `carve enqueue "
				 "--export NAME,NAME` leaves out other variables");
	call_reply_error(&c->call, MHD_HTTP_CONTENT_TOO_LARGE, &err);
}

static enum MHD_Result on_access(void *arg, struct MHD_Connection *connection, const char *url,
				 const char *method, const char *version, const char *data,
				 size_t *size, void **state)
{
	struct http_call *c = *state;

	if (!c) {
		*state = call_open(arg, connection, url, method, version);
		return *state ? MHD_YES : MHD_NO;
	}
	if (*size) {
		bool taken = body_take(c, data, *size);

		*size = 0;
		return taken ? MHD_YES : MHD_NO;
	}
	if (!c->dispatched)
		dispatch(c);
	return c->response ? MHD_queue_response(connection, c->status, c->response) : MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
			 enum MHD_RequestTerminationCode code)
{
	struct http_call *c = *state;

	struct http_server *server = arg;

	if (!c)
		return;
	struct http_connection *open = connection_of(connection);
	if (open)
		open->in_call = false, answer_read(server, open);
	server->calls--;
	http_call_free(c);
	*state = NULL;
}

/* The library has no way to refuse a connection that knows its user: the answer is written past it.
 */
static void on_too_many(void *arg, int fd)
{
	static const char body[] =
		"{\"error\":{\"code\":4,\"message\":\"you have too many connections to carved\","
		"\"hint\":\"close some, or wait for a moment\"}}";
	char answer[512];
	int length = snprintf(answer, sizeof(answer),
			      "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
			      "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			      sizeof(body) - 1, body);

	(void)!send(fd, answer, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static struct http_connection *connection_begin(struct http_server *server,
						struct MHD_Connection *connection)
{
	struct http_connection *open = calloc(1, sizeof(*open));
	int fd = http_connection_fd(connection);

	if (!open || !crowd_enter(&server->crowd, peer_uid(fd), &open->owner)) {
		/* The library finds it ended. */
		on_too_many(server, fd);
		rights_drain(fd);
		free(open);
		return NULL;
	}
	open->connection = connection;
	open->next = server->open;
	if (open->next)
		open->next->previous = open;
	server->open = open;
	open->reading =
		(struct http_reading){.connection = connection, .fd = fd, .owner = open->owner};
	http_reading_add(&open->reading);
	return open;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
			  enum MHD_ConnectionNotificationCode code)
{
	struct http_server *server = arg;
	struct http_connection *open = *state;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		*state = connection_begin(server, connection);
		return;
	}
	rights_drain(http_connection_fd(connection));
	if (!open)
		return;
	http_reading_remove(&open->reading);
	answer_read(server, open);
	crowd_leave(&server->crowd, open->owner);
	if (open->next)
		open->next->previous = open->previous;
	*(open->previous ? &open->previous->next : &server->open) = open->next;
	free(open);
	*state = NULL;
	arrivals_go_on(&server->arrivals);
}

/* Its first words, if they are there, are read in the same turn. */
static void on_arrival(void *arg, int fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct http_server *server = arg;

	/* Closes it where that fails. */
	if (MHD_add_connection(server->mhd, fd, (struct sockaddr *)&address, sizeof(address)) !=
	    MHD_YES)
		log_event(LOG_WARNING, "http.connection_lost error=\"%s\"", strerrordesc_np(errno));
	server->resumed = true; /* something may be there to be read already */
	http_reading_first(fd);
}

__attribute__((format(printf, 2, 0))) static void on_log(void *arg, const char *format,
							 va_list args)
{
	struct http_server *server = arg;
	char text[256];

	/* It takes an adopted connection for one of TCP, whose buffers it would flush. */
	if (!strncmp(format, "Setting %s option", strlen("Setting %s option")) ||
	    !strncmp(format, "Failed to push the data", strlen("Failed to push the data")))
		return;
	/* Clients can cause any number of these. */
	if (server->logged) {
		server->unlogged++;
		return;
	}
	server->logged = true;
	vsnprintf(text, sizeof(text), format, args);
	text[strcspn(text, "\n")] = '\0';
	log_event(LOG_WARNING, "http.wrong error=\"%s\"", text);
}

void http_tick(struct http_server *server)
{
	arrivals_go_on(&server->arrivals);
	/* A line about those is this second's. */
	server->logged = server->unlogged > 0;
	if (server->unlogged)
		log_event(LOG_WARNING, "http.not_logged lines=%u", server->unlogged);
	server->unlogged = 0;
}

/* ---- the loop ---------------------------------------------------------------------------- */

static void on_readable(uv_poll_t *poll, int status, int events)
{
	http_reading_run();
}

static void on_timer(uv_timer_t *timer)
{
	http_reading_run();
}

/* With it the loop looks at its descriptors, and goes on. */
static void on_more_calls(uv_idle_t *idle)
{
}

void http_prepare(struct http_server *server)
{
	MHD_UNSIGNED_LONG_LONG timeout;
	struct fair *turns = &server->node->turns;
	/* Requests that are taken here may want what the loop does before this: it comes again. */
	bool again = fair_waits(turns) || server->resumed;

	(void)fair_run(turns);
	/* Driven from outside, it is not woken by MHD_resume_connection(). */
	while (server->resumed) {
		server->resumed = false;
		http_reading_run();
	}
	/* Those of the runs above are among them. */
	if (again || fair_waits(turns))
		uv_idle_start(&server->more_calls, on_more_calls);
	else
		uv_idle_stop(&server->more_calls);
	if (MHD_get_timeout(server->mhd, &timeout) == MHD_YES)
		uv_timer_start(&server->timer, on_timer, timeout, 0);
	else
		uv_timer_stop(&server->timer);
}

int http_server_start(struct node *node, int fd, call_answer answer, struct http_server **ret)
{
	struct http_server *server = calloc(1, sizeof(*server));

	if (!server)
		return -ENOMEM;
	server->node = node;
	server->answer = answer;
	crowd_begin(&server->crowd, CONNECTIONS_MAX);
	crowd_begin_any(&server->answers, ANSWERS_KIB_MAX);
	crowd_begin_any(&server->bodies, BODIES_KIB_MAX);
	server->mhd = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
			MHD_USE_NO_LISTEN_SOCKET,
		0, NULL, NULL, on_access, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, server,
		MHD_OPTION_CONNECTION_LIMIT, server->crowd.most + CONNECTIONS_SPARE,
		MHD_OPTION_CONNECTION_TIMEOUT, CONNECTION_TIMEOUT_S,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, server, MHD_OPTION_END);
	if (!server->mhd) {
		free(server);
		return -EIO;
	}
	int epoll_fd = MHD_get_daemon_info(server->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
	uv_poll_init(&node->loop, &server->poll, epoll_fd);
	uv_timer_init(&node->loop, &server->timer);
	uv_idle_init(&node->loop, &server->more_calls);
	server->open_handles = 4;
	server->more_calls.data = server;
	server->poll.data = server->timer.data = server;
	uv_poll_start(&server->poll, UV_READABLE, on_readable);
	http_reading_begin(server->mhd, &server->node->turns, &server->resumed);
	/* Where descriptors are few, more connections wait until one of these ends. */
	server->arrivals = (struct arrivals){
		.turns = &node->turns,
		.crowd = &server->crowd,
		.to = {.open = on_arrival, .refuse = on_too_many, .most = limited_last()},
		.arg = server};
	arrivals_begin(&server->arrivals, &node->loop, fd);
	*ret = server;
	return 0;
}

static void http_server_release(struct http_server *server)
{
	if (--server->open_handles)
		return;
	MHD_stop_daemon(server->mhd);
	crowd_free(&server->crowd);
	crowd_free(&server->answers);
	crowd_free(&server->bodies);
	free(server);
}

static void on_closed(uv_handle_t *handle)
{
	http_server_release(handle->data);
}

void http_server_stop(struct http_server *server)
{
	if (!server)
		return;
	arrivals_open(&server->arrivals);
	while (server->deferred)
		call_abort(server->deferred, "carved is stopping");
	for (struct http_connection *open = server->open; open; open = open->next)
		http_reading_release(&open->reading);
	http_reading_end();
	http_prepare(server); /* sends what was just answered */
	server->stopping = true;
	arrivals_end(&server->arrivals, on_closed);
	uv_close((uv_handle_t *)&server->poll, on_closed);
	uv_close((uv_handle_t *)&server->timer, on_closed);
	uv_close((uv_handle_t *)&server->more_calls, on_closed);
}

unsigned http_connections(const struct http_server *server)
{
	return server->crowd.total;
}
