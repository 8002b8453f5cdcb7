/* carve podman run, carve docker run: a slice, and the runtime's own `run` with what makes the
 * container's programs programs of that slice:
 *
 * - carve's libraries and the driver's, each mounted to a place of our own (ATTACH_SLICE_DIR),
 * where nothing finds the driver by its name;
 * - /etc/ld.so.preload, by which every program of the container, however it was started, has
 * carve's libraries, and finds the driver's names in them;
 * - the slice's file, for programs whose environment was cleared, and the environment for all
 * others;
 * - the attach socket, and no other of the daemon's;
 * - the GPU's device nodes.
 *
 * Processes are known by SO_PEERCRED, so the container needs neither --pid=host nor rights. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/container_args.h"
#include "cli/container_watch.h"
#include "cli/driver_find.h"
#include "cli/help.h"
#include "cli/places.h"
#include "cli/request.h"
#include "cli/run_choice.h"
#include "cli/sessions.h"
#include "cli/slice_env.h"
#include "proto/attach.h"

#define INSIDE ATTACH_SLICE_DIR
#define INSIDE_CUDA INSIDE "/front/libcuda.so.1"
#define INSIDE_NVML INSIDE "/front/libnvidia-ml.so.1"
#define INSIDE_DRIVER INSIDE "/driver"
#define INSIDE_ATTACH INSIDE "/attach"
#define INSIDE_SOCKET INSIDE_ATTACH "/attach.sock"
/* What else of the driver libcuda loads by itself, beside it. */
#define DRIVER_PARTS \
	"lib{nvidia-ptxjitcompiler,nvidia-nvvm,nvidia-gpucomp,cudadebugger,nvidia-nvvm70}*.so.*"
#define PROC_GPUS "/proc/driver/nvidia/gpus"
#define SIM_HOST "SIMGPU_HOST"

struct container {
	const char *runtime;
	struct container_args args;
	struct places places;
	struct driver_libs driver;
	struct client client;
	struct run_choice choice;
	char dir[PATH_MAX]; /* what is written for the container; "": nothing yet */
	struct words command;
};

/* ---- what the container gets ------------------------------------------------------------- */

static int mount_add(struct container *c, const char *from, const char *to, struct error *err)
{
	char real[PATH_MAX];

	if (!realpath(from, real))
		return error_set(err, EXIT_CODE_RUN_FAILED, "%.300s: %s", from,
				 strerrordesc_np(errno));
	if (strpbrk(real, ":,"))
		return error_set(
			err, EXIT_CODE_RUN_FAILED,
			"%.300s: a path with ':' or ',' cannot be mounted into a container", real);
	words_add(&c->command, "--volume=%s:%s:ro", real, to);
	return 0;
}

static int file_write(const struct container *c, const char *name, const char *text,
		      struct error *err)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", c->dir, name);
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	int rc = fd < 0 ? -errno : write_all(fd, text, strlen(text));
	if (rc == 0 && fchmod(fd, 0644) < 0)
		rc = -errno;
	return rc < 0 ? error_set(err, EXIT_CODE_RUN_FAILED, "%s: %s", path, strerrordesc_np(-rc))
		      : 0;
}

static int file_mount(struct container *c, const char *name, const char *text, const char *to,
		      struct error *err)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", c->dir, name);
	int rc = file_write(c, name, text, err);
	return rc < 0 ? rc : mount_add(c, path, to, err);
}

/* A variable, for programs that keep their environment and for those that do not. */
static void variable_add(struct container *c, char *file, size_t size, const char *name,
			 const char *value)
{
	size_t used = strlen(file);

	words_add(&c->command, "--env=%s=%s", name, value);
	snprintf(file + used, size - used, "%s=%s\n", name, value);
}

static int environment_add(struct container *c, struct error *err)
{
	char text[ATTACH_SLICE_FILE_SIZE] = "";

	variable_add(c, text, sizeof(text), ATTACH_ENV_SESSION,
		     session_text(c->choice.session, "id"));
	variable_add(c, text, sizeof(text), ATTACH_ENV_SOCKET, INSIDE_SOCKET);
	variable_add(c, text, sizeof(text), ATTACH_ENV_CUDA, INSIDE_DRIVER "/libcuda.so.1");
	variable_add(c, text, sizeof(text), ATTACH_ENV_NVML, INSIDE_DRIVER "/libnvidia-ml.so.1");
	int rc = file_mount(c, ATTACH_SLICE_FILE, text, INSIDE "/" ATTACH_SLICE_FILE, err);

	return rc < 0 ? rc
		      : file_mount(c, "preload", INSIDE_CUDA "\n" INSIDE_NVML "\n",
				   "/etc/ld.so.preload", err);
}

