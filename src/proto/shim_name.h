/* A job's name. The daemon shows it, and the shim sets it in the job's environment. */
#pragma once

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define SHIM_NAME_SIZE 64

/* Takes the name that the text of a job says, and else makes one of its command's, whose bytes that
 * no name may have become '_'. "": it has no command either. */
static inline void shim_name_choose(const json_t *text, char ret[static SHIM_NAME_SIZE])
{
	const char *name = json_string_value(json_object_get(text, "name"));
	const char *command = json_string_value(json_array_get(json_object_get(text, "argv"), 0));
	const char *slash = command ? strrchr(command, '/') : NULL;

	if (!name)
		name = slash && slash[1] ? slash + 1 : command;
	snprintf(ret, SHIM_NAME_SIZE, "%s", name ? name : "");
	for (char *at = ret; *at; at++)
		if ((unsigned char)*at <= ' ' || *at == '/' || *at == 127)
			*at = '_';
}
