/* Decisions of the MIG policy, one by one, on the simulator's models: places and instances. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/macros.h"
#include "base/units.h"
#include "test_core_mig_pool.h"

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

static void requests_of_different_parties_share_no_instance(void **state)
{
	struct mig_request request = {.kind = MIG_ASK_BYTES,
				      .bytes = GIB(4),
				      .count = 1,
				      .together = true,
				      .party = 1000};
	struct mig_instance in[] = {
		{.state = MIG_BUSY, .room = GIB(5), .party = 1001, .start = 0, .size = 1},
		{.state = MIG_BUSY, .room = GIB(15), .party = 1000, .start = 2, .size = 2},
	};
	struct mig_decision d;

	pool_of("h100-80gb", 1);
	t.gpus[0].instances = in;
	t.gpus[0].instance_count = ARRAY_SIZE(in);
	t.gpus[0].offered = true;
	/* The smaller room is a stranger's. */
	assert_int_equal(mig_join(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].instance, 1);
	in[1].party = 1002;
	assert_int_equal(mig_join(&t.pool, &request, &d), -EAGAIN);
	/* A group's number is no user's. */
	in[1].party = 1ull << 32 | 1000;
	assert_int_equal(mig_join(&t.pool, &request, &d), -EAGAIN);
	request.party = in[1].party;
	assert_int_equal(mig_join(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].instance, 1);
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

/* The GPU that a request of this size gets, whose instance is then busy. */
static uint32_t taken_on(uint64_t bytes)
{
	struct mig_request request = test_bytes(bytes);
	struct mig_decision d;

	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	test_take(&t, &d);
	return d.choice[0].gpu;
}

static void spread_takes_the_gpu_with_the_most_free_units(void **state)
{
	struct mig_request twice = test_bytes(GIB(4));
	struct mig_decision d;

	pool_of("h100-80gb", 3);
	t.pool.spread = true;
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(taken_on(GIB(4)), i % 3);
	/* Within the GPU the placement that spoils least is taken, as ever. */
	pool_of("h100-80gb", 2);
	t.pool.spread = true;
	test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 6, MIG_BUSY, 0);
	assert_int_equal(mig_decide(&t.pool, &twice, &d), 0);
	assert_int_equal(d.choice[0].gpu, 1);
	assert_int_equal(d.choice[0].start, 6);
	/* Instances of one request are spread, too. */
	twice.count = 2;
	pool_of("h100-80gb", 2);
	t.pool.spread = true;
	assert_int_equal(mig_decide(&t.pool, &twice, &d), 0);
	assert_int_not_equal(d.choice[0].gpu, d.choice[1].gpu);
}

static void spread_leaves_an_idle_instance_of_a_fuller_gpu_alone(void **state)
{
	struct mig_request request = test_bytes(GIB(4));
	struct mig_decision d;

	for (uint32_t scarce = 0; scarce < 2; scarce++) {
		pool_of("h100-80gb", 2);
		t.pool.spread = true;
		t.pool.turned_away = scarce ? 2 * MIG_SCARCE : 0;
		test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 0, MIG_BUSY, 0);
		test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), 1, MIG_IDLE, 1);
		assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
		assert_int_equal(d.choice[0].gpu, 1);
		/* Of equal GPUs the one with an idle instance is ready at once. */
		test_instance(&t, 1, test_profile(&t, 0, "1g.10gb"), 0, MIG_BUSY, 0);
		if (!scarce) {
			assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
			assert_int_equal(d.choice[0].step, MIG_REUSE);
		}
		/* What only the fuller GPU can have is still granted there. */
		t.gpus[1].offered = false;
		assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
		assert_int_equal(d.choice[0].gpu, 0);
	}
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
	assert_int_equal(mig_check(&t.pool, 0, &request), MIG_FULL_REFUSED);
	/* Where an idle instance goes, the driver may think otherwise. */
	test_instance(&t, 0, test_profile(&t, 0, "2g.12gb"), 0, MIG_IDLE, 1);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REPLACE);
	assert_int_equal(d.choice[0].destroy, 1);
}

