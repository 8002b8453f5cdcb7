/* Dies, the states of instances, and what is derived from a GPU's instances. */
#include "core/mig_private.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "base/nvml_abi.h"

uint32_t mig_flags_of(uint32_t nvml_enum)
{
	switch (nvml_enum) {
	case NVML_GPU_INSTANCE_PROFILE_1_SLICE:
	case NVML_GPU_INSTANCE_PROFILE_2_SLICE:
	case NVML_GPU_INSTANCE_PROFILE_3_SLICE:
	case NVML_GPU_INSTANCE_PROFILE_4_SLICE:
	case NVML_GPU_INSTANCE_PROFILE_6_SLICE:
	case NVML_GPU_INSTANCE_PROFILE_7_SLICE:
	case NVML_GPU_INSTANCE_PROFILE_8_SLICE:
	case NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2:
		return 0;
	case NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1:
	case NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1:
	case NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME:
	case NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME:
		return MIG_MEDIA;
	case NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:
	case NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:
		return MIG_NO_MEDIA;
	case NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX:
	case NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX:
	case NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX:
	case NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX:
		return MIG_GRAPHICS;
	default:
		return MIG_OTHER;
	}
}

/* Units that some placement of the profile covers; 0: one of them is beyond the word. */
static uint32_t profile_units(const struct mig_profile *p)
{
	uint32_t units = 0;

	if (p->size == 0 || p->size > MIG_UNITS_MAX)
		return 0;
	for (uint32_t start = 0; start < MIG_UNITS_MAX; start++) {
		if (!(p->starts >> start & 1))
			continue;
		if (start + p->size > MIG_UNITS_MAX)
			return 0;
		units |= mig_units((uint8_t)start, p->size);
	}
	return units;
}

/* The GPU's engines of a kind are those of a profile that covers it all. Where NVML's figures do
 * not agree with that, as it would let more instances be made than there are engines for, they are
 * not what instances share. */
static uint32_t engines_of(const struct mig_die *die, uint32_t engine)
{
	uint32_t all = 0;

	for (uint32_t i = 0; i < die->profile_count; i++)
		if (die->profile[i].size == die->units)
			all = MAX(all, die->profile[i].engines[engine]);
	for (uint32_t i = 0; i < die->profile_count; i++) {
		uint32_t most = mig_capacity(die, (uint8_t)i);

		if (most * die->profile[i].engines[engine] > all)
			return UINT32_MAX;
	}
	return all;
}

int mig_die_init(struct mig_die *die)
{
	uint32_t units = 0;

	if (die->profile_count > MIG_PROFILES_MAX)
		return -E2BIG;
	for (uint32_t i = 0; i < die->profile_count; i++) {
		uint32_t covered = profile_units(&die->profile[i]);

		if (die->profile[i].starts && !covered)
			return -EINVAL;
		units |= covered;
	}
	die->units = (uint32_t)__builtin_popcount(units);
	die->sms = 0;
	for (uint32_t i = 0; i < die->profile_count; i++)
		die->sms = MAX(die->sms, die->profile[i].sms);
	for (uint32_t e = 0; e < MIG_ENGINES; e++)
		die->engines[e] = engines_of(die, e);
	mig_demand_reset(die);
	return 0;
}

static bool profile_equal(const struct mig_profile *a, const struct mig_profile *b)
{
	return a->memory_bytes == b->memory_bytes && a->sms == b->sms && a->slices == b->slices &&
	       a->limit == b->limit && a->flags == b->flags && a->starts == b->starts &&
	       a->size == b->size && !memcmp(a->engines, b->engines, sizeof(a->engines));
}

bool mig_die_equal(const struct mig_die *a, const struct mig_die *b)
{
	if (a->profile_count != b->profile_count)
		return false;
	for (uint32_t i = 0; i < a->profile_count; i++)
		if (!profile_equal(&a->profile[i], &b->profile[i]))
			return false;
	return true;
}

uint32_t mig_capacity(const struct mig_die *die, uint8_t profile)
{
	const struct mig_profile *p = &die->profile[profile];
	uint32_t count = 0;

	/* Among intervals of one length, the one that starts first is never a worse choice. */
	for (uint32_t start = 0; start < MIG_UNITS_MAX; start++) {
		if (!(p->starts >> start & 1))
			continue;
		count++;
		start += p->size - 1u;
	}
	return p->limit ? MIN(count, p->limit) : count;
}

/* ---- states ------------------------------------------------------------------------------- */

