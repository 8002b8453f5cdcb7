/* The policies that mig.h's is compared with. Each was written anew from its description. */
#include "core/mig_sim_private.h"

#include <float.h>
#include <string.h>

static const char *const names[MIG_POLICIES] = {
	[MIG_POLICY_CARVE] = "carve",
	[MIG_POLICY_EAGER] = "carve, eager",
	[MIG_POLICY_FIRST_FIT] = "first-fit",
	[MIG_POLICY_FIRST_FIT_DRIVER] = "first-fit, driver",
	[MIG_POLICY_BEST_FIT] = "best-fit",
	[MIG_POLICY_WORST_FIT] = "worst-fit",
	[MIG_POLICY_ROUND_ROBIN] = "round-robin",
	[MIG_POLICY_MFI] = "MFI",
	[MIG_POLICY_FGD] = "FGD",
	[MIG_POLICY_REPACK] = "repacking",
};

const char *mig_policy_text(enum mig_policy policy)
{
	return (unsigned)policy < MIG_POLICIES ? names[policy] : "unknown";
}

static uint32_t units_free(const struct mig_die *die, const struct mig_gpu *gpu)
{
	return die->units - (uint32_t)__builtin_popcount(gpu->live);
}

static uint32_t starts_free(const struct sim_view *v, const struct mig_gpu *gpu)
{
	uint8_t profile = v->profile[gpu->die];

	if (!gpu->offered || profile == MIG_NO_PROFILE || gpu->blocked >> profile & 1)
		return 0;
	return mig_free_starts(&v->pool->dies[gpu->die].profile[profile], ~gpu->live);
}

static void choose(const struct sim_view *v, uint32_t gpu, uint32_t start, struct mig_choice *ret)
{
	*ret = (struct mig_choice){.step = MIG_CREATE,
				   .gpu = gpu,
				   .profile = v->profile[v->pool->gpus[gpu].die],
				   .start = (uint8_t)start};
}

/* ---- the rest of a GPU ---------------------------------------------------------------------- */

/* Placements of all ordinary profiles that are free: what the driver keeps large. */
static double placements_left(const struct mig_die *die, uint32_t taken)
{
	int n = 0;

	for (uint32_t i = 0; i < die->profile_count; i++)
		if (die->profile[i].flags == 0)
			n += __builtin_popcount(mig_free_starts(&die->profile[i], ~taken));
	return n;
}

static double fragmentation_mfi(const struct mig_die *die, uint32_t taken)
{
	uint32_t free = die->units - (uint32_t)__builtin_popcount(taken);
	double sum = 0;

	for (uint32_t i = 0; i < die->profile_count; i++) {
		const struct mig_profile *p = &die->profile[i];

		if (p->flags == 0 && p->size <= free)
			sum += (double)p->size *
			       __builtin_popcount(p->starts & ~mig_free_starts(p, ~taken));
	}
	return sum;
}

static double fragmentation_fgd(const struct mig_die *die, const double *share, uint32_t taken)
{
	double free = die->units - (double)__builtin_popcount(taken), sum = 0;

	for (uint32_t i = 0; i < die->profile_count; i++) {
		const struct mig_profile *p = &die->profile[i];
		uint32_t usable = 0;

		for (uint32_t s = mig_free_starts(p, ~taken); s; s &= s - 1)
			usable |= mig_units((uint8_t)__builtin_ctz(s), p->size);
		sum += share[i] * (free - __builtin_popcount(usable));
	}
	return sum;
}

/* The figure that the policy wants to be small. */
static double value_of(struct sim_view *v, enum mig_policy policy, uint32_t die, uint32_t taken)
{
	struct sim_values *values = &v->dies[die].values;
	uint32_t slot = (taken * 2654435761u >> 16) % SIM_VALUES;

	if (values->known[slot] && values->mask[slot] == taken)
		return values->value[slot];
	values->known[slot] = true;
	values->mask[slot] = taken;
	if (policy == MIG_POLICY_MFI)
		values->value[slot] = fragmentation_mfi(&v->pool->dies[die], taken);
	else if (policy == MIG_POLICY_FGD)
		values->value[slot] =
			fragmentation_fgd(&v->pool->dies[die], v->dies[die].share, taken);
	else
		values->value[slot] = -placements_left(&v->pool->dies[die], taken);
	return values->value[slot];
}

/* The start after which that grows least; *ret_growth. */
static uint32_t start_of_least(struct sim_view *v, enum mig_policy policy,
			       const struct mig_gpu *gpu, uint32_t starts, double *ret_growth)
{
	uint8_t size = v->pool->dies[gpu->die].profile[v->profile[gpu->die]].size;
	uint32_t best = 0;

	*ret_growth = DBL_MAX;
	for (; starts; starts &= starts - 1) {
		uint32_t start = (uint32_t)__builtin_ctz(starts);
		uint32_t after = gpu->live | mig_units((uint8_t)start, size);
		double growth = value_of(v, policy, gpu->die, after) -
				value_of(v, policy, gpu->die, gpu->live);

		if (growth < *ret_growth - 1e-9) {
			*ret_growth = growth;
			best = start;
		}
	}
	return best;
}

/* ---- the policies --------------------------------------------------------------------------- */

