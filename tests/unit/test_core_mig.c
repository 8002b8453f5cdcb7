/* Decisions of the MIG policy, one by one, on the simulator's models. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/macros.h"
#include "base/units.h"
#include "test_core_mig.h"

/* One for all tests: it is large. */
static struct test_pool t;

static void pool_of(const char *model, uint32_t gpus)
{
	memset(&t, 0, sizeof(t));
	test_pool_add(&t, model, gpus);
}

static const char *granted_name(const struct mig_decision *d, uint32_t i)
{
	return test_name(&t, t.gpus[d->choice[i].gpu].die, d->choice[i].profile);
}

static const char *near_name(const struct mig_decision *d)
{
	return test_name(&t, t.gpus[d->choice[0].gpu].die, d->choice[0].near);
}

static struct mig_request named(const char *name)
{
	static uint8_t profile[MIG_DIES_MAX];

	for (uint32_t die = 0; die < t.pool.die_count; die++)
		profile[die] = test_profile(&t, die, name);
	return (struct mig_request){.kind = MIG_ASK_PROFILE, .profile = profile, .count = 1};
}

static void a_named_start_is_the_only_one_whichever_way_it_is_had(void **state)
{
	struct mig_request request;
	struct mig_instance in[] = {
		{.state = MIG_IDLE, .start = 0, .size = 1},
		{.state = MIG_IDLE, .start = 5, .size = 1},
		{.state = MIG_BUSY, .start = 2, .size = 1},
	};
	struct mig_decision d;

	pool_of("h100-80gb", 1);
	request = named("1g.10gb");
	for (size_t i = 0; i < ARRAY_SIZE(in); i++)
		in[i].profile = request.profile[0];
	t.gpus[0].instances = in;
	t.gpus[0].instance_count = ARRAY_SIZE(in);
	t.gpus[0].offered = true;
	assert_int_equal(mig_gpu_update(&t.gpus[0], &t.dies[0]), 0);
	for (uint32_t scarce = 0; scarce < 2; scarce++) {
		t.pool.turned_away = scarce ? 2 * MIG_SCARCE : 0;
		request = named("1g.10gb");
		request.starts = 1 << 5;
		assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
		assert_int_equal(d.choice[0].step, MIG_REUSE);
		assert_int_equal(d.choice[0].instance, 1);
		request.starts = 1 << 6;
		assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
		assert_int_equal(d.choice[0].step, MIG_CREATE);
		assert_int_equal(d.choice[0].start, 6);
		/* Busy there, while there is room elsewhere. */
		request.starts = 1 << 2;
		assert_int_equal(mig_decide(&t.pool, &request, &d), -EAGAIN);
		request = named("2g.20gb");
		request.starts = 1 << 4;
		assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
		assert_int_equal(d.choice[0].step, MIG_REPLACE);
		assert_int_equal(d.choice[0].start, 4);
		assert_int_equal(d.choice[0].destroy, 1 << 1);
	}
}

static void places_on_several_gpus_are_the_only_ones(void **state)
{
	const uint32_t places[3] = {1 << 5 | 1 << 3, 0, 1 << 2};
	uint32_t seen[3] = {0};
	struct mig_request request;
	struct mig_decision d;

	pool_of("h100-80gb", 3);
	request = named("1g.10gb");
	request.starts_on = places;
	request.count = 3;
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	for (uint32_t i = 0; i < d.count; i++)
		seen[d.choice[i].gpu] |= 1u << d.choice[i].start;
	assert_memory_equal(seen, places, sizeof(seen));
	request.count = 4;
	assert_int_not_equal(mig_decide(&t.pool, &request, &d), 0);
}

