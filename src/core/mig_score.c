/* The harm that a placement does, by weighted feasibility. An occupancy's score is a sum over all
 * legal placements that are still free in it. Each placement adds
 *
 *     how often the profile is asked for  x  size^2  /  its legal placements
 *
 * A placement costs what it takes from that score. The size counts twice: for the work that is lost
 * where the profile finds no place, and as a larger profile has fewer places elsewhere.
 * The gains over other policies are in docs/dev/benchmarks.md. */
#include "core/mig_private.h"

#include <string.h>

/* Until arrivals tell more, all ordinary profiles are expected alike; this many arrivals outweigh
 * that. With no weight below one arrival FGD is ahead in no case with one GPU. But 8 GPUs with MIG
 * accept 0.4 points more than 4 with MIG and 4 cut by the byte. */
#define PRIOR_ARRIVALS 50.0
/* 2 ^ (-1 / MIG_HALF_LIFE): what one arrival leaves of those before it. */
#define DECAY 0.99802151
/* Scores are computed anew after this many arrivals: they change little meanwhile, and the cache of
 * scores is of use. */
#define FRESH_MAX 16u

void mig_demand_reset(struct mig_die *die)
{
	uint32_t ordinary = 0;

	die->demand = (struct mig_demand){.fresh = FRESH_MAX};
	for (uint32_t i = 0; i < die->profile_count; i++)
		ordinary += die->profile[i].flags == 0;
	for (uint32_t i = 0; i < die->profile_count; i++)
		if (die->profile[i].flags == 0)
			die->demand.arrivals[i] = PRIOR_ARRIVALS / ordinary;
}

static void demand_add(struct mig_die *die, uint8_t profile, uint32_t count)
{
	for (uint32_t i = 0; i < die->profile_count; i++)
		die->demand.arrivals[i] *= DECAY;
	die->demand.arrivals[profile] += count;
	die->demand.fresh++;
}

void mig_arrival(struct mig_pool *pool, const struct mig_request *request,
		 enum mig_admission admission)
{
	for (uint32_t i = 0; i < pool->die_count; i++) {
		struct mig_match match;

		mig_match(&pool->dies[i], i, request, &match);
		if (match.fit_count)
			demand_add(&pool->dies[i], match.fit[0], request->count);
	}
	pool->turned_away = pool->turned_away * DECAY + (admission != MIG_GRANTED);
	pool->queued = pool->queued * DECAY + (admission == MIG_QUEUED);
}

static double score_compute(const struct mig_die *die, uint32_t taken)
{
	double score = 0;

	for (uint32_t i = 0; i < die->profile_count; i++)
		if (die->scores.weight[i] > 0)
			score += die->scores.weight[i] *
				 __builtin_popcount(mig_free_starts(&die->profile[i], ~taken));
	return score;
}

/* Brings the weights up to date with the demand. */
static void scores_refresh(struct mig_die *die)
{
	double all = 0;

	if (die->demand.fresh < FRESH_MAX)
		return;
	die->demand.fresh = 0;
	for (uint32_t i = 0; i < die->profile_count; i++)
		all += die->demand.arrivals[i];
	for (uint32_t i = 0; i < die->profile_count; i++) {
		const struct mig_profile *p = &die->profile[i];
		int starts = __builtin_popcount(p->starts);

		die->scores.weight[i] = starts && all > 0 ? die->demand.arrivals[i] / all *
								    p->size * p->size / starts
							  : 0;
	}
	memset(die->scores.known, 0, sizeof(die->scores.known));
	die->scores.empty = score_compute(die, 0);
}

static double score_of(struct mig_die *die, uint32_t taken)
{
	struct mig_scores *s = &die->scores;
	/* Knuth's multiplicative hash: the high bits depend on all units. */
	uint32_t slot = (taken * 2654435761u >> 16) % MIG_SCORES;

	if (!s->known[slot] || s->mask[slot] != taken) {
		s->known[slot] = true;
		s->mask[slot] = taken;
		s->score[slot] = score_compute(die, taken);
	}
	return s->score[slot];
}

double mig_cost(struct mig_die *die, uint32_t taken, uint8_t profile, uint8_t start)
{
	uint32_t units = mig_units(start, die->profile[profile].size);

	scores_refresh(die);
	if (die->scores.empty <= 0)
		return 0;
	return (score_of(die, taken) - score_of(die, taken | units)) / die->scores.empty;
}
