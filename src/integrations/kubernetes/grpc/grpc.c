/* Connections of the gRPC server, and the life of its calls. */
#include "integrations/kubernetes/grpc/grpc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "integrations/kubernetes/grpc/grpc_private.h"

#define BACKLOG 16
/* The kubelet has two or three. */
#define CONNECTIONS_MAX 32
/* The bytes that may wait to be written to one of them. */
#define UNWRITTEN_MAX (4u << 20)

struct grpc_connection {
	uv_pipe_t pipe;
	struct grpc_connection *next;
	struct grpc_server *server; /* NULL: it is being closed */
	nghttp2_session *session;
	struct grpc_call *calls;
	size_t unwritten;
	bool in_session; /* nghttp2 is calling back: it is not to be called now */
	bool closing;
	uint8_t buf[16384];
};

struct grpc_server {
	uv_pipe_t pipe;
	const struct grpc_method *methods;
	void *context;
	struct grpc_connection *connections;
	unsigned count;
	char path[108];
};

struct write {
	uv_write_t request;
	struct grpc_connection *connection;
	size_t size;
	uint8_t data[];
};

nghttp2_session *grpc_connection_session(struct grpc_connection *connection)
{
	return connection->session;
}

/* ---- connections ------------------------------------------------------------------------- */

static void connection_free(uv_handle_t *handle)
{
	struct grpc_connection *connection = handle->data;

	nghttp2_session_del(connection->session);
	free(connection);
}

static void connection_close(struct grpc_connection *connection)
{
	if (connection->closing)
		return;
	connection->closing = true;
	if (connection->server) {
		struct grpc_connection **at = &connection->server->connections;

		while (*at != connection)
			at = &(*at)->next;
		*at = connection->next;
		connection->server->count--;
	}
	while (connection->calls)
		// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): closing takes it out of the list
		grpc_call_close(connection->calls);
	uv_close((uv_handle_t *)&connection->pipe, connection_free);
}

static void on_written(uv_write_t *request, int status)
{
	struct write *write = request->data;
	struct grpc_connection *connection = write->connection;

	connection->unwritten -= write->size;
	free(write);
	if (status < 0)
		connection_close(connection);
	else if (!connection->closing)
		grpc_connection_pump(connection);
}

static int write_start(struct grpc_connection *connection, const uint8_t *data, size_t size)
{
	struct write *write = malloc(sizeof(*write) + size);

	if (!write)
		return -ENOMEM;
	write->request.data = write;
	write->connection = connection;
	write->size = size;
	memcpy(write->data, data, size);
	uv_buf_t buf = uv_buf_init((char *)write->data, (unsigned)size);
	int rc = uv_write(&write->request, (uv_stream_t *)&connection->pipe, &buf, 1, on_written);
	if (rc < 0)
		free(write);
	else
		connection->unwritten += size;
	return rc;
}

void grpc_connection_pump(struct grpc_connection *connection)
{
	const uint8_t *data;
	ssize_t size = 0;
	int rc = 0;

	if (connection->closing || connection->in_session)
		return;
	connection->in_session = true;
	while (rc == 0 && connection->unwritten < UNWRITTEN_MAX &&
	       (size = nghttp2_session_mem_send(connection->session, &data)) > 0)
		rc = write_start(connection, data, (size_t)size);
	connection->in_session = false;
	if (rc < 0 || size < 0 ||
	    (!nghttp2_session_want_read(connection->session) &&
	     !nghttp2_session_want_write(connection->session) && !connection->unwritten))
		connection_close(connection);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
	struct grpc_connection *connection = handle->data;

	*ret = uv_buf_init((char *)connection->buf, sizeof(connection->buf));
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buf)
{
	struct grpc_connection *connection = stream->data;

	if (size < 0) {
		connection_close(connection);
		return;
	}
	connection->in_session = true;
	ssize_t taken = nghttp2_session_mem_recv(connection->session, (const uint8_t *)buf->base,
						 (size_t)size);
	connection->in_session = false;
	if (taken < 0)
		connection_close(connection);
	else
		grpc_connection_pump(connection);
}

static bool peer_is_trusted(const uv_pipe_t *pipe)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	uv_os_fd_t fd;

	return uv_fileno((const uv_handle_t *)pipe, &fd) == 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
	       (peer.uid == 0 || peer.uid == geteuid());
}

static void on_connection(uv_stream_t *stream, int status)
{
	struct grpc_server *server = stream->data;
	struct grpc_connection *connection = status < 0 ? NULL : calloc(1, sizeof(*connection));

	if (!connection)
		return;
	uv_pipe_init(stream->loop, &connection->pipe, 0);
	connection->pipe.data = connection;
	connection->closing = true; /* until it is in the server's list */
	if (uv_accept(stream, (uv_stream_t *)&connection->pipe) < 0 ||
	    server->count >= CONNECTIONS_MAX || !peer_is_trusted(&connection->pipe) ||
	    grpc_http2_open(connection, &connection->session) < 0) {
		uv_close((uv_handle_t *)&connection->pipe, connection_free);
		return;
	}
	connection->closing = false;
	connection->server = server;
	connection->next = server->connections;
	server->connections = connection;
	server->count++;
	uv_read_start((uv_stream_t *)&connection->pipe, on_alloc, on_read);
	grpc_connection_pump(connection);
}

