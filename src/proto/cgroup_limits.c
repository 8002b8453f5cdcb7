#include "proto/cgroup_limits.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/cgroup.h"

/* More GPUs than any host has. */
#define GPU_MOST 256u
/* The kernel's own bound on PIDs. */
#define PID_MOST (1 << 22)

static bool is_path(const char path[static LIMITS_PATH_SIZE])
{
	size_t length = strnlen(path, LIMITS_PATH_SIZE);

	return length > 1 && length < LIMITS_PATH_SIZE && path[0] == '/' &&
	       path[length - 1] != '/' && !strstr(path, "/../") && !strstr(path, "/./") &&
	       strcmp(path + length - 2, "..") != 0;
}

/* One that carve makes and removes. */
static bool is_leaf(const char path[static LIMITS_PATH_SIZE])
{
	const char *name = is_path(path) ? strrchr(path, '/') : NULL;

	return name && !strncmp(name + 1, CGROUP_SESSION, strlen(CGROUP_SESSION));
}

int limits_request_check(const struct limits_request *r, size_t size)
{
	if (size != sizeof(*r) || r->magic != LIMITS_MAGIC)
		return -EPROTO;
	if (r->version != LIMITS_VERSION)
		return -EOPNOTSUPP;
	if (r->gpu >= GPU_MOST)
		return -EINVAL;
	switch ((enum limits_op)r->op) {
	case LIMITS_PROBE:
		return 0;
	case LIMITS_PUT:
		return is_path(r->path) ? 0 : -EINVAL;
	case LIMITS_ENTER:
		return is_leaf(r->path) && r->pid > 1 && r->pid <= PID_MOST && r->birth ? 0
											: -EINVAL;
	case LIMITS_LEAVE:
		return is_leaf(r->path) ? 0 : -EINVAL;
	}
	return -EOPNOTSUPP;
}

int limits_reply_check(const struct limits_reply *r, size_t size, uint16_t op)
{
	return size == sizeof(*r) && r->magic == LIMITS_MAGIC && r->version == LIMITS_VERSION &&
			       r->op == op && r->error >= 0
		       ? 0
		       : -EPROTO;
}