static void a_sharer_joins_the_smallest_room_that_is_enough(void **state)
{
	struct mig_request request = {
		.kind = MIG_ASK_BYTES, .bytes = GIB(4), .count = 1, .together = true};
	struct mig_instance in[] = {
		{.state = MIG_BUSY, .room = GIB(15), .start = 0, .size = 2},
		{.state = MIG_BUSY, .room = GIB(5), .start = 2, .size = 1},
		{.state = MIG_BUSY, .start = 3, .size = 1},
		{.state = MIG_BUSY, .room = GIB(3), .start = 4, .size = 1},
		{.state = MIG_IDLE, .room = GIB(4), .start = 5, .size = 1},
		{.state = MIG_BUSY,
		 .room = GIB(4),
		 .start = 6,
		 .size = 1,
		 .profile = MIG_NO_PROFILE},
	};
	uint8_t none[1] = {0};
	struct mig_decision d;

	pool_of("h100-80gb", 1);
	t.gpus[0].instances = in;
	t.gpus[0].instance_count = ARRAY_SIZE(in);
	t.gpus[0].offered = true;
	assert_int_equal(mig_join(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_JOIN);
	assert_int_equal(d.choice[0].instance, 1);
	assert_int_equal(d.choice[0].bytes, GIB(4));
	request.bytes = GIB(10);
	assert_int_equal(mig_join(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].instance, 0);
	request.bytes = GIB(16);
	assert_int_equal(mig_join(&t.pool, &request, &d), -EAGAIN);
	request.bytes = GIB(4);
	request.together = false;
	assert_int_equal(mig_join(&t.pool, &request, &d), -EAGAIN);
	request.together = true;
	request.allowed = none;
	assert_int_equal(mig_join(&t.pool, &request, &d), -EAGAIN);
}

static void a_part_of_an_instance_holds_a_context(void **state)
{
	struct mig_instance in = {.state = MIG_BUSY, .room = GIB(5), .start = 0, .size = 1};
	struct mig_request request = {
		.kind = MIG_ASK_BYTES, .bytes = MIB(500), .count = 1, .together = true};
	uint64_t context[MIG_PROFILES_MAX];
	struct mig_decision d;

	for (uint32_t i = 0; i < MIG_PROFILES_MAX; i++)
		context[i] = MIB(520);
	pool_of("h100-80gb", 1);
	t.gpus[0].instances = &in;
	t.gpus[0].instance_count = 1;
	t.gpus[0].offered = true;
	assert_int_equal(mig_gpu_update(&t.gpus[0], &t.dies[0]), 0);
	assert_int_equal(mig_check(&t.pool, 0, &request), MIG_FITS);
	t.gpus[0].context = context;
	assert_int_equal(mig_check(&t.pool, 0, &request), MIG_TOO_SMALL);
	assert_int_equal(mig_join(&t.pool, &request, &d), -EAGAIN);
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EDOM);
	request.bytes = MIB(520);
	assert_int_equal(mig_join(&t.pool, &request, &d), 0);
	/* A context in the larger instance that is there costs more, in a new one of the smallest
	 * profile it does not. */
	context[in.profile = 6] = GIB(1);
	assert_int_equal(mig_join(&t.pool, &request, &d), -EAGAIN);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	/* An instance of its own is larger. */
	request.bytes = MIB(500);
	request.together = false;
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
}