/* ---- calls ------------------------------------------------------------------------------- */

struct grpc_call *grpc_call_new(struct grpc_connection *connection, int32_t stream)
{
	struct grpc_call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	call->connection = connection;
	call->context = connection->server->context;
	call->stream = stream;
	call->next = connection->calls;
	connection->calls = call;
	return call;
}

static void call_free(struct grpc_call *call)
{
	grpc_buffer_free(&call->in);
	grpc_buffer_free(&call->out);
	free(call);
}

void grpc_call_close(struct grpc_call *call)
{
	struct grpc_call **at = &call->connection->calls;

	while (*at != call) // NOLINT(clang-analyzer-core.NullDereference): it is in the list
		at = &(*at)->next;
	*at = call->next;
	nghttp2_session_set_stream_user_data(call->connection->session, call->stream, NULL);
	call->connection = NULL;
	if (call->state != GRPC_CALL_HANDLED)
		call_free(call);
	else if (call->gone)
		call->gone(call, call->gone_arg);
}

/* Gives the call up: from now on it is the stream's. */
static void call_end(struct grpc_call *call)
{
	call->state = GRPC_CALL_ENDED;
	if (call->connection)
		grpc_http2_answer(call);
	else
		call_free(call);
}

void *grpc_call_context(const struct grpc_call *call)
{
	return call->context;
}

void grpc_on_gone(struct grpc_call *call, void (*gone)(struct grpc_call *call, void *arg),
		  void *arg)
{
	call->gone = gone;
	call->gone_arg = arg;
}

static int message_add(struct grpc_call *call, const void *message, size_t size)
{
	const uint8_t prefix[GRPC_PREFIX] = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16),
					     (uint8_t)(size >> 8), (uint8_t)size};
	int rc = grpc_buffer_add(&call->out, prefix, sizeof(prefix));

	return rc < 0 ? rc : grpc_buffer_add(&call->out, message, size);
}

int grpc_send(struct grpc_call *call, const void *message, size_t size)
{
	/* A peer that does not read is not kept messages for. */
	if (!call->connection || call->out.size > UNWRITTEN_MAX ||
	    message_add(call, message, size) < 0)
		return -EPIPE;
	grpc_http2_answer(call);
	return 0;
}

void grpc_reply(struct grpc_call *call, const void *message, size_t size)
{
	if (message_add(call, message, size) < 0)
		call->status = GRPC_RESOURCE_EXHAUSTED;
	call_end(call);
}

void grpc_fail(struct grpc_call *call, enum grpc_status status, const char *text)
{
	call->status = status;
	snprintf(call->status_text, sizeof(call->status_text), "%s", text);
	call_end(call);
}

void grpc_call_dispatch(struct grpc_call *call)
{
	const struct grpc_method *method = call->connection->server->methods;
	const uint8_t *message = NULL;
	size_t size = 0;
	char text[GRPC_PATH_SIZE + 64];

	call->state = GRPC_CALL_HANDLED;
	while (method->path && strcmp(method->path, call->path) != 0)
		method++;
	int rc = grpc_message_find(call->in.data, call->in.size, &message, &size);
	if (!method->path || !call->posted || !call->is_grpc) {
		snprintf(text, sizeof(text), "there is no method %s here", call->path);
		grpc_fail(call, GRPC_UNIMPLEMENTED, text);
	} else if (call->too_large) {
		grpc_fail(call, GRPC_RESOURCE_EXHAUSTED, "the request is larger than 4 MiB");
	} else if (rc == -ENOTSUP) {
		grpc_fail(call, GRPC_UNIMPLEMENTED, "compressed messages are not supported");
	} else if (rc < 0) {
		grpc_fail(call, GRPC_INVALID_ARGUMENT, "the request is not one whole message");
	} else {
		method->handler(call, message, size);
	}
}

/* ---- the server -------------------------------------------------------------------------- */

static void server_free(uv_handle_t *handle)
{
	free(handle->data);
}

int grpc_server_start(uv_loop_t *loop, const char *path, const struct grpc_method *methods,
		      void *context, struct grpc_server **ret)
{
	struct grpc_server *server = calloc(1, sizeof(*server));

	if (!server)
		return -ENOMEM;
	if (snprintf(server->path, sizeof(server->path), "%s", path) >= (int)sizeof(server->path)) {
		free(server);
		return -ENAMETOOLONG;
	}
	server->methods = methods;
	server->context = context;
	uv_pipe_init(loop, &server->pipe, 0);
	server->pipe.data = server;
	unlink(path);
	mode_t mask = umask(0077);
	int rc = uv_pipe_bind(&server->pipe, path);
	umask(mask);
	if (rc == 0)
		rc = uv_listen((uv_stream_t *)&server->pipe, BACKLOG, on_connection);
	if (rc < 0)
		uv_close((uv_handle_t *)&server->pipe, server_free);
	else
		*ret = server;
	return rc;
}

void grpc_server_stop(struct grpc_server *server)
{
	if (!server)
		return;
	while (server->connections)
		connection_close(server->connections);
	unlink(server->path);
	uv_close((uv_handle_t *)&server->pipe, server_free);
}
