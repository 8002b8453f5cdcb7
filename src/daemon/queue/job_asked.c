/* A text is walked from value to value: strings are skipped to their quote, and lists and objects
 * to their bracket. Texts come from the database. So a text that is cut off or is no JSON ends the
 * walk at its last byte, and no byte behind that is read. */
#include "daemon/queue/job_asked.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

struct piece {
	const char *at;
	size_t size;
};

/* Behind the string that begins here. */
static const char *string_skip(const char *at)
{
	for (at++; *at && *at != '"'; at++)
		if (*at == '\\' && at[1])
			at++;
	return *at ? at + 1 : at;
}

/* Behind the value that begins here. */
static const char *value_skip(const char *at)
{
	unsigned depth = 0;

	while (*at) {
		bool opens = *at == '{' || *at == '[', closes = *at == '}' || *at == ']';

		if (depth == 0 && (closes || *at == ','))
			break;
		depth += opens;
		depth -= closes;
		at = *at == '"' ? string_skip(at) : at + 1;
		if (closes && depth == 0)
			break;
	}
	return at;
}

/* The next value of a list, or of an object behind its key, from *at on, which is behind the
 * bracket or a comma. False: there is none. */
static bool value_next(const char **at, struct piece *ret)
{
	const char *end = value_skip(*at);

	*ret = (struct piece){*at, (size_t)(end - *at)};
	*at = *end == ',' ? end + 1 : end;
	return ret->size > 0;
}

/* Likewise the next member of an object, with the quotes of its key. */
static bool member_next(const char **at, struct piece *ret_key, struct piece *ret_value)
{
	const char *end = **at == '"' ? string_skip(*at) : *at;

	*ret_key = (struct piece){*at, (size_t)(end - *at)};
	if (*end != ':')
		return false;
	*at = end + 1;
	return value_next(at, ret_value);
}

static bool is_named(const struct piece *key, const char *name)
{
	return key->size == strlen(name) + 2 && !memcmp(key->at + 1, name, key->size - 2);
}

static bool is_private(const struct piece *key)
{
	static const char *const names[] = {"env", "limits", "umask"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (is_named(key, names[i]))
			return true;
	return false;
}

static char *piece_put(char *to, const struct piece *piece)
{
	memcpy(to, piece->at, piece->size);
	return to + piece->size;
}

static char *member_put(char *to, bool first, const struct piece *key)
{
	if (!first)
		*to++ = ',';
	to = piece_put(to, key);
	*to++ = ':';
	return to;
}

static size_t count_of(const struct piece *list)
{
	const char *at = list->at + 1;
	struct piece value;
	size_t count = 0;

	while (value_next(&at, &value))
		count++;
	return count;
}

static char *element_put(char *to, const struct piece *list, size_t number)
{
	const char *at = list->at + 1;
	struct piece value = {0};

	while (value_next(&at, &value) && number--)
		;
	return piece_put(to, &value);
}

/* One value of each parameter's list: shim_sweep_choose(). */
static char *params_put(char *to, const struct piece *params, int64_t index)
{
	size_t number = index > 0 ? (size_t)index : 0;
	const char *at = params->at + 1;
	struct piece key, values;
	bool first = true;

	*to++ = '{';
	while (member_next(&at, &key, &values)) {
		size_t count = *values.at == '[' ? count_of(&values) : 0;

		if (!count)
			continue;
		to = member_put(to, first, &key);
		to = element_put(to, &values, number % count);
		number /= count;
		first = false;
	}
	*to++ = '}';
	return to;
}

char *job_asked_text(const char *text, int64_t index)
{
	/* It has no more than the text has, but for the brackets. */
	char *asked = *text == '{' ? malloc(strlen(text) + 4) : NULL, *to = asked;
	const char *at = text + 1;
	struct piece key, value;
	bool first = true;

	if (!asked)
		return NULL;
	*to++ = '{';
	while (member_next(&at, &key, &value)) {
		if (is_private(&key))
			continue;
		to = member_put(to, first, &key);
		to = is_named(&key, "params") && *value.at == '{' ? params_put(to, &value, index)
								  : piece_put(to, &value);
		first = false;
	}
	memcpy(to, "}", 2);
	return asked;
}

size_t job_asked_values(const char *text, size_t size)
{
	size_t count = 1;
	bool quoted = false;

	for (size_t i = 0; i < size; i++) {
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		else
			count += !quoted && (text[i] == ',' || text[i] == '[' || text[i] == '{');
	}
	return count;
}
