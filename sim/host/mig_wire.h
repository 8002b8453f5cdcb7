/* MIG's messages to the host: see host/wire.h. Changing things is for the host's owner and root;
 * for others -EPERM. -ENOTSUP: no MIG, or MIG mode is off. */
#pragma once

#include "host/mig.h"
#include "host/wire.h"

enum wire_mig_type {
	WIRE_MIG_STATE = (int)WIRE_MIG_FIRST,
	WIRE_MIG_SET_MODE,
	WIRE_MIG_GI_CREATE,
	WIRE_MIG_GI_DESTROY,
	WIRE_MIG_CI_CREATE,
	WIRE_MIG_CI_DESTROY,
};

/* STATE, GI_DESTROY, CI_DESTROY take a wire_device_request; the latter two are replied to with a
 * wire_mig_reply. A GPU instance is a wire_device without compute instance. Destroying: -ENOENT;
 * -EBUSY while it has compute instances, or processes use it. */

/* Replied to with a wire_head. -EBUSY: GPU instances exist, or processes use the GPU; of the latter
 * the mode is pending then (WIRE_GPU_MIG_PENDING). -EAGAIN: it is pending until a reset. */
struct wire_mig_set_mode {
	struct wire_head head;
	wire_device device;
	uint32_t enable;
};

/* -EINVAL: no such profile, or never legal there; -ENOSPC: something is in the way. */
struct wire_mig_create {
	struct wire_head head;
	wire_device device; /* GPU; GPU instance for a compute instance */
	uint32_t profile_id;
	uint32_t start; /* MIG_ANYWHERE: the driver's choice */
	uint32_t spare;
};

/* Also where creating fails after it was done. */
struct wire_mig_reply {
	struct wire_head head;
	uint32_t id; /* the ID of the created instance */
	uint32_t spare;
	uint64_t delay_ns; /* the call takes so long: sleep before returning */
};

struct wire_mig_state_reply {
	struct wire_head head;
	uint32_t generation; /* wire_gpu.mig_generation that this is of */
	uint32_t spare;
	struct mig_state state;
	uint64_t used[MIG_GI_MAX]; /* bytes held in each GPU instance, in order of state.gi */
};

_Static_assert((int)WIRE_MIG_CI_DESTROY <= (int)WIRE_MIG_LAST,
	       "within MIG's range of message types");
