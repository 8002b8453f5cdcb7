#include "daemon/host/bounded_root.h"

#include <stdio.h>

#include "base/file.h"
#include "base/fnv.h"

uid_t bounded_root_of(pid_t pid)
{
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	ssize_t size = file_read(path, text, sizeof(text));
	uint64_t hash = fnv_add(FNV_BASIS, text, size > 0 ? (size_t)size : 0);
	return BOUNDED_ROOT_FIRST +
	       (uid_t)((hash ^ hash >> 32) % (BOUNDED_ROOT_LAST - BOUNDED_ROOT_FIRST + 1));
}
