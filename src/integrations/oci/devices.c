#include "integrations/oci/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"

size_t oci_devices_list(const json_t *edits, struct oci_device list[static OCI_DEVICES_MAX])
{
	size_t count = 0, i;
	json_t *node;

	json_array_foreach(json_object_get(edits, "deviceNodes"), i, node)
	{
		const char *path = json_string_value(json_object_get(node, "path"));
		struct oci_device *device = &list[count];
		struct stat st;

		if (count == OCI_DEVICES_MAX || !path || stat(path, &st) < 0 ||
		    snprintf(device->path, sizeof(device->path), "%s", path) >=
			    (int)sizeof(device->path))
			continue;
		device->major = major(st.st_rdev);
		device->minor = minor(st.st_rdev);
		/* The node is the container's own, and the container is in the slice: a file that
		 * an administrator closed on the host is open there. */
		device->mode = (st.st_mode & 0777) | (st.st_mode >> 3 & 6);
		count++;
	}
	return count;
}

/* ---- the contents of config.json --------------------------------------------------------- */

static bool number_matches(const json_t *rule, const char *key, unsigned number)
{
	const json_t *value = json_object_get(rule, key);

	/* Numbers may have been read as reals. -1 stands for all, too. */
	return !json_is_number(value) || json_number_value(value) < 0 ||
	       json_number_value(value) == (double)number;
}

static bool rule_matches(const json_t *rule, unsigned major, unsigned minor)
{
	const char *type = json_string_value(json_object_get(rule, "type"));

	return (!type || !strcmp(type, "a") || !strcmp(type, "c")) &&
	       number_matches(rule, "major", major) && number_matches(rule, "minor", minor);
}

bool oci_config_allows(const json_t *config, unsigned major, unsigned minor)
{
	const json_t *resources = json_object_get(json_object_get(config, "linux"), "resources");
	bool read = false, write = false;
	json_t *rule;
	size_t i;

	json_array_foreach(json_object_get(resources, "devices"), i, rule)
	{
		const char *access = json_string_value(json_object_get(rule, "access"));
		bool allow = json_is_true(json_object_get(rule, "allow"));

		if (!rule_matches(rule, major, minor))
			continue;
		if (!access || strchr(access, 'r'))
			read = allow;
		if (!access || strchr(access, 'w'))
			write = allow;
	}
	return read && write;
}

static bool config_has_node(const json_t *config, const char *path)
{
	json_t *node;
	size_t i;

	json_array_foreach(json_object_get(json_object_get(config, "linux"), "devices"), i, node)
	{
		const char *its = json_string_value(json_object_get(node, "path"));

		if (its && path && !strcmp(its, path))
			return true;
	}
	return false;
}

/* The runtime has made them: the hook mounts the rest. */
static void known_drop(const json_t *config, json_t *edits)
{
	json_t *nodes = json_object_get(edits, "deviceNodes");

	for (size_t i = json_array_size(nodes); i-- > 0;) {
		const json_t *node = json_array_get(nodes, i);

		if (config_has_node(config, json_string_value(json_object_get(node, "path"))))
			json_array_remove(nodes, i);
	}
}

/* ---- its cgroup -------------------------------------------------------------------------- */

/* The file that takes rules for the container, of version 1. False: there is none. */
static bool rules_file(pid_t pid, char *buf, size_t size)
{
	char of[PATH_MAX];

	return cgroup_path(pid, "devices", of, sizeof(of)) == 0 && strcmp(of, "/") != 0 &&
	       !strstr(of, "..") &&
	       snprintf(buf, size, "/sys/fs/cgroup/devices%s/devices.allow", of) < (int)size;
}

/* Runtimes set no rules in a user namespace: only the first one has all users, as they are. */
static bool is_root(void)
{
	static const unsigned long first[] = {0, 0, UINT_MAX};
	char map[128], *at = map;

	if (geteuid() != 0 || file_read("/proc/self/uid_map", map, sizeof(map)) <= 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(first); i++)
		if (strtoul(at, &at, 10) != first[i])
			return false;
	return true;
}

bool oci_devices_have_rules(void)
{
	return is_root();
}

/* Whether rules bind the container, as far as this user knows: without a cgroup of its own none do.
 */
static bool is_restricted(pid_t pid)
{
	char its[PATH_MAX], own[PATH_MAX];

	return is_root() && cgroup_path(pid, "", its, sizeof(its)) == 0 &&
	       cgroup_path(0, "", own, sizeof(own)) == 0 && strcmp(its, own) != 0;
}

static int rule_write(const char *path, const struct oci_device *device, struct error *err)
{
	char rule[64];
	int length = snprintf(rule, sizeof(rule), "c %u:%u rw", device->major, device->minor);
	cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	/* Without rights in this user namespace nothing restricts the container, either. */
	if (fd < 0 && (errno == EACCES || errno == ENOENT))
		return 0;
	int rc = fd < 0 ? -errno : write_all(fd, rule, (size_t)length);
	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "%.300s does not take '%s': %s", path,
				  rule, strerrordesc_np(-rc))
		      : 0;
}

static int refuse(const struct oci_device *device, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED,
		  "with cgroup version 2 a hook cannot let a container open %s", device->path);
	error_hint(err,
		   "use carve podman run or carve hook install, or a CDI device of a session or of "
		   "one GPU (carve cdi generate --gpu-ids): "
		   "/usr/share/doc/carve/user/containers.md");
	return -err->code;
}

int oci_devices_allow(const struct oci_container *container, const json_t *config, json_t *edits,
		      struct error *err)
{
	struct oci_device list[OCI_DEVICES_MAX];
	size_t count = oci_devices_list(edits, list);
	char path[PATH_MAX];
	int rc = 0;

	bool version_1 = rules_file(container->pid, path, sizeof(path));
	for (size_t i = 0; i < count && rc == 0; i++)
		if (version_1 && geteuid() == 0)
			rc = rule_write(path, &list[i], err);
		else if (!version_1 && !oci_config_allows(config, list[i].major, list[i].minor) &&
			 is_restricted(container->pid))
			rc = refuse(&list[i], err);
	known_drop(config, edits);
	return rc;
}
