/* One request and its answer, for the side that asks: the command, libcarve, the hook, and
 * a daemon that is upgraded. Each
 * request has a connection of its own. All but http_ask_call() is pure: the caller sends, receives,
 * and decides how long it waits. */
#pragma once

#include <stddef.h>

#include "http/http_reader.h"

/* The heads of an answer, those of interim answers included, are no longer than this. */
#define HTTP_ASK_HEAD_MAX 65536u

enum http_ask_progress {
	HTTP_ASK_MORE,     /* the answer goes on */
	HTTP_ASK_ANSWERED, /* the answer is complete */
	HTTP_ASK_ENDED,    /* the connection ended before the answer was complete */
	HTTP_ASK_FOREIGN,  /* this is no such answer: another protocol, a head or a body too long */
	HTTP_ASK_NO_MEMORY,
};

struct http_ask {
	struct http_reader reader;
	long status; /* HTTP's, 200 to 599; 0: not known yet */
	char *body;  /* owned */
	size_t size, room, body_max, heads;
};

/* Writes the head of a request whose body is JSON of `body_size` bytes; 0: it has none. Returns its
 * length, 0: it does not fit into `size` bytes. */
size_t http_ask_head(char *buf, size_t size, const char *method, const char *path,
		     size_t body_size);
/* The answer's body may have `body_max` bytes. http_ask_free() frees it. */
void http_ask_begin(struct http_ask *ask, size_t body_max);
/* Takes bytes that were received; none: the connection has ended. */
enum http_ask_progress http_ask_take(struct http_ask *ask, const char *data, size_t size);
void http_ask_free(struct http_ask *ask);
/* Sends a request over a blocking socket, and receives the answer, after http_ask_begin(). `text`
 * is JSON; NULL: no body. 0 or -errno. -ECONNRESET: the server ended before it answered. -EAGAIN:
 * the socket's patience is over. -EPROTO: another protocol answers. */
int http_ask_call(struct http_ask *ask, int fd, const char *method, const char *path,
		  const char *text);
