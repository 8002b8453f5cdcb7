/* The decision: reuse, create, or destroy idle instances and create.
 *
 * One instance is chosen at a time. Its effect on the GPU is noted in the GPU's derived fields, so
 * that the next instance of the request sees it. At the end the effect is undone. */
#include "core/mig_private.h"

#include <errno.h>
#include <float.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"

/* Costs nearer than this are equal: they are sums of a few dozen products. */
#define COST_EQUAL 1e-9
/* Waste is compared in sixteenths of what was asked: instances of different GPUs that go by the
 * same name differ by less. */
#define WASTE_STEPS 16u
/* A GPU with fewer instances in use than this may soon be empty, and then take anything: of equal
 * placements one on a GPU with more is better. More instances than this tell nothing more. Where
 * requests wait (MIG_QUEUES), no GPU becomes empty, and the count is not looked at. */
#define LASTING_COUNT 3u

/* The aim of one pass: on each die one profile at most. */
struct search {
	struct mig_pool *pool;
	const struct mig_request *request;
	uint8_t profile[MIG_DIES_MAX]; /* MIG_NO_PROFILE: not on this die */
	/* The worth that a placement must have: where room is scarce, as much as the best. */
	double cost_max;
	uint32_t occupancy_min;
};

/* The best so far. */
struct best {
	bool found;
	struct mig_choice choice;
	double cost;
	uint32_t occupancy;
	uint32_t destroyed; /* instances */
	uint64_t newest;    /* last use of the one that was used last among them */
};

static bool gpu_is_eligible(const struct search *s, uint32_t index)
{
	const struct mig_gpu *gpu = &s->pool->gpus[index];

	return mig_considers(s->request, gpu, index) && !(s->request->apart && gpu->chosen) &&
	       s->profile[gpu->die] != MIG_NO_PROFILE &&
	       !mig_is_too_small(gpu, s->profile[gpu->die], s->request);
}

static uint32_t lasting_count(const struct search *s, const struct mig_gpu *gpu)
{
	return s->pool->queued >= MIG_QUEUES ? 0 : MIN(gpu->live_count, LASTING_COUNT);
}

/* The part of the GPU's units that no session has. GPUs of several kinds are filled alike. */
static uint32_t gpu_free_part(const struct search *s, const struct mig_gpu *gpu)
{
	uint32_t units = s->pool->dies[gpu->die].units;
	uint32_t live = (uint32_t)__builtin_popcount(gpu->live);

	return live < units ? (units - live) * SHARE_ONE / units : 0;
}

/* How little is likely to be free on the GPU soon, then how little is now. Where sessions are
 * spread, how much is free. The GPU with the higher number goes first. */
static uint32_t gpu_occupancy(const struct search *s, const struct mig_gpu *gpu)
{
	if (s->pool->spread)
		return gpu_free_part(s, gpu);
	return lasting_count(s, gpu) * (MIG_UNITS_MAX + 1) +
	       (uint32_t)__builtin_popcount(gpu->live);
}

/* Starts that are legal, that the driver has not refused, and whose units are all in `free`. */
static uint32_t starts_of(const struct mig_gpu *gpu, const struct mig_die *die, uint8_t profile,
			  uint32_t free)
{
	uint32_t starts = mig_free_starts(&die->profile[profile], free);

	return gpu->refused ? starts & ~gpu->refused[profile] : starts;
}

/* One look is enough for GPUs that look alike: the first is chosen anyway. A direct-mapped cache of
 * what was seen. */
#define SEEN 256u
struct seen {
	uint32_t live[SEEN], idle[SEEN], rest[SEEN];
};

static void seen_begin(struct seen *seen)
{
	memset(seen->rest, 0xff, sizeof(seen->rest));
}

