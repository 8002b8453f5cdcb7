/* Reads HTTP/1.1 messages as they come in: requests for the daemon, answers for the command and the
 * hook. http_parser (docs/dev/adr/0028) knows the protocol. The reader turns its callbacks into
 * steps, and a caller may stop after each step. A reader keeps the target and the cookies of a
 * request, and the beginning of a few other fields. It is pure: the bytes are the caller's, and no
 * descriptor is read here. */
#pragma once

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>

enum http_step {
	HTTP_STEP_MORE,  /* all bytes are taken, and the message is not complete */
	HTTP_STEP_HEAD,  /* the head is complete */
	HTTP_STEP_BODY,  /* `part` is a part of the body */
	HTTP_STEP_END,   /* the message is complete; what follows belongs to the next message */
	HTTP_STEP_WRONG, /* this is no HTTP/1: `status` and `fault` say why */
};

/* The fields of a request whose values are kept. A request with two of a kind is WRONG. */
enum http_field {
	HTTP_FIELD_COOKIE,
	HTTP_FIELD_EXPECT,
	HTTP_FIELD_HOST,
	HTTP_FIELD_ORIGIN,
	HTTP_FIELD_SITE, /* Sec-Fetch-Site */
	HTTP_FIELDS,
};
/* The room for a value; a longer one is cut. */
#define HTTP_FIELD_SIZE 64
/* Cookies of all that a browser knows on a host come in one value, which has this room. */
#define HTTP_COOKIE_MAX 8192u

struct http_reader {
	http_parser parser;
	enum http_step step;
	bool head_ended; /* fields that follow are trailers */
	bool continues;  /* the client waits for "100 Continue" before it sends the body */
	size_t head_size;
	/* The request's target as it was sent. The reader keeps `target_max` bytes of it, and
	 * counts the rest. */
	char *target;
	size_t target_size, target_max;
	const char *part;
	size_t part_size;
	unsigned status;   /* HTTP's, of a request that is WRONG */
	const char *fault; /* in words */
	unsigned fields;   /* a bit for each enum http_field that the head had */
	char field[HTTP_FIELDS][HTTP_FIELD_SIZE];
	char *cookie; /* owned: the value of HTTP_FIELD_COOKIE */
	/* The beginning of the name that is being read, and the field whose value is read. */
	char name[16];
	size_t name_size, value_size;
	enum http_field reading; /* HTTP_FIELDS: a field that is not kept */
	bool in_value;
};

/* The value of a field of the head, NULL where the head has no such field. */
const char *http_reader_field(const struct http_reader *r, enum http_field field);
/* `target_max` is 0 for answers, which have no target. */
void http_reader_begin(struct http_reader *r, enum http_parser_type type, size_t target_max);
/* Begins with the next message, after END. The target of the last message is freed. */
void http_reader_next(struct http_reader *r);
void http_reader_free(struct http_reader *r);
/* The target is not needed any more. */
void http_reader_drop_target(struct http_reader *r);
/* Reads on until a step is made, and moves *data and *size behind what was taken. `part` lies in
 * the caller's bytes. Nothing is read after WRONG. */
enum http_step http_reader_take(struct http_reader *r, const char **data, size_t *size);
/* The connection has ended. END: the body of an answer ends with it. MORE: no message had begun.
 * WRONG: the message is cut off, or was WRONG before. */
enum http_step http_reader_close(struct http_reader *r);
/* Whether the connection ended within a message: why http_reader_close() said WRONG. */
bool http_reader_is_cut(const struct http_reader *r);
