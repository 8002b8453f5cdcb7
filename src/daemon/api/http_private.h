/* Shared by the files of the HTTP server. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/api/http.h"
#include "daemon/host/arrivals.h"
#include "daemon/host/budget.h"
#include "daemon/host/fair.h"
#include "http/http_reader.h"
#include "http/http_target.h"

/* Request line and header fields together. A longer head is read and refused, and ends its
 * connection where it is longer than http_parser takes (80 KiB). */
#define HTTP_HEAD_BYTES_MAX 16384u
/* The most bytes that a connection reads in one turn. */
#define HTTP_TURN_BYTES 16384u

/* Room for the head of an answer, the fields of the page (api_web.c) included. */
#define HTTP_ANSWER_HEAD_SIZE 768u

struct http_server {
	struct node *node;
	call_answer answer;
	struct arrivals arrivals;
	unsigned open_handles;
	struct budget budget;
	struct budget answers; /* KiB of answers that were not read yet */
	struct budget bodies;  /* KiB of bodies of requests that were not answered yet */
	struct http_connection *open;
	struct http_connection *answered; /* their answers are to be sent */
	bool called;          /* a request was taken since the loop slept or came round */
	bool logged;          /* a fault of a client had its line of this second */
	unsigned unlogged;    /* and other faults since */
	uint64_t refused;     /* requests that were answered with 403 */
	uv_idle_t more_to_do; /* runs while calls stand in lines: the loop does not sleep */
	char buffer[HTTP_TURN_BYTES];
};

/* A body that comes in. */
struct http_body {
	char *data; /* owned */
	size_t received, room;
	unsigned kib; /* its size, as counted */
	uid_t owner;  /* to whom it counts: subordinate ranges may have changed */
	bool refused; /* for want of room: the rest is read and dropped */
};

/* An answer that goes out. */
struct http_answer {
	char head[HTTP_ANSWER_HEAD_SIZE];
	size_t head_size;
	char *text; /* owned */
	size_t size, sent;
	unsigned kib; /* its size, as counted; 0: it is small */
	uid_t owner;  /* to whom it counts */
};

/* How a call that has no answer yet goes on. */
struct http_wait {
	bool deferred; /* the answer comes later; on_gone() tells the handler if the client goes */
	void (*on_gone)(struct call *call);
	call_answer answer; /* in the user's turn, with `arg` */
	void *arg;          /* owned */
};

/* Bytes that came in behind a request. */
struct http_rest {
	char *data; /* owned */
	size_t size;
};

enum http_state {
	HTTP_READS,    /* a request, or the wait for it */
	HTTP_CALLS,    /* the call is with whoever answers it */
	HTTP_ANSWERED, /* the answer is to be sent */
	HTTP_WRITES,   /* a part of it was sent */
};

/* A connection, and its call: requests that follow on one that is not answered are not read. */
struct http_connection {
	struct call call; /* first, so that the call leads to its connection */
	struct http_server *server;
	struct http_connection *next, *previous; /* server->open */
	struct http_connection *next_answered;
	uv_poll_t poll;
	int fd, watched; /* the events that are waited for */
	uid_t owner;     /* to whom it counts */
	enum http_state state;
	bool last;     /* no request follows: the connection ends after this answer */
	bool headless; /* the answer goes out without its body (HEAD) */
	uint64_t moved_ns;
	struct fair_work turn; /* the connection's reading, writing or call is in a line */
	struct http_wait wait;
	struct http_reader reader;
	struct http_target target;
	struct http_body body;
	struct http_answer answer;
	struct http_rest rest;
};

static inline struct http_connection *http_connection_of(struct call *call)
{
	return (struct http_connection *)call;
}

/* The end of a connection, which the kernel tells whatever is waited for. UV_DISCONNECT comes too
 * early: a client may have sent all that it has, and read its answers still. */
#define HTTP_WATCH_END UV_PRIORITIZED
/* Waits for these events (uv_poll_event) of a connection and no others. */
void http_watch(struct http_connection *c, int events);
/* The call has its answer, which http_prepare() sends. */
void http_answered(struct http_connection *c);
/* The head of the request is complete. False: the connection ends. */
bool http_call_begin(struct http_connection *c);
/* Takes a part of the request's body. False: the connection ends. */
bool http_call_body(struct http_connection *c, const char *data, size_t size);
/* The request is complete: it is answered, now or later. */
void http_call_take(struct http_connection *c);
/* The reader is WRONG: the client is told why, and the connection ends. */
void http_call_wrong(struct http_connection *c);
/* Gives a deferred call up, and answers with `why`. */
void http_call_abort(struct http_connection *c, const char *why);
/* Frees the request's body, which nobody needs any more. */
void http_call_drop_body(struct http_connection *c);
/* The answer is out, or the connection ends: frees what belongs to the call. */
void http_call_end(struct http_connection *c);
/* JSON. */
extern const struct call_form http_json;
/* The head of an answer with a body of `size` bytes of that form; `connection` is a field's value
 * or NULL. Returns its length. */
size_t http_answer_head(char *buf, size_t room, unsigned status, const struct call_form *form,
			size_t size, const char *connection);
