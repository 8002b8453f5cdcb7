/* Properties of the MIG policy that hold whatever came before, on the simulator's models and on
 * dies whose placements are drawn at random. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/macros.h"
#include "base/units.h"
#include "test_core_mig.h"

#define STEPS 3000u

static struct test_pool t;
static uint64_t seed;

/* xorshift64*. */
static uint32_t draw(uint32_t below)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return (uint32_t)(seed * 0x2545f4914f6cdd1du >> 33) % below;
}

/* ---- an independent look at what can be done ------------------------------------------------ */

static const struct mig_die *die_of(uint32_t gpu)
{
	return &t.dies[t.gpus[gpu].die];
}

/* Units of the GPU's instances, of those that are idle or of the others. */
static uint32_t units_of(uint32_t gpu, bool idle)
{
	uint32_t units = 0;

	for (uint32_t i = 0; i < t.gpus[gpu].instance_count; i++) {
		const struct mig_instance *in = &t.instances[gpu][i];

		if ((in->state == MIG_IDLE) == idle)
			for (uint32_t u = 0; u < in->size; u++)
				units |= 1u << (in->start + u);
	}
	return units;
}

/* How many idle instances overlap the placement; -1: it is not legal, or others do. */
static int in_the_way(uint32_t gpu, uint8_t profile, uint32_t start)
{
	const struct mig_profile *p = &die_of(gpu)->profile[profile];
	uint32_t units = 0;
	int n = 0;

	if (!(p->starts >> start & 1))
		return -1;
	for (uint32_t u = 0; u < p->size; u++)
		units |= 1u << (start + u);
	if (units & units_of(gpu, false))
		return -1;
	for (uint32_t i = 0; i < t.gpus[gpu].instance_count; i++) {
		const struct mig_instance *in = &t.instances[gpu][i];

		n += in->state == MIG_IDLE && in->start < start + p->size &&
		     start < (uint32_t)in->start + in->size;
	}
	return n;
}

/* The fewest instances on any GPU that would have to go for one more of the profile; -1: it cannot
 * be. And whether an idle one is there. Limits are not looked at: see unlimited(). */
static int fewest(uint8_t profile, bool *ret_idle)
{
	int least = -1;

	*ret_idle = false;
	for (uint32_t gpu = 0; gpu < t.pool.gpu_count; gpu++) {
		for (uint32_t start = 0; start < MIG_UNITS_MAX; start++) {
			int n = in_the_way(gpu, profile, start);

			if (n >= 0 && (least < 0 || n < least))
				least = n;
		}
		for (uint32_t i = 0; i < t.gpus[gpu].instance_count; i++)
			*ret_idle |= t.instances[gpu][i].state == MIG_IDLE &&
				     t.instances[gpu][i].profile == profile;
	}
	return least;
}

static void assert_choice_is_legal(const struct mig_choice *c)
{
	const struct mig_gpu *gpu = &t.gpus[c->gpu];
	const struct mig_profile *p = &die_of(c->gpu)->profile[c->profile];
	uint32_t overlapped = 0;

	if (c->step == MIG_REUSE) {
		assert_true(c->instance < gpu->instance_count);
		assert_int_equal(t.instances[c->gpu][c->instance].state, MIG_IDLE);
		assert_int_equal(t.instances[c->gpu][c->instance].profile, c->profile);
		assert_int_equal(c->destroy, 0);
		return;
	}
	assert_true(p->starts >> c->start & 1);
	for (uint32_t i = 0; i < gpu->instance_count; i++) {
		const struct mig_instance *in = &t.instances[c->gpu][i];
		bool overlaps = in->start < c->start + p->size && c->start < in->start + in->size;

		if (overlaps)
			overlapped |= 1u << i;
		if (overlaps || c->destroy >> i & 1)
			assert_int_equal(in->state, MIG_IDLE);
	}
	assert_int_equal(overlapped & ~c->destroy, 0);
	assert_int_equal(c->step == MIG_REPLACE, c->destroy != 0);
}

/* ---- random dies ----------------------------------------------------------------------------- */

/* Profiles of sizes that grow, each with legal starts drawn at random: shuffled, so that nothing
 * that is true of real dies is. */
