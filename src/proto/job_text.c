/* The table of the fields of a job's text, and the checks of their values.
 *
 * The daemon reads a text field by field in the order of the user's JSON, so that the first wrong
 * field is named. The shim reads the whole text at once with job_text_read(). The shim trusts no
 * check of the daemon: the text comes from a file, and an older version may have written it.
 *
 * The struct points into the JSON and copies nothing. A caller that keeps a value copies it before
 * the JSON is freed. The options of a container's runtime are checked here, because an option such
 * as
 * --detach would let a container outlive its job. */
#include "proto/job_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/record_json.h"

const struct job_text job_text_none = {
	.cwd = "",
	.in = "",
	.wait_in = "",
	.out = "",
	.err = "",
	.image = "",
	.name = "",
	.umask = -1,
};

static int argv_check(void *record, struct error *err)
{
	const struct job_text *text = record;
	const char *first = json_string_value(json_array_get(text->argv, 0));

	return first && *first ? 0
			       : error_set(err, EXIT_CODE_USAGE, "argv: there is no command in it");
}

static bool is_absolute(const char *text)
{
	return *text == '/';
}

static bool is_job_name(const char *text)
{
	size_t length = strlen(text);
	bool plain = length && length < JOB_TEXT_NAME_SIZE;

	for (size_t i = 0; i < length; i++)
		plain &= text[i] > ' ' && text[i] != '/' && text[i] != 127;
	return plain;
}

static bool is_image(const char *text)
{
	return *text && strlen(text) < JOB_TEXT_IMAGE_SIZE && *text != '-' &&
	       !strpbrk(text, " \t\n");
}

/* Whether a value of a runtime's switch is false, as podman and docker read it. */
static bool is_off(const char *value)
{
	static const char *const off[] = {"false", "False", "FALSE", "f", "F", "0"};

	for (size_t i = 0; i < ARRAY_SIZE(off); i++)
		if (!strcmp(value, off[i]))
			return true;
	return false;
}

/* Options with which a container could outlive its job. NULL: it is none, else what is wrong with
 * it. */
static const char *outlives(const char *option)
{
	if (!strncmp(option, "--cidfile", 9) && (!option[9] || option[9] == '='))
		return "names a file that is the job's own, by which its container is removed";
	if (!strncmp(option, "--detach", 8) &&
	    (!option[8] || (option[8] == '=' && !is_off(option + 9))))
		return "would end the job before its container";
	return NULL;
}

/* Each is one word, so that its name is what the runtime takes for its name. */
static int container_args_check(void *record, struct error *err)
{
	const struct job_text *to = record;
	size_t i, used = 0;
	json_t *item;

	json_array_foreach((json_t *)to->container_args, i, item)
	{
		const char *text = json_string_value(item);

		if (strncmp(text, "--", 2) != 0 || !text[2] || strchr(text, '\n') ||
		    used + strlen(text) + 2 > JOB_TEXT_ARGS_SIZE)
			return record_wrong(err, "container_args", text,
					    "is no option of a runtime", "for example: --ipc=host");
		if (outlives(text))
			return record_wrong(err, "container_args", text, outlives(text),
					    "leave that option out");
		used += strlen(text) + (used > 0);
	}
	return 0;
}

static bool is_parameter(const char *key)
{
	bool name = isalpha((unsigned char)*key) || *key == '_';

	for (const char *at = key; *at; at++)
		name &= isalnum((unsigned char)*at) || *at == '_';
	return name;
}

static int params_take(const json_t *value, void *record, struct error *err)
{
	static const struct record_field values_field = {.type = RECORD_TEXTS};
	struct job_text *to = record;
	const json_t *list;
	const char *key;
	json_t *values;

	if (!json_is_object(value))
		return RECORD_WRONG_TYPE;
	to->params = value;
	to->sweep = 1;
	json_object_foreach((json_t *)value, key, values)
	{
		if (!is_parameter(key))
			return record_wrong(err, "param", key, "is not the name of a parameter",
					    "letters, digits and _, as the environment has them");
		if (record_take_plain(&values_field, values, &list, err) < 0)
			return RECORD_WRONG_TYPE;
		to->sweep *= json_array_size(values);
		if (!to->sweep || to->sweep > JOB_TEXT_SWEEP_MAX)
			return error_set(err, EXIT_CODE_USAGE,
					 "param: the sweep has %s jobs, and 1 to %u are possible",
					 to->sweep ? "too many" : "no", JOB_TEXT_SWEEP_MAX);
	}
	return 0;
}

#define FIELD(member, name, ...) RECORD_FIELD(struct job_text, member, name, __VA_ARGS__)
#define FIELD_AS(as, member, name, ...) \
	RECORD_FIELD_AS(as, struct job_text, member, name, __VA_ARGS__)
const struct record_field job_text_fields[] = {
	FIELD_AS(RECORD_TEXTS, argv, "argv", .then = argv_check, .takes = "a list of texts"),
	FIELD_AS(RECORD_TEXTS, env, "env", .takes = "a list of texts NAME=VALUE"),
	FIELD(cwd, "cwd", .valid = is_absolute, .takes = "an absolute path",
	      .wrong = "is not an absolute path", .hint = "for example: /home/alice/project"),
	FIELD(umask, "umask", .takes = "a whole number"),
	FIELD_AS(RECORD_OBJECT, limits, "limits", .takes = "an object of soft limits by number"),
	FIELD(in, "in", .takes = "a path"),
	FIELD(wait_in, "wait_in", .takes = "a path"),
	FIELD(out, "out", .takes = "a path"),
	FIELD(err, "err", .takes = "a path"),
	FIELD(name, "name", .valid = is_job_name, .takes = "a text",
	      .wrong = "is not the name of a job",
	      .hint = "1 to 63 ASCII characters without spaces and /"),
	FIELD_AS(RECORD_TEXTS, container_args, "container_args", .then = container_args_check,
		 .takes = "a list of texts"),
	FIELD(image, "image", .valid = is_image, .takes = "the name of a container's image",
	      .wrong = "is not the name of an image",
	      .hint = "for example: docker.io/library/python:3.12"),
	{"params", RECORD_OBJECT, .take = params_take, .takes = "an object of lists of texts"},
	{0},
};

int job_text_read(const json_t *root, struct job_text *ret, struct error *err)
{
	int rc = 0;

	*ret = job_text_none;
	for (const struct record_field *f = job_text_fields; rc == 0 && f->name; f++) {
		const json_t *value = json_object_get(root, f->name);

		if (value && !json_is_null(value))
			rc = record_take(f, value, ret, err);
	}
	return rc;
}

void job_text_name(const struct job_text *text, char ret[static JOB_TEXT_NAME_SIZE])
{
	const char *command = json_string_value(json_array_get(text->argv, 0));
	const char *slash = command ? strrchr(command, '/') : NULL;
	const char *name = *text->name ? text->name : slash && slash[1] ? slash + 1 : command;

	snprintf(ret, JOB_TEXT_NAME_SIZE, "%s", name ? name : "");
	for (char *at = ret; *at; at++)
		if ((unsigned char)*at <= ' ' || *at == '/' || *at == 127)
			*at = '_';
}
