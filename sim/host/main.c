#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/macros.h"
#include "host/verbs.h"

static const struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} verbs[] = {
	{"run", verb_run, "run a command on a simulated host"},
	{"list", verb_list, "the GPU models that a host can be made of"},
	{"stat", verb_stat, "what each process of this host holds and ran"},
	{"trace", verb_trace, "who had the GPU when, and every change of memory"},
	{"fault", verb_fault, "make something fail"},
};

static void usage(FILE *f)
{
	fprintf(f, "usage: %s VERB [OPTIONS]\n\n", verb_program());
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		fprintf(f, "  %-8s %s\n", verbs[i].name, verbs[i].help);
	fprintf(f,
		"\n%s VERB --help says more; e.g. %s run --gpus h100-80gb:2 -- "
		"nvidia-smi\n",
		verb_program(), verb_program());
}

const char *verb_program(void)
{
	return program_invocation_short_name;
}

int verb_help(const char *text)
{
	for (const char *mark; (mark = strstr(text, "{}")); text = mark + 2)
		printf("%.*s%s", (int)(mark - text), text, verb_program());
	fputs(text, stdout);
	return EXIT_CODE_OK;
}

bool verb_wants_json(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strcmp(argv[i], "--json"))
			return true;
	return false;
}

int verb_bad_option(char **argv, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "%s: bad option '%.100s'", argv[0], argv[optind - 1]);
	error_hint(err, "%s %s --help", verb_program(), argv[0]);
	return -EXIT_CODE_USAGE;
}

int verb_fail(const struct error *err, bool json)
{
	if (json) {
		json_t *o = json_pack("{s:{s:i, s:s, s:s}}", "error", "code", err->code, "message",
				      err->message, "hint", err->hint);

		json_dumpf(o, stderr, JSON_COMPACT);
		fputc('\n', stderr);
		json_decref(o);
		return err->code;
	}
	fprintf(stderr, "%s: %s%s%s\n", verb_program(), err->message, err->hint[0] ? "; " : "",
		err->hint);
	return err->code;
}

/* The exit code of a verb, unless what it printed is lost. */
static int printed(int code)
{
	struct error err = {0};

	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	error_set(&err, EXIT_CODE_FAILED, "cannot write to standard output: %s",
		  strerrordesc_np(errno));
	return code ? code : verb_fail(&err, false);
}

int main(int argc, char **argv)
{
	struct error err = {0};

	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(verbs); i++) {
		if (!strcmp(argv[1], verbs[i].name))
			return printed(verbs[i].run(argc - 1, argv + 1));
	}
	if (argc > 1 && !strcmp(argv[1], "--help")) {
		usage(stdout);
		return EXIT_CODE_OK;
	}
	if (argc > 1 && !strcmp(argv[1], "--version")) {
		puts("simhost " CARVE_VERSION);
		return EXIT_CODE_OK;
	}
	if (argc < 2) {
		usage(stderr);
		return EXIT_CODE_USAGE;
	}
	error_set(&err, EXIT_CODE_USAGE, "%s: no such verb", argv[1]);
	error_hint(&err, "one of run, list, stat, trace, fault");
	return verb_fail(&err, false);
}
