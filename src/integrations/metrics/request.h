/* The request of a scraper: its target, and the token that it brings. Pure; fuzzed. */
#pragma once

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>

/* A request that is longer is refused. */
#define REQUEST_BYTES_MAX 16384u
#define REQUEST_TARGET_MAX 256u
#define REQUEST_TOKEN_MAX 512u

enum request_step {
	REQUEST_MORE,  /* it goes on */
	REQUEST_READY, /* it is complete */
	REQUEST_WRONG, /* it is none that is taken; `status` is HTTP's */
};

struct request {
	http_parser parser;
	enum request_step step;
	unsigned status;
	size_t bytes;
	char target[REQUEST_TARGET_MAX];
	size_t target_size; /* as it was sent: it may be longer than there is room */
	char token[REQUEST_TOKEN_MAX];
	size_t token_size;
	char field[16]; /* the beginning of the name of the field that is read */
	size_t field_size;
	char value[REQUEST_TOKEN_MAX + 16];
	size_t value_size;
	bool in_value;
};

void request_begin(struct request *request);
/* Takes bytes as they come in. *taken: how many belong to this request; the rest is the next
 * request's. */
enum request_step request_take(struct request *request, const char *data, size_t size,
			       size_t *taken);
/* Whether the request is for this path, with or without a query. */
bool request_is_for(const struct request *request, const char *path);
