#include "integrations/oci/splice.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* These only find places in a text of JSON, and none behind the end of any text. */
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

/* The offset at which the value of a member of the object at `at` begins; 0: there is none of that
 * name. */
static size_t member_find(const char *text, size_t at, const char *name)
{
	size_t length = strlen(name);

	for (at = blank_skip(text, at + 1); text[at] == '"';) {
		const char *key = text + at + 1;
		size_t end = string_skip(text, at), colon = blank_skip(text, end);
		bool found = end - at - 2 == length && !memcmp(key, name, length);

		if (text[colon] != ':')
			return 0;
		at = blank_skip(text, colon + 1);
		if (found)
			return at;
		at = blank_skip(text, value_skip(text, at));
		if (text[at] == ',')
			at = blank_skip(text, at + 1);
	}
	return 0;
}

/* Likewise by the path of names (ended by NULL) from the outermost object. */
static size_t place_find(const char *text, const char *const *path)
{
	size_t at = blank_skip(text, 0);

	for (; *path; path++)
		if (text[at] != '{' || !(at = member_find(text, at, *path)))
			return 0;
	return at;
}

/* A text to be put in, its place, and how much of the old text goes for it. */
struct insertion {
	size_t at, replaced;
	const char *separator; /* between the elements and what is there already; "": nothing is */
	size_t missing;        /* the last names of the path, which have to be made */
};

static bool is_null(const char *text, size_t at)
{
	return !strncmp(text + at, "null", 4);
}

static bool is_empty(const char *text, size_t at)
{
	return strchr("]}", text[blank_skip(text, at + 1)]) != NULL;
}

/* Where the first name of the path that is not there has to be made, or else the array is. */
static bool insertion_find(const char *text, const char *const *path, struct insertion *ret)
{
	size_t place = blank_skip(text, 0), depth = 0;

	for (; path[depth] && text[place] == '{'; depth++) {
		size_t found = member_find(text, place, path[depth]);

		if (!found)
			break;
		place = found;
	}
	for (ret->missing = 0; path[depth + ret->missing];)
		ret->missing++;
	bool null = depth && is_null(text, place);
	if (!null && text[place] != (ret->missing ? '{' : '['))
		return false;
	ret->at = null ? place : place + 1;
	ret->replaced = null ? strlen("null") : 0;
	ret->separator = null || is_empty(text, place) ? "" : ",";
	return true;
}

/* The elements in an array, in as many objects as have to be made. */
static void wrapped_print(FILE *to, const char *const *path, bool array, const char *elements,
			  bool braces)
{
	size_t depth = 0;

	for (; path[depth]; depth++)
		fprintf(to, "%s\"%s\":", depth || braces ? "{" : "", path[depth]);
	fprintf(to, array ? "[%s]" : "%s", elements);
	for (size_t i = braces ? 0 : 1; i < depth; i++)
		fputc('}', to);
}

static void spliced_print(FILE *to, const char *text, const struct insertion *in,
			  const char *const *path, const char *elements)
{
	size_t depth = 0;
	bool null = in->replaced > 0;

	while (path[depth])
		depth++;
	fprintf(to, "%.*s", (int)in->at, text);
	wrapped_print(to, path + depth - in->missing, in->missing || null, elements, null);
	fprintf(to, "%s%s", in->separator, text + in->at + in->replaced);
}

static void at_end_print(FILE *to, const char *text, const struct insertion *in,
			 const char *elements)
{
	size_t end = value_skip(text, in->at - 1) - 1;

	fprintf(to, "%.*s%s%s%s", (int)end, text, in->separator, elements, text + end);
}

/* Adds `elements` (JSON, with commas between them) to the array at this path of names (ended by
 * NULL), as its first or its last. Parts of the path that are not there are made. */
static char *splice(const char *text, size_t size, const char *const *path, const char *elements,
		    bool at_end, size_t *ret_size)
{
	json_t *json =
		json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
	char *copy = json_is_object(json) ? strndup(text, size) : NULL, *made = NULL;
	struct insertion in;

	json_decref(json);
	if (copy && strlen(copy) == size && insertion_find(copy, path, &in)) {
		FILE *to = open_memstream(&made, ret_size);

		if (to && at_end && !in.missing && !in.replaced)
			at_end_print(to, copy, &in, elements);
		else if (to)
			spliced_print(to, copy, &in, path, elements);
		/* NULL where there was no memory. */
		if (to && fclose(to) != 0) {
			free(made);
			made = NULL;
		}
	}
	free(copy);
	return made;
}