static bool seen_before(const struct search *s, struct seen *seen, const struct mig_gpu *gpu)
{
	/* GPUs that look alike differ in what is wanted of them. */
	if (s->request->starts_on)
		return false;

	uint32_t rest = (uint32_t)gpu->die << 8 | lasting_count(s, gpu);
	/* Odd constants near the golden ratio's: the high bits depend on all of both masks. */
	uint32_t slot = (gpu->live * 2654435769u ^ gpu->idle * 2246822519u) >> 16;

	slot = (slot ^ rest) % SEEN;
	if (seen->live[slot] == gpu->live && seen->idle[slot] == gpu->idle &&
	    seen->rest[slot] == rest)
		return true;
	seen->live[slot] = gpu->live;
	seen->idle[slot] = gpu->idle;
	seen->rest[slot] = rest;
	return false;
}

static bool cost_is_better(const struct search *s, const struct best *best, double cost,
			   uint32_t occupancy)
{
	if (best->found && s->pool->spread && occupancy != best->occupancy)
		return occupancy > best->occupancy;
	if (!best->found || cost < best->cost - COST_EQUAL)
		return true;
	return cost < best->cost + COST_EQUAL && occupancy > best->occupancy;
}

static bool is_worth_it(const struct search *s, double cost, uint32_t occupancy)
{
	return cost <= s->cost_max && occupancy >= s->occupancy_min;
}

/* ---- an idle instance as it is ------------------------------------------------------------ */

static void reuse_on(const struct search *s, uint32_t index, struct best *best)
{
	const struct mig_gpu *gpu = &s->pool->gpus[index];
	struct mig_die *die = &s->pool->dies[gpu->die];
	uint32_t occupancy = gpu_occupancy(s, gpu);
	uint8_t profile = s->profile[gpu->die];

	for (uint32_t i = 0; i < gpu->instance_count; i++) {
		const struct mig_instance *in = &gpu->instances[i];

		if (in->state != MIG_IDLE || in->profile != profile || gpu->taken_mask >> i & 1 ||
		    !(mig_starts_wanted(s->request, index) >> in->start & 1))
			continue;
		double cost = mig_cost(die, gpu->live, profile, in->start);

		if (!is_worth_it(s, cost, occupancy) || !cost_is_better(s, best, cost, occupancy))
			continue;
		*best = (struct best){.found = true, .cost = cost, .occupancy = occupancy};
		best->choice = (struct mig_choice){.step = MIG_REUSE,
						   .gpu = index,
						   .instance = i,
						   .profile = profile,
						   .start = in->start};
	}
}

static bool find_reuse(const struct search *s, struct mig_choice *ret)
{
	struct best best = {0};

	for (uint32_t i = 0; i < s->pool->gpu_count; i++) {
		const struct mig_gpu *gpu = &s->pool->gpus[i];

		if (gpu->idle_profiles && gpu_is_eligible(s, i) &&
		    gpu->idle_profiles >> s->profile[gpu->die] & 1)
			reuse_on(s, i, &best);
	}
	if (best.found)
		*ret = best.choice;
	return best.found;
}

/* ---- a free placement --------------------------------------------------------------------- */

static void create_on(const struct search *s, uint32_t index, bool doubtful, struct best *best)
{
	const struct mig_gpu *gpu = &s->pool->gpus[index];
	struct mig_die *die = &s->pool->dies[gpu->die];
	uint32_t occupancy = gpu_occupancy(s, gpu);
	uint8_t profile = s->profile[gpu->die];
	uint32_t starts = starts_of(gpu, die, profile, ~(gpu->live | gpu->idle)) &
			  mig_starts_wanted(s->request, index);

	for (; starts; starts &= starts - 1) {
		uint8_t start = (uint8_t)__builtin_ctz(starts);
		double cost = mig_cost(die, gpu->live, profile, start);

		if (!is_worth_it(s, cost, occupancy) || !cost_is_better(s, best, cost, occupancy))
			continue;
		*best = (struct best){.found = true, .cost = cost, .occupancy = occupancy};
		best->choice = (struct mig_choice){.step = MIG_CREATE,
						   .gpu = index,
						   .profile = profile,
						   .start = start,
						   .doubtful = doubtful};
	}
}

