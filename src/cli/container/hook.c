/* carve hook install, remove: a file by which podman (and CRI-O) have carve-hook, the OCI hook, run
 * for every container. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/container/docker_runtime.h"
#include "cli/container/hook.h"
#include "client/client.h"
#include "container/edits.h"
#include "container/json_file.h"

#define HOOK_FILE_DEVICES HOOK_FILE "-devices"
#define HOOKS_DIR "/usr/share/containers/oci/hooks.d"
#define PROGRAM "carve-hook"

/* On a simulated host the directory is that host's: in the system's, every container of the real
 * host would look for a daemon of GPUs that are not there. */
static int directory_of(const struct cli *cli, char ret[static PATH_MAX], struct error *err)
{
	const char *given = cli->value[OPT_HOOKS_DIR], *host = secure_getenv("SIMGPU_HOST");
	bool simulated = !given && host && *host == '/';

	if (given && !*given)
		return error_set(err, EXIT_CODE_USAGE, "--hooks-dir: the path is empty");
	if (snprintf(ret, PATH_MAX, "%s%s",
		     simulated ? host
		     : given   ? given
			       : HOOKS_DIR,
		     simulated ? "/hooks.d" : "") >= PATH_MAX)
		return error_set(err, EXIT_CODE_USAGE, "--hooks-dir: the path is too long");
	return 0;
}

static void simulated_tell(const struct cli *cli, const char *dir)
{
	if (!cli->value[OPT_HOOKS_DIR] && strcmp(dir, HOOKS_DIR) != 0)
		fprintf(stderr,
			"carve: note: this is a simulated host, so its hooks are in its own "
			"directory: podman --hooks-dir %s run ...\n",
			dir);
}

json_t *hook_environment(const struct cli *cli)
{
	static const char *const kept[] = {"CARVE_RUNTIME_DIR", "XDG_RUNTIME_DIR", "SIMGPU_HOST"};
	json_t *list = json_array();
	const char *host =
		cli->value[OPT_HOST] ? cli->value[OPT_HOST] : secure_getenv("CARVE_HOST");
	const char *libraries = secure_getenv("LD_LIBRARY_PATH");

	if (host)
		json_array_append_new(list, json_sprintf("CARVE_HOST=%s", host));
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		const char *value = secure_getenv(kept[i]);

		if (value && *value)
			json_array_append_new(list, json_sprintf("%s=%s", kept[i], value));
	}
	/* The directory of a simulated host's driver. */
	if (secure_getenv("SIMGPU_HOST") && libraries)
		json_array_append_new(list, json_sprintf("LD_LIBRARY_PATH=%s", libraries));
	return list;
}

/* mkdir -p. 0 or -errno. */
static int directories_make(const char *dir)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s", dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	for (char *at = path + 1; *at; at++) {
		if (*at != '/')
			continue;
		*at = '\0';
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return -errno;
		*at = '/';
	}
	return mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

int hook_program(char path[static PATH_MAX], struct error *err)
{
	int rc = executable_beside(PROGRAM, path, PATH_MAX);

	if (rc == 0)
		rc = access(path, X_OK) < 0 ? -errno : 0;
	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "carve-hook is not beside carve: %s",
				  strerrordesc_np(-rc))
		      : 0;
}

json_t *hook_file(const char *stage, const char *const *arguments, const struct cli *cli,
		  struct error *err)
{
	char program[PATH_MAX];

	if (hook_program(program, err) < 0)
		return NULL;
	json_t *json = json_pack("{s:s, s:{s:s, s:[s], s:o, s:i}, s:{s:b}, s:[s]}", "version",
				 "1.0.0", "hook", "path", program, "args", "carve-hook", "env",
				 hook_environment(cli), "timeout", CONTAINER_HOOK_TIMEOUT_S, "when",
				 "always", 1, "stages", stage);
	for (size_t i = 0; arguments[i]; i++)
		json_array_append_new(json_object_get(json_object_get(json, "hook"), "args"),
				      json_string(arguments[i]));
	return json;
}

static int docker_install(struct cli *cli, const char *dir, struct error *err)
{
	char program[PATH_MAX];
	int rc = hook_program(program, err);

	if (rc < 0)
		return rc;
	cleanup_json json_t *environment = hook_environment(cli);
	rc = docker_runtime_install(dir, program, environment, err);
	if (rc == 0)
		printf("%s/daemon.json: docker's containers with a label carve.vram=8GiB get a "
		       "slice, after `systemctl reload docker`\n",
		       dir);
	return rc;
}