static void sizes_get_the_smallest_profile_that_holds_them(void **state)
{
	static const struct {
		const char *model;
		uint64_t bytes;
		const char *profile, *near;
	} cases[] = {
		{"h100-80gb", GIB(4), "1g.10gb", "none"},
		{"h100-80gb", MIB(9984), "1g.10gb", "none"},
		/* 9.75 GiB are 97.5% of it. */
		{"h100-80gb", GIB(10), "1g.20gb", "1g.10gb"},
		{"h100-80gb", GIB(11), "1g.20gb", "none"},
		{"h100-80gb", GIB(30), "3g.40gb", "none"},
		{"h100-80gb", GIB(41), "7g.80gb", "3g.40gb"},
		{"h200-141gb", 4000000000, "1g.18gb", "none"},
		{"h200-141gb", GIB(70), "7g.141gb", "3g.71gb"},
		{"a100-40gb", GIB(5), "1g.10gb", "1g.5gb"},
		{"a100-80gb", GIB(9), "1g.10gb", "none"},
		{"a30-24gb", GIB(6), "2g.12gb", "1g.6gb"},
		{"a30-24gb", GIB(5), "1g.6gb", "none"},
		{"rtx-pro-6000-96gb", GIB(20), "1g.24gb", "none"},
		{"rtx-pro-6000-96gb", GIB(40), "2g.48gb", "none"},
		{"h100-nvl-94gb", GIB(12), "1g.24gb", "none"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct mig_request request = test_bytes(cases[i].bytes);
		struct mig_decision d;

		pool_of(cases[i].model, 1);
		assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
		assert_string_equal(granted_name(&d, 0), cases[i].profile);
		assert_string_equal(near_name(&d), cases[i].near);
		assert_int_equal(d.choice[0].requested, cases[i].bytes);
		assert_true(d.choice[0].bytes >= cases[i].bytes);
		assert_false(d.choice[0].less);
	}
}

static void fractions_count_memory_units(void **state)
{
	static const struct {
		const char *model;
		uint32_t share;
		const char *profile;
	} cases[] = {
		{"h100-80gb", 125000, "1g.10gb"},         {"h100-80gb", 125001, "1g.20gb"},
		{"h100-80gb", 250000, "1g.20gb"},         {"h100-80gb", 333333, "3g.40gb"},
		{"h100-80gb", 500000, "3g.40gb"},         {"h100-80gb", 500001, "7g.80gb"},
		{"h100-80gb", SHARE_ONE, "7g.80gb"},      {"a30-24gb", 250000, "1g.6gb"},
		{"a30-24gb", 500000, "2g.12gb"},          {"a30-24gb", 1000, "1g.6gb"},
		{"rtx-pro-6000-96gb", 250000, "1g.24gb"}, {"rtx-pro-6000-96gb", 333333, "2g.48gb"},
		{"rtx-pro-6000-96gb", 500000, "2g.48gb"}, {"a100-40gb", 500000, "3g.20gb"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct mig_request request = test_share(cases[i].share);
		struct mig_decision d;

		pool_of(cases[i].model, 1);
		assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
		assert_string_equal(granted_name(&d, 0), cases[i].profile);
		assert_string_equal(near_name(&d), "none");
	}
}

/* H100: 132 SMs; 16 in 1g, 26 in 1g.20gb, 32 in 2g, 60 in 3g, 64 in 4g. */
static void compute_is_a_share_of_sms(void **state)
{
	struct mig_request request = test_bytes(GIB(4));
	struct mig_decision d;

	pool_of("h100-80gb", 1);
	request.compute = 121212; /* 16 of 132 */
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "1g.10gb");
	request.compute = 121213;
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "1g.20gb");
	request.compute = 200000;
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "2g.20gb");
	/* 66 SMs: none but the whole GPU has them, though 4g has 97% of that. */
	request.compute = 500000;
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "7g.80gb");
	assert_string_equal(near_name(&d), "4g.40gb");
	/* On an A100, where the largest profile lacks ten of the GPU's SMs, all still means all
	 * that there are. */
	pool_of("a100-80gb", 1);
	request.compute = SHARE_ONE;
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "7g.80gb");
}

static void the_93_percent_rule_is_the_last_resort(void **state)
{
	struct mig_request request = test_bytes(GIB(10)), strict = test_bytes(GIB(10));
	struct mig_decision d;

	strict.strict = true;
	pool_of("h100-80gb", 1);
	for (uint32_t start = 0; start < 6; start += 2)
		test_instance(&t, 0, test_profile(&t, 0, "1g.20gb"), start, MIG_BUSY, 0);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "1g.20gb");
	/* One unit is left. */
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 6, MIG_BUSY, 0);
	t.instances[0][0] = (struct mig_instance){.profile = test_profile(&t, 0, "1g.10gb"),
						  .start = 0,
						  .size = 1,
						  .state = MIG_BUSY};
	test_gpu_update(&t, 0);
	assert_int_equal(mig_decide(&t.pool, &strict, &d), -EAGAIN);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "1g.10gb");
	assert_true(d.choice[0].less);
	assert_int_equal(d.choice[0].bytes, MIB(9984));
	assert_int_equal(d.choice[0].start, 1);
	/* 92.85%. */
	request.bytes = MIB(9984) * 10000 / 9285;
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EAGAIN);
}

static void special_profiles_are_given_by_name_only(void **state)
{
	struct mig_request request = named("1g.24gb+me.all");
	struct mig_decision d;

	pool_of("rtx-pro-6000-96gb", 1);
	request = named("1g.24gb+me.all");
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "1g.24gb+me.all");
	test_take(&t, &d);
	/* It has all media engines, so that only profiles without any are left. */
	request = test_bytes(GIB(20));
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "1g.24gb-me");
	assert_false(d.choice[0].doubtful);
	request = named("1g.24gb+gfx");
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_true(d.choice[0].doubtful);
	request = named("9g.99gb");
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EDOM);
	assert_int_equal(mig_check(&t.pool, 0, &request), MIG_NO_SUCH_PROFILE);
}

