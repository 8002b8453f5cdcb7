/* carve run: chooses the slice, then launches the command in it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/session/run_choice.h"
#include "cli/session/run_idle.h"
#include "cli/session/run_record.h"
#include "cli/session/session_grant.h"
#include "cli/session/slice_request.h"
#include "client/client.h"
#include "client/sessions.h"
#include "proto/attach.h"
#include "slice/driver_find.h"
#include "slice/isolation.h"
#include "slice/launch.h"
#include "slice/places.h"
#include "slice/slice_env.h"

/* Commands that only ask somebody else to start the work: there it has no slice. */
static const char *const launchers[] = {
	"docker", "podman", "nerdctl", "kubectl", "srun",        "sbatch", "salloc",
	"tmux",   "screen", "ssh",     "at",      "systemd-run", "batch",
};

void run_choice_free(struct run_choice *choice)
{
	json_decref(choice->session);
}

static const char *verb_of(const struct run_choice *choice)
{
	return choice->verb ? choice->verb : "run";
}

static int join_error(const struct run_choice *choice, const char *what, const char *hint,
		      struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "%s: %s", verb_of(choice), what);
	error_hint(err, "%s", hint);
	return -EXIT_CODE_USAGE;
}

/* Refuses size options where a session that exists already is joined. */
static int join_check(const struct run_choice *choice, const struct slice_request *request,
		      struct error *err)
{
	char what[96];

	if (!request->sized && !request->option)
		return 0;
	snprintf(what, sizeof(what), "%s%s only goes with a slice of its own",
		 request->option ? "--" : "", request->option ? request->option : "a size");
	return join_error(choice, what, "leave it out, or give a size for a slice of its own", err);
}

static int choose_named(const struct client *client, const char *id,
			const struct slice_request *request, struct run_choice *choice,
			struct error *err)
{
	int rc = join_check(choice, request, err);

	if (rc < 0 || (rc = session_get(client, id, &choice->session, err)) < 0)
		return rc;
	return strcmp(session_text(choice->session, "state"), "active") != 0
		       ? session_inactive(choice->session, err)
		       : 0;
}

static int choose_one_off(const struct client *client, const struct slice_request *request,
			  struct run_choice *choice, struct error *err)
{
	if (!request->sized) {
		char words[64];

		snprintf(words, sizeof(words), "%s --ephemeral", verb_of(choice));
		return slice_request_unsized(words, err);
	}
	json_object_set_new(request->body, "ephemeral", json_true());
	choice->one_off = true;
	return session_grant_request(client, request, &choice->session, err);
}

/* Without a size the user's current session is joined. */
static int choose_current(const struct client *client, const struct slice_request *request,
			  struct run_choice *choice, struct error *err)
{
	struct error none = {0};
	int rc = session_get(client, NULL, &choice->session, &none);

	if (rc == 0)
		return strcmp(session_text(choice->session, "state"), "active") != 0
			       ? session_inactive(choice->session, err)
			       : join_check(choice, request, err);
	*err = none;
	if (none.code != EXIT_CODE_FAILED)
		return rc;
	error_set(err, EXIT_CODE_FAILED, "%s: no size given, and %s", verb_of(choice),
		  none.message);
	error_hint(err, "for example: carve %s --vram 4 %s; or %s", verb_of(choice),
		   choice->operands ? choice->operands : "CMD", none.hint);
	return rc;
}

static int choose(const struct cli *cli, const struct client *client,
		  const struct slice_request *request, struct run_choice *choice, struct error *err)
{
	if (cli->value[OPT_SESSION] && cli->value[OPT_EPHEMERAL])
		return join_error(choice, "--session and --ephemeral are both given",
				  "a slice of its own, or that session: leave one out", err);
	if (cli->value[OPT_SESSION])
		return choose_named(client, cli->value[OPT_SESSION], request, choice, err);
	if (cli->value[OPT_EPHEMERAL])
		return choose_one_off(client, request, choice, err);
	return request->sized ? choose_one_off(client, request, choice, err)
			      : choose_current(client, request, choice, err);
}

int run_choose(const struct cli *cli, const struct client *client,
	       const struct slice_request *request, struct run_choice *choice, struct error *err)
{
	int rc = choose(cli, client, request, choice, err);
	const char *reason = session_text(choice->session, "reason");

	/* A session that lives has one where nothing can be begun in it: its GPU is lost. */
	if (rc == 0 && *reason)
		fprintf(stderr, "carve: warning: session %s: %s\n",
			session_text(choice->session, "id"), reason);
	return rc;
}

static void launcher_warn(const char *command)
{
	const char *slash = strrchr(command, '/'), *name = slash ? slash + 1 : command;

	for (size_t i = 0; i < ARRAY_SIZE(launchers); i++)
		if (!strcmp(name, launchers[i]))
			fprintf(stderr,
				"carve: warning: the slice's limit does NOT apply to programs "
				"that %s starts elsewhere\n",
				name);
}

