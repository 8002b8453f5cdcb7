/* carve image build: an image whose containers have a slice, by a label on another image. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/container/container_watch.h"
#include "cli/container/size_label.h"

/* Whether there is a program of this name. */
static bool is_installed(const char *program)
{
	cleanup_free char *list = strdup(secure_getenv("PATH") ? secure_getenv("PATH") : "");
	char path[4096], *state;

	// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): freed by its cleanup
	for (char *dir = list ? strtok_r(list, ":", &state) : NULL; dir;
	     dir = strtok_r(NULL, ":", &state))
		if (snprintf(path, sizeof(path), "%s/%s", dir, program) < (int)sizeof(path) &&
		    access(path, X_OK) == 0)
			return true;
	return false;
}

static bool has_image(const char *runtime, const char *image)
{
	const char *const inspect[] = {"image", "inspect", "--format", "{{.Id}}", image, NULL};
	char said[256];

	return is_installed(runtime) &&
	       runtime_ask(&(struct runtime){.program = runtime}, said, sizeof(said), inspect);
}

/* The runtime that has the image; where none has, one that may fetch it. */
static const char *runtime_choose(const char *image)
{
	if (!is_installed("podman"))
		return "docker";
	return !is_installed("docker") || has_image("podman", image) || !has_image("docker", image)
		       ? "podman"
		       : "docker";
}

/* A line of the file ends where a reference does. */
static int reference_check(const char *option, const char *text, struct error *err)
{
	if (!text) {
		error_set(err, EXIT_CODE_USAGE, "image build: %s is missing", option);
		error_hint(err,
			   "for example: carve image build --from IMAGE --vram 8 -t IMAGE:8gb");
		return -EXIT_CODE_USAGE;
	}
	for (const char *c = text; *c; c++)
		if (*c <= ' ' || *c > '~')
			return error_set(err, EXIT_CODE_USAGE, "%s: '%.100s' is no image's name",
					 option, text);
	return *text && *text != '-' ? 0
				     : error_set(err, EXIT_CODE_USAGE,
						 "%s: '%.100s' is no image's name", option, text);
}

/* The file becomes standard input of the build. 0 or -errno. */
static int input_set(const char *from, const struct size_label *label)
{
	cleanup_free char *text = NULL;
	int fds[2], length = asprintf(&text, "FROM %s\nLABEL %s=\"%s\"\n", from, label->name,
				      label->value);

	/* It is shorter than a pipe is long. */
	if (length < 0 || pipe2(fds, O_CLOEXEC) < 0)
		return length < 0 ? -ENOMEM : -errno;
	int rc = length > 4000 ? -E2BIG : write_all(fds[1], text, (size_t)length);
	close(fds[1]);
	if (rc == 0 && dup2(fds[0], STDIN_FILENO) < 0)
		rc = -errno;
	close(fds[0]);
	return rc;
}

int cli_image_build(struct cli *cli, struct error *err)
{
	const char *runtime = cli->value[OPT_IMAGE_RUNTIME];
	const char *from = cli->value[OPT_IMAGE_FROM], *tag = cli->value[OPT_IMAGE_TAG];
	struct size_label label;
	int rc;

	if (runtime && strcmp(runtime, "podman") != 0 && strcmp(runtime, "docker") != 0)
		return error_set(err, EXIT_CODE_USAGE, "--runtime: '%.64s' is not podman or docker",
				 runtime);
	if ((rc = reference_check("--from", from, err)) < 0 ||
	    (rc = reference_check("--tag", tag, err)) < 0 ||
	    (rc = size_label_read(cli, &label, err)) < 0)
		return rc;
	if (!runtime)
		runtime = runtime_choose(from);
	if ((rc = input_set(from, &label)) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot write the build file: %s",
				 strerrordesc_np(-rc));
	execlp(runtime, runtime, "build", "-t", tag, "-", NULL);
	error_set(err, EXIT_CODE_FAILED, "%s: %s", runtime,
		  errno == ENOENT ? "it is not installed" : strerrordesc_np(errno));
	error_hint(err, "install podman or docker; --runtime names the one to use");
	return -EXIT_CODE_FAILED;
}