/* `doubtful`: at placements that are free, but that limits or engines seem to forbid. */
static bool find_create(const struct search *s, bool doubtful, struct mig_choice *ret)
{
	struct best best = {0};
	struct seen seen;

	seen_begin(&seen);
	for (uint32_t i = 0; i < s->pool->gpu_count; i++) {
		const struct mig_gpu *gpu = &s->pool->gpus[i];

		if (gpu->frozen || !gpu_is_eligible(s, i) ||
		    (gpu->blocked >> s->profile[gpu->die] & 1) != doubtful)
			continue;
		if (gpu->refused || !seen_before(s, &seen, gpu))
			create_on(s, i, doubtful, &best);
	}
	if (best.found)
		*ret = best.choice;
	return best.found;
}

/* ---- idle instances destroyed ------------------------------------------------------------- */

/* The instances that have to go. */
struct victims {
	uint32_t mask;
	uint64_t newest;
};

static void victims_add(struct victims *v, const struct mig_gpu *gpu, uint32_t instance)
{
	v->mask |= 1u << instance;
	v->newest = MAX(v->newest, gpu->instances[instance].used);
}

/* Adds the least recently used idle instance. False: there is none left. */
static bool victims_add_oldest(struct victims *v, const struct mig_gpu *gpu)
{
	uint32_t oldest = MIG_INSTANCES_MAX;

	for (uint32_t i = 0; i < gpu->instance_count; i++) {
		const struct mig_instance *in = &gpu->instances[i];

		if (in->state != MIG_IDLE || (gpu->taken_mask | v->mask) >> i & 1)
			continue;
		if (oldest == MIG_INSTANCES_MAX || in->used < gpu->instances[oldest].used)
			oldest = i;
	}
	if (oldest == MIG_INSTANCES_MAX)
		return false;
	victims_add(v, gpu, oldest);
	return true;
}

/* The idle instances that stand in the way of a placement whose units nobody uses. Where limits or
 * engines block the profile, or the driver refused the placement, others go as well. False: even
 * that would not help. */
static bool victims_find(const struct mig_gpu *gpu, const struct mig_die *die, uint8_t profile,
			 uint32_t start, struct victims *ret)
{
	uint32_t units = mig_units((uint8_t)start, die->profile[profile].size);
	bool refused = gpu->refused && gpu->refused[profile] >> start & 1;
	struct victims v = {0};

	for (uint32_t i = 0; i < gpu->instance_count; i++) {
		const struct mig_instance *in = &gpu->instances[i];

		if (in->state == MIG_IDLE && !(gpu->taken_mask >> i & 1) &&
		    (mig_units(in->start, in->size) & units))
			victims_add(&v, gpu, i);
	}
	if (refused && !v.mask && !victims_add_oldest(&v, gpu))
		return false;
	if (gpu->blocked >> profile & 1)
		while (!mig_allows(gpu, die, profile, v.mask))
			if (!victims_add_oldest(&v, gpu))
				return false;
	*ret = v;
	return v.mask != 0;
}

static bool victims_are_better(const struct search *s, const struct best *best,
			       const struct victims *v, double cost, uint32_t occupancy)
{
	uint32_t count = (uint32_t)__builtin_popcount(v->mask);

	if (!best->found || count != best->destroyed)
		return !best->found || count < best->destroyed;
	if (v->newest != best->newest)
		return v->newest < best->newest;
	return cost_is_better(s, best, cost, occupancy);
}

