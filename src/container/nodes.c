#include "container/nodes.h"

#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/device_files.h"
#include "base/file.h"
#include "base/macros.h"
#include "container/edits.h"

#define PROC_GPUS "/proc/driver/nvidia/gpus"
#define PROC_CAPABILITIES "/proc/driver/nvidia/capabilities"

/* By this name runc tells systemd of a node, and only if the name is there (1.1.5). At `systemctl
 * daemon-reload` systemd sets all units up anew, and takes away what it was not told of. For
 * NVIDIA's nodes udev makes no such links. A process without the rights leaves it to others. */
static void char_link_make(const char *path, dev_t device)
{
	char link[64], target[PATH_MAX];

	if (geteuid() != 0 || strncmp(path, "/dev/", 5) != 0)
		return;
	snprintf(link, sizeof(link), "/dev/char/%u:%u", major(device), minor(device));
	snprintf(target, sizeof(target), "../%s", path + 5);
	(void)mkdir("/dev/char", 0755);
	(void)symlink(target, link);
}

/* A node that is there; NVIDIA's tools make some only when they are needed. */
static void node_add(json_t *edits, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0 || !S_ISCHR(st.st_mode))
		return;
	/* A container's node is its own: one that an administrator closed on the host is open to
	 * all users of the container, who are in the slice. */
	container_edits_node(edits, path,
			     device_file_is_closed(&st) && (st.st_mode & 060) == 060 ? 0666 : 0);
	char_link_make(path, st.st_rdev);
}

void container_nodes_common(json_t *edits)
{
	static const char *const common[] = {"/dev/nvidiactl", "/dev/nvidia-uvm",
					     "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"};

	for (size_t i = 0; i < ARRAY_SIZE(common); i++)
		node_add(edits, common[i]);
}

/* The value of "KEY:  VALUE" in the kernel module's text of a GPU. Returns buf; "": no such line.
 */
static const char *field_read(const char *text, const char *key, char *buf, size_t size)
{
	const char *at = strstr(text, key);
	size_t length;

	buf[0] = '\0';
	if (!at)
		return buf;
	at += strlen(key);
	at += strspn(at, ": \t");
	length = strcspn(at, "\n");
	snprintf(buf, size, "%.*s", (int)length, at);
	return buf;
}

/* The GPU's minor number as a text, of which `key` has that value. False: the kernel module lists
 * no such GPU. */
static bool minor_find(const char *key, const char *value, char *minor, size_t size)
{
	glob_t files = {0};
	char text[4096], found[128];

	minor[0] = '\0';
	// NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's glob() is safe without GLOB_ALTDIRFUNC
	if (!*value || glob(PROC_GPUS "/*/information", 0, NULL, &files) != 0)
		return false;
	for (size_t i = 0; i < files.gl_pathc && !*minor; i++) {
		if (file_read(files.gl_pathv[i], text, sizeof(text)) >= 0 &&
		    strcasecmp(field_read(text, key, found, sizeof(found)), value) == 0)
			field_read(text, "Device Minor", minor, size);
	}
	globfree(&files);
	return *minor;
}

static void gpu_add(json_t *edits, const char *key, const char *value)
{
	char minor[16], path[64];

	if (!minor_find(key, value, minor, sizeof(minor)))
		return;
	snprintf(path, sizeof(path), "/dev/nvidia%s", minor);
	node_add(edits, path);
}

void container_nodes_gpu_uuid(json_t *edits, const char *uuid)
{
	gpu_add(edits, "GPU UUID", uuid);
}

/* NVML writes a domain of eight digits, the kernel module one of four. */
static const char *address_of_module(const char *address)
{
	return strlen(address) == 16 ? address + 4 : address;
}

void container_nodes_gpu_pci(json_t *edits, const char *address)
{
	gpu_add(edits, "Bus Location", address_of_module(address));
}

/* The kernel module has a file for each capability, which says the node that stands for it. */
static void capability_add(json_t *edits, const char *file)
{
	char text[512], minor[16], path[64];

	if (file_read(file, text, sizeof(text)) < 0 ||
	    !*field_read(text, "DeviceFileMinor", minor, sizeof(minor)))
		return;
	snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%s", minor);
	node_add(edits, path);
}

void container_nodes_instance(json_t *edits, const char *address, unsigned gpu_instance,
			      unsigned compute_instance)
{
	char minor[16], path[160];

	if (!minor_find("Bus Location", address_of_module(address), minor, sizeof(minor)))
		return;
	snprintf(path, sizeof(path), PROC_CAPABILITIES "/gpu%s/mig/gi%u/access", minor,
		 gpu_instance);
	capability_add(edits, path);
	snprintf(path, sizeof(path), PROC_CAPABILITIES "/gpu%s/mig/gi%u/ci%u/access", minor,
		 gpu_instance, compute_instance);
	capability_add(edits, path);
}
