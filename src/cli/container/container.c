/* carve podman run, carve docker run, carve apptainer exec: a slice, and the runtime's own `run`
 * with what makes the container's programs programs of that slice (container/layout.h). */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "cli/container/container_dir.h"
#include "cli/container/container_remote.h"
#include "cli/container/container_watch.h"
#include "cli/container/hook.h"
#include "cli/help.h"
#include "cli/session/run_choice.h"
#include "cli/session/session_grant.h"
#include "cli/session/slice_request.h"
#include "cli/split_unit.h"
#include "client/client.h"
#include "client/sessions.h"
#include "container/container_args.h"
#include "container/json_file.h"
#include "container/layout.h"
#include "container/wanted.h"
#include "proto/attach.h"
#include "slice/driver_find.h"
#include "slice/places.h"
#include "slice/slice_env.h"
#include "slice/slice_register.h"

#define SIM_HOST "SIMGPU_HOST"

struct container {
	const char *runtime, *verb; /* podman, run */
	char name[32];              /* "podman run" */
	enum container_syntax syntax;
	struct container_args args;
	struct places places;
	struct driver_libs driver;
	struct client client;
	struct run_choice choice;
	char dir[PATH_MAX]; /* the files that are written for the container; "": none yet */
	struct words command;
	struct words parsed; /* the words into which the session's options point */
	json_t *labels;      /* the request in the image's labels; NULL: they do not count */
};

/* ---- the container's options ------------------------------------------------------------- */

static bool is_apptainer(const struct container *c)
{
	return c->syntax == CONTAINER_SYNTAX_APPTAINER;
}

static int mount_option(struct container *c, const json_t *mount, struct error *err)
{
	const char *from = session_text(mount, "hostPath"),
		   *to = session_text(mount, "containerPath");
	const char *mode = json_string_value(json_array_get(json_object_get(mount, "options"), 0));

	if (strpbrk(from, ":,") || strpbrk(to, ":,"))
		return error_set(
			err, EXIT_CODE_RUN_FAILED,
			"%.300s: a path with ':' or ',' cannot be mounted into a container", from);
	words_add(&c->command, "--%s=%s:%s:%s", is_apptainer(c) ? "bind" : "volume", from, to,
		  mode);
	return 0;
}

/* The environment of a container of apptainer's is that of its command, and what has its prefix
 * there wins: also where --cleanenv is given. Its --env takes values apart at commas. */
static void variable_add(struct container *c, const char *variable)
{
	const char *equals = strchr(variable, '=');
	char name[128];

	if (!is_apptainer(c)) {
		words_add(&c->command, "--env=%s", variable);
		return;
	}
	snprintf(name, sizeof(name), "APPTAINERENV_%.*s", (int)(equals - variable), variable);
	setenv(name, equals + 1, 1);
}

static void node_add(struct container *c, const char *path)
{
	words_add(&c->command, "--%s=%s", is_apptainer(c) ? "bind" : "device", path);
}

/* The edits as the runtime's options. */
static int edits_add(struct container *c, const json_t *edits, struct error *err)
{
	json_t *entry;
	size_t i;
	int rc;

	json_array_foreach(json_object_get(edits, "mounts"), i, entry)
	{
		if ((rc = mount_option(c, entry, err)) < 0)
			return rc;
	}
	json_array_foreach(json_object_get(edits, "env"), i, entry)
		variable_add(c, json_string_value(entry));
	json_array_foreach(json_object_get(edits, "deviceNodes"), i, entry)
		node_add(c, session_text(entry, "path"));
	return 0;
}

static int slice_add(struct container *c, struct error *err)
{
	const struct container_slice slice = {
		.session = session_text(c->choice.session, "id"),
		.stamp = session_text(c->choice.session, "stamp"),
		.gpus = json_object_get(c->choice.session, "gpus"),
		.front_cuda = c->places.front_cuda,
		.front_nvml = c->places.front_nvml,
		.cuda = c->driver.cuda,
		.nvml = c->driver.nvml,
		.attach = c->client.attach,
		.files = c->dir,
		.simulated_host = secure_getenv(SIM_HOST),
	};
	cleanup_json json_t *edits = NULL;
	int rc = container_files_write(&slice, err);

	if (rc == 0)
		rc = container_slice_edits(&slice, &edits, err);
	if (rc == 0)
		return edits_add(c, edits, err);
	err->code = EXIT_CODE_RUN_FAILED;
	return -EXIT_CODE_RUN_FAILED;
}

/* ---- running it -------------------------------------------------------------------------- */

