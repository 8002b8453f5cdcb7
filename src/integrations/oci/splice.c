#include "integrations/oci/splice.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGE "createRuntime"

/* The text is JSON that a parser has read: these only find places in it. */
static size_t blank_skip(const char *text, size_t at)
{
	return at + strspn(text + at, " \t\r\n");
}

static size_t string_skip(const char *text, size_t at)
{
	for (at++; text[at] && text[at] != '"'; at++)
		if (text[at] == '\\' && text[at + 1])
			at++;
	return at + (text[at] == '"');
}

static size_t value_skip(const char *text, size_t at)
{
	unsigned depth = 0;

	do {
		at = blank_skip(text, at);
		if (text[at] == '"') {
			at = string_skip(text, at);
			continue;
		}
		if (text[at] == '{' || text[at] == '[')
			depth++;
		else if (text[at] == '}' || text[at] == ']')
			depth--;
		else if (text[at] != ',' && text[at] != ':')
			at += strcspn(text + at, ",:]} \t\r\n") - 1;
		at++;
	} while (depth && text[at]);
	return at;
}

/* Where the value of a member of the object at `at` begins; 0: there is none of that name. */
static size_t member_find(const char *text, size_t at, const char *name)
{
	size_t length = strlen(name);

	for (at = blank_skip(text, at + 1); text[at] == '"';) {
		const char *key = text + at + 1;
		size_t end = string_skip(text, at), colon = blank_skip(text, end);
		bool found = end - at - 2 == length && !memcmp(key, name, length);

		at = blank_skip(text, colon + 1);
		if (found)
			return at;
		at = blank_skip(text, value_skip(text, at));
		if (text[at] == ',')
			at = blank_skip(text, at + 1);
	}
	return 0;
}

/* What is put where, and how much of the text goes for it. */
struct insertion {
	size_t at, replaced;
	const char *before, *after; /* around the hook */
};

static bool is_null(const char *text, size_t at)
{
	return !strncmp(text + at, "null", 4);
}

static bool insertion_find(const char *text, struct insertion *ret)
{
	size_t top = blank_skip(text, 0), hooks = member_find(text, top, "hooks");
	size_t stage = hooks && text[hooks] == '{' ? member_find(text, hooks, STAGE) : 0;
	size_t place = stage ? stage : hooks ? hooks : top;
	bool null = place != top && is_null(text, place);
	char closing = stage ? ']' : '}';
	bool empty = null || text[blank_skip(text, place + 1)] == closing;

	if (!null && text[place] != (stage ? '[' : '{'))
		return false;
	*ret = (struct insertion){.at = null ? place : place + 1, .replaced = null ? 4 : 0};
	if (stage) {
		ret->before = null ? "[" : "";
		ret->after = null ? "]" : empty ? "" : ",";
	} else if (hooks) {
		ret->before = null ? "{\"" STAGE "\":[" : "\"" STAGE "\":[";
		ret->after = null ? "]}" : empty ? "]" : "],";
	} else {
		ret->before = "\"hooks\":{\"" STAGE "\":[";
		ret->after = empty ? "]}" : "]},";
	}
	return true;
}

char *oci_hook_splice(const char *text, size_t size, const char *hook, size_t *ret_size)
{
	json_t *json =
		json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
	char *copy = json_is_object(json) ? strndup(text, size) : NULL, *made = NULL;
	struct insertion in;

	json_decref(json);
	if (copy && strlen(copy) == size && insertion_find(copy, &in)) {
		size_t room = size + strlen(in.before) + strlen(hook) + strlen(in.after) + 1;

		made = malloc(room);
		if (made)
			*ret_size = (size_t)snprintf(made, room, "%.*s%s%s%s%s", (int)in.at, copy,
						     in.before, hook, in.after,
						     copy + in.at + in.replaced);
	}
	free(copy);
	return made;
}
