#include "integrations/kubernetes/cdi.h"

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
#include "cli/driver_find.h"
#include "container/cdi.h"
#include "container/edits.h"
#include "container/nodes.h"
#include "proto/attach.h"

#define CUDA "libcuda.so.1"
#define NVML "libnvidia-ml.so.1"
#define IN_CONTAINER(name) ATTACH_SLICE_DIR "/" name
#define SOCKET IN_CONTAINER("attach.sock")

const char *cdi_id(const char *driver, const struct stored_claim *stored, size_t slice,
		   char buf[static CDI_ID_SIZE])
{
	snprintf(buf, CDI_ID_SIZE, CDI_KIND_PREFIX "%s/claim=%s-%s", driver, stored->claim.uid,
		 stored->claim.device[stored->slice[slice].first].request);
	return buf;
}

/* ---- the spec ---------------------------------------------------------------------------- */

static void front_add(json_t *edits, const struct cdi_host *host, const char *file,
		      const char *in_slice, const char *driver)
{
	char from[2 * PATH_MAX];

	snprintf(from, sizeof(from), "%s/%s", host->front, file);
	container_edits_mount(edits, from, in_slice);
	/* A program that lost its environment looks for the driver here. */
	if (*driver)
		container_edits_mount(edits, from, driver);
}

/* What every slice's container gets. */
static json_t *common_edits(const struct cdi_host *host)
{
	json_t *edits = container_edits_new(), *path;
	size_t i;

	front_add(edits, host, CUDA, IN_CONTAINER("front/" CUDA), host->cuda);
	front_add(edits, host, NVML, IN_CONTAINER("front/" NVML), host->nvml);
	container_edits_mount(edits, host->cuda, IN_CONTAINER(CUDA));
	container_edits_mount(edits, host->nvml, IN_CONTAINER(NVML));
	container_edits_mount(edits, host->attach, SOCKET);
	json_array_foreach(host->mounts, i, path)
		container_edits_mount(edits, json_string_value(path), json_string_value(path));
	container_edits_env(edits, ATTACH_ENV_SOCKET, SOCKET);
	container_edits_env(edits, "LD_PRELOAD",
			    IN_CONTAINER("front/" CUDA) ":" IN_CONTAINER("front/" NVML));
	container_edits_env(edits, ATTACH_ENV_CUDA, IN_CONTAINER(CUDA));
	container_edits_env(edits, ATTACH_ENV_NVML, IN_CONTAINER(NVML));
	return edits;
}

static json_t *device_edits(const struct cdi_host *host, const char *session, const json_t *nodes)
{
	char file[PATH_MAX + 32];
	json_t *edits = container_edits_new(), *path;
	size_t i;

	snprintf(file, sizeof(file), "%s/%s", host->slices, session);
	container_edits_env(edits, ATTACH_ENV_SESSION, session);
	container_edits_mount(edits, file, IN_CONTAINER(ATTACH_SLICE_FILE));
	json_array_foreach((json_t *)nodes, i, path)
		container_edits_node(edits, json_string_value(path));
	return edits;
}

json_t *cdi_claim_spec(const char *driver, const struct stored_claim *stored,
		       const struct cdi_host *host, const json_t *nodes)
{
	json_t *devices = json_array();
	char kind[CDI_ID_SIZE], id[CDI_ID_SIZE];

	snprintf(kind, sizeof(kind), CDI_KIND_PREFIX "%s/claim", driver);
	for (size_t i = 0; i < stored->slices; i++) {
		cdi_id(driver, stored, i, id);
		json_array_append_new(
			devices,
			cdi_device(strchr(id, '=') + 1, device_edits(host, stored->slice[i].session,
								     json_array_get(nodes, i))));
	}
	return cdi_spec(kind, devices, common_edits(host));
}

/* ---- the host ---------------------------------------------------------------------------- */

/* Libraries that the driver's own two load by name, and nvidia-smi. libcuda.so.VERSION is left out:
 * it is the driver without a limit. */
int cdi_host_find(struct cdi_host *host, const struct driver_libs *driver, struct error *err)
{
	char pattern[PATH_MAX + 32];
	glob_t found = {0};
	const char *slash = strrchr(driver->cuda, '/');
	int directory = slash ? (int)(slash - driver->cuda) : 0;

	snprintf(host->cuda, sizeof(host->cuda), "%s", driver->cuda);
	snprintf(host->nvml, sizeof(host->nvml), "%s", driver->nvml);
	json_decref(host->mounts);
	host->mounts = json_array();
	if (!host->mounts)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	snprintf(pattern, sizeof(pattern), "%.*s/libnvidia-*.so.*", directory, driver->cuda);
	(void)glob(pattern, 0, NULL, &found);
	(void)glob("/usr/bin/nvidia-smi", GLOB_APPEND, NULL, &found);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		struct stat st;

		if (!strstr(found.gl_pathv[i], "/libnvidia-ml.so") &&
		    stat(found.gl_pathv[i], &st) == 0 && S_ISREG(st.st_mode))
			json_array_append_new(host->mounts, json_string(found.gl_pathv[i]));
	}
	globfree(&found);
	return 0;
}

json_t *cdi_nodes_find(const json_t *pci_bus_ids)
{
	json_t *edits = container_edits_new(), *nodes = json_array(), *entry;
	size_t i;

	container_nodes_common(edits);
	json_array_foreach((json_t *)pci_bus_ids, i, entry)
		container_nodes_gpu_pci(edits, json_string_value(entry));
	json_array_foreach(json_object_get(edits, "deviceNodes"), i, entry)
		json_array_append(nodes, json_object_get(entry, "path"));
	json_decref(edits);
	return nodes;
}

int cdi_slice_write(const struct cdi_host *host, const char *session, struct error *err)
{
	char path[PATH_MAX + 32], text[1024];
	int length =
		snprintf(text, sizeof(text),
			 ATTACH_ENV_SESSION
			 "=%s\n" ATTACH_ENV_SOCKET "=" SOCKET "\n" ATTACH_ENV_CUDA
			 "=" IN_CONTAINER(CUDA) "\n" ATTACH_ENV_NVML "=" IN_CONTAINER(NVML) "\n",
			 session);

	snprintf(path, sizeof(path), "%s/%s", host->slices, session);
	/* In place: a container may have it mounted, and its contents never change. */
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	int rc = fd < 0 ? -errno : write_all(fd, text, (size_t)length);
	if (rc == 0 && fchmod(fd, 0444) < 0)
		rc = -errno;
	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "cannot write %.300s: %s", path,
				  strerrordesc_np(-rc))
		      : 0;
}

void cdi_slice_remove(const struct cdi_host *host, const char *session)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", host->slices, session);
	unlink(path);
}
