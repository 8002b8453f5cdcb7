#include "integrations/metrics/request.h"

#include <string.h>
#include <strings.h>

#include "base/macros.h"

#define BEARER "Bearer "

static int refuse(struct request *r, unsigned status)
{
	r->step = REQUEST_WRONG;
	r->status = status;
	return 1;
}

/* Keeps as much as there is room for, and counts the rest. */
static void keep(char *buf, size_t room, size_t *size, const char *at, size_t length)
{
	if (*size < room)
		memcpy(buf + *size, at, MIN(length, room - *size));
	*size += length;
}

static int on_target(http_parser *parser, const char *at, size_t length)
{
	struct request *r = parser->data;

	keep(r->target, sizeof(r->target) - 1, &r->target_size, at, length);
	return r->target_size < sizeof(r->target) ? 0 : refuse(r, HTTP_STATUS_URI_TOO_LONG);
}

/* Two tokens are no token: nobody has to guess which of them counts. */
static void field_end(struct request *r)
{
	bool is_token = r->field_size == strlen("Authorization") &&
			!strncasecmp(r->field, "Authorization", r->field_size);
	size_t skip = strlen(BEARER);

	if (is_token && r->token_size)
		r->token_size = SIZE_MAX;
	else if (is_token && r->value_size > skip && r->value_size < sizeof(r->value) &&
		 !strncasecmp(r->value, BEARER, skip) && r->value_size - skip < sizeof(r->token)) {
		r->token_size = r->value_size - skip;
		memcpy(r->token, r->value + skip, r->token_size);
	}
	r->field_size = r->value_size = 0;
	r->in_value = false;
}

static int on_field(http_parser *parser, const char *at, size_t length)
{
	struct request *r = parser->data;

	if (r->in_value)
		field_end(r);
	keep(r->field, sizeof(r->field), &r->field_size, at, length);
	return 0;
}

static int on_value(http_parser *parser, const char *at, size_t length)
{
	struct request *r = parser->data;

	r->in_value = true;
	keep(r->value, sizeof(r->value), &r->value_size, at, length);
	return 0;
}

static int on_head(http_parser *parser)
{
	struct request *r = parser->data;

	field_end(r);
	return 0;
}

/* A scrape has no body. */
static int on_body(http_parser *parser, const char *at, size_t length)
{
	return refuse(parser->data, HTTP_STATUS_PAYLOAD_TOO_LARGE);
}

static int on_end(http_parser *parser)
{
	struct request *r = parser->data;

	r->step = REQUEST_READY;
	http_parser_pause(parser, 1);
	return 0;
}

static const http_parser_settings settings = {
	.on_url = on_target,
	.on_header_field = on_field,
	.on_header_value = on_value,
	.on_headers_complete = on_head,
	.on_body = on_body,
	.on_message_complete = on_end,
};

void request_begin(struct request *r)
{
	*r = (struct request){0};
	http_parser_init(&r->parser, HTTP_REQUEST);
	r->parser.data = r;
}

enum request_step request_take(struct request *r, const char *data, size_t size, size_t *taken)
{
	r->parser.data = r;
	*taken = http_parser_execute(&r->parser, &settings, data, size);
	enum http_errno error = HTTP_PARSER_ERRNO(&r->parser);

	r->bytes += *taken;
	if (r->step == REQUEST_WRONG)
		return r->step;
	if (r->bytes > REQUEST_BYTES_MAX)
		refuse(r, HTTP_STATUS_REQUEST_HEADER_FIELDS_TOO_LARGE);
	else if (r->parser.upgrade || (r->step == REQUEST_MORE && error != HPE_OK))
		refuse(r, HTTP_STATUS_BAD_REQUEST);
	return r->step;
}

bool request_is_for(const struct request *r, const char *path)
{
	size_t size = strlen(path);

	return r->target_size >= size && !strncmp(r->target, path, size) &&
	       (r->target[size] == '\0' || r->target[size] == '?');
}