/* Its idle instances are given, and nothing is made or destroyed for another one. */
static void a_frozen_gpu_gives_idle_instances_alone(void **state)
{
	struct mig_request small = test_bytes(GIB(4)), whole = test_bytes(GIB(20));
	struct mig_decision d;

	pool_of("a30-24gb", 2);
	t.gpus[0].frozen = true;
	assert_int_equal(mig_decide(&t.pool, &small, &d), 0);
	assert_int_equal(d.choice[0].gpu, 1);
	test_instance(&t, 0, test_profile(&t, 0, "1g.6gb"), 0, MIG_IDLE, 1);
	assert_int_equal(mig_decide(&t.pool, &small, &d), 0);
	assert_int_equal(d.choice[0].gpu, 0);
	assert_int_equal(d.choice[0].step, MIG_REUSE);
	test_instance(&t, 1, test_profile(&t, 0, "1g.6gb"), 0, MIG_BUSY, 0);
	assert_int_equal(mig_decide(&t.pool, &whole, &d), -EAGAIN);
	assert_int_equal(mig_check(&t.pool, 0, &whole), MIG_FULL_FROZEN);
	/* Where room is scarce, too. */
	t.pool.turned_away = MIG_SCARCE;
	assert_int_equal(mig_decide(&t.pool, &whole, &d), -EAGAIN);
	t.gpus[0].frozen = false;
	assert_int_equal(mig_decide(&t.pool, &whole, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REPLACE);
}

static void a_limit_that_is_reached_is_told_from_a_change_that_ends(void **state)
{
	struct mig_request request;
	uint8_t profile;

	pool_of("h100-80gb", 1);
	request = named("1g.10gb+me");
	profile = request.profile[0];
	t.gpus[0].refused = t.refused[0];
	test_instance(&t, 0, profile, 3, MIG_BUSY, 0);
	t.refused[0][profile] = UINT32_MAX;
	assert_int_equal(mig_check(&t.pool, 0, &request), MIG_FULL_LIMIT);
	t.instances[0][0].state = MIG_REMOVING;
	test_gpu_update(&t, 0);
	assert_int_equal(mig_check(&t.pool, 0, &request), MIG_FULL_CHANGING);
}

static void a_gpu_is_asked_why_for_the_places_that_are_wanted_on_it(void **state)
{
	const uint32_t places[2] = {0, 1 << 5};
	struct mig_request request;

	pool_of("h100-80gb", 2);
	request = named("1g.10gb");
	request.starts_on = places;
	assert_int_equal(mig_check(&t.pool, 1, &request), MIG_FITS);
	test_instance(&t, 1, request.profile[0], 5, MIG_FOREIGN, 0);
	assert_int_equal(mig_check(&t.pool, 1, &request), MIG_FULL_FOREIGN);
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
 * slice than the rest leaves. Seven instances of one slice can be made all the same. */
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
		mig_arrival(&t.pool, &half, MIG_GRANTED);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REUSE);
	for (int i = 0; i < 40; i++)
		mig_arrival(&t.pool, &half, MIG_REFUSED);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_CREATE);
	assert_true(d.choice[0].start >= 4);
	for (int i = 0; i < 4000; i++)
		mig_arrival(&t.pool, &half, MIG_GRANTED);
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
	mig_arrival(&t.pool, &half, MIG_REFUSED);
	for (int i = 0; i < 700; i++)
		mig_arrival(&t.pool, &half, MIG_GRANTED);
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
		mig_arrival(&t.pool, &half, MIG_REFUSED);
	request = named("1g.10gb+me");
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].step, MIG_REPLACE);
	assert_int_equal(d.choice[0].destroy, 1);
	assert_true(d.choice[0].start >= 4);
}

/* A 1g costs nothing on either GPU: on the first are fewer units taken, but by more instances,
 * which seldom end together. Where requests wait, neither becomes empty, and the fuller one is
 * filled. */
static void an_emptier_gpu_is_kept_for_later_unless_requests_wait(void **state)
{
	struct mig_request request = test_bytes(GIB(4)), half = test_share(500000);
	struct mig_decision d;

	pool_of("h100-80gb", 2);
	for (uint8_t start = 0; start < 3; start++)
		test_instance(&t, 0, test_profile(&t, 0, "1g.10gb"), start, MIG_BUSY, 0);
	test_instance(&t, 1, test_profile(&t, 0, "2g.20gb"), 0, MIG_BUSY, 0);
	test_instance(&t, 1, test_profile(&t, 0, "1g.20gb"), 4, MIG_BUSY, 0);
	/* Nothing is expected but halves. */
	for (int i = 0; i < 20000; i++)
		mig_arrival(&t.pool, &half, MIG_REFUSED);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].gpu, 0);
	for (int i = 0; i < 400; i++)
		mig_arrival(&t.pool, &half, MIG_QUEUED);
	assert_int_equal(mig_decide(&t.pool, &request, &d), 0);
	assert_int_equal(d.choice[0].gpu, 1);
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
		cmocka_unit_test(a_named_start_is_the_only_one_whichever_way_it_is_had),
		cmocka_unit_test(places_on_several_gpus_are_the_only_ones),
		cmocka_unit_test(a_sharer_joins_the_smallest_room_that_is_enough),
		cmocka_unit_test(requests_of_different_parties_share_no_instance),
		cmocka_unit_test(an_exact_idle_match_is_reused),
		cmocka_unit_test(a_placement_spoils_as_little_as_it_can),
		cmocka_unit_test(spread_takes_the_gpu_with_the_most_free_units),
		cmocka_unit_test(spread_leaves_an_idle_instance_of_a_fuller_gpu_alone),
		cmocka_unit_test(the_fewest_and_least_recently_used_instances_are_destroyed),
		cmocka_unit_test(instances_of_others_are_neither_free_nor_touched),
		cmocka_unit_test(a_place_that_the_driver_refused_is_not_tried_again),
		cmocka_unit_test(a_frozen_gpu_gives_idle_instances_alone),
		cmocka_unit_test(a_limit_that_is_reached_is_told_from_a_change_that_ends),
		cmocka_unit_test(a_gpu_is_asked_why_for_the_places_that_are_wanted_on_it),
		cmocka_unit_test(several_instances_are_all_granted_or_none),
		cmocka_unit_test(several_instances_do_not_share_what_they_find),
		cmocka_unit_test(a_request_may_name_its_gpus),
		cmocka_unit_test(an_idle_owner_of_engines_goes_for_who_needs_them),
		cmocka_unit_test(engines_that_do_not_add_up_limit_nothing),
		cmocka_unit_test(a_bad_place_is_not_reused_while_room_is_scarce),
		cmocka_unit_test(room_is_scarce_as_soon_as_one_is_turned_away),
		cmocka_unit_test(the_limit_counts_removed_instances_while_room_is_scarce),
		cmocka_unit_test(an_emptier_gpu_is_kept_for_later_unless_requests_wait),
		cmocka_unit_test(bad_placements_are_refused),
		cmocka_unit_test(instances_go_from_state_to_state_by_the_table),
		cmocka_unit_test(dies_are_shared_by_equal_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