static void die_draw(struct mig_die *die)
{
	uint32_t units = 4 + draw(9);
	static const struct mig_profile none;

	die->profile_count = 2 + draw(6);
	for (uint32_t i = 0; i < die->profile_count; i++) {
		struct mig_profile *p = &die->profile[i];

		*p = none;
		p->size = (uint8_t)(1 + draw(units));
		p->memory_bytes = GIB(p->size) + MIB(draw(512));
		p->slices = 1 + draw(7);
		p->sms = p->slices * 16;
		for (uint32_t start = 0; start + p->size <= units; start++)
			if (draw(3) > 0)
				p->starts |= 1u << start;
		if (draw(8) == 0)
			p->flags = MIG_MEDIA;
	}
	assert_int_equal(mig_die_init(die), 0);
}

static void pool_draw(uint32_t gpus)
{
	memset(&t, 0, sizeof(t));
	t.pool = (struct mig_pool){.dies = t.dies, .gpus = t.gpus, .die_count = 1};
	die_draw(&t.dies[0]);
	for (uint32_t i = 0; i < gpus; i++) {
		t.gpus[i] = (struct mig_gpu){.offered = true};
		test_gpu_update(&t, t.pool.gpu_count++);
	}
}

/* Limits are left out, so that fewest() is the whole truth. */
static void unlimited(void)
{
	for (uint32_t d = 0; d < t.pool.die_count; d++)
		for (uint32_t i = 0; i < t.dies[d].profile_count; i++) {
			t.dies[d].profile[i].limit = 0;
			memset(t.dies[d].profile[i].engines, 0,
			       sizeof(t.dies[d].profile[i].engines));
		}
	for (uint32_t i = 0; i < t.pool.gpu_count; i++)
		test_gpu_update(&t, i);
}

/* ---- what may happen to a pool ----------------------------------------------------------------
 */

static struct mig_request request_draw(uint8_t named[MIG_DIES_MAX])
{
	struct mig_request r = {.kind = (enum mig_kind)draw(3), .count = 1};

	r.bytes = MIB(1 + draw(100000));
	r.share = 1 + draw(SHARE_ONE);
	r.compute = draw(4) ? 0 : draw(SHARE_ONE);
	r.strict = draw(2);
	for (uint32_t i = 0; i < t.pool.die_count; i++)
		named[i] = (uint8_t)draw(t.dies[i].profile_count);
	r.profile = named;
	if (draw(4) == 0)
		r.count = 1 + draw(4);
	r.apart = draw(4) == 0;
	return r;
}

/* A session ends, an idle instance is removed, a foreign one comes or goes. */
static void disturb(uint64_t now)
{
	uint32_t gpu = draw(t.pool.gpu_count), n = t.gpus[gpu].instance_count;

	if (n == 0)
		return;
	struct mig_instance *in = &t.instances[gpu][draw(n)];

	switch (draw(5)) {
	case 0:
		if (in->state == MIG_BUSY)
			in->state = MIG_FOREIGN;
		break;
	case 1:
		if (in->state != MIG_BUSY)
			*in = t.instances[gpu][--t.gpus[gpu].instance_count];
		break;
	default:
		if (in->state == MIG_BUSY) {
			in->state = MIG_IDLE;
			in->used = now;
		}
	}
	test_gpu_update(&t, gpu);
}

/* Single requests for a profile: exactly what the order of the ways says. */
static void assert_order(const struct mig_request *request, int r, const struct mig_choice *c)
{
	struct mig_match match;
	bool idle;
	int n;

	mig_match(&t.dies[0], 0, request, &match);
	if (match.fit_count != 1 || match.less_count || request->count != 1 ||
	    t.pool.die_count != 1 || t.pool.turned_away >= MIG_SCARCE)
		return;
	n = fewest(match.fit[0], &idle);
	assert_int_equal(r == 0, idle || n >= 0);
	if (r < 0)
		return;
	assert_int_equal(c->step == MIG_REUSE, idle);
	assert_int_equal(c->step == MIG_CREATE, !idle && n == 0);
	if (c->step == MIG_REPLACE)
		assert_int_equal(__builtin_popcount(c->destroy), n);
}