/* Whether an entry of CUDA_VISIBLE_DEVICES names one of the session's GPUs. */
static bool visible_names(const char *entry, size_t length, const json_t *gpus)
{
	bool number = strspn(entry, "0123456789") == length;
	size_t i;
	json_t *gpu;

	if (number)
		return strtoull(entry, NULL, 10) < json_array_size(gpus);
	json_array_foreach(gpus, i, gpu)
	{
		if (!strncasecmp(session_text(gpu, "uuid"), entry, length) ||
		    !strncasecmp(session_text(gpu, "instance"), entry, length))
			return true;
	}
	return false;
}

/* A slice that is MIG instances is named to what starts in it, as others name them. */
static void visible_set(const json_t *session)
{
	const json_t *gpus = json_object_get(session, "gpus");
	char list[64 * 48] = "";
	size_t i, used = 0;
	json_t *gpu;

	json_array_foreach(gpus, i, gpu)
	{
		const char *instance = session_text(gpu, "instance");

		if (*instance && used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 used ? "," : "", instance);
	}
	if (used && used < sizeof(list))
		setenv("CUDA_VISIBLE_DEVICES", list, 0);
}

/* Up to driver 565 a process has one MIG device, the first that is named to it. */
#define DRIVER_WITH_SEVERAL 570

static void several_warn(const struct client *client, const json_t *session)
{
	size_t count = json_array_size(json_object_get(session, "gpus"));
	cleanup_json json_t *version = NULL;
	struct error ignored = {0};

	if (!*session_text(session, "mig_profile") || count < 2 ||
	    client_call(client, "GET", "/v1/version", NULL, NULL, &version, &ignored) < 0)
		return;
	const char *driver = session_text(version, "driver_version");
	unsigned long branch = strtoul(driver, NULL, 10);
	if (branch && branch < DRIVER_WITH_SEVERAL)
		fprintf(stderr,
			"carve: warning: with driver %s a process can use one MIG instance: the "
			"first "
			"of these %zu, or the one that CUDA_VISIBLE_DEVICES names to it\n",
			driver, count);
}

/* CUDA stops at the first entry that it doesn't know. An empty list and -1 are ways to want none.
 */
static void visible_warn(const json_t *session)
{
	const json_t *gpus = json_object_get(session, "gpus");
	const char *list = secure_getenv("CUDA_VISIBLE_DEVICES"), *first = list;
	size_t count = json_array_size(gpus), length;
	char gpus_text[UNITS_TEXT_SIZE];

	if (!list || !count)
		return;
	first += strspn(first, " \t");
	length = strcspn(first, ", \t");
	if (!length || *first == '-' || visible_names(first, length, gpus))
		return;
	fprintf(stderr,
		"carve: warning: CUDA_VISIBLE_DEVICES=%.64s counts within the slice and names none "
		"of its %s; unset it, or begin it with 0%s\n",
		list, units_format_count(count, "GPU", gpus_text),
		count == 1 ? "" : " or another of them");
}

/* Gives an ephemeral slice back, and says what it refused, or why it ended. The daemon may be gone
 * or busy: neither changes the command's status, and the slice ends with its processes anyway. */
static void finish(const struct cli *cli, const struct client *client,
		   const struct run_choice *choice)
{
	cleanup_json json_t *after = NULL;
	char path[SESSION_PATH_SIZE], peak[UNITS_TEXT_SIZE], size[UNITS_TEXT_SIZE];
	char times[UNITS_TEXT_SIZE], end[SESSION_END_SIZE], killed[SESSION_KILLED_SIZE];
	struct error ignored;

	if (session_path(session_text(choice->session, "id"), path, &ignored) < 0 ||
	    client_call(client, "GET", path, NULL, NULL, &after, &ignored) < 0)
		return;
	if (session_end_text(after, end))
		fprintf(stderr, "%s\n", end);
	if (session_killed_text(choice->session, after, killed))
		fprintf(stderr, "%s\n", killed);
	uint64_t refused =
		session_gpus_sum(after, "refused") - session_gpus_sum(choice->session, "refused");
	if (refused && (cli->value[OPT_VERBOSE] || isatty(STDERR_FILENO)))
		fprintf(stderr, "carve: the slice refused memory %s: peak use %s of %s\n",
			units_format_count(refused, "time", times),
			units_format_bytes(session_gpus_sum(after, "peak_bytes"), peak),
			units_format_bytes(session_gpus_sum(after, "vram_bytes"), size));
	/* A process that the command left behind keeps its slice. */
	if (choice->one_off && !json_array_size(json_object_get(after, "pids")))
		session_give_back(client, session_text(choice->session, "id"));
}