static void replace_on(const struct search *s, uint32_t index, struct best *best)
{
	const struct mig_gpu *gpu = &s->pool->gpus[index];
	struct mig_die *die = &s->pool->dies[gpu->die];
	uint32_t occupancy = gpu_occupancy(s, gpu);
	uint8_t profile = s->profile[gpu->die];
	uint32_t starts = mig_free_starts(&die->profile[profile], ~gpu->live) &
			  mig_starts_wanted(s->request, index);

	for (; starts; starts &= starts - 1) {
		uint8_t start = (uint8_t)__builtin_ctz(starts);
		double cost = mig_cost(die, gpu->live, profile, start);
		struct victims v;

		if (!is_worth_it(s, cost, occupancy) ||
		    !victims_find(gpu, die, profile, start, &v) ||
		    !victims_are_better(s, best, &v, cost, occupancy))
			continue;
		*best = (struct best){.found = true, .cost = cost, .occupancy = occupancy};
		best->destroyed = (uint32_t)__builtin_popcount(v.mask);
		best->newest = v.newest;
		best->choice = (struct mig_choice){.step = MIG_REPLACE,
						   .gpu = index,
						   .destroy = v.mask,
						   .profile = profile,
						   .start = start};
	}
}

static bool find_replace(const struct search *s, struct mig_choice *ret)
{
	struct best best = {0};

	for (uint32_t i = 0; i < s->pool->gpu_count; i++) {
		const struct mig_gpu *gpu = &s->pool->gpus[i];

		if (gpu->frozen || !gpu->idle || !gpu_is_eligible(s, i))
			continue;
		/* No set here can be better: each has one instance at least. */
		if (best.found && best.destroyed == 1 && gpu->idle_oldest > best.newest)
			continue;
		replace_on(s, i, &best);
	}
	if (best.found)
		*ret = best.choice;
	return best.found;
}

/* ---- the order of the ways ---------------------------------------------------------------- */

/* The best placement of all that sessions leave free, idle instances or not. */
static void best_find(const struct search *s, struct best *best)
{
	struct seen seen;

	seen_begin(&seen);
	for (uint32_t i = 0; i < s->pool->gpu_count; i++) {
		const struct mig_gpu *gpu = &s->pool->gpus[i];

		if (gpu->frozen || !gpu_is_eligible(s, i) || seen_before(s, &seen, gpu))
			continue;
		struct mig_die *die = &s->pool->dies[gpu->die];
		uint32_t occupancy = gpu_occupancy(s, gpu);
		uint8_t profile = s->profile[gpu->die];
		uint32_t starts = mig_free_starts(&die->profile[profile], ~gpu->live) &
				  mig_starts_wanted(s->request, i);

		for (; starts; starts &= starts - 1) {
			double cost =
				mig_cost(die, gpu->live, profile, (uint8_t)__builtin_ctz(starts));

			if (cost_is_better(s, best, cost, occupancy))
				*best = (struct best){
					.found = true, .cost = cost, .occupancy = occupancy};
		}
	}
}

/* Without idle instances there is but one way, and it takes the cheapest placement anyway. */
static bool has_idle(const struct mig_pool *pool)
{
	for (uint32_t i = 0; i < pool->gpu_count; i++)
		if (pool->gpus[i].idle)
			return true;
	return false;
}

/* One instance of the profiles in s->profile. */
static bool find_one(struct search *s, struct mig_choice *ret)
{
	struct best best = {0};

	s->cost_max = DBL_MAX;
	s->occupancy_min = 0;
	bool scarce = s->pool->turned_away >= MIG_SCARCE;
	if ((scarce || s->pool->spread) && has_idle(s->pool))
		best_find(s, &best);
	if (best.found) {
		s->cost_max = scarce ? best.cost + COST_EQUAL : DBL_MAX;
		s->occupancy_min = best.occupancy;
		if (find_reuse(s, ret) || find_create(s, false, ret) || find_replace(s, ret))
			return true;
		/* Limits or the driver forbid the best. */
		s->cost_max = DBL_MAX;
		s->occupancy_min = 0;
	}
	return find_reuse(s, ret) || find_create(s, false, ret) || find_replace(s, ret);
}

/* ---- which profiles, in which order ------------------------------------------------------- */

