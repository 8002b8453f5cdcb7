#include "integrations/oci/containerd.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "containerd.pb-c.h"

#define TASKS "/io.containerd.runtime.v2.task/"
#define SOCKET "/containerd.sock"
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
#define PATIENCE_S 5
#define ANSWER_MAX (8u << 20)
/* gRPC: a byte that tells of compression, and the length of the message. */
#define PREFIX 5
#define STATUS_NOT_FOUND 5

bool containerd_place(const char *bundle, struct containerd_place *ret)
{
	const char *tasks = NULL;

	for (const char *next = bundle; (next = strstr(next, TASKS)); next++)
		tasks = next;
	if (!tasks)
		return false;
	const char *namespace = tasks + strlen(TASKS);
	size_t length = strspn(namespace, NAME_CHARACTERS);
	const char *id = namespace + length + 1;

	return length && namespace[length] == '/' && *id &&
	       strspn(id, NAME_CHARACTERS) == strlen(id) &&
	       snprintf(ret->socket, sizeof(ret->socket), "%.*s" SOCKET, (int)(tasks - bundle),
			bundle) < (int)sizeof(ret->socket) &&
	       snprintf(ret->namespace, sizeof(ret->namespace), "%.*s", (int)length, namespace) <
		       (int)sizeof(ret->namespace) &&
	       snprintf(ret->id, sizeof(ret->id), "%s", id) < (int)sizeof(ret->id);
}

/* ---- one call ------------------------------------------------------------------------------ */

struct call {
	int fd;
	uint8_t request[PREFIX + OCI_ID_SIZE + 8];
	size_t size, sent;
	uint8_t *answer; /* owned */
	size_t got;
	int status; /* gRPC's; -1: none yet */
	bool closed;
};

static ssize_t on_send(nghttp2_session *session, const uint8_t *data, size_t size, int flags,
		       void *arg)
{
	const struct call *call = arg;

	return write_all(call->fd, data, size) < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : (ssize_t)size;
}

static ssize_t on_request(nghttp2_session *session, int32_t stream, uint8_t *buf, size_t size,
			  uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct call *call = arg;
	size_t part = MIN(size, call->size - call->sent);

	memcpy(buf, call->request + call->sent, part);
	call->sent += part;
	if (call->sent == call->size)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)part;
}

static int on_answer(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
		     size_t size, void *arg)
{
	struct call *call = arg;
	uint8_t *grown =
		size <= ANSWER_MAX - call->got ? realloc(call->answer, call->got + size) : NULL;

	if (!grown)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	memcpy(grown + call->got, data, size);
	call->answer = grown;
	call->got += size;
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_size, const uint8_t *value, size_t size, uint8_t flags, void *arg)
{
	static const char status[] = "grpc-status";
	struct call *call = arg;

	/* nghttp2 ends both with a zero byte. */
	if (name_size == sizeof(status) - 1 && !memcmp(name, status, name_size))
		call->status = (int)strtol((const char *)value, NULL, 10);
	return 0;
}

static int on_closed(nghttp2_session *session, int32_t stream, uint32_t error, void *arg)
{
	struct call *call = arg;

	call->closed = true;
	return 0;
}

static nghttp2_session *session_make(struct call *call)
{
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_session *session = NULL;

	if (nghttp2_session_callbacks_new(&callbacks) < 0)
		return NULL;
	nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_answer);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_closed);
	(void)nghttp2_session_client_new(&session, callbacks, call);
	nghttp2_session_callbacks_del(callbacks);
	return session;
}

static nghttp2_nv header(const char *name, const char *value)
{
	return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
			    NGHTTP2_NV_FLAG_NONE};
}

static int request_submit(nghttp2_session *session, const char *namespace)
{
	const nghttp2_nv headers[] = {
		header(":method", "POST"),
		header(":scheme", "http"),
		header(":path", "/containerd.services.containers.v1.Containers/Get"),
		header(":authority", "localhost"),
		header("content-type", "application/grpc"),
		header("te", "trailers"),
		header("containerd-namespace", namespace),
	};
	const nghttp2_data_provider body = {.read_callback = on_request};

	if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0) != 0)
		return -EIO;
	return nghttp2_submit_request(session, NULL, headers, ARRAY_SIZE(headers), &body, NULL) < 0
		       ? -EIO
		       : 0;
}

/* Until the call's stream is closed. 0 or -errno. */
static int session_run(nghttp2_session *session, struct call *call)
{
	uint8_t buf[16384];

	while (!call->closed) {
		if (nghttp2_session_send(session) != 0)
			return -EPIPE;
		ssize_t n = recv(call->fd, buf, sizeof(buf), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
		if (nghttp2_session_mem_recv(session, buf, (size_t)n) < 0)
			return -EPROTO;
	}
	return 0;
}

static int containerd_connect(const char *path)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno
									     : steal_fd(&fd);
}

static void request_fill(struct call *call, const char *id)
{
	Containerd__GetRequest request = CONTAINERD__GET_REQUEST__INIT;

	request.id = (char *)id;
	size_t size = containerd__get_request__pack(&request, call->request + PREFIX);
	for (size_t i = 0; i < 4; i++)
		call->request[1 + i] = (uint8_t)(size >> (24 - 8 * i));
	call->size = PREFIX + size;
}

/* ---- its labels ---------------------------------------------------------------------------- */

static json_t *labels_of(const Containerd__Container *container)
{
	json_t *labels = json_object();

	for (size_t i = 0; i < container->n_labels; i++) {
		const Containerd__Label *label = container->labels[i];

		json_object_set_new(labels, label->key, json_string(label->value));
	}
	return labels;
}

int containerd_answer_parse(const uint8_t *answer, size_t size, json_t **ret)
{
	/* The first byte tells of compression, which was not asked for. */
	Containerd__GetResponse *response =
		size < PREFIX || answer[0] != 0
			? NULL
			: containerd__get_response__unpack(NULL, size - PREFIX, answer + PREFIX);

	if (!response)
		return -EPROTO;
	*ret = response->container ? labels_of(response->container) : NULL;
	containerd__get_response__free_unpacked(response, NULL);
	return 0;
}

static int answer_read(const struct call *call, json_t **ret)
{
	if (call->status == STATUS_NOT_FOUND)
		return 0;
	return call->status == 0 ? containerd_answer_parse(call->answer, call->got, ret) : -EPROTO;
}

int containerd_labels(const struct containerd_place *place, json_t **ret, struct error *err)
{
	struct call call = {.fd = containerd_connect(place->socket), .status = -1};
	cleanup_close int fd = call.fd;

	*ret = NULL;
	/* Its socket may be elsewhere: docs/admin/cluster.md. */
	if (fd == -ENOENT)
		return 0;
	nghttp2_session *session = fd < 0 ? NULL : session_make(&call);
	int rc = fd < 0 ? fd : session ? request_submit(session, place->namespace) : -ENOMEM;
	if (rc == 0) {
		request_fill(&call, place->id);
		rc = session_run(session, &call);
	}
	if (rc == 0)
		rc = answer_read(&call, ret);
	nghttp2_session_del(session);
	free(call.answer);
	if (rc == 0)
		return 0;
	error_set(err, EXIT_CODE_FAILED, "containerd at %s does not say which labels %.64s has: %s",
		  place->socket, place->id, strerrordesc_np(-rc));
	error_hint(err, "without an answer no container starts, as its image may limit it");
	return -err->code;
}
