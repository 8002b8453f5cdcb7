/* HTTP/2 streams as gRPC calls. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "integrations/kubernetes/grpc/grpc_private.h"

#define STREAMS_MAX 256
#define WINDOW (1 << 20)
#define HEADER(key, text)                                                       \
	(nghttp2_nv)                                                            \
	{                                                                       \
		(uint8_t *)(key), (uint8_t *)(text), strlen(key), strlen(text), \
			NGHTTP2_NV_FLAG_NONE                                    \
	}

/* ---- answering --------------------------------------------------------------------------- */

static int trailers_submit(nghttp2_session *session, struct grpc_call *call)
{
	char status[8], text[3 * sizeof(call->status_text)];

	snprintf(status, sizeof(status), "%d", (int)call->status);
	grpc_message_encode(call->status_text, text, sizeof(text));
	nghttp2_nv trailers[] = {HEADER("grpc-status", status), HEADER("grpc-message", text)};
	return nghttp2_submit_trailer(session, call->stream, trailers, *text ? 2 : 1);
}

static ssize_t out_read(nghttp2_session *session, int32_t stream, uint8_t *buf, size_t length,
			uint32_t *flags, nghttp2_data_source *source, void *context)
{
	struct grpc_call *call = source->ptr;
	size_t size = MIN(length, call->out.size - call->out_sent);

	if (size)
		memcpy(buf, call->out.data + call->out_sent, size);
	call->out_sent += size;
	if (call->out_sent < call->out.size)
		return (ssize_t)size;
	/* A stream of health reports goes on for weeks: sent bytes are not kept. */
	call->out.size = call->out_sent = 0;
	if (call->state == GRPC_CALL_ENDED) {
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		return trailers_submit(session, call) ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
						      : (ssize_t)size;
	}
	return size ? (ssize_t)size : NGHTTP2_ERR_DEFERRED;
}

/* An error without any message: headers and trailers are one. */
static void failure_submit(nghttp2_session *session, struct grpc_call *call)
{
	char status[8], text[3 * sizeof(call->status_text)];

	snprintf(status, sizeof(status), "%d", (int)call->status);
	grpc_message_encode(call->status_text, text, sizeof(text));
	nghttp2_nv headers[] = {HEADER(":status", "200"),
				HEADER("content-type", "application/grpc"),
				HEADER("grpc-status", status), HEADER("grpc-message", text)};
	nghttp2_submit_response(session, call->stream, headers, *text ? 4 : 3, NULL);
}

void grpc_http2_answer(struct grpc_call *call)
{
	nghttp2_session *session = grpc_connection_session(call->connection);
	nghttp2_nv headers[] = {HEADER(":status", "200"),
				HEADER("content-type", "application/grpc")};
	nghttp2_data_provider provider = {.source.ptr = call, .read_callback = out_read};

	if (call->headers_sent) {
		nghttp2_session_resume_data(session, call->stream);
	} else if (call->state == GRPC_CALL_ENDED && call->status != GRPC_OK) {
		failure_submit(session, call);
	} else {
		call->headers_sent = true;
		nghttp2_submit_response(session, call->stream, headers, ARRAY_SIZE(headers),
					&provider);
	}
	grpc_connection_pump(call->connection);
}

/* ---- requests ---------------------------------------------------------------------------- */

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	struct grpc_call *call = grpc_call_new(context, frame->hd.stream_id);
	if (!call)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	nghttp2_session_set_stream_user_data(session, call->stream, call);
	return 0;
}

static bool name_is(const uint8_t *name, size_t length, const char *wanted)
{
	return length == strlen(wanted) && !memcmp(name, wanted, length);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_length, const uint8_t *value, size_t length, uint8_t flags,
		     void *context)
{
	static const char grpc[] = "application/grpc";
	struct grpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	if (!call || call->state != GRPC_CALL_READING)
		return 0;
	if (name_is(name, name_length, ":path") && length < sizeof(call->path)) {
		memcpy(call->path, value, length);
		call->path[length] = '\0';
	} else if (name_is(name, name_length, ":method")) {
		call->posted = name_is(value, length, "POST");
	} else if (name_is(name, name_length, "content-type")) {
		call->is_grpc =
			length >= sizeof(grpc) - 1 && !memcmp(value, grpc, sizeof(grpc) - 1);
	}
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
		   size_t size, void *context)
{
	struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

	if (!call || call->state != GRPC_CALL_READING || call->too_large)
		return 0;
	call->too_large = size > GRPC_MESSAGE_MAX + GRPC_PREFIX - call->in.size;
	return !call->too_large && grpc_buffer_add(&call->in, data, size) < 0
		       ? NGHTTP2_ERR_CALLBACK_FAILURE
		       : 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
	struct grpc_call *call;

	if ((frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS) ||
	    !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (call && call->state == GRPC_CALL_READING)
		grpc_call_dispatch(call);
	return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *context)
{
	struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

	if (call)
		grpc_call_close(call);
	return 0;
}

int grpc_http2_open(struct grpc_connection *connection, nghttp2_session **ret)
{
	const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
	};
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;

	if (nghttp2_session_callbacks_new(&callbacks))
		return -ENOMEM;
	if (nghttp2_option_new(&option)) {
		nghttp2_session_callbacks_del(callbacks);
		return -ENOMEM;
	}
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
	/* Clients on Unix sockets send authorities that are no host names. */
	nghttp2_option_set_no_http_messaging(option, 1);
	int rc = nghttp2_session_server_new2(ret, callbacks, connection, option);
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	if (rc == 0)
		rc = nghttp2_submit_settings(*ret, NGHTTP2_FLAG_NONE, settings,
					     ARRAY_SIZE(settings));
	return rc ? -ENOMEM : 0;
}