static int driver_add(struct container *c, struct error *err)
{
	char real[PATH_MAX], pattern[PATH_MAX + 128];
	glob_t parts = {0};
	int rc = 0;

	if (!*c->driver.cuda || !*c->driver.nvml)
		return error_set(err, EXIT_CODE_RUN_FAILED, "no NVIDIA driver found on this host");
	if ((rc = mount_add(c, c->driver.cuda, INSIDE_DRIVER "/libcuda.so.1", err)) < 0 ||
	    (rc = mount_add(c, c->driver.nvml, INSIDE_DRIVER "/libnvidia-ml.so.1", err)) < 0)
		return rc;
	if (!realpath(c->driver.cuda, real))
		return 0;
	*(strrchr(real, '/') + 1) = '\0';
	snprintf(pattern, sizeof(pattern), "%s" DRIVER_PARTS, real);
	if (glob(pattern, GLOB_BRACE, NULL, &parts) != 0)
		return 0;
	for (size_t i = 0; i < parts.gl_pathc && rc == 0; i++) {
		char to[PATH_MAX];

		snprintf(to, sizeof(to), INSIDE_DRIVER "/%s", strrchr(parts.gl_pathv[i], '/') + 1);
		rc = mount_add(c, parts.gl_pathv[i], to, err);
	}
	globfree(&parts);
	words_add(&c->command, "--env=LD_LIBRARY_PATH=" INSIDE "/front:" INSIDE_DRIVER);
	return rc;
}

/* "Device Minor" of the GPU of that UUID, by the kernel module. -1: not known. */
static int minor_find(const char *uuid)
{
	glob_t files = {0};
	int minor = -1;

	if (glob(PROC_GPUS "/*/information", 0, NULL, &files) != 0)
		return -1;
	for (size_t i = 0; i < files.gl_pathc && minor < 0; i++) {
		FILE *file = fopen(files.gl_pathv[i], "re");
		char line[256];
		int number = -1;
		bool found = false;

		while (file && fgets(line, sizeof(line), file)) {
			found |= strstr(line, uuid) != NULL;
			(void)sscanf(line, "Device Minor: %d", &number);
		}
		if (file)
			fclose(file);
		minor = found ? number : -1;
	}
	globfree(&files);
	return minor;
}

static void device_add(struct container *c, const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISCHR(st.st_mode))
		words_add(&c->command, "--device=%s", path);
}

static void devices_add(struct container *c)
{
	static const char *const common[] = {"/dev/nvidiactl", "/dev/nvidia-uvm",
					     "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"};
	size_t i;
	json_t *gpu;

	for (i = 0; i < ARRAY_SIZE(common); i++)
		device_add(c, common[i]);
	json_array_foreach(json_object_get(c->choice.session, "gpus"), i, gpu)
	{
		char path[64];
		int minor = minor_find(session_text(gpu, "uuid"));

		snprintf(path, sizeof(path), "/dev/nvidia%d", minor);
		if (minor >= 0)
			device_add(c, path);
	}
}

/* A simulated host is a directory of sockets and files that all its programs share. */
static int simulated_host_add(struct container *c, struct error *err)
{
	const char *host = secure_getenv(SIM_HOST);
	char real[PATH_MAX];

	if (!host)
		return 0;
	if (!realpath(host, real) || strpbrk(real, ":,"))
		return error_set(err, EXIT_CODE_RUN_FAILED, SIM_HOST "=%.300s cannot be mounted",
				 host);
	words_add(&c->command, "--volume=%s:%s", real, host);
	words_add(&c->command, "--env=" SIM_HOST "=%s", host);
	return 0;
}

/* The daemon's directory of it, in which the next daemon's will be, too; see daemon/runtime.c. */
static int socket_add(struct container *c, struct error *err)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(c->client.attach, '/');

	snprintf(dir, sizeof(dir), "%.*s/containers", (int)(slash ? slash - c->client.attach : 0),
		 c->client.attach);
	if (access(dir, X_OK) == 0)
		return mount_add(c, dir, INSIDE_ATTACH, err);
	return mount_add(c, c->client.attach, INSIDE_SOCKET, err);
}

static int slice_add(struct container *c, struct error *err)
{
	int rc;

	if ((rc = mount_add(c, c->places.front_cuda, INSIDE_CUDA, err)) < 0 ||
	    (rc = mount_add(c, c->places.front_nvml, INSIDE_NVML, err)) < 0 ||
	    (rc = socket_add(c, err)) < 0 || (rc = environment_add(c, err)) < 0 ||
	    (rc = driver_add(c, err)) < 0)
		return rc;
	devices_add(c);
	return simulated_host_add(c, err);
}

