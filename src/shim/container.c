#include "shim/container.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "container/container_args.h"
#include "container/container_find.h"
#include "proto/shim.h"
#include "shim/record.h"
#include "shim/spec.h"

void shim_program_find(const char *name, char ret[static PATH_MAX])
{
	static const char *const places[] = {"", "../../../bin/", "../../bin/"};
	char dir[PATH_MAX];

	if (executable_dir(dir, sizeof(dir)) == 0)
		for (size_t i = 0; i < ARRAY_SIZE(places); i++)
			if (snprintf(ret, PATH_MAX, "%s/%s%s", dir, places[i], name) < PATH_MAX &&
			    access(ret, X_OK) == 0)
				return;
	snprintf(ret, PATH_MAX, "%s", name);
}

/* The job's directory, by the same name. */
static void directory_add(struct words *words, const struct shim_spec *spec, bool is_apptainer)
{
	if (!*spec->text.cwd || !strcmp(spec->text.cwd, "/") || strpbrk(spec->text.cwd, ":,"))
		return;
	words_add(words, "--%s=%s:%s", is_apptainer ? "bind" : "volume", spec->text.cwd,
		  spec->text.cwd);
	words_add(words, "--%s=%s", is_apptainer ? "pwd" : "workdir", spec->text.cwd);
}

static void cid_file(const char *dir, const char *name, char ret[static PATH_MAX])
{
	if (snprintf(ret, PATH_MAX, "%s/%s" SHIM_CID, dir, name) >= PATH_MAX)
		ret[0] = '\0';
}

void shim_container_end(const char *dir, const char *name, bool stays)
{
	char path[PATH_MAX], id[128];
	struct error ignored;
	const char *runtime = container_runtime_find(&ignored);

	cid_file(dir, name, path);
	ssize_t n = runtime ? file_read(path, id, sizeof(id)) : -1;
	if (n <= 0)
		return;
	id[strcspn(id, "\n")] = '\0';
	if (stays)
		execlp(runtime, runtime, "stop", "-t", "0", id, NULL);
	else if (!strcmp(runtime, "podman"))
		execlp(runtime, runtime, "rm", "--force", "--time", "0", id, NULL);
	else
		execlp(runtime, runtime, "rm", "--force", id, NULL);
}

char **shim_container_argv(const struct shim_spec *spec, const struct record_place *place,
			   const char *session, struct error *err)
{
	struct words words = {0};
	char carve[PATH_MAX], cid[PATH_MAX];
	const char *slash = strrchr(spec->attach, '/'), *runtime = container_runtime_find(err);
	char **argv = shim_spec_argv(spec);
	size_t i;
	json_t *value;

	bool is_apptainer = runtime && !strcmp(runtime, "apptainer");

	if (!runtime)
		return NULL;
	if (!argv) {
		error_set(err, EXIT_CODE_RUN_FAILED, "out of memory");
		return NULL;
	}
	shim_program_find("carve", carve);
	words_add(&words, "%s", carve);
	words_add(&words, "%s", runtime);
	words_add(&words, is_apptainer ? "exec" : "run");
	words_add(&words, "--host=%.*s/carved.sock", (int)(slash ? slash - spec->attach : 0),
		  spec->attach);
	words_add(&words, "--session=%s", session);
	cid_file(place->dir, place->name, cid);
	record_file_remove(place, SHIM_CID); /* it is left from an attempt that was not begun */
	directory_add(&words, spec, is_apptainer);
	/* A container of apptainer's ends with its client, and has the job's environment. */
	if (!is_apptainer) {
		words_add(&words, "--rm");
		words_add(&words, "--cidfile=%s", cid);
		if (shim_spec_reads(spec))
			words_add(&words, "--interactive");
		shim_spec_environment(&words, spec);
	}
	json_array_foreach((json_t *)spec->text.container_args, i, value)
		words_add(&words, "%s", json_string_value(value));
	words_add(&words, "%s", spec->text.image);
	for (; *argv; argv++)
		words_add(&words, "%s", *argv);
	return words.list;
}
