/* carve sim: hands over to the simulated host's own program. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/program.h"
#include "base/trust.h"
#include "cli/cli.h"
#include "slice/isolation.h"
#include "slice/places.h"
#include "slice/runtime_dir.h"
#include "slice/slice_env.h"

#define SPEC_DEFAULT "h100-80gb"
/* The name of simhost in its messages: it takes it from argv[0]. */
#define SIMHOST_NAME "carve sim"
/* Set for every program on a simulated host. */
#define ENV_SIM_HOST "SIMGPU_HOST"

/* Only returns where it failed. */
static int simhost_exec(const struct places *places, char **argv, struct error *err)
{
	execv(places->simhost, argv);
	error_set(err, EXIT_CODE_FAILED, "cannot start %.300s: %s", places->simhost,
		  strerrordesc_np(errno));
	error_hint(err,
		   "the simulated driver is in an installation from source, and in the package "
		   "carve-sim");
	return -EXIT_CODE_FAILED;
}

/* On a simulated host already: the command joins it. `tell`: it is a shell at a terminal. */
static int command_exec(char **command, bool tell, struct error *err)
{
	char why[PROGRAM_WHY_SIZE];

	if (tell)
		fprintf(stderr,
			"carve: this is on the simulated host %s already, and so is this shell; "
			"--gpus starts another host; leave it: exit\n",
			secure_getenv(ENV_SIM_HOST));
	execvp(command[0], command);
	int code = program_why(command[0], errno, why);

	return error_set(err, code, "%.400s: %s", *command[0] ? command[0] : "''", why);
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

/* The simulated driver lies beside simhost, and its other releases in a directory each. A slice
 * stands before the library of the release that its own host plays. */
static int sim_slice_leave(const struct places *places, struct error *err)
{
	char cuda[PATH_MAX], nvml[PATH_MAX];
	int length = (int)(strrchr(places->simhost, '/') - places->simhost);
	glob_t found;

	snprintf(cuda, sizeof(cuda), "%.*s/{,driver/*/}libcuda.so.1", length, places->simhost);
	snprintf(nvml, sizeof(nvml), "%.*s/libnvidia-ml.so.1", length, places->simhost);
	/* Where it is not installed, there is nothing to uncover; starting simhost says so. */
	if (glob(cuda, GLOB_BRACE, NULL, &found) != 0)
		return 0;
	int rc = isolation_leave((const char *const *)found.gl_pathv, nvml, err);
	globfree(&found);
	return rc;
}

/* One daemon for all users of the host; then the command takes this shell's place. */
#define SHARED_BEGIN                                                         \
	"\"$0\" --system --runtime-dir \"$CARVE_RUNTIME_DIR\" || exit 125; " \
	"echo \"carve: other users join with: carve sim --join $" ENV_SIM_HOST " -- CMD\" >&2; "
#define COMMAND_RUN "exec \"$@\""

/* Said where somebody at a terminal gets a shell: only here one can tell where one is. */
#define SHELL_TELL                                                                              \
	"echo \"carve: this shell is on a simulated GPU host: no real GPU is used here\" >&2; " \
	"echo \"carve: join it from another terminal: carve sim --join $" ENV_SIM_HOST          \
	"; leave it: exit\" >&2; "

/* Whether this user may play on the host, whose directory is `host`. */
static int join_check(const char *host, struct error *err)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/driver.sock", host);
	if (access(path, W_OK) == 0)
		return 0;
	if (errno != EACCES || stat(host, &st) < 0) {
		error_set(err, EXIT_CODE_UNREACHABLE, "there is no simulated host at %.300s", host);
		error_hint(err, "carve sim --shared says where its host is");
		return -EXIT_CODE_UNREACHABLE;
	}
	error_set(err, EXIT_CODE_NOT_PERMITTED,
		  "the simulated host at %.300s is of user %u alone: you cannot join it", host,
		  (unsigned)st.st_uid);
	error_hint(err, "its owner starts one for all users with carve sim --shared");
	return -EXIT_CODE_NOT_PERMITTED;
}

/* The host's owner may be another user. A user who joins believes the daemon there from now on:
 * base/trust.h. */
