#include "container/layout.h"

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
#include "container/edits.h"
#include "container/nodes.h"

#define SIMULATED_HOST "SIMGPU_HOST"
#define NVIDIA_SMI "/usr/bin/nvidia-smi"
/* The driver's other libraries, which its libcuda loads by name. */
#define DRIVER_PARTS \
	"lib{nvidia-ptxjitcompiler,nvidia-nvvm,nvidia-gpucomp,cudadebugger,nvidia-nvvm70}*.so.*"

/* The directories in which the dynamic linkers of Debian and of Red Hat look by default.
 * LD_LIBRARY_PATH would replace what the image sets. */
static const char *const part_places[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64"};

static const struct {
	const char *name, *value;
} variables[] = {
	{ATTACH_ENV_SOCKET, CONTAINER_SOCKET},
	{ATTACH_ENV_CUDA, CONTAINER_DRIVER_CUDA},
	{ATTACH_ENV_NVML, CONTAINER_DRIVER_NVML},
};

int container_environment_text(const char *session, const char *stamp, char *buf, size_t size)
{
	int used = snprintf(buf, size, ATTACH_ENV_SESSION "=%s\n", session);

	if (stamp && *stamp && used < (int)size)
		used += snprintf(buf + used, size - (size_t)used, ATTACH_ENV_STAMP "=%s\n", stamp);
	for (size_t i = 0; i < ARRAY_SIZE(variables) && used < (int)size; i++)
		used += snprintf(buf + used, size - (size_t)used, "%s=%s\n", variables[i].name,
				 variables[i].value);
	return used;
}

/* A container that has the file mounted keeps the one that it was started with: a file of the name
 * that is there already is replaced, and not written to. */
static int file_write(const char *dir, const char *name, const char *text, struct error *err)
{
	char path[PATH_MAX], temporary[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(temporary, sizeof(temporary), "%s/.%s.%d", dir, name, (int)getpid());
	unlink(temporary);
	cleanup_close int fd =
		open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	int rc = fd < 0 ? -errno : write_all(fd, text, strlen(text));
	/* Containers' users read it, whatever the umask is here. */
	if (rc == 0 && (fchmod(fd, 0644) < 0 || rename(temporary, path) < 0))
		rc = -errno;
	if (rc < 0 && fd >= 0)
		unlink(temporary);
	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "cannot write %.300s: %s", path,
				  strerrordesc_np(-rc))
		      : 0;
}

int container_files_write(const struct container_slice *slice, struct error *err)
{
	char text[ATTACH_SLICE_FILE_SIZE];

	container_environment_text(slice->session, slice->stamp, text, sizeof(text));
	int rc = file_write(slice->files, CONTAINER_FILE_ENVIRONMENT, text, err);
	return rc < 0 ? rc
		      : file_write(slice->files, CONTAINER_FILE_PRELOAD, CONTAINER_PRELOAD_TEXT,
				   err);
}

/* The file itself, not a link to it: a runtime may resolve links inside the container. */
static int mount_add(json_t *edits, const char *from, const char *to, struct error *err)
{
	char real[PATH_MAX];

	if (!realpath(from, real))
		return error_set(err, EXIT_CODE_FAILED, "%.300s: %s", from, strerrordesc_np(errno));
	container_edits_mount(edits, real, to);
	return 0;
}

static int front_add(const struct container_slice *slice, json_t *edits, struct error *err)
{
	int rc = mount_add(edits, slice->front_cuda, CONTAINER_FRONT_CUDA, err);

	if (rc == 0)
		rc = mount_add(edits, slice->front_nvml, CONTAINER_FRONT_NVML, err);
	if (rc < 0 || !slice->cover_driver)
		return rc;
	rc = mount_add(edits, slice->front_cuda, slice->cuda, err);
	return rc < 0 ? rc : mount_add(edits, slice->front_nvml, slice->nvml, err);
}

static int part_add(json_t *edits, const char *part, struct error *err)
{
	char to[PATH_MAX];
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(part_places) && rc == 0; i++) {
		snprintf(to, sizeof(to), "%s%s", part_places[i], strrchr(part, '/'));
		rc = mount_add(edits, part, to, err);
	}
	return rc;
}

