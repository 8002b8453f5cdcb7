#include "container/cdi.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define CDI_VERSION "0.5.0"
#define SUFFIX ".json"

bool cdi_name_valid(const char *name)
{
	size_t length = strlen(name);

	if (!length || length > CDI_NAME_MAX || !isalnum((unsigned char)name[0]) ||
	    !isalnum((unsigned char)name[length - 1]))
		return false;
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)name[i] > 127 ||
		    (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i])))
			return false;
	return true;
}

json_t *cdi_spec(const char *kind, json_t *devices, json_t *edits)
{
	json_t *spec = json_pack("{s:s, s:s, s:o}", "cdiVersion", CDI_VERSION, "kind", kind,
				 "devices", devices);

	if (edits && json_object_set_new(spec, "containerEdits", edits) < 0) {
		json_decref(spec);
		return NULL;
	}
	return spec;
}

json_t *cdi_device(const char *name, json_t *edits)
{
	return json_pack("{s:s, s:o}", "name", name, "containerEdits", edits);
}

static bool file_name(const char *file, const char *prefix, char ret[static CDI_NAME_MAX + 1])
{
	size_t length = strlen(file), before = strlen(prefix), suffix = strlen(SUFFIX);

	if (length <= before + suffix || length - before - suffix > CDI_NAME_MAX ||
	    strncmp(file, prefix, before) != 0 || strcmp(file + length - suffix, SUFFIX) != 0)
		return false;
	snprintf(ret, CDI_NAME_MAX + 1, "%.*s", (int)(length - before - suffix), file + before);
	return cdi_name_valid(ret);
}

bool cdi_file_session(const char *file, char ret[static CDI_NAME_MAX + 1])
{
	return file_name(file, CDI_SLICE_FILE, ret);
}

bool cdi_file_named(const char *file, char ret[static CDI_NAME_MAX + 1])
{
	return file_name(file, CDI_NAMED_FILE, ret);
}