static int join_remember(const char *host, struct error *err)
{
	char dir[SERVER_JOIN_SIZE], record[SERVER_JOIN_SIZE];
	struct stat st;

	if (lstat(host, &st) == 0 && (st.st_uid == 0 || st.st_uid == geteuid()))
		return 0;
	server_join_directory(dir, sizeof(dir));
	int rc = runtime_dir_make(dir, err);
	if (rc < 0)
		return rc;
	rc = server_join_record(host, record, sizeof(record));
	cleanup_close int fd =
		rc < 0 ? rc : open(record, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		return 0;
	return error_set(err, EXIT_CODE_FAILED, "cannot note in %s that %.200s was joined: %s", dir,
			 host, strerrordesc_np(rc < 0 ? -rc : errno));
}

/* The arguments of `simhost run`, without the command itself. */
struct sim_words {
	const char *word[20];
	size_t count;
};

static void word_add(struct sim_words *words, const char *word)
{
	words->word[words->count++] = word;
}

static int join_begin(const struct cli *cli, struct error *err)
{
	const char *host = cli->value[OPT_SIM_JOIN];

	if (cli->value[OPT_SIM_GPUS] || cli->value[OPT_SIM_DRIVER] || cli->value[OPT_SIM_SHARED]) {
		error_set(err, EXIT_CODE_USAGE,
			  "--join: the host is there already, with its GPUs and driver");
		error_hint(err, "carve sim --join %.200s -- CMD", host);
		return -EXIT_CODE_USAGE;
	}
	if (*host != '/')
		return error_set(err, EXIT_CODE_USAGE,
				 "--join takes the host's directory, such as /tmp/simgpu-a1b2c3");
	int rc = join_check(host, err);
	if (rc == 0)
		rc = join_remember(host, err);
	if (rc == 0)
		setenv(ENV_SIM_HOST, host, 1);
	return rc;
}

/* sh -c SCRIPT NAME, before the command that the script ends with. */
static void script_add(struct sim_words *words, const char *script, const char *name)
{
	word_add(words, "/bin/sh");
	word_add(words, "-c");
	word_add(words, script);
	word_add(words, name);
}

static void words_make(const struct cli *cli, const struct places *places, struct sim_words *ret)
{
	bool at_terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
	const char *spec = cli->value[OPT_SIM_GPUS], *version = cli->value[OPT_SIM_DRIVER];

	*ret = (struct sim_words){0};
	word_add(ret, SIMHOST_NAME);
	word_add(ret, "run");
	if (!cli->value[OPT_SIM_JOIN]) {
		word_add(ret, "--gpus");
		word_add(ret, spec ? spec : SPEC_DEFAULT);
	}
	word_add(ret, "--env");
	word_add(ret, "CARVE_RUNTIME_DIR={host}/carve");
	if (version) {
		word_add(ret, "--driver");
		word_add(ret, version);
	}
	if (cli->value[OPT_SIM_SHARED])
		word_add(ret, "--shared");
	word_add(ret, "--");
	bool shell = !cli->argument_count && at_terminal;
	if (cli->value[OPT_SIM_SHARED] && shell)
		script_add(ret, SHARED_BEGIN SHELL_TELL COMMAND_RUN, places->daemon);
	else if (cli->value[OPT_SIM_SHARED])
		script_add(ret, SHARED_BEGIN COMMAND_RUN, places->daemon);
	else if (shell)
		script_add(ret, SHELL_TELL COMMAND_RUN, SIMHOST_NAME);
}

int cli_sim(struct cli *cli, struct error *err)
{
	char *shell[] = {secure_getenv("SHELL"), NULL};
	bool new_host = cli->value[OPT_SIM_GPUS] || cli->value[OPT_SIM_DRIVER] ||
			cli->value[OPT_SIM_SHARED];
	struct sim_words words;
	struct places places;
	int rc = places_find(&places, err);

	if (rc < 0)
		return rc;
	if (cli->value[OPT_SIM_LIST])
		return models_list(cli, &places, err);
	/* The simulated driver is found by LD_LIBRARY_PATH. */
	if ((rc = places_check(&places, err)) < 0)
		return rc;
	if (!shell[0] || !*shell[0])
		shell[0] = "/bin/sh";
	char **command = cli->argument_count ? cli->arguments : shell;
	if (cli->value[OPT_SIM_JOIN] && (rc = join_begin(cli, err)) < 0)
		return rc;
	if (!cli->value[OPT_SIM_JOIN] && secure_getenv(ENV_SIM_HOST) && !new_host)
		return command_exec(
			command,
			!cli->argument_count && isatty(STDIN_FILENO) && isatty(STDERR_FILENO), err);
	words_make(cli, &places, &words);
	/* The host's programs find its own daemon, and are in no slice yet. */
	unsetenv("CARVE_HOST");
	slice_env_leave(&places);
	if ((rc = sim_slice_leave(&places, err)) < 0)
		return rc;
	cleanup_free char **argv = argv_make(words.word, words.count, command,
					     cli->argument_count ? (size_t)cli->argument_count : 1);
	if (!argv)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	return simhost_exec(&places, argv, err);
}
