/* NVML's reports of MIG on each board, and where instances may lie on each die: data, generated
 * at build time from mig-profiles.json. Constant; any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A GPU instance profile. Zero in memory_mib, sm or an engine means that no figure was found. */
struct mig_profile {
	const char *name; /* "1g.10gb" */
	uint8_t nvml_enum;
	uint8_t id;
	uint8_t max_instances;
	uint8_t compute_slices;
	uint32_t memory_mib;
	uint16_t sm;
	uint8_t ce, dec, enc, jpeg, ofa; /* engines: copy, decode, encode, JPEG, optical flow */
	/* An instance that starts there has this much memory; 0: none differs. */
	uint8_t other_start;
	uint32_t other_memory_mib;
};

/* How GPU instances divide into compute instances. */
enum mig_compute_rules {
	MIG_COMPUTE_AMPERE,
	MIG_COMPUTE_HOPPER, /* also a 1-slice instance with more SMs (1_SLICE_REV1) */
};

#define MIG_NO_ID 0xffu

/* The profiles of one kind of board with some drivers. */
struct mig_family {
	uint16_t device_ids[8]; /* PCI, ended by 0 where fewer */
	enum mig_compute_rules compute_rules;
	const struct mig_profile *profiles;
	size_t profile_count;
	uint16_t driver_since, driver_before; /* branches: since <= branch < before */
	uint8_t memory_shared;                /* with the processor: no instance has its own */
	/* IDs of profiles that cannot be made together whatever units are free, each set ended by
	 * MIG_NO_ID. */
	uint8_t not_together[8][4];
	uint8_t not_together_count;
};

#define MIG_STARTS_MAX 12u
struct mig_legal {
	uint8_t profile_id;
	uint8_t size; /* memory units */
	uint8_t count;
	uint8_t starts[MIG_STARTS_MAX];
};

struct mig_die {
	const char *name; /* sim_model.mig_class */
	uint8_t memory_units;
	uint8_t compute_slices;
	uint8_t legal_count;
	struct mig_legal legal[16];
};

extern const struct mig_family mig_families[];
extern const size_t mig_family_count;
extern const struct mig_die mig_dies[];
extern const size_t mig_die_count;
