/* Declarations that the files of the MIG policy share. */
#pragma once

#include "core/mig.h"

/* Bit n is set where units n to n + size - 1 are all set in `free`. */
static inline uint32_t mig_runs(uint32_t free, uint32_t size)
{
	uint32_t have = 1;

	/* Doubles the length of the runs that `free` stands for until it is `size`. */
	while (have < size) {
		uint32_t step = have < size - have ? have : size - have;

		free &= free >> step;
		have += step;
	}
	return free;
}

/* Starts of a profile whose units are all among `free`. */
static inline uint32_t mig_free_starts(const struct mig_profile *profile, uint32_t free)
{
	return profile->starts & mig_runs(free, profile->size);
}

/* Whether the request's part of an instance of this profile would be too small for one context. An
 * instance of its own never is. */
static inline bool mig_is_too_small(const struct mig_gpu *gpu, uint8_t profile,
				    const struct mig_request *request)
{
	return request->together && request->kind == MIG_ASK_BYTES && gpu->context &&
	       profile != MIG_NO_PROFILE && request->bytes < gpu->context[profile];
}

/* Whether the GPU is to be considered at all; `index` is its number in the pool. */
static inline bool mig_considers(const struct mig_request *request, const struct mig_gpu *gpu,
				 uint32_t index)
{
	return gpu->offered && (!request->allowed || request->allowed[index]);
}

/* Starts that the request does not rule out on the GPU with this number in the pool. */
static inline uint32_t mig_starts_wanted(const struct mig_request *request, uint32_t index)
{
	if (request->starts_on)
		return request->starts_on[index];
	return request->starts ? request->starts : UINT32_MAX;
}

void mig_demand_reset(struct mig_die *die);

/* How many instances of the profile an empty GPU holds at once. */
uint32_t mig_capacity(const struct mig_die *die, uint8_t profile);
/* Whether limits and engines allow one more of the profile when the instances in `removed` (a bit
 * each) are gone. */
bool mig_allows(const struct mig_gpu *gpu, const struct mig_die *die, uint8_t profile,
		uint32_t removed);
/* Recomputes gpu->blocked from its counts. */
void mig_gpu_block(struct mig_gpu *gpu, const struct mig_die *die);
