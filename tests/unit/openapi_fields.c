/* Prints the fields of requests, as the tables that read them have them, for scripts/openapi: a
 * JSON object of schemas, each an object of fields. A field is null where its schema is written by
 * hand. */
#include <jansson.h>
#include <stdio.h>

#include "base/record_json.h"
#include "daemon/queue/job.h"
#include "daemon/request/request.h"
#include "proto/job_text.h"

static json_t *integer_json(const struct record_field *field)
{
	json_t *json = json_pack("{s:s}", "type", "integer");

	if (field->least || field->most) {
		json_object_set_new(json, "minimum", json_integer((json_int_t)field->least));
		json_object_set_new(json, "maximum", json_integer((json_int_t)field->most));
	}
	return json;
}

static json_t *words_json(const struct record_field *field)
{
	json_t *words = json_array();

	for (size_t i = 0; field->words[i]; i++)
		json_array_append_new(words, json_string(field->words[i]));
	return json_pack("{s:s, s:o}", "type", "string", "enum", words);
}

static json_t *field_json(const struct record_field *field)
{
	if (field->words)
		return words_json(field);
	switch (field->type) {
	case RECORD_BOOL:
		return json_pack("{s:s}", "type", "boolean");
	case RECORD_REAL:
		return json_pack("{s:s}", "type", "number");
	case RECORD_TEXT:
	case RECORD_BORROWED:
		return json_pack("{s:s}", "type", "string");
	case RECORD_TEXTS:
		return json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "string");
	case RECORD_OBJECT:
		return json_pack("{s:s}", "type", "object");
	case RECORD_SEVERAL:
		return json_null();
	default:
		return integer_json(field);
	}
}

static json_t *table_add(json_t *to, const struct record_field *fields)
{
	for (; fields->name; fields++)
		json_object_set_new(to, fields->name, field_json(fields));
	return to;
}

int main(void)
{
	json_t *job = table_add(table_add(json_object(), job_text_fields), job_spec_fields);
	json_t *all = json_pack("{s:o, s:o}", "Request", table_add(json_object(), request_fields),
				"JobRequest", job);

	json_dumpf(all, stdout, JSON_INDENT(1));
	json_decref(all);
	return 0;
}