/* Whether the command line says which slice it is. */
static bool slice_is_named(const struct container *c)
{
	static const char *const names[] = {"--vram",        "--gpu-memory", "--gpu",
					    "--mig-profile", "--mig",        "--session"};

	for (size_t i = 0; i < c->args.slice.count; i++)
		for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
			size_t length = strlen(names[k]);
			const char *word = c->args.slice.list[i];

			if (!strncmp(word, names[k], length) &&
			    (word[length] == '\0' || word[length] == '='))
				return true;
		}
	return false;
}

/* As carve-hook does: an image's author chooses no session for whoever starts it. */
static int session_refuse(struct error *err)
{
	error_set(err, EXIT_CODE_NOT_PERMITTED,
		  CONTAINER_LABEL_SESSION ": an image names sizes, and no session");
	error_hint(err, "name one yourself: --session ID");
	return -err->code;
}

/* The image's labels as options: carve.gpu-compute=10% is --gpu-compute=10%. An image
 * that is not here yet has none. */
static int labels_add(struct container *c, struct error *err)
{
	const char *const inspect[] = {
		"image", "inspect", "--format", "{{json .Config.Labels}}", c->args.image[0], NULL};
	char text[16384];
	json_t *wanted = NULL, *value;
	const char *key;

	if (is_apptainer(c) || slice_is_named(c) ||
	    !runtime_ask(&(struct runtime){c->runtime, c->args.everywhere.list}, text, sizeof(text),
			 inspect))
		return 0;
	cleanup_json json_t *labels = json_loads(text, 0, NULL);
	const json_t *sources[] = {labels};
	int rc = container_wanted(sources, 1, &wanted, err);
	if (rc == 0 && json_object_get(wanted, "session"))
		rc = session_refuse(err);
	if (rc < 0 || !wanted) {
		json_decref(wanted);
		return rc;
	}
	c->labels = wanted;
	words_add(&c->args.slice, "--ephemeral");
	json_object_foreach(wanted, key, value)
	{
		char name[32];

		snprintf(name, sizeof(name), "%s", key);
		for (char *at = name; (at = strchr(at, '_'));)
			*at = '-';
		if (json_is_string(value))
			words_add(&c->args.slice, "--%s=%s", name, json_string_value(value));
		else if (json_is_true(value))
			words_add(&c->args.slice, "--%s", name);
	}
	return 0;
}

/* The words that `carve run` would have, so that they are read by the same code. */
static int options_read(struct container *c, struct cli *ret, struct error *err)
{
	struct words *words = &c->parsed;

	words_add(words, "carve");
	words_add(words, "run");
	for (size_t i = 0; i < c->args.slice.count; i++)
		words_add(words, "%s", c->args.slice.list[i]);
	words_add(words, "--");
	words_add(words, "%s", c->runtime);
	return cli_parse(ret, (int)words->count, words->list, err);
}

/* An option that only resembles one of carve's went to the runtime's: "--vrm 8". */
static void misspelt_hint(const struct container *c, struct error *err)
{
	for (size_t i = 0; i < c->args.options.count; i++) {
		struct suggestion near = {0};
		char word[64];
		const char *typed = c->args.options.list[i];

		/* It is docker's own. */
		if (strncmp(typed, "--", 2) != 0 || !strncmp(typed, "--gpus", 6))
			continue;
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(typed + 2, "="), typed + 2);
		for (size_t k = 0; container_args_own(k); k++)
			suggest_offer(&near, word, container_args_own(k),
				      strlen(container_args_own(k)));
		if (!near.word)
			continue;
		error_hint(err, "--%s is no option of carve's; did you mean --%.*s?", word,
			   (int)near.length, near.word);
		return;
	}
}

/* `--vram 4 GB IMAGE`: the unit would be taken for the image. */
static int image_check(const struct container *c, const struct cli *options, struct error *err)
{
	const char *image = c->args.image[0];
	char meant[SPLIT_UNIT_SIZE];

	if (!options->given_count || !split_unit_option(options, image, true, meant) ||
	    strcmp(c->args.image[-1], options->given[options->given_count - 1].value) != 0)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "%s: '%s' would be the image", c->name, image);
	error_hint(err, "did you mean %s?", meant);
	return -EXIT_CODE_USAGE;
}

