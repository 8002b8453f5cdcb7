/* http_parser calls back for each piece that it finds. Each callback that matters notes its step
 * and pauses the parser, so that http_parser_execute() returns there; the next http_reader_take()
 * goes on behind it. A paused parser may leave the last byte of a piece untaken; it is given that
 * byte again, and reads it as the end of the piece. */
#include "http/http_reader.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"

static int stop(http_parser *parser, enum http_step step)
{
	struct http_reader *r = parser->data;

	r->step = step;
	http_parser_pause(parser, 1);
	return 0;
}

static void wrong(struct http_reader *r, unsigned status, const char *fault)
{
	r->step = HTTP_STEP_WRONG;
	r->status = status;
	r->fault = fault;
}

static int on_url(http_parser *parser, const char *text, size_t size)
{
	struct http_reader *r = parser->data;

	if (r->target_size < r->target_max) {
		size_t kept = MIN(size, r->target_max - r->target_size);
		char *grown = realloc(r->target, r->target_size + kept);

		if (!grown) {
			wrong(r, HTTP_STATUS_INTERNAL_SERVER_ERROR, "out of memory");
			return -1;
		}
		memcpy(grown + r->target_size, text, kept);
		r->target = grown;
	}
	r->target_size += size;
	return 0;
}

static const char *const field_names[HTTP_FIELDS] = {
	[HTTP_FIELD_COOKIE] = "cookie",       [HTTP_FIELD_EXPECT] = "expect",
	[HTTP_FIELD_HOST] = "host",           [HTTP_FIELD_ORIGIN] = "origin",
	[HTTP_FIELD_SITE] = "sec-fetch-site",
};

static enum http_field field_of(const struct http_reader *r)
{
	enum http_field field = 0;

	while (field < HTTP_FIELDS && (strlen(field_names[field]) != r->name_size ||
				       strncasecmp(field_names[field], r->name, r->name_size) != 0))
		field++;
	return field;
}

/* The name is complete, as its value begins. A proxy may take another value of two than carve. */
static int value_begin(struct http_reader *r)
{
	r->reading = field_of(r);
	r->in_value = true;
	r->value_size = 0;
	if (r->reading == HTTP_FIELDS)
		return 0;
	if (r->fields & 1u << r->reading) {
		wrong(r, HTTP_STATUS_BAD_REQUEST, "a field stands there twice");
		return -1;
	}
	r->fields |= 1u << r->reading;
	return 0;
}

/* http_parser takes the blanks before a value, and leaves those behind it. */
static void value_end(struct http_reader *r)
{
	char *value = r->reading < HTTP_FIELDS ? r->field[r->reading] : NULL;
	size_t size = value ? strlen(value) : 0;

	while (size && (value[size - 1] == ' ' || value[size - 1] == '\t'))
		value[--size] = '\0';
	r->name_size = 0;
	r->in_value = false;
}

static void piece_append(char *to, size_t room, size_t *at, const char *text, size_t size)
{
	if (*at < room)
		memcpy(to + *at, text, MIN(size, room - *at));
	*at += size;
}

static int cookie_append(struct http_reader *r, const char *text, size_t size)
{
	size_t before = MIN(r->value_size, HTTP_COOKIE_MAX);
	size_t kept = MIN(size, HTTP_COOKIE_MAX - before);
	char *grown = realloc(r->cookie, before + kept + 1);

	if (!grown) {
		wrong(r, HTTP_STATUS_INTERNAL_SERVER_ERROR, "out of memory");
		return -1;
	}
	memcpy(grown + before, text, kept);
	grown[before + kept] = '\0';
	r->cookie = grown;
	r->value_size += size;
	return 0;
}

static int on_header_field(http_parser *parser, const char *text, size_t size)
{
	struct http_reader *r = parser->data;

	/* http_parser takes blanks before a colon. A proxy may see another field there. */
	if (memchr(text, ' ', size)) {
		wrong(r, HTTP_STATUS_BAD_REQUEST, "a field's name has a blank in it");
		return -1;
	}
	if (r->head_ended)
		return 0;
	if (r->in_value)
		value_end(r);
	piece_append(r->name, sizeof(r->name), &r->name_size, text, size);
	return 0;
}