static int driver_add(const struct container_slice *slice, json_t *edits, struct error *err)
{
	char pattern[PATH_MAX + 128];
	glob_t parts = {0};
	int rc = mount_add(edits, slice->cuda, CONTAINER_DRIVER_CUDA, err);

	if (rc == 0)
		rc = mount_add(edits, slice->nvml, CONTAINER_DRIVER_NVML, err);
	if (rc < 0)
		return rc;
	if (access(NVIDIA_SMI, X_OK) == 0)
		rc = mount_add(edits, NVIDIA_SMI, NVIDIA_SMI, err);
	snprintf(pattern, sizeof(pattern), "%.*s/" DRIVER_PARTS,
		 (int)(strrchr(slice->cuda, '/') - slice->cuda), slice->cuda);
	// NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's glob() is safe without GLOB_ALTDIRFUNC
	if (rc < 0 || glob(pattern, GLOB_BRACE, NULL, &parts) != 0)
		return rc;
	for (size_t i = 0; i < parts.gl_pathc && rc == 0; i++)
		rc = part_add(edits, parts.gl_pathv[i], err);
	globfree(&parts);
	return rc;
}

/* A daemon from before there was the directory has the socket alone. */
static int attach_add(const struct container_slice *slice, json_t *edits, struct error *err)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(slice->attach, '/');

	snprintf(dir, sizeof(dir), "%.*s/" CONTAINER_ATTACH_HOST,
		 (int)(slash ? slash - slice->attach : 0), slice->attach);
	if (access(dir, X_OK) == 0)
		return mount_add(edits, dir, CONTAINER_ATTACH, err);
	return mount_add(edits, slice->attach, CONTAINER_SOCKET, err);
}

static int files_add(const struct container_slice *slice, json_t *edits, struct error *err)
{
	char path[PATH_MAX];

	if (!slice->files)
		return 0;
	snprintf(path, sizeof(path), "%s/" CONTAINER_FILE_ENVIRONMENT, slice->files);
	int rc = mount_add(edits, path, CONTAINER_ENVIRONMENT, err);
	snprintf(path, sizeof(path), "%s/" CONTAINER_FILE_PRELOAD, slice->files);
	return rc < 0 ? rc : mount_add(edits, path, CONTAINER_PRELOAD, err);
}

static void environment_add(const struct container_slice *slice, json_t *edits)
{
	container_edits_env(edits, ATTACH_ENV_SESSION, slice->session);
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		container_edits_env(edits, variables[i].name, variables[i].value);
}

/* A simulated host is a directory of sockets and files that all its programs share. */
static int simulated_host_add(const struct container_slice *slice, json_t *edits, struct error *err)
{
	char real[PATH_MAX];

	if (!slice->simulated_host)
		return 0;
	if (!realpath(slice->simulated_host, real))
		return error_set(err, EXIT_CODE_FAILED, SIMULATED_HOST "=%.300s: %s",
				 slice->simulated_host, strerrordesc_np(errno));
	container_edits_mount_writable(edits, real, slice->simulated_host);
	container_edits_mount_writable(edits, real, CONTAINER_SIMULATED_HOST);
	container_edits_env(edits, SIMULATED_HOST, slice->simulated_host);
	return 0;
}

static void instance_nodes_add(json_t *edits, const json_t *gpu, const char *address)
{
	const json_t *instance = json_object_get(gpu, "gpu_instance");
	const json_t *compute = json_object_get(gpu, "compute_instance");

	if (address && json_is_integer(instance) && json_is_integer(compute))
		container_nodes_instance(edits, address, (unsigned)json_integer_value(instance),
					 (unsigned)json_integer_value(compute));
}

int container_slice_edits(const struct container_slice *slice, json_t **ret, struct error *err)
{
	json_t *edits, *gpu;
	size_t i;
	int rc;

	if (!*slice->cuda || !*slice->nvml)
		return error_set(err, EXIT_CODE_FAILED, "no NVIDIA driver found on this host");
	edits = container_edits_new();
	if ((rc = front_add(slice, edits, err)) < 0 || (rc = driver_add(slice, edits, err)) < 0 ||
	    (rc = attach_add(slice, edits, err)) < 0 || (rc = files_add(slice, edits, err)) < 0 ||
	    (rc = simulated_host_add(slice, edits, err)) < 0) {
		json_decref(edits);
		return rc;
	}
	environment_add(slice, edits);
	container_nodes_common(edits);
	json_array_foreach((json_t *)slice->gpus, i, gpu)
	{
		const char *uuid = json_string_value(json_object_get(gpu, "uuid"));
		const char *address = json_string_value(json_object_get(gpu, "pci_bus_id"));

		/* The kernel module does not know the UUID of a GPU that nobody has opened yet. */
		if (address)
			container_nodes_gpu_pci(edits, address);
		else if (uuid)
			container_nodes_gpu_uuid(edits, uuid);
		instance_nodes_add(edits, gpu, address);
	}
	*ret = edits;
	return 0;
}
