#include "container/wanted.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"

static const struct label {
	const char *name, *field, *example;
	bool size, flag;
} labels[] = {
	{"vram", "vram", "8GiB", .size = true},
	{"gpu-memory", "gpu_memory", "8Gi", .size = true},
	{"gpu", "gpu", "0.25", .size = true},
	{"mig-profile", "mig_profile", "1g.10gb", .size = true},
	{"session", "session", "s-7k2m9q", .size = true},
	{"gpu-compute", "gpu_compute", "25%"},
	{"gpu-ids", "gpu_ids", "0"},
	{"vram-strict", "vram_strict", "true", .flag = true},
};

static const struct label *label_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(labels); i++)
		if (!strcmp(labels[i].name, name))
			return &labels[i];
	return NULL;
}

/* A text in a message has to be printable. */
static bool value_valid(const char *value)
{
	size_t length = value ? strlen(value) : 0;

	for (size_t i = 0; i < length; i++)
		if ((unsigned char)value[i] > 126 || !isprint((unsigned char)value[i]))
			return false;
	return length && length <= CONTAINER_LABEL_MAX;
}

static int label_take(const struct label *label, const char *value, json_t *body, struct error *err)
{
	bool on = !strcmp(value, "true") || !strcmp(value, "1");

	if (label->flag && !on && strcmp(value, "false") != 0 && strcmp(value, "0") != 0)
		return error_set(err, EXIT_CODE_USAGE,
				 CONTAINER_LABEL_PREFIX "%s: '%s' is not true or "
							"false",
				 label->name, value);
	json_object_set_new(body, label->field,
			    label->flag ? json_boolean(on) : json_string(value));
	return 0;
}

static int unknown_error(const char *name, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, CONTAINER_LABEL_PREFIX "%.40s: there is no such label",
		  value_valid(name) ? name : "?");
	error_hint(err, "for example " CONTAINER_LABEL_PREFIX "vram=8GiB or " CONTAINER_LABEL_PREFIX
			"gpu=0.25");
	return -EXIT_CODE_USAGE;
}

/* Adds a source to what those before it said. *sized: they said a size. */
static int source_take(const json_t *source, json_t *body, bool *sized, struct error *err)
{
	bool was_sized = *sized;
	const char *key;
	json_t *entry;
	int rc = 0;

	json_object_foreach((json_t *)source, key, entry)
	{
		const char *name = key + strlen(CONTAINER_LABEL_PREFIX),
			   *value = json_string_value(entry);

		if (strncmp(key, CONTAINER_LABEL_PREFIX, strlen(CONTAINER_LABEL_PREFIX)) != 0)
			continue;
		const struct label *label = label_find(name);
		if (!label)
			return unknown_error(name, err);
		if (!value_valid(value))
			return error_set(err, EXIT_CODE_USAGE,
					 CONTAINER_LABEL_PREFIX
					 "%s: its value is empty, longer than %d "
					 "characters or not printable",
					 name, CONTAINER_LABEL_MAX);
		if (label->size ? was_sized : json_object_get(body, label->field) != NULL)
			continue;
		if (label->size && *sized)
			return error_set(err, EXIT_CODE_USAGE,
					 CONTAINER_LABEL_PREFIX
					 "%s: a slice has one size, and another "
					 "label gives one, too",
					 name);
		*sized |= label->size;
		if ((rc = label_take(label, value, body, err)) < 0)
			return rc;
	}
	return 0;
}

/* Labels that only say more of a slice, as its share of time. The first of them is named. */
static int size_error(const json_t *const *sources, size_t count, struct error *err)
{
	const char *first = "", *key;
	json_t *entry;

	for (size_t i = count; i-- > 0;)
		json_object_foreach((json_t *)sources[i], key, entry)
		{
			if (!strncmp(key, CONTAINER_LABEL_PREFIX, strlen(CONTAINER_LABEL_PREFIX)))
				first = key;
		}
	error_set(err, EXIT_CODE_USAGE, "%.60s: the slice has no size", first);
	error_hint(err,
		   "add " CONTAINER_LABEL_PREFIX "vram=8GiB or " CONTAINER_LABEL_PREFIX "gpu=0.25");
	return -EXIT_CODE_USAGE;
}

int container_wanted(const json_t *const *sources, size_t count, json_t **ret, struct error *err)
{
	json_t *body = json_object();
	bool sized = false;
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++)
		rc = source_take(sources[i], body, &sized, err);
	if (rc == 0 && !sized && json_object_size(body))
		rc = size_error(sources, count, err);
	if (rc < 0 || !sized) {
		json_decref(body);
		*ret = NULL;
		return rc;
	}
	*ret = body;
	return 0;
}

/* How much of the message names the label's field or option, 0: nothing. */
static size_t message_names(const struct label *label, const char *message)
{
	bool option = !strncmp(message, "--", 2);
	const char *name = option ? label->name : label->field;
	size_t dashes = option ? 2 : 0, length = strlen(name);

	return !strncmp(message + dashes, name, length) && message[dashes + length] == ':'
		       ? dashes + length
		       : 0;
}

void container_error_name_label(const json_t *wanted, struct error *err)
{
	char rest[sizeof(err->message)];

	for (size_t i = 0; i < ARRAY_SIZE(labels); i++) {
		size_t length = message_names(&labels[i], err->message);

		if (!length || !json_object_get(wanted, labels[i].field))
			continue;
		snprintf(rest, sizeof(rest), "%s", err->message + length);
		snprintf(err->message, sizeof(err->message), CONTAINER_LABEL_PREFIX "%s%.400s",
			 labels[i].name, rest);
		/* An example of the other notation. */
		if (strstr(err->hint, " takes a ") || strstr(err->hint, "--"))
			error_hint(err, "for example " CONTAINER_LABEL_PREFIX "%s=%s",
				   labels[i].name, labels[i].example);
		return;
	}
}