static int session_choose(struct container *c, struct cli *cli, struct error *err)
{
	cleanup_request struct slice_request request = {0};
	struct cli options = {0};
	int rc = labels_add(c, err);

	/* carve's own refusals are JSON then; what the runtime says stays its own. */
	for (size_t i = 0; i < c->args.slice.count; i++)
		if (!strcmp(c->args.slice.list[i], "--json"))
			cli->value[OPT_JSON] = "";
	snprintf(c->name, sizeof(c->name), "%s %s", c->runtime, c->verb);
	c->choice.verb = c->name;
	c->choice.operands = "IMAGE CMD";
	if (rc < 0 || (rc = options_read(c, &options, err)) < 0 ||
	    (rc = image_check(c, &options, err)) < 0 ||
	    (rc = slice_request_read(&options, &request, err)) < 0 ||
	    (rc = client_open(&c->client, options.value[OPT_HOST], err)) < 0 ||
	    (rc = run_choose(&options, &c->client, &request, &c->choice, err)) < 0) {
		cli_error_name_option(&options, err);
		if (c->labels)
			container_error_name_label(c->labels, err);
		else if (!slice_is_named(c))
			misspelt_hint(c, err);
		return rc;
	}
	if (c->choice.one_off && isatty(STDERR_FILENO))
		session_grant_print(&options, stderr, "carve: ", c->choice.session);
	return 0;
}

static int become_runtime(struct container *c, struct error *err)
{
	execvp(c->runtime, c->command.list);
	if (errno != ENOENT)
		return error_set(err, EXIT_CODE_NOT_EXECUTABLE, "%s: %s", c->runtime,
				 strerrordesc_np(errno));
	error_set(err, EXIT_CODE_NOT_FOUND, "%s is not installed", c->runtime);
	error_hint(err, "install it, or use another runtime: carve podman, carve docker");
	return -EXIT_CODE_NOT_FOUND;
}

/* The session is given back where the container could not be begun, and its files go. */
static void give_up(struct container *c)
{
	if (*c->dir)
		container_dir_remove(c->dir);
	if (c->choice.one_off)
		session_give_back(&c->client, session_text(c->choice.session, "id"));
}

/* Root's containers may have other users, whom the daemon knows by the container's mount namespace.
 * The driver may limit the container's cgroup, too. So carve-hook tells the daemon of the
 * container, and waits, before anything runs in there. As for podman, it reads its usual
 * directories of hooks only if they are named as well. */
static int hook_add(struct container *c, const struct cli *cli, struct error *err)
{
	static const char *const usual[] = {"/usr/share/containers/oci/hooks.d",
					    "/etc/containers/oci/hooks.d"};
	const char *const arguments[] = {"--register", session_text(c->choice.session, "id"),
					 "--stamp",    session_text(c->choice.session, "stamp"),
					 "--host",     c->client.socket,
					 NULL};
	char dir[PATH_MAX + 8];

	if (strcmp(c->runtime, "podman") != 0)
		return 0;
	snprintf(dir, sizeof(dir), "%s/hooks", c->dir);
	if (mkdir(dir, 0755) < 0)
		return error_set(err, EXIT_CODE_RUN_FAILED, "cannot make %s: %s", dir,
				 strerrordesc_np(errno));
	cleanup_json json_t *json = hook_file(HOOK_STAGE, arguments, cli, err);
	int rc = json ? json_file_make(dir, HOOK_FILE, json, 0644, err) : -err->code;
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		if (access(usual[i], R_OK | X_OK) == 0)
			words_add(&c->command, "--hooks-dir=%s", usual[i]);
	words_add(&c->command, "--hooks-dir=%s", dir);
	return 0;
}

/* The files in which the runtime names the container; apptainer's ends with its client. */
static void identity_add(struct container *c, struct container_watch *watch,
			 char cid[static PATH_MAX], char pid[static PATH_MAX])
{
	if (is_apptainer(c))
		return;
	snprintf(cid, PATH_MAX, "%.4000s/cid", c->dir);
	watch->cid_file = c->args.cid_file ? c->args.cid_file : cid;
	if (!c->args.cid_file)
		words_add(&c->command, "--cidfile=%s", cid);
	if (strcmp(c->runtime, "podman") != 0)
		return;
	snprintf(pid, PATH_MAX, "%.4000s/pid", c->dir);
	watch->pid_file = c->args.pid_file ? c->args.pid_file : pid;
	if (!c->args.pid_file)
		words_add(&c->command, "--pidfile=%s", pid);
}

/* A container of apptainer's has no hook: it is bound as its client is, which is a command. */
static int command_register(const struct container *c, struct error *err)
{
	struct attach_reply reply = {0};
	int rc = slice_register(c->client.attach, session_text(c->choice.session, "id"), 0, &reply);

	reply.message[sizeof(reply.message) - 1] = '\0';
	if (rc == 0 && reply.status == ATTACH_OK)
		return 0;
	return error_set(err, EXIT_CODE_RUN_FAILED, "the daemon does not take the container up: %s",
			 rc < 0 ? strerrordesc_np(-rc) : reply.message);
}

