#include "container/edits.h"

json_t *container_edits_new(void)
{
	return json_pack("{s:[], s:[], s:[]}", "env", "mounts", "deviceNodes");
}

static void mount_add(json_t *edits, const char *from, const char *to, const char *mode)
{
	if (*from)
		json_array_append_new(json_object_get(edits, "mounts"),
				      json_pack("{s:s, s:s, s:[s, s, s, s]}", "hostPath", from,
						"containerPath", to, "options", mode, "nosuid",
						"nodev", "bind"));
}

void container_edits_mount(json_t *edits, const char *from, const char *to)
{
	mount_add(edits, from, to, "ro");
}

void container_edits_mount_writable(json_t *edits, const char *from, const char *to)
{
	mount_add(edits, from, to, "rw");
}

void container_edits_env(json_t *edits, const char *name, const char *value)
{
	json_array_append_new(json_object_get(edits, "env"), json_sprintf("%s=%s", name, value));
}

void container_edits_node(json_t *edits, const char *path, unsigned mode)
{
	json_t *node = json_pack("{s:s}", "path", path);

	if (mode)
		json_object_set_new(node, "fileMode", json_integer(mode));
	json_array_append_new(json_object_get(edits, "deviceNodes"), node);
}

void container_edits_hook(json_t *edits, const char *program, const char *const *arguments,
			  json_t *environment)
{
	json_t *hook = json_pack("{s:s, s:s, s:[s], s:i, s:o*}", "hookName", "createRuntime",
				 "path", program, "args", "carve-hook", "timeout",
				 CONTAINER_HOOK_TIMEOUT_S, "env", environment);

	for (size_t i = 0; arguments[i]; i++)
		json_array_append_new(json_object_get(hook, "args"), json_string(arguments[i]));
	json_object_set_new(edits, "hooks", json_pack("[o]", hook));
}
