#include "container/nodes.h"

#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/macros.h"
#include "container/edits.h"

#define PROC_GPUS "/proc/driver/nvidia/gpus"

/* A node that is there; NVIDIA's tools make some only when they are needed. */
static void node_add(json_t *edits, const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISCHR(st.st_mode))
		container_edits_node(edits, path);
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

static void gpu_add(json_t *edits, const char *key, const char *value)
{
	glob_t files = {0};
	char text[4096], found[128], path[160];

	if (!*value || glob(PROC_GPUS "/*/information", 0, NULL, &files) != 0)
		return;
	for (size_t i = 0; i < files.gl_pathc; i++) {
		if (file_read(files.gl_pathv[i], text, sizeof(text)) < 0 ||
		    strcasecmp(field_read(text, key, found, sizeof(found)), value) != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/nvidia%s",
			 field_read(text, "Device Minor", found, sizeof(found)));
		if (*found)
			node_add(edits, path);
	}
	globfree(&files);
}

void container_nodes_gpu_uuid(json_t *edits, const char *uuid)
{
	gpu_add(edits, "GPU UUID", uuid);
}

void container_nodes_gpu_pci(json_t *edits, const char *address)
{
	/* NVML writes a domain of eight digits, the kernel module one of four. */
	gpu_add(edits, "Bus Location", strlen(address) == 16 ? address + 4 : address);
}
