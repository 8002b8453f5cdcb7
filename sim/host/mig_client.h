/* A library's side of MIG: the host's instances, and what they are as devices. As thread-safe as
 * host/client.h. */
#pragma once

#include "host/client.h"
#include "host/mig.h"
#include "host/mig_wire.h"

/* One compute instance: what NVML calls a MIG device, and what CUDA can use. */
struct mig_device {
	wire_device id;
	char uuid[MIG_UUID_SIZE];
	char profile[48]; /* "1g.10gb", "1c.3g.40gb" */
	uint16_t sm;
	uint8_t gi_slices, ci_slices;
	uint64_t memory_total; /* bytes of its GPU instance, which its other compute instances share
				*/
	uint64_t memory_reserved; /* the driver's part of them */
	uint64_t memory_used;     /* by processes, when asked */
};

#define MIG_DEVICES_MAX (MIG_GI_MAX * MIG_CI_MAX)

/* The GPU's instances. -ENOTSUP: no MIG, or mode off. */
int mig_client_state(struct client *c, uint32_t gpu, struct wire_mig_state_reply *ret);
/* The GPU's MIG devices in NVML's order: by GPU instance ID, then compute instance ID. Returns how
 * many there are (0 with MIG mode off), or -errno. */
int mig_client_devices(struct client *c, uint32_t gpu, struct mig_device out[MIG_DEVICES_MAX]);

int mig_client_set_mode(struct client *c, uint32_t gpu, bool enable);
/* device: a GPU for a GPU instance, a GPU instance for a compute instance. */
int mig_client_create(struct client *c, enum wire_mig_type type, wire_device device,
		      uint32_t profile_id, uint32_t start, uint32_t *ret_id);
int mig_client_destroy(struct client *c, enum wire_mig_type type, wire_device device);