/* ---- running it -------------------------------------------------------------------------- */

static int directory_make(struct container *c, struct error *err)
{
	snprintf(c->dir, sizeof(c->dir), "/tmp/carve-container-XXXXXX");
	if (mkdtemp(c->dir) && chmod(c->dir, 0755) == 0)
		return 0;
	return error_set(err, EXIT_CODE_RUN_FAILED, "cannot make %s: %s", c->dir,
			 strerrordesc_np(errno));
}

/* The words that `carve run` would have, so that they are read by the same code. */
static int options_read(struct container *c, struct cli *ret, struct error *err)
{
	cleanup_words struct words words = {0};

	words_add(&words, "carve");
	words_add(&words, "run");
	for (size_t i = 0; i < c->args.slice.count; i++)
		words_add(&words, "%s", c->args.slice.list[i]);
	words_add(&words, "--");
	words_add(&words, "%s", c->runtime);
	/* What it finds points into the words, which live as long as the program. */
	int rc = cli_parse(ret, (int)words.count, words.list, err);
	words = (struct words){0};
	return rc;
}

static int session_choose(struct container *c, struct error *err)
{
	cleanup_request struct slice_request request = {0};
	struct cli options = {0};
	int rc = options_read(c, &options, err);

	if (rc < 0 || (rc = slice_request_read(&options, &request, err)) < 0 ||
	    (rc = client_open(&c->client, options.value[OPT_HOST], err)) < 0 ||
	    (rc = run_choose(&options, &c->client, &request, &c->choice, err)) < 0)
		return rc;
	if (c->choice.one_off && isatty(STDERR_FILENO))
		session_print_grant(stderr, "carve: ", c->choice.session);
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

/* The session is given back where the container could not be begun. */
static void give_up(struct container *c)
{
	char path[SESSION_PATH_SIZE];
	struct error ignored;

	if (c->choice.one_off &&
	    session_path(session_text(c->choice.session, "id"), path, &ignored) == 0)
		(void)client_call(&c->client, "DELETE", path, NULL, NULL, NULL, &ignored);
}

static int container_run(struct container *c, struct error *err)
{
	char cid_file[PATH_MAX + 8];
	int rc = directory_make(c, err);

	words_add(&c->command, "%s", c->runtime);
	words_add(&c->command, "run");
	if (rc < 0 || (rc = slice_add(c, err)) < 0)
		return rc;
	snprintf(cid_file, sizeof(cid_file), "%s/cid", c->dir);
	if (!c->args.cid_file)
		words_add(&c->command, "--cidfile=%s", cid_file);
	for (size_t i = 0; i < c->args.options.count; i++)
		words_add(&c->command, "%s", c->args.options.list[i]);
	for (char **word = c->args.image; *word; word++)
		words_add(&c->command, "%s", *word);
	rc = container_watch_start(
		&(struct container_watch){.runtime = c->runtime,
					  .cid_file =
						  c->args.cid_file ? c->args.cid_file : cid_file,
					  .dir = c->dir,
					  .session = session_text(c->choice.session, "id"),
					  .one_off = c->choice.one_off,
					  .client = &c->client},
		err);
	return rc < 0 ? rc : become_runtime(c, err);
}

static int run_with(const char *runtime, struct cli *cli, struct error *err)
{
	struct container c = {.runtime = runtime};
	int rc;

	if (cli->arguments[0] && !strcmp(cli->arguments[0], "--help")) {
		help_print(cli->verb, NULL);
		return 0;
	}
	if (slice_env_session())
		return error_set(err, EXIT_CODE_RUN_FAILED,
				 "%s: this is inside slice %.64s already; run it from outside",
				 runtime, slice_env_session());
	if ((rc = container_args_read(cli->arguments, &c.args, err)) < 0 ||
	    (rc = places_find(&c.places, err)) < 0 || (rc = places_check(&c.places, err)) < 0 ||
	    (rc = driver_find(&c.driver, err)) < 0 || (rc = session_choose(&c, err)) < 0)
		return rc;
	rc = container_run(&c, err);
	give_up(&c);
	run_choice_free(&c.choice);
	container_args_free(&c.args);
	words_free(&c.command);
	return rc;
}

int cli_podman(struct cli *cli, struct error *err)
{
	return run_with("podman", cli, err);
}

int cli_docker(struct cli *cli, struct error *err)
{
	return run_with("docker", cli, err);
}
