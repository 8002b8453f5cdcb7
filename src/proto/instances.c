#include "proto/instances.h"

#include <errno.h>
#include <stdbool.h>

/* More GPUs than any host has. */
#define GPU_MOST 256u

static bool names_a_place(const struct instances_request *r)
{
	return r->count == 1 && r->size && r->start + r->size <= (int)INSTANCES_MOST;
}

int instances_request_check(const struct instances_request *r, size_t size)
{
	if (size != sizeof(*r) || r->magic != INSTANCES_MAGIC)
		return -EPROTO;
	if (r->version != INSTANCES_VERSION)
		return -EOPNOTSUPP;
	if (r->reserved || r->gpu >= GPU_MOST)
		return -EINVAL;
	switch ((enum instances_op)r->op) {
	case INSTANCES_KINDS:
	case INSTANCES_MODE:
		return r->count ? -EINVAL : 0;
	case INSTANCES_LIST:
		return r->count <= INSTANCES_MOST ? 0 : -EINVAL;
	case INSTANCES_MAKE:
	case INSTANCES_REMOVE:
		return names_a_place(r) ? 0 : -EINVAL;
	}
	return -EOPNOTSUPP;
}

int instances_reply_check(const struct instances_reply *r, size_t size, uint16_t op)
{
	return size == sizeof(*r) && r->magic == INSTANCES_MAGIC &&
			       r->version == INSTANCES_VERSION && r->op == op && r->error >= 0 &&
			       r->count <= INSTANCES_MOST
		       ? 0
		       : -EPROTO;
}
