/* One HTTP request with JSON bodies over a Unix socket. */
#pragma once

#include <jansson.h>

struct error;

struct http_request {
	const char *socket; /* path */
	const char *method; /* "GET", ... */
	const char *path;   /* "/v1/gpus" */
	const json_t *body; /* NULL: none */
	long timeout_ms;    /* for the whole exchange */
	/* Called when no answer came within half a second, and then each second; may be NULL. */
	void (*slow)(void *context);
	void *slow_context;
};

/* The point that a request reached. */
enum http_reach {
	HTTP_ANSWERED,
	HTTP_NOT_SENT,  /* nobody took it */
	HTTP_BROKE_OFF, /* taken, perhaps carried out, and then the connection ended */
	HTTP_TIMED_OUT,
	HTTP_REFUSED, /* another user listens there: nothing was sent */
};

struct http_answer {
	enum http_reach reach;
	long status;  /* HTTP's */
	json_t *body; /* owned by the caller; NULL where the answer is no JSON */
};

/* 0, or negative with *err set (EXIT_CODE_UNREACHABLE, EXIT_CODE_NOT_PERMITTED) where there was no
 * answer; *ret says how far it came either way. Texts in the answer keep nothing that would do
 * something to a terminal: text_clean_json(). Not for several threads. */
int http_exchange(const struct http_request *request, struct http_answer *ret, struct error *err);
