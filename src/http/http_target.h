/* The target of a request, taken apart: "/v1/jobs?queue=a%20b" or, as to a proxy,
 * "http://localhost/v1/jobs". Pure. */
#pragma once

#include <stddef.h>

struct http_target {
	char *text; /* owned: the path, then each argument's name and value, all with a zero byte */
	size_t size;
};

/* The path, without what makes escapes: "" before http_target_parse(). */
const char *http_target_path(const struct http_target *target);
/* Escapes (%20, and + in arguments) are undone. 0, -EINVAL or -ENOMEM. *ret is the caller's, for
 * http_target_free(). */
int http_target_parse(const char *target, size_t size, struct http_target *ret);
/* The value of the first argument with that name, "" where it has none; NULL: there is no such
 * argument. */
const char *http_target_argument(const struct http_target *target, const char *name);
void http_target_free(struct http_target *target);