/* Refuses a session that changed after it was read for the container's mounts and nodes. The
 * watcher, or the client, is in the session by now, so the session keeps its instances from here
 * on. */
static int unchanged_check(const struct container *c, struct error *err)
{
	cleanup_json json_t *now = NULL;
	const char *stamp = session_text(c->choice.session, "stamp");
	int rc = session_get(&c->client, session_text(c->choice.session, "id"), &now, err);

	if (rc == 0 && strcmp(session_text(now, "stamp"), stamp) != 0)
		rc = error_set(
			err, EXIT_CODE_RUN_FAILED,
			"session %s has changed since this command began: it was %.150s, and "
			"is %.150s; start the container again",
			session_text(now, "id"), stamp, session_text(now, "stamp"));
	err->code = rc < 0 ? EXIT_CODE_RUN_FAILED : err->code;
	return rc < 0 ? -EXIT_CODE_RUN_FAILED : 0;
}

static int container_run(struct container *c, const struct cli *cli, struct error *err)
{
	struct container_watch watch = {
		.runtime = {c->runtime, c->args.everywhere.list},
		.dir = c->dir,
		.session = session_text(c->choice.session, "id"),
		.before = c->choice.session,
		.one_off = c->choice.one_off,
		.client = &c->client,
	};
	char cid_file[PATH_MAX], pid_file[PATH_MAX];
	int rc = container_dir_make(c->dir, err);

	words_add(&c->command, "%s", c->runtime);
	for (size_t i = 0; i < c->args.global.count; i++)
		words_add(&c->command, "%s", c->args.global.list[i]);
	if (rc < 0 || (rc = hook_add(c, cli, err)) < 0)
		return rc;
	words_add(&c->command, "%s", c->verb);
	if ((rc = slice_add(c, err)) < 0)
		return rc;
	identity_add(c, &watch, cid_file, pid_file);
	for (size_t i = 0; i < c->args.options.count; i++)
		words_add(&c->command, "%s", c->args.options.list[i]);
	for (char **word = c->args.image; *word; word++)
		words_add(&c->command, "%s", *word);
	rc = container_watch_start(&watch, err);
	if (rc == 0 && is_apptainer(c))
		rc = command_register(c, err);
	/* A slice of this command's own has been in use since it was made. */
	if (rc == 0 && !c->choice.one_off)
		rc = unchanged_check(c, err);
	return rc < 0 ? rc : become_runtime(c, err);
}

static int run_with(const char *runtime, const char *verb, enum container_syntax syntax,
		    struct cli *cli, struct error *err)
{
	struct container c = {.runtime = runtime, .verb = verb, .syntax = syntax};
	enum container_syntax global = syntax;
	int rc;

	if (cli->arguments[0] && !strcmp(cli->arguments[0], "--help")) {
		help_print(cli->verb, NULL);
		return 0;
	}
	if (slice_env_session())
		return error_set(err, EXIT_CODE_RUN_FAILED,
				 "%s: this is inside slice %.64s already; run it from outside",
				 runtime, slice_env_session());
	(void)container_syntax_global(runtime, &global);
	if ((rc = container_args_read(cli->global, (size_t)cli->global_count, global,
				      cli->arguments, syntax, &c.args, err)) < 0)
		error_hint(err, "for example: %s", cli->verb->example);
	else if ((rc = container_remote_check(runtime, &c.args, err)) >= 0 &&
		 (rc = places_find(&c.places, err)) >= 0 &&
		 (rc = places_check(&c.places, err)) >= 0 &&
		 (rc = driver_find(&c.driver, err)) >= 0 &&
		 (rc = session_choose(&c, cli, err)) >= 0) {
		rc = container_run(&c, cli, err);
		give_up(&c);
	}
	run_choice_free(&c.choice);
	container_args_free(&c.args);
	words_free(&c.command);
	words_free(&c.parsed);
	json_decref(c.labels);
	return rc;
}

int cli_podman(struct cli *cli, struct error *err)
{
	return run_with("podman", "run", CONTAINER_SYNTAX_OCI, cli, err);
}

int cli_docker(struct cli *cli, struct error *err)
{
	return run_with("docker", "run", CONTAINER_SYNTAX_OCI, cli, err);
}

/* "apptainer exec": exec, run or shell. */
int cli_apptainer(struct cli *cli, struct error *err)
{
	return run_with("apptainer", strchr(cli->verb->name, ' ') + 1, CONTAINER_SYNTAX_APPTAINER,
			cli, err);
}
