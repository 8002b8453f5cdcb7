/* An HTTP answer as it comes in, of the only kind that carved gives: a body with its
 * Content-Length, or one that ends with the connection. Pure; the bytes are the caller's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A head is no longer than that, interim answers included. */
#define HTTP_HEAD_MAX 65536u

enum http_progress {
	HTTP_MORE,     /* it goes on */
	HTTP_COMPLETE, /* it is all there; what follows is no part of it */
	HTTP_ENDED,    /* the connection ended before it was */
	HTTP_FOREIGN,  /* no such answer: another protocol, a head or a body too long, chunks */
};

struct http_parsed {
	int status;         /* 100 to 599 */
	size_t body, size;  /* COMPLETE: where the body begins, and its bytes */
	size_t body_length; /* MORE: as announced, SIZE_MAX where not; 0 without a head yet */
};

/* `ended`: nothing follows. A body longer than `body_max` is FOREIGN. *ret is set as far as known.
 */
enum http_progress http_answer_parse(const char *data, size_t size, bool ended, size_t body_max,
				     struct http_parsed *ret);
