/* Keys of the configuration file about programs outside carve. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/record_json.h"
#include "daemon/config.h"

/* Below 2 s a program that is about to attach would be warned. */
#define SECONDS_LEAST 2
#define SECONDS_MOST 86400

int config_take_outside_seconds(const json_t *value, void *record, struct error *err)
{
	struct config *to = record;
	double seconds = json_is_number(value) ? json_number_value(value) : 0;

	if (!(seconds >= SECONDS_LEAST && seconds <= SECONDS_MOST))
		return RECORD_WRONG_TYPE;
	to->outside.after_ns = (uint64_t)(seconds * 1e9);
	return 0;
}

/* A name, or a number. Whether somebody is called so may change, and is no matter of the file. */
static bool name_take(const json_t *value, char ret[static EXEMPT_NAME_SIZE])
{
	json_int_t number = json_integer_value(value);
	const char *name = json_is_string(value) ? json_string_value(value) : "";

	if (json_is_integer(value) && number >= 0 && number < UINT32_MAX) {
		snprintf(ret, EXEMPT_NAME_SIZE, "%u", (unsigned)number);
		return true;
	}
	if (!*name || strlen(name) >= EXEMPT_NAME_SIZE || strlen(name) != json_string_length(value))
		return false;
	snprintf(ret, EXEMPT_NAME_SIZE, "%s", name);
	return true;
}

static int names_take(const char *name_of_list, const char *key, const json_t *list,
		      struct exempt_names *ret, struct error *err)
{
	size_t i;
	json_t *name;

	if (!json_is_array(list))
		return error_set(err, EXIT_CODE_USAGE,
				 "%s.%s takes a list of names or numbers, such as [\"ci\", 1001]",
				 name_of_list, key);
	if (json_array_size(list) > EXEMPT_NAMES_MAX)
		return error_set(err, EXIT_CODE_USAGE,
				 "%s.%s takes %u names at most; name a group of them in %s.groups",
				 name_of_list, key, EXEMPT_NAMES_MAX, name_of_list);
	*ret = (struct exempt_names){0};
	json_array_foreach(list, i, name)
	{
		if (!name_take(name, ret->name[ret->count++]))
			return error_set(err, EXIT_CODE_USAGE,
					 "%s.%s: entry %zu is neither a name nor a number, such as "
					 "\"ci\" or 1001",
					 name_of_list, key, i + 1);
	}
	return 0;
}

int config_exempt_take(const char *name, const json_t *value, struct exempt_names *users,
		       struct exempt_names *groups, struct error *err)
{
	const char *key;
	json_t *list;
	int rc = 0;

	if (!json_is_object(value))
		return error_set(err, EXIT_CODE_USAGE,
				 "%s takes an object such as {\"users\": [\"ci\"], \"groups\": "
				 "[\"video\"]}",
				 name);
	json_object_foreach((json_t *)value, key, list)
	{
		if (!strcmp(key, "users"))
			rc = names_take(name, key, list, users, err);
		else if (!strcmp(key, "groups"))
			rc = names_take(name, key, list, groups, err);
		else
			rc = error_set(err, EXIT_CODE_USAGE,
				       "%s: %.64s is unknown; it has users and groups", name, key);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int config_take_outside_exempt(const json_t *value, void *record, struct error *err)
{
	struct config_outside *to = &((struct config *)record)->outside;

	return config_exempt_take("outside_exempt", value, &to->users, &to->groups, err);
}
