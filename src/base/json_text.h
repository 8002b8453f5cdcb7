/* A text of a JSON object. Of those who are linked with jansson. */
#pragma once

#include <jansson.h>

/* Of the object; "" where it has none of that name. */
static inline const char *json_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}