static const struct {
	const char *text;
	uint32_t next; /* a bit for each state that may follow */
} states[MIG_STATES] = {
	[MIG_FOREIGN] = {"foreign", 1 << MIG_GONE},
	/* An instance whose session ended while it was made is idle or, half made, a debt. */
	[MIG_CREATING] = {"creating",
			  1 << MIG_BUSY | 1 << MIG_IDLE | 1 << MIG_DEBT | 1 << MIG_GONE},
	[MIG_BUSY] = {"busy", 1 << MIG_IDLE | 1 << MIG_GONE},
	[MIG_IDLE] = {"idle", 1 << MIG_BUSY | 1 << MIG_REMOVING | 1 << MIG_GONE},
	/* Idle again where the driver says that it is in use, and nothing was removed yet. */
	[MIG_REMOVING] = {"removing", 1 << MIG_IDLE | 1 << MIG_DEBT | 1 << MIG_GONE},
	[MIG_DEBT] = {"debt", 1 << MIG_REMOVING | 1 << MIG_GONE},
	[MIG_GONE] = {"gone", 0},
};

const char *mig_state_text(enum mig_state state)
{
	return (unsigned)state < MIG_STATES ? states[state].text : "unknown";
}

bool mig_state_may(enum mig_state from, enum mig_state to)
{
	return (unsigned)from < MIG_STATES && (unsigned)to < MIG_STATES &&
	       (states[from].next >> to & 1);
}

/* ---- GPUs --------------------------------------------------------------------------------- */

bool mig_allows(const struct mig_gpu *gpu, const struct mig_die *die, uint8_t profile,
		uint32_t removed)
{
	const struct mig_profile *p = &die->profile[profile];
	uint32_t count = gpu->count[profile];
	uint32_t engines[MIG_ENGINES];

	for (uint32_t e = 0; e < MIG_ENGINES; e++)
		engines[e] = gpu->engines[e];
	for (; removed; removed &= removed - 1) {
		uint8_t gone = gpu->instances[__builtin_ctz(removed)].profile;

		if (gone >= die->profile_count)
			continue;
		count -= gone == profile;
		for (uint32_t e = 0; e < MIG_ENGINES; e++)
			engines[e] -= MIN(engines[e], die->profile[gone].engines[e]);
	}
	if (p->limit && count >= p->limit)
		return false;
	for (uint32_t e = 0; e < MIG_ENGINES; e++)
		if (p->engines[e] && die->engines[e] != UINT32_MAX &&
		    engines[e] + p->engines[e] > die->engines[e])
			return false;
	return true;
}

void mig_gpu_block(struct mig_gpu *gpu, const struct mig_die *die)
{
	gpu->blocked = 0;
	for (uint32_t i = 0; i < die->profile_count; i++)
		if (!mig_allows(gpu, die, (uint8_t)i, 0))
			gpu->blocked |= 1u << i;
}

static void instance_count_in(struct mig_gpu *gpu, const struct mig_die *die,
			      const struct mig_instance *in)
{
	if (in->profile >= die->profile_count)
		return;
	gpu->count[in->profile]++;
	for (uint32_t e = 0; e < MIG_ENGINES; e++)
		gpu->engines[e] =
			(uint16_t)(gpu->engines[e] + die->profile[in->profile].engines[e]);
}

static void instance_idle(struct mig_gpu *gpu, const struct mig_die *die,
			  const struct mig_instance *in, uint32_t units)
{
	gpu->idle |= units;
	gpu->idle_oldest = MIN(gpu->idle_oldest, in->used);
	if (in->profile < die->profile_count)
		gpu->idle_profiles |= 1u << in->profile;
}

int mig_gpu_update(struct mig_gpu *gpu, const struct mig_die *die)
{
	if (gpu->instance_count > MIG_INSTANCES_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < gpu->instance_count; i++)
		if (gpu->instances[i].size == 0 ||
		    gpu->instances[i].start + gpu->instances[i].size > (int)MIG_UNITS_MAX)
			return -EINVAL;
	gpu->live = gpu->idle = gpu->idle_profiles = 0;
	gpu->taken_mask = gpu->live_count = 0;
	gpu->chosen = false;
	gpu->idle_oldest = UINT64_MAX;
	memset(gpu->engines, 0, sizeof(gpu->engines));
	memset(gpu->count, 0, sizeof(gpu->count));
	for (uint32_t i = 0; i < gpu->instance_count; i++) {
		const struct mig_instance *in = &gpu->instances[i];
		uint32_t units = mig_units(in->start, in->size);

		if (in->state == MIG_GONE)
			continue;
		instance_count_in(gpu, die, in);
		if (in->state == MIG_IDLE) {
			instance_idle(gpu, die, in, units);
			continue;
		}
		gpu->live |= units;
		gpu->live_count++;
	}
	mig_gpu_block(gpu, die);
	return 0;
}
