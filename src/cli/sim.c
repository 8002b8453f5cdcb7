/* carve sim: hands over to the simulated host's own program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/isolation.h"
#include "cli/places.h"
#include "cli/slice_env.h"

#define SPEC_DEFAULT "h100-80gb"
/* What simhost is called in what it says: it takes its name from argv[0]. */
#define SIMHOST_NAME "carve sim"
/* Set for every program on a simulated host. */
#define ENV_SIM_HOST "SIMGPU_HOST"

/* Only returns where it failed. */
static int simhost_exec(const struct places *places, char **argv, struct error *err)
{
	execv(places->simhost, argv);
	error_set(err, EXIT_CODE_FAILED, "cannot start %.300s: %s", places->simhost,
		  strerrordesc_np(errno));
	error_hint(err, "the simulated driver is built and installed with carve");
	return -EXIT_CODE_FAILED;
}

/* On a simulated host already: the command joins it. */
static int command_exec(char **command, struct error *err)
{
	execvp(command[0], command);
	int code = errno == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_NOT_EXECUTABLE;

	return error_set(err, code, "%.400s: %s", *command[0] ? command[0] : "''",
			 code == EXIT_CODE_NOT_FOUND ? "command not found"
						     : strerrordesc_np(errno));
}

/* words, arguments, NULL. */
static char **argv_make(const char *const *words, size_t count, char **arguments,
			size_t argument_count)
{
	char **argv = calloc(count + argument_count + 1, sizeof(*argv));

	for (size_t i = 0; argv && i < count; i++)
		argv[i] = (char *)words[i];
	for (size_t i = 0; argv && i < argument_count; i++)
		argv[count + i] = arguments[i];
	return argv;
}

int cli_sim_tool(struct cli *cli, struct error *err)
{
	/* --json may have stood before the verb. */
	const char *const words[] = {SIMHOST_NAME, strchr(cli->verb->name, ' ') + 1, "--json"};
	size_t count = cli->value[OPT_JSON] ? 3 : 2;
	struct places places;
	int rc = places_find(&places, err);

	if (rc < 0)
		return rc;
	cleanup_free char **argv =
		argv_make(words, count, cli->arguments, (size_t)cli->argument_count);
	if (!argv)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	return simhost_exec(&places, argv, err);
}

static int models_list(const struct cli *cli, const struct places *places, struct error *err)
{
	char *argv[] = {SIMHOST_NAME, "list", cli->value[OPT_JSON] ? "--json" : NULL, NULL};

	return simhost_exec(places, argv, err);
}

/* The simulated driver lies beside simhost. */
static int sim_slice_leave(const struct places *places, struct error *err)
{
	char cuda[PATH_MAX], nvml[PATH_MAX];
	int length = (int)(strrchr(places->simhost, '/') - places->simhost);

	snprintf(cuda, sizeof(cuda), "%.*s/libcuda.so.1", length, places->simhost);
	snprintf(nvml, sizeof(nvml), "%.*s/libnvidia-ml.so.1", length, places->simhost);
	return isolation_leave(cuda, nvml, err);
}

int cli_sim(struct cli *cli, struct error *err)
{
	const char *spec = cli->value[OPT_SIM_GPUS], *version = cli->value[OPT_SIM_DRIVER];
	const char *words[10] = {SIMHOST_NAME, "run",
				 "--gpus",     spec ? spec : SPEC_DEFAULT,
				 "--env",      "CARVE_RUNTIME_DIR={host}/carve"};
	size_t count = 6;
	char *shell[] = {getenv("SHELL"), NULL};
	struct places places;
	int rc = places_find(&places, err);

	if (rc < 0)
		return rc;
	if (cli->value[OPT_SIM_LIST])
		return models_list(cli, &places, err);
	if (!shell[0] || !*shell[0])
		shell[0] = "/bin/sh";
	char **command = cli->argument_count ? cli->arguments : shell;
	if (getenv(ENV_SIM_HOST) && !spec && !version)
		return command_exec(command, err);
	if (version) {
		words[count++] = "--driver";
		words[count++] = version;
	}
	words[count++] = "--";
	/* The new host's programs find its own daemon, and are in no slice yet. */
	unsetenv("CARVE_HOST");
	slice_env_leave(&places);
	if ((rc = sim_slice_leave(&places, err)) < 0)
		return rc;
	cleanup_free char **argv = argv_make(words, count, command,
					     cli->argument_count ? (size_t)cli->argument_count : 1);
	if (!argv)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	return simhost_exec(&places, argv, err);
}