static const char *const hooks_path[] = {"hooks", "createRuntime", NULL};

/* A hook of carve's as `carve hook install` makes it: it has its name alone as arguments. */
static bool is_installed_hook(const char *text, size_t size)
{
	json_t *hook = json_loadb(text, size, JSON_DECODE_INT_AS_REAL, NULL);
	const char *path = json_string_value(json_object_get(hook, "path"));
	const char *slash = path ? strrchr(path, '/') : NULL;
	bool found = slash && !strcmp(slash, "/carve-hook") &&
		     json_array_size(json_object_get(hook, "args")) == 1;

	json_decref(hook);
	return found;
}

size_t oci_installed_hooks_drop(char *text, size_t size)
{
	size_t at = place_find(text, hooks_path), to = at + 1;

	if (!at || text[at] != '[')
		return size;
	for (at = blank_skip(text, at + 1); text[at] && text[at] != ']';) {
		size_t end = value_skip(text, at), length = end - at;

		if (!is_installed_hook(text + at, length)) {
			/* Elements move to the front only: what is written here has been read. */
			if (text[to - 1] != '[') {
				/* Two elements without a comma: it is no JSON. */
				if (to == at)
					return size;
				text[to++] = ',';
			}
			memmove(text + to, text + at, length);
			to += length;
		}
		at = blank_skip(text, end);
		if (text[at] == ',')
			at = blank_skip(text, at + 1);
	}
	memmove(text + to, text + at, size - at + 1);
	return size - (at - to);
}

char *oci_hook_splice(const char *text, size_t size, const char *hook, size_t *ret_size)
{
	return splice(text, size, hooks_path, hook, false, ret_size);
}

size_t oci_lists_missing(const char *text, const char **ret)
{
	static const char *const path[] = {"process", "capabilities", NULL};
	static const char *const texts[] = {"", "\"ambient\":[],", "\"inheritable\":[],",
					    "\"ambient\":[],\"inheritable\":[],"};
	size_t at = place_find(text, path);

	*ret = "";
	if (!at || text[at] != '{' || is_empty(text, at))
		return 0;
	*ret = texts[!member_find(text, at, "ambient") + 2 * !member_find(text, at, "inheritable")];
	return at + 1;
}

char *oci_seccomp_drop(const char *text, size_t size, size_t *ret_size)
{
	static const char *const path[] = {"linux", "seccomp", NULL};
	size_t at = place_find(text, path), end = at ? value_skip(text, at) : 0;
	size_t room = size + sizeof("null");
	char *made = malloc(room);

	if (made)
		*ret_size = (size_t)snprintf(made, room, "%.*s%s%s", (int)at, text,
					     at ? "null" : "", text + end);
	return made;
}

static char *devices_splice(const char *text, size_t size, const char *devices, const char *rules,
			    size_t *ret_size)
{
	static const char *const nodes[] = {"linux", "devices", NULL};
	static const char *const allowed[] = {"linux", "resources", "devices", NULL};
	char *first = splice(text, size, nodes, devices, true, ret_size);
	char *made = first ? splice(first, *ret_size, allowed, rules, true, ret_size) : NULL;

	free(first);
	return made;
}

char *oci_devices_splice(const char *text, size_t size, const struct oci_device *list, size_t count,
			 size_t *ret_size)
{
	char *devices = NULL, *rules = NULL, *made = NULL;
	size_t devices_size, rules_size;
	FILE *node = open_memstream(&devices, &devices_size);
	FILE *rule = open_memstream(&rules, &rules_size);

	for (size_t i = 0; node && rule && i < count; i++) {
		fprintf(node,
			"%s{\"path\":\"%s\",\"type\":\"c\",\"major\":%u,\"minor\":%u,"
			"\"fileMode\":%u,\"uid\":0,\"gid\":0}",
			i ? "," : "", list[i].path, list[i].major, list[i].minor, list[i].mode);
		fprintf(rule,
			"%s{\"allow\":true,\"type\":\"c\",\"major\":%u,\"minor\":%u,"
			"\"access\":\"rw\"}",
			i ? "," : "", list[i].major, list[i].minor);
	}
	bool whole = node && rule;
	whole &= !node || fclose(node) == 0;
	whole &= !rule || fclose(rule) == 0;
	if (whole)
		made = devices_splice(text, size, devices, rules, ret_size);
	free(devices);
	free(rules);
	return made;
}