static bool choose_first(struct sim_view *v, uint32_t from, bool driver, struct mig_choice *ret)
{
	for (uint32_t i = 0; i < v->pool->gpu_count; i++) {
		uint32_t index = (from + i) % v->pool->gpu_count;
		const struct mig_gpu *gpu = &v->pool->gpus[index];
		uint32_t starts = starts_free(v, gpu), start;
		double growth;

		if (!starts)
			continue;
		start = driver ? start_of_least(v, MIG_POLICY_FIRST_FIT_DRIVER, gpu, starts,
						&growth)
			       : (uint32_t)__builtin_ctz(starts);
		choose(v, index, start, ret);
		return true;
	}
	return false;
}

/* `sign` 1: the fewest free units; -1: the most. */
static bool choose_by_room(struct sim_view *v, int sign, struct mig_choice *ret)
{
	int best = INT32_MAX;

	for (uint32_t i = 0; i < v->pool->gpu_count; i++) {
		const struct mig_gpu *gpu = &v->pool->gpus[i];
		uint32_t starts = starts_free(v, gpu);
		int room = sign * (int)units_free(&v->pool->dies[gpu->die], gpu);

		if (!starts || room >= best)
			continue;
		best = room;
		choose(v, i, (uint32_t)__builtin_ctz(starts), ret);
	}
	return best != INT32_MAX;
}

static bool choose_by_fragmentation(struct sim_view *v, enum mig_policy policy,
				    struct mig_choice *ret)
{
	double best = DBL_MAX;

	for (uint32_t i = 0; i < v->pool->gpu_count; i++) {
		const struct mig_gpu *gpu = &v->pool->gpus[i];
		uint32_t starts = starts_free(v, gpu);
		double growth;

		if (!starts)
			continue;
		uint32_t start = start_of_least(v, policy, gpu, starts, &growth);
		if (growth >= best - 1e-9)
			continue;
		best = growth;
		choose(v, i, start, ret);
	}
	return best < DBL_MAX;
}

/* ---- the bound ------------------------------------------------------------------------------ */

/* Whether the instances fit beside each other; the profiles from `from` on are still to be placed.
 */
static bool set_packs(const struct mig_die *die, uint8_t count[MIG_PROFILES_MAX], uint32_t taken,
		      uint32_t from, uint32_t start_from)
{
	while (from < die->profile_count && !count[from]) {
		from++;
		start_from = 0;
	}
	if (from == die->profile_count)
		return true;
	uint32_t starts = mig_free_starts(&die->profile[from], ~taken) & ~0u << start_from;
	bool packs = false;

	/* Those of one profile in the order of their starts: all other orders are the same. */
	count[from]--;
	for (; starts && !packs; starts &= starts - 1) {
		uint32_t start = (uint32_t)__builtin_ctz(starts);

		packs = set_packs(die, count,
				  taken | mig_units((uint8_t)start, die->profile[from].size), from,
				  start < 31 ? start + 1 : 31);
	}
	count[from]++;
	return packs;
}

static bool set_fits(struct sim_view *v, uint32_t die, uint8_t count[MIG_PROFILES_MAX])
{
	struct sim_sets *sets = &v->dies[die].sets;
	const struct mig_die *d = &v->pool->dies[die];
	uint32_t hash = 2166136261u, units = 0;

	for (uint32_t i = 0; i < d->profile_count; i++) {
		hash = (hash ^ count[i]) * 16777619u;
		units += (uint32_t)count[i] * d->profile[i].size;
		if (d->profile[i].limit && count[i] > d->profile[i].limit)
			return false;
	}
	if (units > d->units)
		return false;
	hash = (hash ^ hash >> 15) % SIM_SETS;
	if (!sets->known[hash] || memcmp(sets->count[hash], count, MIG_PROFILES_MAX) != 0) {
		sets->known[hash] = true;
		memcpy(sets->count[hash], count, MIG_PROFILES_MAX);
		sets->fits[hash] = set_packs(d, count, 0, 0, 0);
	}
	return sets->fits[hash];
}

static bool choose_repacking(struct sim_view *v, struct mig_choice *ret)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < v->pool->gpu_count; i++) {
		const struct mig_gpu *gpu = &v->pool->gpus[i];
		const struct mig_die *die = &v->pool->dies[gpu->die];
		uint8_t profile = v->profile[gpu->die], count[MIG_PROFILES_MAX];
		uint32_t used = 0;

		if (profile == MIG_NO_PROFILE)
			continue;
		memcpy(count, gpu->count, sizeof(count));
		for (uint32_t p = 0; p < die->profile_count; p++)
			used += (uint32_t)count[p] * die->profile[p].size;
		count[profile]++;
		if (die->units - used >= best || !set_fits(v, gpu->die, count))
			continue;
		best = die->units - used;
		choose(v, i, 0, ret);
	}
	return best != UINT32_MAX;
}

bool sim_choose(struct sim_view *view, enum mig_policy policy, struct mig_choice *ret)
{
	switch (policy) {
	case MIG_POLICY_FIRST_FIT:
	case MIG_POLICY_FIRST_FIT_DRIVER:
		return choose_first(view, 0, policy == MIG_POLICY_FIRST_FIT_DRIVER, ret);
	case MIG_POLICY_ROUND_ROBIN:
		if (!choose_first(view, view->next, false, ret))
			return false;
		view->next = (ret->gpu + 1) % view->pool->gpu_count;
		return true;
	case MIG_POLICY_BEST_FIT:
		return choose_by_room(view, 1, ret);
	case MIG_POLICY_WORST_FIT:
		return choose_by_room(view, -1, ret);
	case MIG_POLICY_MFI:
	case MIG_POLICY_FGD:
		return choose_by_fragmentation(view, policy, ret);
	case MIG_POLICY_REPACK:
		return choose_repacking(view, ret);
	default:
		return false;
	}
}
