/* Why a GPU does not fulfil a request. */
#include "core/mig_private.h"

uint8_t mig_wanted(const struct mig_pool *pool, uint32_t gpu, const struct mig_request *request)
{
	uint16_t die = pool->gpus[gpu].die;
	struct mig_match match;

	mig_match(&pool->dies[die], die, request, &match);
	if (match.fit_count)
		return match.fit[0];
	return match.less_count ? match.less[0] : MIG_NO_PROFILE;
}

/* Units of the instances in any of the states (a bit each). */
static uint32_t units_in(const struct mig_gpu *gpu, uint32_t states)
{
	uint32_t units = 0;

	for (uint32_t i = 0; i < gpu->instance_count; i++)
		if (states >> gpu->instances[i].state & 1)
			units |= mig_units(gpu->instances[i].start, gpu->instances[i].size);
	return units;
}

/* Nothing fits now. */
static enum mig_reason why_full(const struct mig_gpu *gpu, const struct mig_profile *p)
{
	uint32_t changing = 1 << MIG_CREATING | 1 << MIG_REMOVING | 1 << MIG_DEBT;
	uint32_t foreign = 1 << MIG_FOREIGN, busy = 1 << MIG_BUSY;

	if (mig_free_starts(p, ~units_in(gpu, busy | foreign)))
		return MIG_FULL_CHANGING;
	return mig_free_starts(p, ~units_in(gpu, busy | changing)) ? MIG_FULL_FOREIGN : MIG_FULL;
}

/* No profile of the die fulfils it. */
static enum mig_reason why_never(const struct mig_die *die, uint16_t number,
				 const struct mig_request *request)
{
	struct mig_request without = *request;
	struct mig_match match;

	if (request->kind == MIG_ASK_PROFILE || die->profile_count == 0)
		return MIG_NO_SUCH_PROFILE;
	without.compute = 0;
	mig_match(die, number, &without, &match);
	return match.fit_count ? MIG_TOO_MUCH_COMPUTE : MIG_TOO_LARGE;
}

enum mig_reason mig_check(struct mig_pool *pool, uint32_t gpu, const struct mig_request *request)
{
	struct mig_gpu *only = &pool->gpus[gpu];
	struct mig_die *die = &pool->dies[only->die];
	struct mig_pool alone = {.dies = pool->dies,
				 .gpus = only,
				 .die_count = pool->die_count,
				 .gpu_count = 1,
				 .turned_away = 0,
				 .queued = 0};
	struct mig_request one = *request;
	struct mig_decision decision;
	uint8_t profile = mig_wanted(pool, gpu, request);

	if (request->allowed && !request->allowed[gpu])
		return MIG_NOT_ALLOWED;
	if (!only->offered)
		return MIG_NOT_OFFERED;
	if (mig_is_too_small(only, profile, request))
		return MIG_TOO_SMALL;
	if (profile == MIG_NO_PROFILE)
		return why_never(die, only->die, request);
	one.allowed = NULL;
	one.count = 1;
	if (mig_decide(&alone, &one, &decision) == 0)
		return MIG_FITS;
	return why_full(only, &die->profile[profile]);
}