static int on_header_value(http_parser *parser, const char *text, size_t size)
{
	struct http_reader *r = parser->data;

	if (r->head_ended)
		return 0;
	if (!r->in_value && value_begin(r) < 0)
		return -1;
	if (r->reading == HTTP_FIELD_COOKIE)
		return cookie_append(r, text, size);
	/* The last byte stays zero. */
	if (r->reading < HTTP_FIELDS)
		piece_append(r->field[r->reading], HTTP_FIELD_SIZE - 1, &r->value_size, text, size);
	return 0;
}

static int on_headers_complete(http_parser *parser)
{
	struct http_reader *r = parser->data;

	if (r->in_value)
		value_end(r);
	const char *expects = http_reader_field(r, HTTP_FIELD_EXPECT);

	r->continues = expects && !strcasecmp(expects, "100-continue");
	r->head_ended = true;
	if (parser->http_major != 1) {
		wrong(r, HTTP_STATUS_HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1 is spoken here");
		return -1;
	}
	if (!parser->http_minor)
		r->continues = false;
	/* No other protocol is spoken here: the message goes on as if it had not asked for one. */
	parser->upgrade = 0;
	return stop(parser, HTTP_STEP_HEAD);
}

static int on_body(http_parser *parser, const char *text, size_t size)
{
	struct http_reader *r = parser->data;

	r->part = text;
	r->part_size = size;
	return stop(parser, HTTP_STEP_BODY);
}

static int on_message_complete(http_parser *parser)
{
	return stop(parser, HTTP_STEP_END);
}

static const http_parser_settings settings = {
	.on_url = on_url,
	.on_header_field = on_header_field,
	.on_header_value = on_header_value,
	.on_headers_complete = on_headers_complete,
	.on_body = on_body,
	.on_message_complete = on_message_complete,
};

void http_reader_begin(struct http_reader *r, enum http_parser_type type, size_t target_max)
{
	*r = (struct http_reader){.target_max = target_max};
	http_parser_init(&r->parser, type);
	r->parser.data = r;
}

void http_reader_next(struct http_reader *r)
{
	http_reader_free(r);
	http_reader_begin(r, r->parser.type, r->target_max);
}

const char *http_reader_field(const struct http_reader *r, enum http_field field)
{
	if (!(r->fields & 1u << field))
		return NULL;
	return field == HTTP_FIELD_COOKIE && r->cookie ? r->cookie : r->field[field];
}

void http_reader_free(struct http_reader *r)
{
	http_reader_drop_target(r);
	free(steal_ptr(&r->cookie));
}

void http_reader_drop_target(struct http_reader *r)
{
	free(steal_ptr(&r->target));
}

static unsigned status_of(enum http_errno error)
{
	switch (error) {
	case HPE_INVALID_METHOD:
		return HTTP_STATUS_NOT_IMPLEMENTED;
	case HPE_HEADER_OVERFLOW:
		return HTTP_STATUS_REQUEST_HEADER_FIELDS_TOO_LARGE;
	case HPE_INVALID_VERSION:
		return HTTP_STATUS_HTTP_VERSION_NOT_SUPPORTED;
	default:
		return HTTP_STATUS_BAD_REQUEST;
	}
}

static void step_set(struct http_reader *r)
{
	enum http_errno error = HTTP_PARSER_ERRNO(&r->parser);

	if (error == HPE_PAUSED)
		http_parser_pause(&r->parser, 0);
	else if (error != HPE_OK && r->step != HTTP_STEP_WRONG)
		wrong(r, status_of(error), http_errno_description(error));
}

enum http_step http_reader_take(struct http_reader *r, const char **data, size_t *size)
{
	if (r->step == HTTP_STEP_WRONG || !*size)
		return r->step == HTTP_STEP_WRONG ? r->step : HTTP_STEP_MORE;
	bool in_head = !r->head_ended;

	r->step = HTTP_STEP_MORE;
	size_t used = http_parser_execute(&r->parser, &settings, *data, *size);
	step_set(r);
	r->head_size += in_head ? used : 0;
	*data += used;
	*size -= used;
	return r->step;
}

enum http_step http_reader_close(struct http_reader *r)
{
	if (r->step == HTTP_STEP_WRONG)
		return r->step;
	r->step = HTTP_STEP_MORE;
	(void)http_parser_execute(&r->parser, &settings, NULL, 0);
	step_set(r);
	return r->step;
}

bool http_reader_is_cut(const struct http_reader *r)
{
	return HTTP_PARSER_ERRNO(&r->parser) == HPE_INVALID_EOF_STATE;
}
