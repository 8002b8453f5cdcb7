#include "proto/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>

#include "base/macros.h"

/* The kernel's own bound on PIDs. */
#define PID_MOST (1 << 22)

static bool names_a_process(const struct guard_request *r)
{
	/* Not this PID namespace's first one, nor a group of processes. */
	return r->pid > 1 && r->pid <= PID_MOST && r->birth;
}

int guard_request_check(const struct guard_request *r, size_t size)
{
	if (size != sizeof(*r) || r->magic != GUARD_MAGIC)
		return -EPROTO;
	if (r->version != GUARD_VERSION)
		return -EOPNOTSUPP;
	for (size_t i = 0; i < ARRAY_SIZE(r->reserved); i++)
		if (r->reserved[i])
			return -EINVAL;
	if (r->op != GUARD_FILE && r->file)
		return -EINVAL;
	switch ((enum guard_op)r->op) {
	case GUARD_SIGNAL:
		/* (uid_t)-1 leaves a user as it is, where it is set. */
		return names_a_process(r) && r->uid != UINT32_MAX &&
				       (r->signal == SIGTERM || r->signal == SIGKILL)
			       ? 0
			       : -EINVAL;
	case GUARD_NAMESPACE:
		return names_a_process(r) ? 0 : -EINVAL;
	case GUARD_RENEW:
	case GUARD_LEAVE:
		return 0;
	case GUARD_FILE:
		return r->file >= GUARD_FILE_LOCK && r->file <= GUARD_FILE_START ? 0 : -EINVAL;
	}
	return -EOPNOTSUPP;
}

int guard_reply_check(const struct guard_reply *r, size_t size)
{
	return size == sizeof(*r) && r->magic == GUARD_MAGIC && r->version == GUARD_VERSION &&
			       r->error >= 0
		       ? 0
		       : -EPROTO;
}
