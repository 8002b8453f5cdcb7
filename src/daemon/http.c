#include "daemon/http.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/api.h"
#include "daemon/http_private.h"
#include "daemon/log.h"
#include "daemon/node.h"

#define CONNECTIONS_MAX 1024u
/* Shares are millionths: 0.05, not 0.050000000000000003. */
#define REAL_DIGITS 9
#define CONNECTION_TIMEOUT_S 15u
#define CONNECTION_MEMORY 16384u
/* A body that is too large is read to its end all the same, as many clients look for an answer only
 * then; who sends more than this is cut off. */
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

static void watch_start(struct http_call *c)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return;
	watch->fd = fcntl(c->connection ? http_connection_fd(c->connection) : c->fd,
			  F_DUPFD_CLOEXEC, 0);
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

	c->deferred = true;
	c->on_gone = on_gone;
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

void http_call_free(struct http_call *c)
{
	watch_stop(c);
	if (c->response)
		MHD_destroy_response(c->response);
	close_fd(&c->fd);
	json_decref(c->taken);
	free(c->buffer);
	free(c);
}

/* ---- answers ----------------------------------------------------------------------------- */

const char *call_argument(struct call *call, const char *name)
{
	const char *value = NULL;
	size_t size;

	if (!http_call(call)->connection)
		return http_taken_argument(http_call(call), name);
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

void call_reply(struct call *call, unsigned status, json_t *body)
{
	struct http_call *c = http_call(call);
	char *text = body ? json_dumps(body, JSON_COMPACT | JSON_PRESERVE_ORDER |
						     JSON_REAL_PRECISION(REAL_DIGITS))
			  : NULL;

	json_decref(body);
	if (!text) {
		status = MHD_HTTP_INTERNAL_SERVER_ERROR;
		text = strdup(
			"{\"error\":{\"code\":1,\"message\":\"out of memory\",\"hint\":\"\"}}");
	}
	if (!c->connection) {
		undefer(c);
		http_taken_answer(c, status, text);
		c->next = call->node->http->spent;
		call->node->http->spent = c;
		return;
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

static struct http_connection *connection_of(struct MHD_Connection *connection)
{
	return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
		->socket_context;
}

/* Whether the client waits for the connection's end behind the answer. */
static bool client_closes(struct MHD_Connection *connection, const char *version)
{
	const char *wish = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
						       MHD_HTTP_HEADER_CONNECTION);

	return strcmp(version, MHD_HTTP_VERSION_1_1) != 0 || (wish && strcasestr(wish, "close"));
}

static struct http_call *call_open(struct http_server *server, struct MHD_Connection *connection,
				   const char *url, const char *method, const char *version)
{
	struct http_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->connection = connection;
	c->fd = -1;
	c->closes = client_closes(connection, version);
	c->call.node = server->node;
	c->call.method = method;
	c->call.path = url;
	if (peer_identify(http_connection_fd(connection), &c->call.peer) < 0) {
		free(c);
		return NULL;
	}
	struct http_connection *open = connection_of(connection);
	if (open)
		open->in_call = true;
	server->calls++;
	return c;
}

static bool body_take(struct http_call *c, const char *data, size_t size)
{
	c->received += size;
	if (c->received > HTTP_BODY_MAX)
		return c->received <= BODY_DISCARD_MAX;
	char *buffer = realloc(c->buffer, c->received);
	if (!buffer)
		return false;
	memcpy(buffer + c->received - size, data, size);
	c->buffer = buffer;
	return true;
}

static void dispatch(struct http_call *c)
{
	struct error err = {.code = EXIT_CODE_USAGE};

	c->dispatched = true;
	c->call.node->busy_ns = now_monotonic_ns();
	c->call.body = c->buffer ? c->buffer : "";
	c->call.body_size = c->received;
	if (c->received <= HTTP_BODY_MAX) {
		api_handle(&c->call);
		return;
	}
	snprintf(err.message, sizeof(err.message), "the body is larger than %zu bytes",
		 HTTP_BODY_MAX);
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
		open->in_call = false;
	server->calls--;
	http_call_free(c);
	*state = NULL;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
			  enum MHD_ConnectionNotificationCode code)
{
	struct http_server *server = arg;
	struct http_connection *open = *state;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		server->connections++;
		*state = open = calloc(1, sizeof(*open));
		if (!open)
			return;
		open->connection = connection;
		open->next = server->open;
		if (open->next)
			open->next->previous = open;
		server->open = open;
		return;
	}
	server->connections--;
	if (!open)
		return;
	if (open->next)
		open->next->previous = open->previous;
	*(open->previous ? &open->previous->next : &server->open) = open->next;
	free(open);
	*state = NULL;
}

__attribute__((format(printf, 2, 0))) static void on_log(void *arg, const char *format,
							 va_list args)
{
	char text[256];

	vsnprintf(text, sizeof(text), format, args);
	log_event(LOG_WARNING, "http %s", text);
}

/* ---- the loop ---------------------------------------------------------------------------- */

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct http_server *server = poll->data;

	MHD_run(server->mhd);
}

static void on_timer(uv_timer_t *timer)
{
	struct http_server *server = timer->data;

	MHD_run(server->mhd);
}

void http_prepare(struct http_server *server)
{
	MHD_UNSIGNED_LONG_LONG timeout;

	while (server->spent) {
		struct http_call *c = server->spent;

		server->spent = c->next;
		http_call_free(c);
	}
	/* Driven from outside, it is not woken by MHD_resume_connection(). */
	while (server->resumed) {
		server->resumed = false;
		MHD_run(server->mhd);
	}
	if (MHD_get_timeout(server->mhd, &timeout) == MHD_YES)
		uv_timer_start(&server->timer, on_timer, timeout, 0);
	else
		uv_timer_stop(&server->timer);
}

int http_server_start(struct node *node, int fd, struct http_server **ret)
{
	struct http_server *server = calloc(1, sizeof(*server));

	if (!server)
		return -ENOMEM;
	server->node = node;
	server->mhd = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
		on_access, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
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
	server->open_handles = 2;
	server->poll.data = server->timer.data = server;
	uv_poll_start(&server->poll, UV_READABLE, on_readable);
	*ret = server;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	struct http_server *server = handle->data;

	if (--server->open_handles)
		return;
	MHD_stop_daemon(server->mhd);
	free(server);
}

void http_server_stop(struct http_server *server)
{
	if (!server)
		return;
	while (server->deferred)
		call_abort(server->deferred, "carved is stopping");
	http_prepare(server); /* sends what was just answered */
	uv_close((uv_handle_t *)&server->poll, on_closed);
	uv_close((uv_handle_t *)&server->timer, on_closed);
}

unsigned http_connections(const struct http_server *server)
{
	return server->connections;
}
