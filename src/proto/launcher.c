#include "proto/launcher.h"

#include <errno.h>
#include <stdbool.h>

#include "base/macros.h"
#include "proto/shim.h"

int launcher_request_check(const struct launcher_request *r, size_t size)
{
	if (size != sizeof(*r) || r->magic != LAUNCHER_MAGIC)
		return -EPROTO;
	if (r->version != LAUNCHER_VERSION)
		return -EOPNOTSUPP;
	for (size_t i = 0; i < ARRAY_SIZE(r->reserved); i++)
		if (r->reserved[i])
			return -EINVAL;
	bool has_attempt = r->job <= INT64_MAX && r->attempt;
	bool has_user = r->user || r->files;

	switch ((enum launcher_op)r->op) {
	case LAUNCHER_VOUCH:
		return r->job && r->job <= LAUNCHER_COUNT_MAX && r->attempt &&
				       r->attempt <= LAUNCHER_ATTEMPTS_MAX && !has_user &&
				       r->kind && r->kind <= WARRANT_PODS
			       ? 0
			       : -EINVAL;
	case LAUNCHER_START:
	case LAUNCHER_END:
		return has_attempt && !has_user && !r->kind ? 0 : -EINVAL;
	case LAUNCHER_OVER:
		return has_attempt && r->attempt <= LAUNCHER_OVER_MAX && !has_user && !r->kind
			       ? 0
			       : -EINVAL;
	case LAUNCHER_FILES:
		return r->job || r->attempt || r->files || r->kind ? -EINVAL : 0;
	case LAUNCHER_REMOVE:
		return has_attempt && r->files && r->files <= SHIM_FILES_ALL && !r->kind ? 0
											 : -EINVAL;
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