static void an_exact_idle_match_is_reused(void **state)
{
	struct mig_request request = test_bytes(GIB(4));
	struct mig_decision d;
	uint32_t idle;

	pool_of("h100-80gb", 2);
	test_instance(&t, 1, test_profile(&t, 0, "1g.20gb"), 0, MIG_IDLE, 1);
	test_instance(&t, 1, test_profile(&t, 0, "1g.10gb+me"), 2, MIG_IDLE, 1);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_CREATE);
	idle = test_instance(&t, 1, test_profile(&t, 0, "1g.10gb"), 3, MIG_IDLE, 1);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REUSE);
	assert_int_equal(d.choice[0].gpu, 1);
	assert_int_equal(d.choice[0].instance, idle);
	t.instances[1][idle].state = MIG_REMOVING;
	test_gpu_update(&t, 1);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_CREATE);
}

/* On the ordinary die unit 7 has no compute, so that 6 spoils least; mirrored it is unit 3's place
 * that does. */
static void a_placement_spoils_as_little_as_it_can(void **state)
{
	struct mig_request small = test_bytes(GIB(4));
	struct mig_decision d;

	pool_of("h100-80gb", 1);
	assert_int_equal(mig_decide(&t.pool, &small, &d), 0);
	assert_int_equal(d.choice[0].start, 6);
	pool_of("h100-pcie-80gb-mirrored", 1);
	assert_int_equal(mig_decide(&t.pool, &small, &d), 0);
	assert_int_equal(d.choice[0].start, 2);
	/* The whole GPU beside is left alone. */
	pool_of("h100-80gb", 2);
	test_instance(&t, 1, test_profile(&t, 0, "1g.10gb"), 6, MIG_BUSY, 0);
	assert_int_equal(mig_decide(&t.pool, &small, &d), 0);
	assert_int_equal(d.choice[0].gpu, 1);
}

static void the_fewest_and_least_recently_used_instances_are_destroyed(void **state)
{
	struct mig_request request = test_share(250000);
	struct mig_decision d;

	pool_of("h100-80gb", 1);
	for (uint32_t start = 0; start < 7; start++)
		test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), start, MIG_IDLE,
			      (uint64_t[]){9, 10, 1, 11, 7, 8, 20}[start]);
	/* 1g.20gb may also start at 6, where one instance is in the way; elsewhere two are. */
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REPLACE);
	assert_int_equal(d.choice[0].start, 6);
	assert_int_equal(d.choice[0].destroy, 1 << 6);
	/* Without that one, of 9 10, 1 11 and 7 8 the pair that was used last at 8. */
	t.instances[0][6].state = MIG_BUSY;
	test_gpu_update(&t, 0);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].start, 4);
	assert_int_equal(d.choice[0].destroy, 1 << 4 | 1 << 5);
	test_take(&t, &d);
	assert_int_equal(t.gpus[0].instance_count, 6);
}

