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

#define CHANGING (1u << MIG_CREATING | 1u << MIG_REMOVING | 1u << MIG_DEBT)
#define FOREIGN (1u << MIG_FOREIGN)
#define BUSY (1u << MIG_BUSY)
#define IDLE (1u << MIG_IDLE)

/* The instances in any of the states (a bit each). */
static uint32_t instances_in(const struct mig_gpu *gpu, uint32_t states)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < gpu->instance_count; i++)
		mask |= (states >> gpu->instances[i].state & 1) << i;
	return mask;
}

static uint32_t units_in(const struct mig_gpu *gpu, uint32_t states)
{
	uint32_t units = 0;

	for (uint32_t i = 0; i < gpu->instance_count; i++)
		if (states >> gpu->instances[i].state & 1)
			units |= mig_units(gpu->instances[i].start, gpu->instances[i].size);
	return units;
}

bool mig_is_refused(const struct mig_gpu *gpu, const struct mig_die *die, uint8_t profile)
{
	uint32_t starts = mig_free_starts(&die->profile[profile], ~units_in(gpu, BUSY | FOREIGN));

	return starts && gpu->refused && !(starts & ~gpu->refused[profile]);
}

bool mig_is_elsewhere(const struct mig_pool *pool, uint32_t gpu, uint8_t profile)
{
	uint16_t die = pool->gpus[gpu].die;
	const struct mig_profile *p = &pool->dies[die].profile[profile];

	for (uint32_t i = 0; i < pool->gpu_count; i++) {
		const struct mig_gpu *other = &pool->gpus[i];
		uint32_t starts = mig_free_starts(p, ~units_in(other, BUSY | FOREIGN | CHANGING));

		if (i != gpu && other->offered && !other->frozen && other->die == die &&
		    starts & ~(other->refused ? other->refused[profile] : 0) &&
		    mig_allows(other, &pool->dies[die], profile, instances_in(other, IDLE)))
			return true;
	}
	return false;
}

/* Nothing but idle instances stands at some of the starts. */
static enum mig_reason why_unused(const struct mig_gpu *gpu, const struct mig_die *die,
				  uint8_t profile, uint32_t starts)
{
	if (gpu->frozen)
		return MIG_FULL_FROZEN;
	if (!mig_allows(gpu, die, profile, instances_in(gpu, IDLE)))
		return mig_allows(gpu, die, profile, instances_in(gpu, IDLE | CHANGING))
			       ? MIG_FULL_CHANGING
			       : MIG_FULL_LIMIT;
	return gpu->refused && !(starts & ~gpu->refused[profile]) ? MIG_FULL_REFUSED
								  : MIG_FULL_CHANGING;
}

/* Nothing fits now at the starts that are wanted. */
static enum mig_reason why_full(const struct mig_gpu *gpu, const struct mig_die *die,
				uint8_t profile, uint32_t wanted)
{
	const struct mig_profile *p = &die->profile[profile];
	uint32_t starts = mig_free_starts(p, ~units_in(gpu, BUSY | FOREIGN | CHANGING)) & wanted;

	if (starts)
		return why_unused(gpu, die, profile, starts);
	if (mig_free_starts(p, ~units_in(gpu, BUSY | FOREIGN)) & wanted)
		return MIG_FULL_CHANGING;
	return mig_free_starts(p, ~units_in(gpu, BUSY | CHANGING)) & wanted ? MIG_FULL_FOREIGN
									    : MIG_FULL;
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
	/* The GPU is the first of the pool that it is alone in. */
	if (request->starts_on)
		one.starts_on = &request->starts_on[gpu];
	one.count = 1;
	if (mig_decide(&alone, &one, &decision) == 0)
		return MIG_FITS;
	return why_full(only, die, profile, mig_starts_wanted(&one, 0));
}
