#include "http/http_ask.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"

#define ROOM_LEAST 16384u
#define READ_BYTES 16384u

size_t http_ask_head(char *buf, size_t size, const char *method, const char *path, size_t body_size)
{
	int n = snprintf(buf, size,
			 "%s %s HTTP/1.1\r\nHost: carve\r\nAccept: */*\r\nConnection: close\r\n"
			 "Content-Type: application/json\r\n",
			 method, path);

	if (n < 0 || (size_t)n >= size)
		return 0;
	size_t used = (size_t)n;
	n = snprintf(buf + used, size - used, body_size ? "Content-Length: %zu\r\n\r\n" : "\r\n",
		     body_size);
	return n > 0 && (size_t)n < size - used ? used + (size_t)n : 0;
}

void http_ask_begin(struct http_ask *ask, size_t body_max)
{
	*ask = (struct http_ask){.body_max = body_max};
	http_reader_begin(&ask->reader, HTTP_RESPONSE, 0);
}

/* True: the answer goes on. An interim answer (100 to 199) is read to its end. */
static bool head_take(struct http_ask *ask)
{
	const http_parser *parser = &ask->reader.parser;

	if (parser->status_code < 100 || parser->status_code > 599 ||
	    parser->status_code == HTTP_STATUS_SWITCHING_PROTOCOLS)
		return false;
	if (parser->status_code < 200)
		return true;
	ask->status = parser->status_code;
	return parser->content_length == UINT64_MAX || parser->content_length <= ask->body_max;
}

static bool room_make(struct http_ask *ask, size_t more)
{
	size_t room = MAX(MAX(2 * ask->room, ask->size + more), ROOM_LEAST);

	if (ask->room - ask->size >= more)
		return true;
	char *grown = realloc(ask->body, room);
	if (!grown)
		return false;
	ask->body = grown;
	ask->room = room;
	return true;
}

static enum http_ask_progress body_take(struct http_ask *ask)
{
	const struct http_reader *r = &ask->reader;

	if (r->part_size > ask->body_max - ask->size)
		return HTTP_ASK_FOREIGN;
	if (!room_make(ask, r->part_size))
		return HTTP_ASK_NO_MEMORY;
	memcpy(ask->body + ask->size, r->part, r->part_size);
	ask->size += r->part_size;
	return HTTP_ASK_MORE;
}

/* MORE where the next step may follow at once. */
static enum http_ask_progress step_take(struct http_ask *ask, enum http_step step)
{
	switch (step) {
	case HTTP_STEP_HEAD:
		return head_take(ask) ? HTTP_ASK_MORE : HTTP_ASK_FOREIGN;
	case HTTP_STEP_BODY:
		return body_take(ask);
	case HTTP_STEP_END:
		if (ask->status)
			return HTTP_ASK_ANSWERED;
		ask->heads += ask->reader.head_size;
		http_reader_next(&ask->reader);
		return HTTP_ASK_MORE;
	case HTTP_STEP_WRONG:
		return http_reader_is_cut(&ask->reader) ? HTTP_ASK_ENDED : HTTP_ASK_FOREIGN;
	case HTTP_STEP_MORE:
		break;
	}
	return HTTP_ASK_MORE;
}

enum http_ask_progress http_ask_take(struct http_ask *ask, const char *data, size_t size)
{
	enum http_ask_progress progress = HTTP_ASK_MORE;

	if (!size) {
		progress = step_take(ask, http_reader_close(&ask->reader));
		return progress == HTTP_ASK_MORE ? HTTP_ASK_ENDED : progress;
	}
	while (size && progress == HTTP_ASK_MORE) {
		progress = step_take(ask, http_reader_take(&ask->reader, &data, &size));
		if (ask->heads + ask->reader.head_size > HTTP_ASK_HEAD_MAX)
			return HTTP_ASK_FOREIGN;
	}
	return progress;
}

void http_ask_free(struct http_ask *ask)
{
	http_reader_free(&ask->reader);
	free(steal_ptr(&ask->body));
}

static int text_send(int fd, const char *text, size_t size)
{
	while (size) {
		ssize_t n = send(fd, text, size, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		text += n;
		size -= (size_t)n;
	}
	return 0;
}

/* A server that has answered and ended the connection has not read all: its answer says why. */
static int request_send(int fd, const char *method, const char *path, const char *text)
{
	char head[1024];
	size_t size = text ? strlen(text) : 0;
	size_t n = http_ask_head(head, sizeof(head), method, path, size);
	int rc = n ? text_send(fd, head, n) : -ENAMETOOLONG;

	if (rc == 0)
		rc = text_send(fd, text, size);
	return rc == -EPIPE || rc == -ECONNRESET ? 0 : rc;
}

int http_ask_call(struct http_ask *ask, int fd, const char *method, const char *path,
		  const char *text)
{
	static const int errors[] = {[HTTP_ASK_ENDED] = -ECONNRESET,
				     [HTTP_ASK_FOREIGN] = -EPROTO,
				     [HTTP_ASK_NO_MEMORY] = -ENOMEM};
	enum http_ask_progress progress = HTTP_ASK_MORE;
	char data[READ_BYTES];
	int rc = request_send(fd, method, path, text);

	if (rc < 0)
		return rc;
	while (progress == HTTP_ASK_MORE) {
		ssize_t n = read(fd, data, sizeof(data));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		progress = http_ask_take(ask, data, (size_t)n);
	}
	return progress == HTTP_ASK_ANSWERED ? 0 : errors[progress];
}