/* Inside a slice: the same one, which needs no daemon to be asked. */
static int run_inside(const struct cli *cli, const struct slice_request *request,
		      const struct launch *base, struct error *err)
{
	const char *other = cli->value[OPT_SESSION];
	struct launch launch = *base;

	/* The isolation of the slice that this process is in holds for its children, too. */
	launch.isolation = ISOLATION_PRELOAD;
	const char *stamp = secure_getenv(ATTACH_ENV_STAMP);

	launch.session = slice_env_session();
	launch.stamp = stamp ? stamp : "";
	launch.attach = secure_getenv(ATTACH_ENV_SOCKET);
	if (request->sized || request->option || cli->value[OPT_EPHEMERAL] ||
	    cli->value[OPT_ISOLATION] || (other && strcmp(other, launch.session) != 0)) {
		error_set(err, EXIT_CODE_RUN_FAILED,
			  "run: this program is inside slice %.64s already, and a slice cannot be "
			  "cut again",
			  launch.session);
		error_hint(err, "leave the options out to run in the same slice, or run it in a "
				"shell outside");
		return -EXIT_CODE_RUN_FAILED;
	}
	if (!launch.attach)
		return error_set(err, EXIT_CODE_RUN_FAILED,
				 "%s is set, but not %s: slice %.64s "
				 "cannot be reached",
				 ATTACH_ENV_SESSION, ATTACH_ENV_SOCKET, launch.session);
	launcher_warn(cli->arguments[0]);
	return launch_run(&launch, err);
}

/* A session that was there already is shared with its other processes. */
static void join_tell(const struct cli *cli, const json_t *session)
{
	size_t count = json_array_size(json_object_get(session, "pids")) +
		       json_array_size(json_object_get(session, "command_pids"));
	char others[UNITS_TEXT_SIZE], size[SESSION_SIZE_SIZE];

	if (!cli->value[OPT_VERBOSE] && !isatty(STDERR_FILENO))
		return;
	units_format_count(count, "process", others);
	fprintf(stderr, "carve: using your session %s (%s%s%s)\n", session_text(session, "id"),
		session_size_text(session, size), count ? ", shared with " : "",
		count ? others : "");
}

/* Less than was asked for is said wherever the output goes. */
static bool grant_is_told(const struct cli *cli, const struct run_choice *choice)
{
	if (cli->value[OPT_VERBOSE])
		return true;
	return choice->one_off &&
	       (isatty(STDERR_FILENO) ||
		json_is_true(json_object_get(choice->session, "tolerance_applied")));
}

/* A command that runs, and its session. */
struct running {
	const struct client *client;
	const json_t *session;
};

static void on_started(void *arg)
{
	const struct running *running = arg;

	run_idle_begin(running->client, running->session);
}

static int run_outside(const struct cli *cli, const struct slice_request *request,
		       const struct launch *base, struct error *err)
{
	struct client client;
	struct launch launch = *base;
	cleanup_run_choice struct run_choice choice = {0};
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = run_choose(cli, &client, request, &choice, err)) < 0)
		return rc;
	if (grant_is_told(cli, &choice))
		session_grant_print(cli, stderr, "carve: ", choice.session);
	if (!choice.one_off)
		join_tell(cli, choice.session);
	visible_warn(choice.session);
	visible_set(choice.session);
	several_warn(&client, choice.session);
	launch.session = session_text(choice.session, "id");
	launch.stamp = session_text(choice.session, "stamp");
	launch.attach = client.attach;
	launch.registers = true;
	launch.started = on_started;
	launch.started_arg = &(struct running){&client, choice.session};
	int64_t record =
		run_record_wanted(cli) ? run_record_begin(&client, launch.session, launch.argv) : 0;
	rc = launch_run(&launch, err);
	run_idle_end();
	run_record_end(&client, record, rc < 0 ? err->code : rc);
	finish(cli, &client, &choice);
	return rc;
}

/* The isolation that was asked for is tried before a slice is waited for. */
static int isolation_choose(const struct cli *cli, struct launch *launch, struct error *err)
{
	struct isolation_mount mount = {.user = true};
	int rc = isolation_parse(cli->value[OPT_ISOLATION], &launch->isolation, err);

	launch->isolation_asked = cli->value[OPT_ISOLATION] != NULL;
	if (rc < 0 || !launch->isolation_asked || launch->isolation != ISOLATION_MOUNT)
		return rc;
	rc = isolation_mount_try(&mount, launch->places, launch->driver, err);
	if (rc == 0 && mount.user)
		fputs("carve: note: in a user namespace set-user-ID programs (sudo, su) gain no "
		      "rights, and other users' files show as nobody's\n",
		      stderr);
	return rc;
}

int cli_run(struct cli *cli, struct error *err)
{
	cleanup_request struct slice_request request = {0};
	struct places places;
	struct driver_libs driver;
	struct launch launch = {.argv = cli->arguments,
				.places = &places,
				.driver = &driver,
				.verbose = cli->value[OPT_VERBOSE] != NULL};
	int rc = slice_request_read(cli, &request, err);

	if (rc < 0 || (rc = places_find(&places, err)) < 0 || (rc = places_check(&places, err)) < 0)
		return rc;
	isolation_rejoin(&places);
	if ((rc = launch_check(cli->arguments[0], err)) < 0 || (rc = driver_find(&driver, err)) < 0)
		return rc;
	if (slice_env_session())
		return run_inside(cli, &request, &launch, err);
	if ((rc = isolation_choose(cli, &launch, err)) < 0)
		return rc;
	launcher_warn(cli->arguments[0]);
	return run_outside(cli, &request, &launch, err);
}
