/* The rules of MIG: which instances a GPU can have, where, and what they consist of. Pure functions
 * on plain data, used by the host (which owns the state) and by the NVML library (which gets copies
 * of it and answers questions from them). No allocation, no locks.
 *
 * Memory units are the GPU's (8 on a g7 die); a GPU instance covers `size` of them from `start`.
 * Compute slices are counted within their GPU instance. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "host/mig_tables.h"
#include "host/models.h"

#define MIG_GI_MAX 8u      /* GPU instances a GPU */
#define MIG_CI_MAX 8u      /* compute instances a GPU instance; their IDs are below it */
#define MIG_ANYWHERE 0xffu /* as start: wherever the driver puts it */
#define MIG_UUID_SIZE 41u  /* "MIG-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" and NUL */

struct mig_ci {
	uint8_t used;
	uint8_t profile_id;
	uint8_t start, size; /* compute slices */
};

struct mig_gi {
	uint8_t used;
	uint8_t id;
	uint8_t profile_id;
	uint8_t start, size; /* memory units */
	struct mig_ci ci[MIG_CI_MAX];
};

/* The instances of one GPU; zeroed: none. */
struct mig_state {
	struct mig_gi gi[MIG_GI_MAX];
};

/* The limits of a GPU's board; constant once found. */
struct mig_board {
	const struct sim_model *model;
	const struct mig_family *family;
	const struct mig_die *die;
};

/* A compute instance profile as it is within one GPU instance. */
struct mig_compute_profile {
	uint8_t id; /* NVML's enum as well */
	uint8_t slices;
	uint8_t max_instances;
	uint16_t sm;
	char name[48]; /* "1c.3g.40gb"; the whole GPU instance: "3g.40gb" */
};

/* With the driver's branch (550), on which names and profiles depend. False: this model has no MIG.
 */
bool mig_board_find(const struct sim_model *model, uint32_t branch, struct mig_board *ret);
/* From now on boards in this process are drawn at random from real ones, always the same for a
 * seed; 0: they are the real ones. Before any board is found. */
void mig_shuffle(uint32_t seed);
/* Shuffles a board that was just found, where mig_shuffle() asked for it. */
void mig_board_shuffle(struct mig_board *board);
/* NULL: this board has no such profile. */
const struct mig_profile *mig_profile_by_enum(const struct mig_board *b, uint32_t nvml_enum);
const struct mig_profile *mig_profile_by_id(const struct mig_board *b, uint32_t id);
/* Where a GPU instance of the profile may lie on this die; never NULL for the board's profiles. */
const struct mig_legal *mig_legal(const struct mig_board *b, const struct mig_profile *p);
/* The profile's figures, derived from the board where none was found. MiB; SMs; engines. */
uint32_t mig_memory_mib(const struct mig_board *b, const struct mig_profile *p);
/* The memory of an instance, which may depend on where it lies. */
uint32_t mig_gi_memory_mib(const struct mig_board *b, const struct mig_gi *gi);
/* Bytes of it that the driver keeps. */
uint64_t mig_reserved_bytes(const struct mig_board *b, const struct mig_profile *p);
uint16_t mig_sm(const struct mig_board *b, const struct mig_profile *p);

/* Whether it can be made there now. */
bool mig_gi_fits(const struct mig_board *b, const struct mig_state *s, const struct mig_profile *p,
		 uint8_t start);
/* How many more of them there could be. */
uint32_t mig_gi_remaining(const struct mig_board *b, const struct mig_state *s,
			  const struct mig_profile *p);
/* -EINVAL: no such profile, or never legal there. -ENOSPC: something is in the way. */
int mig_gi_create(const struct mig_board *b, struct mig_state *s, uint32_t profile_id,
		  uint8_t start, uint8_t *ret_id);
/* -ENOENT; -EBUSY: it has compute instances. */
int mig_gi_destroy(struct mig_state *s, uint8_t id);
/* NULL: none with that ID. */
struct mig_gi *mig_gi_find(const struct mig_state *s, uint8_t id);

/* False: the GPU instance has no such compute profile. */
bool mig_compute_profile(const struct mig_board *b, const struct mig_gi *gi, uint32_t nvml_enum,
			 struct mig_compute_profile *ret);
/* Places of a compute profile within the GPU instance, at most MIG_CI_MAX; *ret_size slices each.
 * Returns their number. */
uint32_t mig_ci_places(const struct mig_board *b, const struct mig_gi *gi, uint32_t profile_id,
		       uint8_t starts[MIG_CI_MAX], uint8_t *ret_size);
uint32_t mig_ci_remaining(const struct mig_board *b, const struct mig_gi *gi, uint32_t profile_id);
/* Errors as for GPU instances. */
int mig_ci_create(const struct mig_board *b, struct mig_gi *gi, uint32_t profile_id, uint8_t start,
		  uint8_t *ret_id);
int mig_ci_destroy(struct mig_gi *gi, uint8_t id);

/* Deterministic, as the real one: destroyed and made again at the same place, an instance has the
 * same UUID. */
void mig_uuid(const uint8_t gpu_uuid[16], const struct mig_gi *gi, const struct mig_ci *ci,
	      char buf[static MIG_UUID_SIZE]);
/* How long real drivers take to make or destroy an instance with so many slices, ns: a GPU
 * instance, or with `compute` a compute instance. Published for A30, A100 and H100 (mig.c). */
uint64_t mig_change_ns(const struct mig_board *b, uint8_t slices, bool create, bool compute);
/* The most MIG devices the board can have at once. */
uint32_t mig_device_max(const struct mig_board *b);
