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
	/* Called once when no answer came within half a second; may be NULL. */
	void (*slow)(void *context);
	void *slow_context;
};

/* 0 with *ret_status (HTTP) and *ret_body (owned by the caller; NULL where the answer is no JSON);
 * negative with *err set, EXIT_CODE_UNREACHABLE, where there was no answer. Not for several
 * threads. */
int http_exchange(const struct http_request *request, long *ret_status, json_t **ret_body,
		  struct error *err);