struct wanted {
	struct mig_match match[MIG_DIES_MAX];
	uint64_t requested[MIG_DIES_MAX];
	uint32_t dies;
};

static void wanted_fill(const struct mig_pool *pool, const struct mig_request *request,
			struct wanted *w)
{
	w->dies = MIN(pool->die_count, MIG_DIES_MAX);
	for (uint32_t i = 0; i < w->dies; i++) {
		mig_match(&pool->dies[i], i, request, &w->match[i]);
		w->requested[i] = mig_requested(&pool->dies[i], i, request);
	}
}

static uint64_t waste_steps(uint64_t granted, uint64_t requested)
{
	if (granted <= requested || requested == 0)
		return 0;
	return (uint64_t)((unsigned __int128)(granted - requested) * WASTE_STEPS / requested);
}

/* Sets what is looked for to alternative number `rank` of the dies that waste the least, but no
 * less than *waste, which becomes that. False: no die wastes so much. */
static bool search_set(struct search *s, const struct wanted *w, bool less, uint32_t rank,
		       uint64_t *waste)
{
	uint64_t steps[MIG_DIES_MAX], least = UINT64_MAX;

	for (uint32_t i = 0; i < w->dies; i++) {
		const struct mig_match *m = &w->match[i];
		uint32_t count = less ? m->less_count : m->fit_count;
		uint8_t profile = MIG_NO_PROFILE;

		if (rank < count)
			profile = less ? m->less[rank] : m->fit[rank];
		s->profile[i] = profile;
		steps[i] = UINT64_MAX;
		if (profile == MIG_NO_PROFILE)
			continue;
		steps[i] = waste_steps(s->pool->dies[i].profile[profile].memory_bytes,
				       w->requested[i]);
		if (steps[i] >= *waste)
			least = MIN(least, steps[i]);
	}
	for (uint32_t i = 0; i < w->dies; i++)
		if (steps[i] != least)
			s->profile[i] = MIG_NO_PROFILE;
	*waste = least;
	return least != UINT64_MAX;
}

/* In full, or where `less`, by the 93% rule: what wastes least first, and the ordinary profile
 * before those that can stand in for it. */
static bool find_ranked(struct search *s, const struct wanted *w, bool less, struct mig_choice *ret)
{
	for (uint32_t rank = 0; rank < MIG_PROFILES_MAX; rank++) {
		uint64_t waste = 0;
		bool any = false;

		while (search_set(s, w, less, rank, &waste)) {
			any = true;
			if (find_one(s, ret))
				return true;
			waste++;
		}
		if (!any)
			return false;
	}
	return false;
}

/* NVML's limits have been wrong on some drivers: where nothing else is left, the driver is asked.
 */
static bool find_doubtful(struct search *s, const struct wanted *w, struct mig_choice *ret)
{
	uint64_t waste = 0;

	s->cost_max = DBL_MAX;
	s->occupancy_min = 0;
	for (; search_set(s, w, false, 0, &waste); waste++)
		if (find_create(s, true, ret))
			return true;
	return false;
}

static bool find_any(struct search *s, const struct wanted *w, struct mig_choice *ret)
{
	if (find_ranked(s, w, false, ret))
		return true;
	if (find_ranked(s, w, true, ret)) {
		ret->less = true;
		return true;
	}
	/* A request for several instances begins none that may fail. */
	return s->request->count == 1 && find_doubtful(s, w, ret);
}

/* ---- several instances -------------------------------------------------------------------- */

