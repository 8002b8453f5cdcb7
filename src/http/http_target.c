#include "http/http_target.h"

#include <errno.h>
#include <http_parser.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Appends a text, without its escapes, and a zero byte. Other bytes stay as they are. False:
 * the text has a zero byte itself. */
static bool text_append(struct http_target *t, const char *from, size_t size, bool plus)
{
	for (size_t i = 0; i < size; i++) {
		char c = from[i];

		if (c == '+' && plus) {
			c = ' ';
		} else if (c == '%' && size - i > 2 && digit_of(from[i + 1]) >= 0 &&
			   digit_of(from[i + 2]) >= 0) {
			c = (char)(digit_of(from[i + 1]) * 16 + digit_of(from[i + 2]));
			i += 2;
		}
		if (!c)
			return false;
		t->text[t->size++] = c;
	}
	t->text[t->size++] = '\0';
	return true;
}

static bool arguments_append(struct http_target *t, const char *query, size_t size)
{
	const char *end = query + size;

	for (const char *next; query < end; query = next + 1) {
		next = memchr(query, '&', (size_t)(end - query));
		next = next ? next : end;
		if (next == query)
			continue;
		const char *equals = memchr(query, '=', (size_t)(next - query));
		const char *value = equals ? equals + 1 : next;

		if (!text_append(t, query, (size_t)((equals ? equals : next) - query), true) ||
		    !text_append(t, value, (size_t)(next - value), true))
			return false;
	}
	return true;
}

int http_target_parse(const char *target, size_t size, struct http_target *ret)
{
	struct http_parser_url url;
	struct http_target t = {0};

	http_parser_url_init(&url);
	if (http_parser_parse_url(target, size, 0, &url) != 0)
		return -EINVAL;
	/* An argument of one letter grows from two bytes to three. */
	t.text = malloc(2 * size + 4);
	if (!t.text)
		return -ENOMEM;
	const char *path = target + url.field_data[UF_PATH].off;
	size_t path_size = url.field_data[UF_PATH].len;

	if (!path_size)
		path = "/", path_size = 1;
	if (!text_append(&t, path, path_size, false) ||
	    !arguments_append(&t, target + url.field_data[UF_QUERY].off,
			      url.field_data[UF_QUERY].len)) {
		free(t.text);
		return -EINVAL;
	}
	char *fitting = realloc(t.text, t.size);
	if (fitting)
		t.text = fitting;
	*ret = t;
	return 0;
}

const char *http_target_path(const struct http_target *t)
{
	return t->text ? t->text : "";
}

const char *http_target_argument(const struct http_target *t, const char *name)
{
	const char *end = t->text ? t->text + t->size : NULL;
	const char *at = t->text ? t->text + strlen(t->text) + 1 : NULL;

	while (at < end) {
		const char *value = at + strlen(at) + 1;

		if (!strcmp(at, name))
			return value;
		at = value + strlen(value) + 1;
	}
	return NULL;
}

void http_target_free(struct http_target *t)
{
	free(steal_ptr(&t->text));
	t->size = 0;
}
