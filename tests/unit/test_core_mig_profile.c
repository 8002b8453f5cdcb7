/* Which profile a request gets, on the simulator's models. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/macros.h"
#include "base/units.h"
#include "test_core_mig_pool.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_part_of_an_instance_holds_a_context),
		cmocka_unit_test(sizes_get_the_smallest_profile_that_holds_them),
		cmocka_unit_test(fractions_count_memory_units),
		cmocka_unit_test(compute_is_a_share_of_sms),
		cmocka_unit_test(the_93_percent_rule_is_the_last_resort),
		cmocka_unit_test(special_profiles_are_given_by_name_only),
		cmocka_unit_test(a_request_larger_than_all_profiles_is_refused_with_the_reason),
		cmocka_unit_test(profiles_without_memory_are_given_by_name_only),
		cmocka_unit_test(a_profile_without_media_engines_stands_in),
		cmocka_unit_test(waste_decides_between_models),
		cmocka_unit_test(between_mig_and_fractions_the_waste_decides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