static void instances_of_others_are_neither_free_nor_touched(void **state)
{
	struct mig_request whole = test_share(SHARE_ONE), half = test_share(500000);
	struct mig_decision d;

	pool_of("a100-40gb", 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.5gb"), 6, MIG_FOREIGN, 0);
	assert_int_equal(mig_decide(&t.pool, &whole, &d), -EAGAIN);
	assert_int_equal(mig_check(&t.pool, 0, &whole), MIG_FULL_FOREIGN);
	assert_int_equal(mig_decide(&t.pool, &half, &d), 0);
	assert_int_equal(d.choice[0].start, 0);
	t.instances[0][0].state = MIG_BUSY;
	test_gpu_update(&t, 0);
	assert_int_equal(mig_check(&t.pool, 0, &whole), MIG_FULL);
	t.instances[0][0].state = MIG_CREATING;
	test_gpu_update(&t, 0);
	assert_int_equal(mig_decide(&t.pool, &whole, &d), -EAGAIN);
	assert_int_equal(mig_check(&t.pool, 0, &whole), MIG_FULL_CHANGING);
	t.instances[0][0].state = MIG_IDLE;
	test_gpu_update(&t, 0);
	assert_int_equal(mig_decide(&t.pool, &whole, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REPLACE);
	/* One of a profile that NVML does not list takes its units all the same. */
	t.instances[0][0].state = MIG_FOREIGN;
	t.instances[0][0].profile = MIG_NO_PROFILE;
	test_gpu_update(&t, 0);
	assert_int_equal(mig_decide(&t.pool, &whole, &d), -EAGAIN);
}

/* Somebody's instance that we cannot see: the driver says so, and the next plan goes round it. */
static void a_place_that_the_driver_refused_is_not_tried_again(void **state)
{
	uint8_t profile;
	struct mig_request request = test_bytes(GIB(4));
	struct mig_decision d;

	pool_of("a30-24gb", 1);
	profile = test_profile(&t, 0, "1g.6gb");
	t.gpus[0].refused = t.refused[0];
	for (uint32_t tried = 0; tried < 4; tried++) {
		assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
		assert_int_equal(t.refused[0][profile] >> d.choice[0].start & 1, 0);
		t.refused[0][profile] |= 1u << d.choice[0].start;
	}
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EAGAIN);
	/* Where an idle instance goes, the driver may think otherwise. */
	test_instance(&t, 0, test_profile(&t, 0, "2g.12gb"), 0, MIG_IDLE, 1);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REPLACE);
	assert_int_equal(d.choice[0].destroy, 1);
}

static void several_instances_are_all_granted_or_none(void **state)
{
	struct mig_request request = test_bytes(GIB(18));
	static struct test_pool before;
	struct mig_decision d;
	uint32_t units = 0;

	pool_of("h100-80gb", 2);
	request.count = 8;
	before = t;
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_memory_equal(t.gpus, before.gpus, sizeof(t.gpus));
	assert_int_equal(d.count, 8);
	for (uint32_t i = 0; i < d.count; i++) {
		uint32_t own = mig_units(d.choice[i].start, 2) << 8 * d.choice[i].gpu;

		assert_int_equal(units & own, 0);
		units |= own;
	}
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 0, MIG_BUSY, 0);
	before = t;
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EAGAIN);
	assert_memory_equal(t.gpus, before.gpus, sizeof(t.gpus));
	request.count = 9;
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EDOM);
	request.count = 2;
	request.apart = true;
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_not_equal(d.choice[0].gpu, d.choice[1].gpu);
	request.count = 3;
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EDOM);
}

/* Two idle instances, of which each may be reused or destroyed once. */
static void several_instances_do_not_share_what_they_find(void **state)
{
	struct mig_request request = test_bytes(GIB(4));
	struct mig_decision d;

	pool_of("a30-24gb", 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.6gb"), 0, MIG_IDLE, 1);
	test_instance(&t, 0, test_profile(&t, 0, "2g.12gb"), 2, MIG_IDLE, 2);
	request.count = 4;
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REUSE);
	assert_int_equal(d.choice[1].step, MIG_CREATE);
	assert_int_equal(d.choice[1].start, 1);
	assert_int_equal(d.choice[2].step, MIG_REPLACE);
	assert_int_equal(d.choice[2].destroy, 1 << 1);
	assert_int_equal(d.choice[3].step, MIG_CREATE);
}

static void a_request_may_name_its_gpus(void **state)
{
	static const uint8_t second[TEST_GPUS_MAX] = {0, 1};
	struct mig_request request = test_bytes(GIB(4));
	struct mig_decision d;

	pool_of("h100-80gb", 2);
	request.allowed = second;
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].gpu, 1);
	assert_int_equal(mig_check(&t.pool, 0, &request), MIG_NOT_ALLOWED);
	assert_int_equal(mig_check(&t.pool, 1, &request), MIG_FITS);
	t.gpus[1].offered = false;
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EDOM);
	assert_int_equal(mig_check(&t.pool, 1, &request), MIG_NOT_OFFERED);
}

