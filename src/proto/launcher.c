#include "proto/launcher.h"

#include <errno.h>
#include <stdbool.h>

#include "base/macros.h"

int launcher_request_check(const struct launcher_request *r, size_t size)
{
	if (size != sizeof(*r) || r->magic != LAUNCHER_MAGIC)
		return -EPROTO;
	if (r->version != LAUNCHER_VERSION)
		return -EOPNOTSUPP;
	for (size_t i = 0; i < ARRAY_SIZE(r->reserved); i++)
		if (r->reserved[i])
			return -EINVAL;
	if (r->kind > WARRANT_PODS || (r->kind != 0) != (r->op == LAUNCHER_VOUCH))
		return -EINVAL;
	switch ((enum launcher_op)r->op) {
	case LAUNCHER_VOUCH:
		return r->job || r->attempt ? -EINVAL : 0;
	case LAUNCHER_START:
	case LAUNCHER_END:
		return r->job <= INT64_MAX && r->attempt ? 0 : -EINVAL;
	case LAUNCHER_FILES:
		return r->job <= LAUNCHER_NOBODY && !r->attempt ? 0 : -EINVAL;
	}
	return -EOPNOTSUPP;
}

int launcher_reply_check(const struct launcher_reply *r, size_t size)
{
	return size == sizeof(*r) && r->magic == LAUNCHER_MAGIC && r->version == LAUNCHER_VERSION &&
			       r->error >= 0
		       ? 0
		       : -EPROTO;
}
