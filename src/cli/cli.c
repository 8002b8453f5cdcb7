#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/help.h"
#include "cli/notice.h"
#include "cli/output.h"

static int version_print(const struct cli *cli, struct error *err)
{
	if (cli->value[OPT_JSON]) {
		json_t *version = json_pack("{s:s}", "version", CARVE_VERSION);
		int rc = output_json(version, err);

		json_decref(version);
		return rc;
	}
	printf("carve %s\n", CARVE_VERSION);
	return 0;
}

static int cli_act(struct cli *cli, int argc, char **argv, struct error *err)
{
	int rc = cli_parse(cli, argc, argv, err);

	if (rc < 0)
		return rc;
	if (cli->value[OPT_HELP]) {
		help_print(cli->verb, cli->group);
		return 0;
	}
	if (!cli->verb)
		return version_print(cli, err);
	notice_show_once(cli);
	return cli->verb->run(cli, err);
}

/* Fields that have another name than their option. */
static const char *field_of(const struct cli_option *option)
{
	switch (option->id) {
	case OPT_JOB_DOCKER:
		return "image";
	case OPT_JOB_DOCKER_ARG:
		return "container_args";
	default:
		return option->name;
	}
}

/* The daemon has the bytes of a size, and does not know whether a unit was written. */
static void unit_hint_drop(const struct cli *cli, struct error *err)
{
	const char *text = cli->value[OPT_VRAM] ? cli->value[OPT_VRAM] : cli->value[OPT_GPU_MEMORY];

	if (text && !units_is_bare(text) &&
	    !strncmp(err->hint, UNITS_BARE_HINT, strlen(UNITS_BARE_HINT)))
		*err->hint = '\0';
}

void cli_error_name_option(const struct cli *cli, struct error *err)
{
	unit_hint_drop(cli, err);
	char field[32], rest[sizeof(err->message)];

	for (const struct cli_option *o = cli_options; o->name; o++) {
		const char *name = field_of(o);
		size_t length = strlen(name);

		if (!cli->value[o->id] || length >= sizeof(field))
			continue;
		for (size_t i = 0; i <= length; i++)
			field[i] = (char)(name[i] == '-' ? '_' : name[i]);
		if (strncmp(err->message, field, length) != 0 || err->message[length] != ':')
			continue;
		snprintf(rest, sizeof(rest), "%s", err->message + length);
		snprintf(err->message, sizeof(err->message), "--%s%.*s", o->name,
			 (int)(sizeof(err->message) - sizeof("--") - strlen(o->name)), rest);
		return;
	}
}

static int cli_run_words(struct cli *cli, int argc, char **argv)
{
	struct error err = {0};
	int rc = cli_act(cli, argc, argv, &err);

	if (fflush(stdout) == EOF && rc >= 0)
		rc = error_set(&err, EXIT_CODE_FAILED, "cannot write to standard output: %s",
			       strerrordesc_np(errno));
	if (rc >= 0)
		return rc;
	cli_error_name_option(cli, &err);
	output_error(&err, cli->value[OPT_JSON]);
	/* Below it stands the command's own status, which must not look like ours. */
	bool launches =
		cli->verb && (cli->verb->run == cli_run || cli->verb->run == cli_podman ||
			      cli->verb->run == cli_docker || cli->verb->run == cli_apptainer);

	return launches && err.code < EXIT_CODE_RUN_FAILED ? EXIT_CODE_RUN_FAILED : err.code;
}

int cli_main(int argc, char **argv)
{
	struct cli cli = {0};
	int status = cli_run_words(&cli, argc, argv);

	free(cli.words);
	return status;
}