static void a_request_larger_than_all_profiles_is_refused_with_the_reason(void **state)
{
	struct mig_request request = test_bytes(GIB(100));
	struct mig_decision d;

	pool_of("h100-80gb", 1);
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EDOM);
	assert_int_equal(mig_check(&t.pool, 0, &request), MIG_TOO_LARGE);
	/* A vGPU guest's GPU has MIG mode, but no profiles. */
	t.dies[0].profile_count = 0;
	assert_int_equal(mig_die_init(&t.dies[0]), 0);
	test_gpu_update(&t, 0);
	request = test_bytes(GIB(4));
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EDOM);
	assert_int_equal(mig_check(&t.pool, 0, &request), MIG_NO_SUCH_PROFILE);
	/* 93% of what was asked are enough where no profile has more. */
	pool_of("h100-80gb", 1);
	request = test_bytes(GIB(85));
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "7g.80gb");
	assert_true(d.choice[0].less);
}

/* An integrated GPU's profiles have no memory of their own. */
static void profiles_without_memory_are_given_by_name_only(void **state)
{
	struct mig_request request = test_bytes(GIB(1));
	struct mig_decision d;

	pool_of("a30-24gb", 1);
	for (uint32_t i = 0; i < t.dies[0].profile_count; i++)
		t.dies[0].profile[i].memory_bytes = 0;
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EDOM);
	request = test_share(500000);
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EDOM);
	request = named("2g.12gb");
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].bytes, 0);
}

/* As on a GPU that can have one profile of a kind with media engines, one without the extra ones,
 * and three without any. */
static void a_profile_without_media_engines_stands_in(void **state)
{
	struct mig_request request = test_bytes(GIB(10));
	struct mig_decision d;

	memset(&t, 0, sizeof(t));
	t.pool = (struct mig_pool){.dies = t.dies, .gpus = t.gpus, .die_count = 1, .gpu_count = 1};
	t.dies[0].profile_count = 3;
	for (uint32_t i = 0; i < 3; i++)
		t.dies[0].profile[i] =
			(struct mig_profile){.memory_bytes = GIB(12),
					     .sms = 20,
					     .slices = 1,
					     .limit = (uint32_t[]){1, 1, 3}[i],
					     .flags = (uint32_t[]){MIG_MEDIA, 0, MIG_NO_MEDIA}[i],
					     .starts = 0xf,
					     .size = 1};
	assert_int_equal(mig_die_init(&t.dies[0]), 0);
	t.gpus[0].offered = true;
	test_gpu_update(&t, 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
		assert_int_equal(d.choice[0].profile, i ? 2 : 1);
		test_take(&t, &d);
	}
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EAGAIN);
}

/* An instance of the engines' only owner goes, though it does not stand in the way. */
static void an_idle_owner_of_engines_goes_for_who_needs_them(void **state)
{
	struct mig_request request;
	struct mig_decision d;

	pool_of("a100-80gb", 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 5, MIG_IDLE, 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb+me"), 6, MIG_IDLE, 2);
	t.instances[0][1].profile = test_profile(&t, 0, "1g.10gb+me");
	test_gpu_update(&t, 0);
	request = named("1g.10gb+me");
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REUSE);
	t.instances[0][1].state = MIG_BUSY;
	test_gpu_update(&t, 0);
	/* The one that may be is busy: the limit may be wrong, so the driver is asked. */
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_CREATE);
	assert_true(d.choice[0].doubtful);
	request.count = 2;
	assert_int_not_equal(mig_decide(&t.pool, &request, &d), 0);
	/* On the other model it is an idle instance that holds the engines: it goes. */
	pool_of("rtx-pro-6000-96gb", 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.24gb+me.all"), 9, MIG_IDLE, 1);
	request = test_bytes(GIB(40));
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "2g.48gb");
	assert_int_equal(d.choice[0].step, MIG_REPLACE);
	assert_int_equal(d.choice[0].destroy, 1);
}

/* A board whose table lacks the engines of the largest profile, or says that there are more in one
 * slice than the rest leaves: seven instances of one slice can be made all the same. */
static void engines_that_do_not_add_up_limit_nothing(void **state)
{
	struct mig_request request = test_bytes(GIB(10));
	struct mig_decision d;

	pool_of("b200-180gb", 1);
	for (uint32_t i = 0; i < 7; i++) {
		assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
		assert_string_equal(granted_name(&d, 0), "1g.23gb");
		assert_false(d.choice[0].doubtful);
		test_take(&t, &d);
	}
	assert_int_equal(mig_decide(&t.pool, &request, &d), -EAGAIN);
}

