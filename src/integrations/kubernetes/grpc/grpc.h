/* A gRPC server on a Unix socket, for the few services that the kubelet calls: HTTP/2 by nghttp2,
 * on libuv's loop. All functions are for the loop's thread. The kubelet is root: peers of other
 * users than root and this process's own are refused. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct grpc_call;
struct grpc_server;

/* Codes of gRPC that are used here. */
enum grpc_status {
	GRPC_OK = 0,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
};

/* Larger requests are refused. */
#define GRPC_MESSAGE_MAX (4u << 20)

/* Takes a call whose one request message is complete; `message` is valid during the function. It
 * owns the call until grpc_reply() or grpc_fail(), which must follow, now or later. */
typedef void (*grpc_handler)(struct grpc_call *call, const uint8_t *message, size_t size);

struct grpc_method {
	const char *path; /* "/package.Service/Method" */
	grpc_handler handler;
};

/* Listens at `path`, in place of any file there. `methods` ends with a NULL path and, like
 * `context`, outlives the server. 0 or -errno. */
int grpc_server_start(uv_loop_t *loop, const char *path, const struct grpc_method *methods,
		      void *context, struct grpc_server **ret);
/* Ends all connections and removes the socket. Calls that handlers own stay valid until they are
 * answered. NULL is fine. */
void grpc_server_stop(struct grpc_server *server);

void *grpc_call_context(const struct grpc_call *call);
/* A unary answer: one message and the status OK. Gives the call up. */
void grpc_reply(struct grpc_call *call, const void *message, size_t size);
/* Gives the call up with an error. `text` is for people. */
void grpc_fail(struct grpc_call *call, enum grpc_status status, const char *text);
/* One message of an answer that is a stream; the call goes on. -EPIPE: the peer is gone, so the
 * call is to be given up. */
int grpc_send(struct grpc_call *call, const void *message, size_t size);
/* `gone` is called once when the peer ends the call or its connection; the handler owns the call
 * still. */
void grpc_on_gone(struct grpc_call *call, void (*gone)(struct grpc_call *call, void *arg),
		  void *arg);