static int docker_remove(const char *dir, struct error *err)
{
	int rc = docker_runtime_remove(dir, err);

	if (rc > 0)
		printf("%s/daemon.json has no runtime of carve's\n", dir);
	else if (rc == 0)
		printf("%s/daemon.json: carve's runtime is removed, after `systemctl reload "
		       "docker`\n",
		       dir);
	return MIN(rc, 0);
}

/* CRI-O refuses to start where a hook has podman's own stage, and reads podman's directories. */
static bool podman_is_alone(const struct cli *cli)
{
	static const char *const programs[] = {"/usr/bin/crio", "/usr/local/bin/crio"};

	return cli->value[OPT_HOOKS_DIR] ||
	       (access(programs[0], F_OK) < 0 && access(programs[1], F_OK) < 0);
}

/* With version 2 of cgroups device nodes have to be in a container's configuration. */
static int devices_install(const char *dir, const struct cli *cli, struct error *err)
{
	const char *const arguments[] = {"--precreate", NULL};
	cleanup_json json_t *json = hook_file("precreate", arguments, cli, err);

	return json ? json_file_write(dir, HOOK_FILE_DEVICES, json, 0644, err) : -err->code;
}

/* The directory of docker's configuration is given, or that of hooks. */
static int directories_check(const struct cli *cli, struct error *err)
{
	const char *docker = cli->value[OPT_DOCKER_DIR];

	if (docker && cli->value[OPT_HOOKS_DIR])
		return error_set(
			err, EXIT_CODE_USAGE,
			"--hooks-dir and --docker-dir are both given: leave one of them out");
	if (docker && !*docker) {
		error_set(err, EXIT_CODE_USAGE, "--docker-dir: the path is empty");
		error_hint(err, "for example: --docker-dir /etc/docker");
		return -EXIT_CODE_USAGE;
	}
	return 0;
}

int cli_hook_install(struct cli *cli, struct error *err)
{
	if (directories_check(cli, err) < 0)
		return -EXIT_CODE_USAGE;
	if (cli->value[OPT_DOCKER_DIR])
		return docker_install(cli, cli->value[OPT_DOCKER_DIR], err);
	char dir[PATH_MAX];
	const char *const none[] = {NULL};
	int rc = directory_of(cli, dir, err);

	if (rc < 0)
		return rc;
	if ((rc = directories_make(dir)) < 0) {
		error_set(err, rc == -EACCES ? EXIT_CODE_NOT_PERMITTED : EXIT_CODE_FAILED,
			  "cannot make %.300s: %s", dir, strerrordesc_np(-rc));
		error_hint(err, "name a directory of your own with --hooks-dir, and give it to "
				"podman --hooks-dir, too");
		return -err->code;
	}
	cleanup_json json_t *json = hook_file(HOOK_STAGE, none, cli, err);
	rc = json ? json_file_write(dir, HOOK_FILE, json, 0644, err) : -err->code;
	if (rc == 0 && podman_is_alone(cli))
		rc = devices_install(dir, cli, err);
	if (rc == 0) {
		printf("%s/" HOOK_FILE ".json: containers with carve.vram=8GiB get a slice\n", dir);
		simulated_tell(cli, dir);
	}
	return rc;
}

int cli_hook_remove(struct cli *cli, struct error *err)
{
	if (directories_check(cli, err) < 0)
		return -EXIT_CODE_USAGE;
	if (cli->value[OPT_DOCKER_DIR])
		return docker_remove(cli->value[OPT_DOCKER_DIR], err);
	char dir[PATH_MAX], path[PATH_MAX];
	int found = directory_of(cli, dir, err);

	if (found < 0)
		return found;
	snprintf(path, sizeof(path), "%.4000s/" HOOK_FILE ".json", dir);
	bool was_there = access(path, F_OK) == 0;
	int rc = json_file_remove(dir, HOOK_FILE, err);

	if (rc == 0)
		rc = json_file_remove(dir, HOOK_FILE_DEVICES, err);
	if (rc == 0)
		printf("%s%s\n", path, was_there ? ": removed" : " is not there");
	return rc;
}
