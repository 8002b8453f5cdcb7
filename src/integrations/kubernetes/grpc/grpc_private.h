/* Declarations that the files of the gRPC server share. */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "integrations/kubernetes/grpc/grpc.h"

#define GRPC_PATH_SIZE 128
/* Bytes before each message: a flag (compressed), and the length in network order. */
#define GRPC_PREFIX 5

struct grpc_buffer {
	uint8_t *data;
	size_t size, room;
};

/* 0 or -ENOMEM. */
int grpc_buffer_add(struct grpc_buffer *buffer, const void *data, size_t size);
void grpc_buffer_free(struct grpc_buffer *buffer);

/* Finds the one message in the body of a request. 0, -EAGAIN where it is not complete, -EBADMSG
 * where there is more than one, -ENOTSUP where it is compressed. Pure. */
int grpc_message_find(const uint8_t *body, size_t size, const uint8_t **ret_message,
		      size_t *ret_size);
/* Writes `text` as a value of the header grpc-message: what is not printable ASCII, and '%', as
 * %XX. Cut where it does not fit. Returns buf. Pure. */
const char *grpc_message_encode(const char *text, char *buf, size_t size);

struct grpc_connection;

enum grpc_call_state {
	GRPC_CALL_READING, /* headers or the body are still to come */
	GRPC_CALL_HANDLED, /* a handler owns it */
	GRPC_CALL_ENDED,   /* answered */
};

struct grpc_call {
	struct grpc_connection *connection; /* NULL: the stream is closed */
	struct grpc_call *next;             /* connection->calls */
	void *context;
	int32_t stream;
	enum grpc_call_state state;
	bool is_grpc, posted, headers_sent, too_large;
	char path[GRPC_PATH_SIZE];
	struct grpc_buffer in, out;
	size_t out_sent;
	enum grpc_status status;
	char status_text[512];
	void (*gone)(struct grpc_call *call, void *arg);
	void *gone_arg;
};

/* The HTTP/2 side: callbacks, and what sends an answer. */
int grpc_http2_open(struct grpc_connection *connection, nghttp2_session **ret);
void grpc_http2_answer(struct grpc_call *call);
/* Sends what the session has to send. */
void grpc_connection_pump(struct grpc_connection *connection);
nghttp2_session *grpc_connection_session(struct grpc_connection *connection);
/* Gives a complete request to its handler. */
void grpc_call_dispatch(struct grpc_call *call);
struct grpc_call *grpc_call_new(struct grpc_connection *connection, int32_t stream);
/* The stream is closed: frees the call, or leaves that to its handler. */
void grpc_call_close(struct grpc_call *call);
