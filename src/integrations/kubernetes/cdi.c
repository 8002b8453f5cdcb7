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
#include "proto/attach.h"

#define CDI_VERSION "0.5.0"
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

static void mount_add(json_t *mounts, const char *from, const char *to)
{
	if (*from)
		json_array_append_new(mounts, json_pack("{s:s, s:s, s:[s, s, s, s]}", "hostPath",
							from, "containerPath", to, "options", "ro",
							"nosuid", "nodev", "bind"));
}

static void front_add(json_t *mounts, const struct cdi_host *host, const char *file,
		      const char *in_slice, const char *driver)
{
	char from[2 * PATH_MAX];

	snprintf(from, sizeof(from), "%s/%s", host->front, file);
	mount_add(mounts, from, in_slice);
	/* A program that lost its environment looks for the driver here. */
	if (*driver)
		mount_add(mounts, from, driver);
}

/* What every slice's container gets. */
static json_t *common_edits(const struct cdi_host *host)
{
	json_t *mounts = json_array(), *path;
	size_t i;

	front_add(mounts, host, CUDA, IN_CONTAINER("front/" CUDA), host->cuda);
	front_add(mounts, host, NVML, IN_CONTAINER("front/" NVML), host->nvml);
	mount_add(mounts, host->cuda, IN_CONTAINER(CUDA));
	mount_add(mounts, host->nvml, IN_CONTAINER(NVML));
	mount_add(mounts, host->attach, SOCKET);
	json_array_foreach(host->mounts, i, path)
		mount_add(mounts, json_string_value(path), json_string_value(path));
	return json_pack("{s:[s, s, s, s], s:o}", "env", ATTACH_ENV_SOCKET "=" SOCKET,
			 "LD_PRELOAD=" IN_CONTAINER("front/" CUDA) ":" IN_CONTAINER("front/" NVML),
			 ATTACH_ENV_CUDA "=" IN_CONTAINER(CUDA),
			 ATTACH_ENV_NVML "=" IN_CONTAINER(NVML), "mounts", mounts);
}

static json_t *device_edits(const struct cdi_host *host, const char *session, const json_t *nodes)
{
	char variable[64], file[PATH_MAX + 32];
	json_t *mounts = json_array(), *device_nodes = json_array(), *path;
	size_t i;

	snprintf(variable, sizeof(variable), ATTACH_ENV_SESSION "=%s", session);
	snprintf(file, sizeof(file), "%s/%s", host->slices, session);
	mount_add(mounts, file, IN_CONTAINER(ATTACH_SLICE_FILE));
	json_array_foreach((json_t *)nodes, i, path)
		json_array_append_new(device_nodes, json_pack("{s:O}", "path", path));
	return json_pack("{s:[s], s:o, s:o}", "env", variable, "mounts", mounts, "deviceNodes",
			 device_nodes);
}

json_t *cdi_spec(const char *driver, const struct stored_claim *stored, const struct cdi_host *host,
		 const json_t *nodes)
{
	json_t *devices = json_array();
	char kind[CDI_ID_SIZE], id[CDI_ID_SIZE];

	snprintf(kind, sizeof(kind), CDI_KIND_PREFIX "%s/claim", driver);
	for (size_t i = 0; i < stored->slices; i++) {
		cdi_id(driver, stored, i, id);
		json_array_append_new(devices,
				      json_pack("{s:s, s:o}", "name", strchr(id, '=') + 1,
						"containerEdits",
						device_edits(host, stored->slice[i].session,
							     json_array_get(nodes, i))));
	}
	return json_pack("{s:s, s:s, s:o, s:o}", "cdiVersion", CDI_VERSION, "kind", kind, "devices",
			 devices, "containerEdits", common_edits(host));
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

/* The number in /dev/nvidiaN; -1: the driver does not tell. */
static int minor_find(const char *pci_bus_id)
{
	char path[128], text[4096];
	/* The driver writes a domain of four digits, NVML one of eight. */
	const char *address = strlen(pci_bus_id) == 16 ? pci_bus_id + 4 : pci_bus_id;
	int minor = -1;

	if (snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information", address) >=
	    (int)sizeof(path))
		return -1;
	for (char *c = strrchr(path, '/') - 12; *c && *c != '/'; c++)
		if (*c >= 'A' && *c <= 'F')
			*c += 'a' - 'A';
	if (file_read(path, text, sizeof(text)) < 0)
		return -1;
	const char *at = strstr(text, "Device Minor:");
	return at && sscanf(at, "Device Minor: %d", &minor) == 1 ? minor : -1;
}

static void node_add(json_t *nodes, const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISCHR(st.st_mode))
		json_array_append_new(nodes, json_string(path));
}

json_t *cdi_nodes_find(const json_t *pci_bus_ids)
{
	json_t *nodes = json_array(), *id;
	char path[32];
	size_t i;

	node_add(nodes, "/dev/nvidiactl");
	node_add(nodes, "/dev/nvidia-uvm");
	node_add(nodes, "/dev/nvidia-uvm-tools");
	json_array_foreach((json_t *)pci_bus_ids, i, id)
	{
		int minor = minor_find(json_string_value(id));

		snprintf(path, sizeof(path), "/dev/nvidia%d", minor);
		if (minor >= 0)
			node_add(nodes, path);
	}
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