/* Notes the choice in its GPU. */
static void choice_note(struct mig_gpu *gpu, const struct mig_die *die, const struct mig_choice *c)
{
	const struct mig_profile *p = &die->profile[c->profile];
	uint32_t units = mig_units(c->start, p->size);

	for (uint32_t gone = c->destroy; gone; gone &= gone - 1) {
		const struct mig_instance *in = &gpu->instances[__builtin_ctz(gone)];

		gpu->idle &= ~mig_units(in->start, in->size);
		if (in->profile >= die->profile_count)
			continue;
		gpu->count[in->profile]--;
		for (uint32_t e = 0; e < MIG_ENGINES; e++)
			gpu->engines[e] =
				(uint16_t)(gpu->engines[e] - die->profile[in->profile].engines[e]);
	}
	gpu->taken_mask |= c->destroy | (c->step == MIG_REUSE ? 1u << c->instance : 0);
	if (c->step != MIG_REUSE) {
		gpu->count[c->profile]++;
		for (uint32_t e = 0; e < MIG_ENGINES; e++)
			gpu->engines[e] = (uint16_t)(gpu->engines[e] + p->engines[e]);
	}
	gpu->idle &= ~units;
	gpu->live |= units;
	gpu->live_count++;
	gpu->chosen = true;
	mig_gpu_block(gpu, die);
}

static void choice_describe(const struct mig_pool *pool, const struct wanted *w,
			    struct mig_choice *c)
{
	uint16_t die = pool->gpus[c->gpu].die;

	c->bytes = pool->dies[die].profile[c->profile].memory_bytes;
	c->requested = w->requested[die];
	c->near = w->match[die].near;
}

/* Whether all would find room if nobody else were there. */
static bool is_possible(const struct mig_pool *pool, const struct mig_request *request,
			const struct wanted *w)
{
	uint64_t room = 0;

	for (uint32_t i = 0; i < pool->gpu_count; i++) {
		const struct mig_gpu *gpu = &pool->gpus[i];
		const struct mig_match *m = &w->match[gpu->die];
		uint32_t most = 0;

		if (!mig_considers(request, gpu, i))
			continue;
		if (m->fit_count && !mig_is_too_small(gpu, m->fit[0], request))
			most = mig_capacity(&pool->dies[gpu->die], m->fit[0]);
		if (m->less_count)
			most = MAX(most, mig_capacity(&pool->dies[gpu->die], m->less[0]));
		room += request->apart ? MIN(most, 1u) : most;
	}
	return room >= request->count;
}

int mig_decide(struct mig_pool *pool, const struct mig_request *request, struct mig_decision *ret)
{
	struct search s = {.pool = pool, .request = request};
	struct mig_gpu saved[MIG_CHOICES_MAX];
	struct mig_choice choice[MIG_CHOICES_MAX];
	struct wanted w;
	uint32_t count = 0;

	if (request->count == 0 || request->count > MIG_CHOICES_MAX)
		return -EDOM;
	wanted_fill(pool, request, &w);
	while (count < request->count && find_any(&s, &w, &choice[count])) {
		struct mig_gpu *gpu = &pool->gpus[choice[count].gpu];

		choice_describe(pool, &w, &choice[count]);
		saved[count] = *gpu;
		choice_note(gpu, &pool->dies[gpu->die], &choice[count]);
		count++;
	}
	/* Backwards, as a GPU may have been chosen more than once. */
	for (uint32_t i = count; i-- > 0;)
		pool->gpus[choice[i].gpu] = saved[i];
	if (count < request->count)
		return is_possible(pool, request, &w) ? -EAGAIN : -EDOM;
	memcpy(ret->choice, choice, count * sizeof(choice[0]));
	ret->count = count;
	return 0;
}

bool mig_preferred(const struct mig_decision *decision, uint64_t fraction_bytes, bool fraction_less)
{
	uint64_t mig_waste = 0, fraction_waste = 0;
	bool less = false;

	for (uint32_t i = 0; i < decision->count; i++) {
		const struct mig_choice *c = &decision->choice[i];

		less |= c->less;
		mig_waste = MAX(mig_waste, waste_steps(c->bytes, c->requested));
		fraction_waste = MAX(fraction_waste, waste_steps(fraction_bytes, c->requested));
	}
	if (less != fraction_less)
		return fraction_less;
	return mig_waste < fraction_waste;
}