static void waste_decides_between_models(void **state)
{
	struct mig_request request = test_bytes(GIB(9));
	struct mig_decision d;

	memset(&t, 0, sizeof(t));
	test_pool_add(&t, "h200-141gb", 1);
	test_pool_add(&t, "a100-80gb", 1);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "1g.10gb");
	request = test_bytes(GIB(16));
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "1g.18gb");
	/* The GPU that wastes less is full: what holds it elsewhere is granted. */
	test_instance(&t, 0, test_profile(&t, 0, "7g.141gb"), 0, MIG_BUSY, 0);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_string_equal(granted_name(&d, 0), "1g.20gb");
}

static void between_mig_and_fractions_the_waste_decides(void **state)
{
	struct mig_decision d = {.count = 1};

	d.choice[0] = (struct mig_choice){.bytes = GIB(20), .requested = GIB(10)};
	assert_false(mig_preferred(&d, GIB(10), false));
	/* Equal, but for some MiB. */
	d.choice[0].bytes = MIB(10300);
	assert_false(mig_preferred(&d, GIB(10), false));
	/* A fraction may waste something, too: a whole GPU. */
	assert_true(mig_preferred(&d, GIB(79), false));
	/* In full before the 93% rule. */
	d.choice[0].bytes = GIB(20);
	assert_true(mig_preferred(&d, MIB(9600), true));
	d.choice[0].bytes = MIB(9984);
	d.choice[0].less = true;
	assert_false(mig_preferred(&d, GIB(10), false));
}

/* An idle 1g lies where it spoils a 3g; elsewhere a new one would spoil nothing. While nobody is
 * turned away the idle one is taken, as it is there at once. */
static void a_bad_place_is_not_reused_while_room_is_scarce(void **state)
{
	struct mig_request request = test_bytes(GIB(4)), half = test_share(500000);
	struct mig_decision d;

	pool_of("h100-80gb", 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 0, MIG_IDLE, 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 6, MIG_BUSY, 0);
	for (int i = 0; i < 40; i++)
		mig_arrival(&t.pool, &half, true);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REUSE);
	for (int i = 0; i < 40; i++)
		mig_arrival(&t.pool, &half, false);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_CREATE);
	assert_true(d.choice[0].start >= 4);
	for (int i = 0; i < 4000; i++)
		mig_arrival(&t.pool, &half, true);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REUSE);
}

/* One request without room is enough: in a large pool few are turned away, and each is missed. */
static void room_is_scarce_as_soon_as_one_is_turned_away(void **state)
{
	struct mig_request request = test_bytes(GIB(4)), half = test_share(500000);
	struct mig_decision d;

	pool_of("h100-80gb", 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 0, MIG_IDLE, 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 6, MIG_BUSY, 0);
	mig_arrival(&t.pool, &half, false);
	for (int i = 0; i < 700; i++)
		mig_arrival(&t.pool, &half, true);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_CREATE);
	assert_true(d.choice[0].start >= 4);
}

/* The only one of its profile lies at a bad place: it is destroyed for one at a better place, as
 * with it gone the limit allows that. */
static void the_limit_counts_removed_instances_while_room_is_scarce(void **state)
{
	struct mig_request request, half = test_share(500000);
	struct mig_decision d;

	pool_of("h100-80gb", 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb+me"), 0, MIG_IDLE, 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 6, MIG_BUSY, 0);
	for (int i = 0; i < 40; i++)
		mig_arrival(&t.pool, &half, false);
	request = named("1g.10gb+me");
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REPLACE);
	assert_int_equal(d.choice[0].destroy, 1);
	assert_true(d.choice[0].start >= 4);
}

static void bad_placements_are_refused(void **state)
{
	struct mig_die die = {.profile_count = 1};

	die.profile[0] = (struct mig_profile){.memory_bytes = 1, .starts = 1, .size = 0};
	assert_int_equal(mig_die_init(&die), -EINVAL);
	die.profile[0].size = 33;
	assert_int_equal(mig_die_init(&die), -EINVAL);
	die.profile[0].size = 2;
	die.profile[0].starts = 1u << 31;
	assert_int_equal(mig_die_init(&die), -EINVAL);
	die.profile[0].size = 1;
	assert_int_equal(mig_die_init(&die), 0);
	assert_int_equal(die.units, 1);
	die.profile_count = MIG_PROFILES_MAX + 1;
	assert_int_equal(mig_die_init(&die), -E2BIG);
	pool_of("a30-24gb", 1);
	t.gpus[0].instance_count = 1;
	t.instances[0][0] = (struct mig_instance){.start = 31, .size = 2, .state = MIG_FOREIGN};
	assert_int_equal(mig_gpu_update(&t.gpus[0], &t.dies[0]), -EINVAL);
}

