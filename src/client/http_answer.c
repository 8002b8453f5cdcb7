#include "client/http_answer.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"

#define UNKNOWN SIZE_MAX

struct text {
	const char *at;
	size_t size;
};

/* Takes a line off, without its end. False: there is no whole one. */
static bool line_take(struct text *rest, struct text *ret)
{
	const char *end = memchr(rest->at, '\n', rest->size);

	if (!end)
		return false;
	size_t size = (size_t)(end - rest->at);
	*ret = (struct text){rest->at, size && end[-1] == '\r' ? size - 1 : size};
	*rest = (struct text){end + 1, rest->size - size - 1};
	return true;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* "HTTP/1.1 200 OK". 0: it is none. */
static int status_of(struct text line)
{
	const char *p = line.at;

	if (line.size < 12 || memcmp(p, "HTTP/1.", 7) != 0 || !is_digit(p[7]) || p[8] != ' ' ||
	    (line.size > 12 && p[12] != ' '))
		return 0;
	if (p[9] < '1' || p[9] > '5' || !is_digit(p[10]) || !is_digit(p[11]))
		return 0;
	return (p[9] - '0') * 100 + (p[10] - '0') * 10 + p[11] - '0';
}

static bool header_is(struct text line, const char *name, struct text *ret_value)
{
	size_t size = strlen(name);

	if (line.size <= size || strncasecmp(line.at, name, size) != 0 || line.at[size] != ':')
		return false;
	*ret_value = (struct text){line.at + size + 1, line.size - size - 1};
	while (ret_value->size && (*ret_value->at == ' ' || *ret_value->at == '\t'))
		ret_value->at++, ret_value->size--;
	while (ret_value->size && (ret_value->at[ret_value->size - 1] == ' ' ||
				   ret_value->at[ret_value->size - 1] == '\t'))
		ret_value->size--;
	return true;
}

static bool length_of(struct text value, size_t max, size_t *ret)
{
	size_t length = 0;

	for (size_t i = 0; i < value.size; i++) {
		if (!is_digit(value.at[i]))
			return false;
		length = length * 10 + (size_t)(value.at[i] - '0');
		if (length > max)
			return false;
	}
	*ret = length;
	return value.size > 0;
}

/* One head, up to its empty line. */
static enum http_progress head_take(struct text *rest, size_t body_max, struct http_parsed *ret)
{
	struct text line, value;
	size_t length = UNKNOWN, again;

	if (!line_take(rest, &line))
		return HTTP_MORE;
	ret->status = status_of(line);
	if (!ret->status)
		return HTTP_FOREIGN;
	for (;;) {
		if (!line_take(rest, &line))
			return HTTP_MORE;
		if (!line.size)
			break;
		if (header_is(line, "Transfer-Encoding", &value))
			return HTTP_FOREIGN;
		if (!header_is(line, "Content-Length", &value))
			continue;
		if (!length_of(value, body_max, &again) || (length != UNKNOWN && again != length))
			return HTTP_FOREIGN;
		length = again;
	}
	/* These have none, whatever their heads say. */
	ret->body_length = ret->status == 204 || ret->status == 304 ? 0 : length;
	return HTTP_COMPLETE;
}

/* The rest of a possible beginning of an answer is waited for; anything else is known at once. */
static bool could_be(const char *data, size_t size)
{
	return memcmp(data, "HTTP/1.", MIN(size, 7)) == 0;
}

enum http_progress http_answer_parse(const char *data, size_t size, bool ended, size_t body_max,
				     struct http_parsed *ret)
{
	struct text rest = {data, size};
	enum http_progress head;

	*ret = (struct http_parsed){0};
	do { /* 100 to 199: the answer itself follows */
		if (!could_be(rest.at, rest.size))
			return HTTP_FOREIGN;
		head = head_take(&rest, body_max, ret);
	} while (head == HTTP_COMPLETE && ret->status < 200);
	if (head == HTTP_FOREIGN)
		return head;
	size_t used = size - rest.size;
	if (head == HTTP_MORE)
		return size > HTTP_HEAD_MAX ? HTTP_FOREIGN : ended ? HTTP_ENDED : HTTP_MORE;
	if (used > HTTP_HEAD_MAX || (ret->body_length == UNKNOWN && rest.size > body_max))
		return HTTP_FOREIGN;
	ret->body = used;
	ret->size = MIN(rest.size, ret->body_length);
	if (ret->body_length == UNKNOWN)
		return ended ? HTTP_COMPLETE : HTTP_MORE;
	if (rest.size >= ret->body_length)
		return HTTP_COMPLETE;
	return ended ? HTTP_ENDED : HTTP_MORE;
}
