/* A container's root lacks some of these capabilities, unless the container is privileged. Or it is
 * in another user namespace: there it has all capabilities, and no right on the host.
 *
 * - Capabilities: capget(2) tells those of any process to anybody. A process cannot get back what
 *   its bounding set lacks.
 * - The user namespace: its link in /proc tells it, but only to a process that may trace the other
 *   one. A daemon without rights compares the maps of IDs in place of that, which everybody may
 *   read. Root of the host could map each ID to itself in a new namespace. To be taken for the
 *   host's, such a namespace needs the same map of users, of groups and of projects. So a worker
 *   also has its warden look, which may (WARDEN_ROOT_LOOK). */
#include "base/host_root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

/* A container has some of them by default, and with more of them it is as good as root. */
#define HOST_CAPABILITIES                                                      \
	(1ull << CAP_SYS_ADMIN | 1ull << CAP_SYS_PTRACE | 1ull << CAP_SETUID | \
	 1ull << CAP_SETGID | 1ull << CAP_DAC_OVERRIDE)

/* A map of 100 lines, more than a container has. A longer one is taken for another's. */
#define MAP_SIZE 4096

/* The capabilities that root has here. Where the whole machine is a container, root lacks some. */
static uint64_t needed;
static bool remembered;

static bool capabilities_of(pid_t pid, uint64_t *ret)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3,
						  .pid = pid};
	struct __user_cap_data_struct data[2] = {0};

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	*ret = (uint64_t)data[1].effective << 32 | data[0].effective;
	return true;
}

void host_root_remember(void)
{
	uint64_t first = 0, own = 0;

	(void)capabilities_of(1, &first);
	(void)capabilities_of(0, &own);
	needed = (first | own) & HOST_CAPABILITIES;
	/* A daemon of root's in a container without capabilities is as little as its clients. */
	if (!needed && geteuid() != 0)
		needed = HOST_CAPABILITIES;
	remembered = true;
}

uint64_t host_root_needed(void)
{
	return needed;
}

void host_root_adopt(uint64_t capabilities)
{
	needed = capabilities;
	remembered = true;
}

static bool has_capabilities(pid_t pid)
{
	uint64_t has;

	if (!remembered)
		host_root_remember();
	return capabilities_of(pid, &has) && (has & needed) == needed;
}

/* A map of this process's own, which does not change; read once. */
struct map {
	const char *name;
	ssize_t size; /* 0 or less: it was not read */
	char text[MAP_SIZE];
};

static bool map_is_ours(pid_t pid, struct map *own)
{
	char path[64], text[MAP_SIZE];

	if (own->size <= 0) {
		snprintf(path, sizeof(path), "/proc/self/%s", own->name);
		own->size = file_read(path, own->text, sizeof(own->text));
	}
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, own->name);
	ssize_t size = file_read(path, text, sizeof(text));
	return size >= 0 && size == own->size && !memcmp(text, own->text, (size_t)size);
}

static bool is_in_our_namespace(pid_t pid)
{
	static struct map maps[] = {
		{.name = "uid_map"}, {.name = "gid_map"}, {.name = "projid_map"}};
	char path[64];
	struct stat its, own;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (stat(path, &its) == 0)
		return stat("/proc/self/ns/user", &own) == 0 && its.st_dev == own.st_dev &&
		       its.st_ino == own.st_ino;
	if (errno != EACCES && errno != EPERM)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
		if (!map_is_ours(pid, &maps[i]))
			return false;
	return true;
}

bool host_root_is(pid_t pid)
{
	return has_capabilities(pid) && is_in_our_namespace(pid);
}