static void instances_go_from_state_to_state_by_the_table(void **state)
{
	assert_true(mig_state_may(MIG_CREATING, MIG_BUSY));
	assert_true(mig_state_may(MIG_BUSY, MIG_IDLE));
	assert_true(mig_state_may(MIG_IDLE, MIG_REMOVING));
	assert_true(mig_state_may(MIG_REMOVING, MIG_DEBT));
	assert_false(mig_state_may(MIG_BUSY, MIG_REMOVING));
	assert_false(mig_state_may(MIG_GONE, MIG_IDLE));
	for (int other = 0; other < MIG_STATES; other++) {
		/* Nothing of others' is changed, and all may vanish. */
		assert_int_equal(mig_state_may(MIG_FOREIGN, (enum mig_state)other),
				 other == MIG_GONE);
		assert_int_equal(mig_state_may((enum mig_state)other, MIG_GONE), other != MIG_GONE);
		assert_false(mig_state_may((enum mig_state)other, MIG_FOREIGN));
	}
	assert_string_equal(mig_state_text(MIG_IDLE), "idle");
	assert_string_equal(mig_state_text((enum mig_state)99), "unknown");
}

static void dies_are_shared_by_equal_gpus(void **state)
{
	memset(&t, 0, sizeof(t));
	test_pool_add(&t, "h100-pcie-80gb", 1);
	test_pool_add(&t, "h100-pcie-80gb", 1);
	test_pool_add(&t, "h100-pcie-80gb-mirrored", 1);
	assert_true(mig_die_equal(&t.dies[0], &t.dies[1]));
	assert_false(mig_die_equal(&t.dies[0], &t.dies[2]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_part_of_an_instance_holds_a_context),
		cmocka_unit_test(a_named_start_is_the_only_one_whichever_way_it_is_had),
		cmocka_unit_test(places_on_several_gpus_are_the_only_ones),
		cmocka_unit_test(a_sharer_joins_the_smallest_room_that_is_enough),
		cmocka_unit_test(sizes_get_the_smallest_profile_that_holds_them),
		cmocka_unit_test(fractions_count_memory_units),
		cmocka_unit_test(compute_is_a_share_of_sms),
		cmocka_unit_test(the_93_percent_rule_is_the_last_resort),
		cmocka_unit_test(special_profiles_are_given_by_name_only),
		cmocka_unit_test(an_exact_idle_match_is_reused),
		cmocka_unit_test(a_placement_spoils_as_little_as_it_can),
		cmocka_unit_test(the_fewest_and_least_recently_used_instances_are_destroyed),
		cmocka_unit_test(instances_of_others_are_neither_free_nor_touched),
		cmocka_unit_test(a_place_that_the_driver_refused_is_not_tried_again),
		cmocka_unit_test(several_instances_are_all_granted_or_none),
		cmocka_unit_test(several_instances_do_not_share_what_they_find),
		cmocka_unit_test(a_request_may_name_its_gpus),
		cmocka_unit_test(a_request_larger_than_all_profiles_is_refused_with_the_reason),
		cmocka_unit_test(profiles_without_memory_are_given_by_name_only),
		cmocka_unit_test(a_profile_without_media_engines_stands_in),
		cmocka_unit_test(an_idle_owner_of_engines_goes_for_who_needs_them),
		cmocka_unit_test(engines_that_do_not_add_up_limit_nothing),
		cmocka_unit_test(waste_decides_between_models),
		cmocka_unit_test(between_mig_and_fractions_the_waste_decides),
		cmocka_unit_test(a_bad_place_is_not_reused_while_room_is_scarce),
		cmocka_unit_test(room_is_scarce_as_soon_as_one_is_turned_away),
		cmocka_unit_test(the_limit_counts_removed_instances_while_room_is_scarce),
		cmocka_unit_test(bad_placements_are_refused),
		cmocka_unit_test(instances_go_from_state_to_state_by_the_table),
		cmocka_unit_test(dies_are_shared_by_equal_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
