/* The HTTP server on the daemon's Unix socket. It bounds what clients may send and how long they
 * may take; what requests mean is api.c's. */
#pragma once

#include <http_parser.h> /* for the numbers of HTTP's status */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/host/peer.h"
#include "http/http_reader.h"

struct error;
struct http_server;
struct node;

/* Bodies above this are refused. */
#define HTTP_BODY_MAX ((size_t)64 * 1024)
/* A job brings its environment along. */
#define HTTP_BODY_JOB_MAX ((size_t)512 * 1024)
#define HTTP_JOBS_PATH "/v1/jobs"

/* One request, from its last byte until its answer. */
struct call {
	struct node *node;
	struct peer peer;
	const char *method, *path; /* path without the query */
	const char *body;
	size_t body_size;
	/* The warden looks whether it is root of the host that asks (privileges.h); 0: it does not.
	 */
	uint64_t proving;
	bool door;  /* the connection is that of carve-web, for all of its calls (api_door.h) */
	bool looks; /* `peer` is known by a cookie, and may look at the page alone */
};

/* The client's socket; it stays the server's. */
int call_socket(const struct call *call);
/* A query argument's value, "" where it has none; NULL: absent. */
const char *call_argument(struct call *call, const char *name);
/* Answers. `body` becomes the call's. Exactly one answer a call. */
void call_reply(struct call *call, unsigned status, json_t *body);
/* The text that an answer with this body has, from malloc. `body` becomes the function's. NULL: out
 * of memory. */
char *call_text(json_t *body);
/* Likewise a JSON text, from malloc, which becomes the call's; NULL: out of memory. */
void call_reply_text(struct call *call, unsigned status, char *text);
/* HTTP's head names the type of an answer. Each of the further fields ends with its end of line. */
struct call_form {
	const char *type, *fields;
};
/* Replies with a text that is not JSON. `text` becomes the call's, as in call_reply_text(). */
void call_reply_as(struct call *call, unsigned status, const struct call_form *form, char *text);
/* A field of the request's head, NULL where there is none. It lives as long as the call. */
const char *call_field(const struct call *call, enum http_field field);
/* JSON of words that may name what a target had, which need not be UTF-8, or that may be cut within
 * a character. */
json_t *call_words(const char *words);
void call_reply_error(struct call *call, unsigned status, const struct error *err);
/* The answer comes later; `on_gone` is called if the client goes away before. */
void call_defer(struct call *call, void (*on_gone)(struct call *call));

/* Has `answer` answer the call in its user's turn (fair.h), which may be at once. `arg` (NULL, or
 * from malloc) is freed afterwards, also where the client goes. */
typedef void (*call_answer)(struct call *call, void *arg);
void call_fairly(struct call *call, call_answer answer, void *arg);

/* Serves the listening stream socket `fd`, which becomes the server's. `answer` answers each call,
 * in its user's turn. 0 or -errno. */
int http_server_start(struct node *node, int fd, call_answer answer, struct http_server **ret);
void http_server_stop(struct http_server *server);
unsigned http_connections(const struct http_server *server);
/* The number of requests that were answered with 403 so far. */
uint64_t http_refused(const struct http_server *server);
/* Called each second: connections on which nothing moves end, and faults of clients come to one
 * line of the log a second, with their number. */
void http_tick(struct http_server *server);
/* Called before the loop sleeps. */
void http_prepare(struct http_server *server);
