#include "client/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/utf8.h"

/* So deep jansson reads; a recursion of ours ends there. */
#define DEPTH_MOST 2048

/* A text is well-formed and has no NUL, as jansson read it. */
static bool is_clean(const char *text)
{
	uint32_t character;

	while (*text) {
		size_t length = utf8_take(text, &character);

		if (!length || utf8_is_control(character))
			return false;
		text += length;
	}
	return true;
}

/* With a '?' for each control character. NULL: no memory. */
static json_t *text_cleaned(json_t *text)
{
	const char *from = json_string_value(text);

	if (is_clean(from))
		return json_incref(text);
	char *clean = strdup(from), *to = clean;
	if (!clean)
		return NULL;
	while (*from) {
		uint32_t character = 0;
		size_t length = utf8_take(from, &character);

		if (!length || utf8_is_control(character))
			*to++ = '?';
		else
			to = mempcpy(to, from, length);
		from += MAX(length, 1);
	}
	*to = '\0';
	json_t *cleaned = json_string(clean);
	free(clean);
	return cleaned;
}

static json_t *value_cleaned(json_t *value, int depth);

static int object_clean(json_t *object, int depth)
{
	const char *key;
	json_t *member;
	void *next;
	int rc = 0;

	json_object_foreach_safe(object, next, key, member)
	{
		if (!is_clean(key))
			json_object_del(object, key);
		else
			rc |= json_object_set_new(object, key, value_cleaned(member, depth));
	}
	return rc;
}

static int array_clean(json_t *array, int depth)
{
	json_t *item;
	size_t i;
	int rc = 0;

	json_array_foreach(array, i, item) rc |=
		json_array_set_new(array, i, value_cleaned(item, depth));
	return rc;
}

/* Another reference: to the value, what is in it cleaned, or to a text in place of one. NULL: no
 * memory, or too deep. */
static json_t *value_cleaned(json_t *value,
			     int depth) // NOLINT(misc-no-recursion): as deep as it is
{
	int rc = depth == DEPTH_MOST ? -1 : 0;

	if (json_is_string(value))
		return text_cleaned(value);
	if (json_is_object(value) && rc == 0)
		rc = object_clean(value, depth + 1);
	else if (json_is_array(value) && rc == 0)
		rc = array_clean(value, depth + 1);
	return rc < 0 ? NULL : json_incref(value);
}

json_t *text_clean_json(json_t *value)
{
	json_t *clean = value ? value_cleaned(value, 0) : NULL;

	json_decref(value);
	return clean;
}

bool text_url_append(char *buf, size_t size, const char *text)
{
	size_t used = strlen(buf);

	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		bool plain = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "-_.~",
				    *c) != NULL;

		if (used + sizeof("%xx") > size)
			return false;
		used += (size_t)snprintf(buf + used, size - used, plain ? "%c" : "%%%02X", *c);
	}
	return true;
}
