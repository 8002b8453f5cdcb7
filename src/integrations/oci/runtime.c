#include "integrations/oci/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "container/edits.h"
#include "integrations/oci/splice.h"
#include "integrations/oci/state.h"

struct runtime {
	const char *program;
	json_t *environment; /* of the hook; owned */
	char **arguments;    /* of the runtime proper, from its name on */
};

static int fail(const char *what, const char *of, int error)
{
	fprintf(stderr, "carve-hook: %s %s: %s\n", what, of, strerrordesc_np(error));
	return EXIT_CODE_FAILED;
}

/* The container's directory where the arguments make a new one; NULL: they do not. */
static const char *bundle_of(char **arguments)
{
	const char *bundle = ".";
	bool makes = false;

	for (char **at = arguments + 1; *at; at++) {
		if (!strncmp(*at, "--bundle=", 9))
			bundle = *at + 9;
		else if ((!strcmp(*at, "--bundle") || !strcmp(*at, "-b")) && at[1])
			bundle = *++at;
		else
			makes = makes || !strcmp(*at, "create") || !strcmp(*at, "run");
	}
	return makes ? bundle : NULL;
}

static char *hook_text(const struct runtime *r)
{
	char program[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	program[n < 0 ? 0 : n] = '\0';
	json_t *hook = json_pack("{s:s, s:[s], s:O, s:i}", "path", program, "args", "carve-hook",
				 "env", r->environment, "timeout", CONTAINER_HOOK_TIMEOUT_S);
	char *text = hook ? json_dumps(hook, JSON_COMPACT) : NULL;

	json_decref(hook);
	return text;
}

static int config_edit(const struct runtime *r, const char *bundle)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	struct stat st;
	size_t size = 0;

	if (snprintf(path, sizeof(path), "%s/config.json", bundle) >= (int)sizeof(path) ||
	    snprintf(temporary, sizeof(temporary), "%s/.config.json.carve", bundle) >=
		    (int)sizeof(temporary))
		return fail("cannot read", bundle, ENAMETOOLONG);
	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > OCI_CONFIG_MAX)
		return fail("cannot read", path, errno ? errno : EINVAL);
	cleanup_free char *text = malloc((size_t)st.st_size + 1);
	ssize_t n = text ? file_read(path, text, (size_t)st.st_size + 1) : -ENOMEM;
	if (n < 0)
		return fail("cannot read", path, (int)-n);
	cleanup_free char *hook = hook_text(r);
	cleanup_free char *edited = hook ? oci_hook_splice(text, (size_t)n, hook, &size) : NULL;
	if (!edited)
		return fail("cannot add a hook to", path, EBADMSG);
	int rc = file_replace(path, temporary, edited, size, st.st_mode & 0777);
	return rc < 0 ? fail("cannot write", path, -rc) : 0;
}

static int usage(void)
{
	fputs("carve-hook: " OCI_RUNTIME_OPTION " RUNC [--default NAME] [--env NAME=VALUE]... -- "
	      "ARGUMENT...; see carve-hook --help\n",
	      stderr);
	return EXIT_CODE_USAGE;
}

/* 0, or the status to end with. */
static int arguments_read(struct runtime *r, int argc, char **argv)
{
	int at = 1;

	for (; at + 1 < argc && strcmp(argv[at], "--") != 0; at += 2) {
		if (!strcmp(argv[at], OCI_RUNTIME_OPTION))
			r->program = argv[at + 1];
		else if (!strcmp(argv[at], "--env"))
			json_array_append_new(r->environment, json_string(argv[at + 1]));
		else if (strcmp(argv[at], "--default") != 0)
			return usage();
	}
	if (!r->program || at >= argc || strcmp(argv[at], "--") != 0)
		return usage();
	argv[at] = (char *)r->program;
	r->arguments = argv + at;
	return 0;
}

int oci_runtime(int argc, char **argv)
{
	struct runtime r = {.environment = json_array()};
	int code = arguments_read(&r, argc, argv);
	const char *bundle = code ? NULL : bundle_of(r.arguments);

	if (bundle)
		code = config_edit(&r, bundle);
	json_decref(r.environment);
	if (code)
		return code;
	execvp(r.program, r.arguments);
	return fail("cannot execute", r.program, errno);
}
