/* carve kubernetes ...: carve-kubernetes, beside carve, does it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/help.h"

#define PROGRAM "carve-kubernetes"

int cli_kubernetes(struct cli *cli, struct error *err)
{
	char path[PATH_MAX];
	cleanup_free char **argv = calloc((size_t)cli->argument_count + 4, sizeof(*argv));
	size_t count = 0;
	int rc = executable_beside(PROGRAM, path, sizeof(path));

	if (cli->arguments[0] && !strcmp(cli->arguments[0], "--help")) {
		help_print(cli->verb, NULL);
		return 0;
	}
	if (!argv)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	if (rc == 0) {
		argv[count++] = path;
		argv[count++] = strchr(cli->verb->name, ' ') + 1;
		/* --json may have stood before the verb. */
		if (cli->value[OPT_JSON])
			argv[count++] = (char *)"--json";
		for (int i = 0; i < cli->argument_count; i++)
			argv[count++] = cli->arguments[i];
		execv(path, argv);
		rc = -errno;
	}
	// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): freed by its cleanup
	return error_set(err, EXIT_CODE_FAILED, "cannot execute carve-kubernetes: %s",
			 strerrordesc_np(-rc));
}
