#include "base/record_json.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/suggest.h"

const struct record_field *record_find(const struct record_field *fields, const char *name)
{
	while (fields->name && strcmp(fields->name, name) != 0)
		fields++;
	return fields->name ? fields : NULL;
}

static int integer_take(const struct record_field *field, const json_t *value, void *record,
			struct error *err)
{
	json_int_t number = json_integer_value(value);

	if (!json_is_integer(value))
		return RECORD_WRONG_TYPE;
	if ((field->least || field->most) && (number < field->least || number > field->most))
		return error_set(err, EXIT_CODE_USAGE,
				 "%s: %" JSON_INTEGER_FORMAT " is outside %" JSON_INTEGER_FORMAT
				 " to %" JSON_INTEGER_FORMAT,
				 field->name, number, (json_int_t)field->least,
				 (json_int_t)field->most);
	record_set_number(field, record, number);
	return 0;
}

int record_wrong(struct error *err, const char *name, const char *text, const char *wrong,
		 const char *hint)
{
	error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' %s", name, text, wrong);
	error_hint(err, "%s", hint);
	return -EXIT_CODE_USAGE;
}

static int text_take(const struct record_field *field, const json_t *value, void *record,
		     struct error *err)
{
	const char *text = json_string_value(value);

	if (!text)
		return RECORD_WRONG_TYPE;
	bool fits = field->type == RECORD_BORROWED || !field->size || strlen(text) < field->size;
	if (!fits || strlen(text) != json_string_length(value) ||
	    (field->valid && !field->valid(text))) {
		if (!field->wrong)
			return RECORD_WRONG_TYPE;
		return record_wrong(err, field->name, text, field->wrong, field->hint);
	}
	if (field->size)
		record_set_text(field, record, text);
	return 0;
}

static int word_take(const struct record_field *field, const json_t *value, void *record)
{
	const char *text = json_string_value(value);

	for (int i = 0; text && field->words[i]; i++)
		if (!strcmp(text, field->words[i])) {
			record_set_number(field, record, i);
			return 0;
		}
	return RECORD_WRONG_TYPE;
}

static bool is_texts(const json_t *value)
{
	size_t i;
	json_t *item;

	json_array_foreach((json_t *)value, i, item)
	{
		if (!json_is_string(item))
			return false;
	}
	return json_is_array(value);
}

int record_take_plain(const struct record_field *field, const json_t *value, void *record,
		      struct error *err)
{
	switch (field->type) {
	case RECORD_BOOL:
		record_set_number(field, record, json_is_true(value));
		return json_is_boolean(value) ? 0 : RECORD_WRONG_TYPE;
	case RECORD_REAL:
		*(double *)record_member(field, record) = json_number_value(value);
		return json_is_number(value) ? 0 : RECORD_WRONG_TYPE;
	case RECORD_TEXTS:
	case RECORD_OBJECT:
		*(const json_t **)record_member(field, record) = value;
		return (field->type == RECORD_OBJECT ? json_is_object(value) : is_texts(value))
			       ? 0
			       : RECORD_WRONG_TYPE;
	case RECORD_TEXT:
	case RECORD_BORROWED:
		return text_take(field, value, record, err);
	default:
		if (field->words)
			return word_take(field, value, record);
		return integer_take(field, value, record, err);
	}
}

int record_take(const struct record_field *field, const json_t *value, void *record,
		struct error *err)
{
	int rc = field->take ? field->take(value, record, err)
			     : record_take_plain(field, value, record, err);

	if (rc == RECORD_WRONG_TYPE)
		rc = error_set(err, EXIT_CODE_USAGE, "'%s' takes %s", field->name, field->takes);
	return rc == 0 && field->then ? field->then(record, err) : rc;
}

/* "there are NAME, NAME": ends with whole names, and with "..." where others have no room. */
static void names_list(const struct record_field *fields, size_t most, char *buf, size_t size)
{
	static const char more[] = ", ...";
	size_t used = (size_t)snprintf(buf, size, "there are ");

	for (size_t i = 0; i < most && fields[i].name; i++) {
		bool last = i + 1 == most || !fields[i + 1].name;
		size_t length = strlen(fields[i].name) + (i ? 2 : 0);

		if (used + length + (last ? 0 : strlen(more)) >= size) {
			snprintf(buf + used, size - used, "%s", more);
			return;
		}
		used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "",
					 fields[i].name);
	}
}

int record_unknown(const struct record_field *fields, size_t most, const char *what,
		   const char *path, const char *key, struct error *err)
{
	const char *dot = *path ? "." : "";
	char list[sizeof(err->hint)];
	struct suggestion near = {0};

	for (size_t i = 0; i < most && fields[i].name; i++)
		suggest_offer(&near, key, fields[i].name, strlen(fields[i].name));
	error_set(err, EXIT_CODE_USAGE, "unknown %s '%.64s%s%.64s'", what, path, dot, key);
	if (near.word) {
		error_hint(err, "did you mean '%.64s%s%s'?", path, dot, near.word);
	} else {
		names_list(fields, most, list, sizeof(list));
		error_hint(err, "%s", list);
	}
	return -EXIT_CODE_USAGE;
}

static int field_take(const struct record_field *field, const char *path, const json_t *value,
		      void *record, struct error *err)
{
	int rc = !field->fields          ? record_take(field, value, record, err)
		 : json_is_object(value) ? record_take_object(field->fields, path, value,
							      record_member(field, record), err)
					 : RECORD_WRONG_TYPE;

	/* The object's own error names the field in it. */
	if (rc < 0 && field->takes && !(field->fields && json_is_object(value)))
		return error_set(err, EXIT_CODE_USAGE, "%s takes %s", path, field->takes);
	return rc;
}

int record_take_object(const struct record_field *fields, const char *path, const json_t *object,
		       void *record, struct error *err)
{
	char name[RECORD_PATH_SIZE];
	const char *key;
	json_t *value;
	int rc = 0;

	json_object_foreach((json_t *)object, key, value)
	{
		const struct record_field *field = record_find(fields, key);

		snprintf(name, sizeof(name), "%s%s%s", path, *path ? "." : "", key);
		rc = field ? field_take(field, name, value, record, err)
			   : record_unknown(fields, SIZE_MAX, "key", path, key, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}
