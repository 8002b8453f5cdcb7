/* A text of a JSON object. For programs that are linked with jansson. */
#pragma once

#include <jansson.h>

/* The object's text of that name; "" where it has none. */
static inline const char *json_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}