static void assert_grant(const struct mig_request *request, const struct mig_choice *c)
{
	const struct mig_die *die = die_of(c->gpu);

	assert_choice_is_legal(c);
	assert_int_equal(c->bytes, die->profile[c->profile].memory_bytes);
	if (request->kind == MIG_ASK_BYTES && !c->less)
		assert_true(c->bytes >= request->bytes);
	if (c->less) {
		assert_false(request->strict);
		assert_true(c->bytes * 100 >= request->bytes * 93);
	}
	if (request->kind == MIG_ASK_SHARE)
		assert_true((uint64_t)die->profile[c->profile].size * SHARE_ONE >=
			    (uint64_t)die->units * request->share);
	if (request->kind != MIG_ASK_PROFILE) {
		assert_int_equal(die->profile[c->profile].flags & ~(uint32_t)MIG_NO_MEDIA, 0);
		assert_true((uint64_t)die->profile[c->profile].sms * SHARE_ONE >=
			    (uint64_t)die->sms * request->compute);
	}
}

static void play(uint32_t steps)
{
	static struct test_pool before;

	for (uint32_t step = 0; step < steps; step++) {
		uint8_t profile[MIG_DIES_MAX];
		struct mig_request request = request_draw(profile);
		struct mig_decision d;

		/* Half of the time room is scarce, or soon is. */
		if (step % 2)
			t.pool.turned_away = 0;
		memcpy(before.gpus, t.gpus, sizeof(t.gpus));
		int r = mig_decide(&t.pool, &request, &d);

		/* Deciding changes nothing. */
		assert_memory_equal(before.gpus, t.gpus, sizeof(t.gpus));
		mig_arrival(&t.pool, &request, r == 0 ? MIG_GRANTED : MIG_REFUSED);
		assert_order(&request, r, &d.choice[0]);
		if (r == 0) {
			assert_int_equal(d.count, request.count);
			/* Later choices may rest on the first one's effects. */
			assert_grant(&request, &d.choice[0]);
			test_take(&t, &d);
			for (uint32_t gpu = 0; gpu < t.pool.gpu_count; gpu++)
				assert_true(t.gpus[gpu].offered);
		}
		disturb(step);
		disturb(step);
	}
}

/* No two instances share a unit, whatever was granted. */
static void assert_apart(void)
{
	for (uint32_t gpu = 0; gpu < t.pool.gpu_count; gpu++) {
		uint32_t units = 0;

		for (uint32_t i = 0; i < t.gpus[gpu].instance_count; i++) {
			const struct mig_instance *in = &t.instances[gpu][i];
			uint32_t own = mig_units(in->start, in->size);

			assert_int_equal(units & own, 0);
			units |= own;
		}
	}
}

static void every_model_of_the_simulator(void **state)
{
	for (size_t i = 0; board_key(i); i++) {
		memset(&t, 0, sizeof(t));
		seed = 1000 + i;
		test_pool_add(&t, board_key(i), 3);
		unlimited();
		play(STEPS / 4);
		assert_apart();
	}
}

static void every_model_with_its_limits(void **state)
{
	for (size_t i = 0; board_key(i); i++) {
		memset(&t, 0, sizeof(t));
		seed = 2000 + i;
		test_pool_add(&t, board_key(i), 2);
		test_pool_add(&t, "a30-24gb", 1);
		play(STEPS / 4);
		assert_apart();
	}
}

static void dies_whose_placements_are_drawn_at_random(void **state)
{
	for (uint64_t i = 0; i < 60; i++) {
		seed = 77 + i * 1000003;
		pool_draw(1 + draw(4));
		play(STEPS / 10);
		assert_apart();
	}
}

/* The scores' cache forgets and finds again: what a placement costs is the same in any order. */
static void costs_do_not_depend_on_what_was_asked_before(void **state)
{
	static struct test_pool other;

	seed = 5;
	pool_draw(1);
	other = t;
	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t taken = draw(1u << 16), p = draw(t.dies[0].profile_count);
		uint8_t start = (uint8_t)draw(4);

		other.dies[0].scores = (struct mig_scores){0};
		other.dies[0].demand.fresh = 1000;
		double fresh = mig_cost(&other.dies[0], taken, (uint8_t)p, start);

		assert_true(mig_cost(&t.dies[0], taken, (uint8_t)p, start) == fresh);
		assert_true(fresh >= 0 && fresh <= 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_model_of_the_simulator),
		cmocka_unit_test(every_model_with_its_limits),
		cmocka_unit_test(dies_whose_placements_are_drawn_at_random),
		cmocka_unit_test(costs_do_not_depend_on_what_was_asked_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
