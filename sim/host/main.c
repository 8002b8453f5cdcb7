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
	fputs("usage: simhost VERB [OPTIONS]\n\n", f);
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		fprintf(f, "  %-8s %s\n", verbs[i].name, verbs[i].help);
	fputs("\nsimhost VERB --help says more; e.g. simhost run --gpus h100-80gb:2 -- "
	      "nvidia-smi\n",
	      f);
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
	fprintf(stderr, "simhost: %s%s%s\n", err->message, err->hint[0] ? "; " : "", err->hint);
	return err->code;
}

int main(int argc, char **argv)
{
	struct error err = {0};

	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(verbs); i++) {
		if (!strcmp(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
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
