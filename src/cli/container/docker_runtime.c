#include "cli/container/docker_runtime.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "container/json_file.h"

#define FILE_NAME "daemon"
#define RUNTIME "carve"
#define DOCKERS_OWN "runc"

/* The argument after `option` in the list of ours. */
static const char *argument_find(const json_t *runtime, const char *option)
{
	json_t *list = json_object_get(runtime, "runtimeArgs"), *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		if (json_is_string(item) && !strcmp(json_string_value(item), option))
			return json_string_value(json_array_get(list, i + 1));
	}
	return NULL;
}

static int refuse(const char *dir, const char *what, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED, "%.200s/" FILE_NAME ".json: %s", dir, what);
	error_hint(err, "mend the file, or add the runtime by hand: "
			"/usr/share/doc/carve/user/containers.md has the lines");
	return -err->code;
}

/* 0 with *ret, owned by the caller. */
static int settings_read(const char *dir, json_t **ret, struct error *err)
{
	int rc = json_file_read(dir, FILE_NAME, ret, err);

	if (rc == -ENOENT)
		*ret = json_object();
	else if (rc < 0)
		return rc;
	const json_t *runtimes = json_object_get(*ret, "runtimes");
	const json_t *usual = json_object_get(*ret, "default-runtime");
	if (json_is_object(*ret) && (!runtimes || json_is_object(runtimes)) &&
	    (!usual || json_is_string(usual)))
		return 0;
	json_decref(*ret);
	return refuse(dir, "it is not as docker has it (runtimes, default-runtime)", err);
}

static json_t *runtime_make(const char *program, const char *proper, const char *usual,
			    const json_t *environment)
{
	json_t *arguments = json_pack("[s, s, s, s]", "--runtime", proper, "--default", usual);
	json_t *item;
	size_t i;

	json_array_foreach((json_t *)environment, i, item)
	{
		json_array_append_new(arguments, json_string("--env"));
		json_array_append(arguments, item);
	}
	json_array_append_new(arguments, json_string("--"));
	return json_pack("{s:s, s:o}", "path", program, "runtimeArgs", arguments);
}

int docker_runtime_install(const char *dir, const char *program, const json_t *environment,
			   struct error *err)
{
	json_t *settings;
	int rc = settings_read(dir, &settings, err);

	if (rc < 0)
		return rc;
	json_t *runtimes = json_object_get(settings, "runtimes");
	if (!runtimes)
		json_object_set_new(settings, "runtimes", runtimes = json_object());
	const json_t *before = json_object_get(runtimes, RUNTIME);
	const char *usual = json_string_value(json_object_get(settings, "default-runtime"));
	const char *proper = DOCKERS_OWN;

	/* Once more: what stands behind stays. */
	if (usual && !strcmp(usual, RUNTIME))
		usual = argument_find(before, "--default");
	usual = usual ? usual : DOCKERS_OWN;
	if (strcmp(usual, DOCKERS_OWN) != 0)
		proper = json_string_value(
			json_object_get(json_object_get(runtimes, usual), "path"));
	if (!proper) {
		json_decref(settings);
		return refuse(dir, "its default-runtime has no path among its runtimes", err);
	}
	json_object_set_new(runtimes, RUNTIME, runtime_make(program, proper, usual, environment));
	json_object_set_new(settings, "default-runtime", json_string(RUNTIME));
	rc = json_file_write(dir, FILE_NAME, settings, 0644, err);
	json_decref(settings);
	return rc;
}

int docker_runtime_remove(const char *dir, struct error *err)
{
	json_t *settings;
	int rc = settings_read(dir, &settings, err);

	if (rc < 0)
		return rc;
	json_t *runtimes = json_object_get(settings, "runtimes");
	const char *now = json_string_value(json_object_get(settings, "default-runtime"));
	const char *usual = argument_find(json_object_get(runtimes, RUNTIME), "--default");

	if (now && !strcmp(now, RUNTIME)) {
		if (usual && strcmp(usual, DOCKERS_OWN) != 0)
			json_object_set_new(settings, "default-runtime", json_string(usual));
		else
			json_object_del(settings, "default-runtime");
	}
	if (!json_object_get(runtimes, RUNTIME)) {
		rc = 1;
	} else {
		json_object_del(runtimes, RUNTIME);
		if (!json_object_size(runtimes))
			json_object_del(settings, "runtimes");
		rc = json_file_write(dir, FILE_NAME, settings, 0644, err);
	}
	json_decref(settings);
	return rc;
}
