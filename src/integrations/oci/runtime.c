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
#include "integrations/oci/config.h"
#include "integrations/oci/message.h"
#include "integrations/oci/session.h"
#include "integrations/oci/state.h"

struct runtime {
	const char *program;
	json_t *environment;   /* the hook's; owned */
	char **arguments;      /* those of the runtime proper, from its name on */
	const char *container; /* its ID, the last of them */
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

/* ---- the container's configuration ------------------------------------------------------- */

static int text_read(const char *path, char **ret, size_t *ret_size, mode_t *ret_mode,
		     struct error *err)
{
	struct stat st;
	int rc = stat(path, &st) < 0                                   ? -errno
		 : S_ISREG(st.st_mode) && st.st_size <= OCI_CONFIG_MAX ? 0
								       : -EINVAL;

	*ret = rc == 0 ? malloc((size_t)st.st_size + 1) : NULL;
	ssize_t n = *ret ? file_read(path, *ret, (size_t)st.st_size + 1) : rc < 0 ? rc : -ENOMEM;
	*ret_size = n < 0 ? 0 : (size_t)n;
	*ret_mode = st.st_mode & 0777;
	return n < 0 ? error_set(err, EXIT_CODE_FAILED, "cannot read %.300s: %s", path,
				 strerrordesc_np((int)-n))
		     : 0;
}

static int config_edit(const struct runtime *r, const char *bundle, struct error *err)
{
	struct oci_container container = {0};
	struct oci_session session = {0};
	char path[PATH_MAX], temporary[PATH_MAX];
	cleanup_free char *text = NULL;
	size_t size;
	mode_t mode;

	if (!realpath(bundle, container.bundle) ||
	    snprintf(path, sizeof(path), "%s/config.json", container.bundle) >= (int)sizeof(path) ||
	    snprintf(temporary, sizeof(temporary), "%s/.config.json.carve", container.bundle) >=
		    (int)sizeof(temporary))
		return error_set(err, EXIT_CODE_FAILED, "cannot read %.300s: %s", bundle,
				 strerrordesc_np(errno ? errno : ENAMETOOLONG));
	int rc = text_read(path, &text, &size, &mode, err);
	if (rc < 0)
		return rc;
	snprintf(container.id, sizeof(container.id), "%s", r->container);
	json_t *wanted = NULL, *config = oci_config_load(text, size);
	rc = oci_config_parse(config, &container, err);
	if (rc == 0)
		rc = oci_config_wanted(&container, config, &session, &wanted, err);
	if (rc == 0 && wanted)
		rc = oci_config_session(&session, wanted, err);
	json_decref(wanted);
	if (rc == 0)
		rc = oci_config_add(r->environment, &session, &text, &size, err);
	if (rc == 0 && (rc = file_replace(path, temporary, text, size, mode)) < 0)
		rc = error_set(err, EXIT_CODE_FAILED, "cannot write %.300s: %s", path,
			       strerrordesc_np(-rc));
	if (rc < 0)
		oci_session_give(&session);
	oci_container_clear(&container);
	json_decref(session.json);
	json_decref(config);
	return rc;
}

/* Its work for carve is done with the hook's environment, not with that of docker's daemon. */
static int config_edit_as_hook(const struct runtime *r, const char *bundle, struct error *err)
{
	size_t count = json_array_size(r->environment);
	char **before = environ, **own = calloc(count + 1, sizeof(*own));

	if (!own)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	for (size_t i = 0; i < count; i++)
		own[i] = (char *)json_string_value(json_array_get(r->environment, i));
	environ = own;
	int rc = config_edit(r, bundle, err);
	environ = before;
	free(own);
	return rc;
}

/* The engine shows what is in the file that it names for the runtime's messages. */
static void error_log(char **arguments, const struct error *err)
{
	const char *path = NULL;
	char words[OCI_ERROR_LINE_SIZE];

	oci_error_line(err, words);
	for (char **at = arguments + 1; *at; at++)
		if (!strncmp(*at, "--log=", 6))
			path = *at + 6;
		else if (!strcmp(*at, "--log") && at[1])
			path = *++at;
	cleanup_close int fd =
		path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)
		     : -1;
	json_t *line = json_pack("{s:s, s:o}", "level", "error", "msg",
				 json_sprintf("carve-hook: %s", words));
	char *text = json_dumps(line, JSON_COMPACT);

	if (fd >= 0 && text)
		dprintf(fd, "%s\n", text);
	free(text);
	json_decref(line);
	fprintf(stderr, "carve-hook: %s\n", words);
}

/* ---- the command line -------------------------------------------------------------------- */

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
	r->container = argv[argc - 1];
	return 0;
}

int oci_runtime(int argc, char **argv)
{
	struct runtime r = {.environment = json_array()};
	struct error err = {0};
	int code = arguments_read(&r, argc, argv);
	const char *bundle = code ? NULL : bundle_of(r.arguments);

	if (bundle && config_edit_as_hook(&r, bundle, &err) < 0) {
		error_log(r.arguments, &err);
		code = err.code > 0 ? err.code : EXIT_CODE_FAILED;
	}
	json_decref(r.environment);
	if (code)
		return code;
	/* Only what is done for carve has to end in time. */
	alarm(0);
	execvp(r.program, r.arguments);
	return fail("cannot execute", r.program, errno);
}
