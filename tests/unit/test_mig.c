/* MIG's rules against what real drivers did (the traces and counts in mig-profiles.json), and
 * against themselves at random. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/macros.h"
#include "host/mig.h"

static struct mig_board board_of(const char *key)
{
	struct mig_board b;

	assert_true(mig_board_find(sim_model_find(key), 550, &b));
	return b;
}

static void test_every_board_is_complete(void **state)
{
	size_t n, boards = 0;
	const struct sim_model *models = sim_models(&n);

	for (size_t i = 0; i < n; i++) {
		struct mig_board b;

		assert_int_equal(mig_board_find(&models[i], 580, &b), models[i].mig_class != NULL);
		if (!models[i].mig_class)
			continue;
		boards++;
		for (size_t k = 0; k < b.family->profile_count; k++) {
			const struct mig_profile *p = &b.family->profiles[k];
			const struct mig_legal *legal = mig_legal(&b, p);
			uint64_t share = models[i].memory_total / b.die->memory_units;

			assert_non_null(legal);
			assert_true(p->max_instances <= legal->count);
			assert_true(mig_sm(&b, p) > 0 && mig_sm(&b, p) <= models[i].sm_count);
			/* No profile has more memory than its units (estimates: by 1%), nor less
			 * than 3/4 of it. */
			assert_true(MIB(mig_memory_mib(&b, p)) <= legal->size * share / 100 * 101);
			if (b.family->memory_shared)
				assert_int_equal(mig_memory_mib(&b, p), 0);
			else
				assert_true(MIB(mig_memory_mib(&b, p)) >=
					    legal->size * share * 3 / 4);
			assert_ptr_equal(mig_profile_by_id(&b, p->id), p);
			assert_ptr_equal(mig_profile_by_enum(&b, p->nvml_enum), p);
		}
	}
	assert_true(boards >= 15);
}

static const char *model_of_die(const char *die)
{
	if (!strcmp(die, "g7_mirrored"))
		return "a100-pcie-80gb-mirrored";
	return !strcmp(die, "rtx_pro_12") ? "rtx-pro-6000-96gb" : "a100-40gb";
}

static long json_number(const json_t *value)
{
	return json_is_string(value) ? strtol(json_string_value(value), NULL, 10)
				     : (long)json_integer_value(value);
}

/* The places that drivers chose where nobody asked for one. Where the model is known to choose
 * otherwise
 * ("differs"), it must at least find room for all. */
static void replay(const json_t *trace)
{
	struct mig_board b =
		board_of(model_of_die(json_string_value(json_object_get(trace, "die"))));
	const json_t *request = json_object_get(trace, "request"), *expected;
	const char *model = json_string_value(json_object_get(trace, "model"));
	struct mig_state s = {0};

	for (size_t i = 0; i < json_array_size(request); i++) {
		uint8_t id = 0xff;
		int r = mig_gi_create(&b, &s, (uint32_t)json_number(json_array_get(request, i)),
				      MIG_ANYWHERE, &id);

		expected = json_array_get(json_object_get(trace, "gi_ids"), i);
		if (json_is_string(expected)) {
			assert_int_equal(r, -ENOSPC);
			continue;
		}
		assert_int_equal(r, 0);
		if (strncmp(model, "differs", 7) != 0)
			assert_int_equal(id, json_number(expected));
	}
}

static void test_driver_traces(void **state)
{
	json_t *all = json_load_file(MIG_PROFILES, 0, NULL);
	const json_t *traces =
		json_object_get(json_object_get(all, "driver_default_placement"), "traces");

	assert_true(json_array_size(traces) >= 8);
	for (size_t i = 0; i < json_array_size(traces); i++)
		replay(json_array_get(traces, i));
	json_decref(all);
}

/* All sets of instances that fit on an A100: counted independently, their number is in the data. */
struct count {
	struct mig_board board;
	unsigned int layouts, maximal;
};

static void count_layouts(struct count *c, struct mig_state *s, size_t profile, size_t place)
{
	const struct mig_family *f = c->board.family;
	bool fits = false;

	c->layouts++;
	for (size_t i = 0; i < f->profile_count; i++) {
		const struct mig_legal *legal = mig_legal(&c->board, &f->profiles[i]);

		for (size_t k = 0; !strchr(f->profiles[i].name, '+') && k < legal->count; k++) {
			uint8_t id;

			if (!mig_gi_fits(&c->board, s, &f->profiles[i], legal->starts[k]))
				continue;
			fits = true;
			if (i < profile || (i == profile && k < place))
				continue;
			assert_int_equal(mig_gi_create(&c->board, s, f->profiles[i].id,
						       legal->starts[k], &id),
					 0);
			count_layouts(c, s, i, k + 1);
			assert_int_equal(mig_gi_destroy(s, id), 0);
		}
	}
	c->maximal += !fits;
}

static void test_number_of_layouts(void **state)
{
	json_t *all = json_load_file(MIG_PROFILES, 0, NULL);
	const json_t *counts =
		json_object_get(json_object_get(all, "driver_default_placement"), "counts");
	struct count c = {.board = board_of("a100-40gb")};
	struct mig_state s = {0};

	count_layouts(&c, &s, 0, 0);
	assert_int_equal(c.layouts, json_integer_value(json_object_get(counts, "g7_layouts")));
	assert_int_equal(c.maximal,
			 json_integer_value(json_object_get(counts, "g7_maximal_layouts")));
	json_decref(all);
}

static void test_placement_errors(void **state)
{
	struct mig_board b = board_of("a100-40gb");
	struct mig_state s = {0};
	uint8_t id;

	assert_int_equal(mig_gi_create(&b, &s, 99, MIG_ANYWHERE, &id), -EINVAL);
	assert_int_equal(mig_gi_create(&b, &s, 19, 7, &id), -EINVAL); /* no compute there */
	assert_int_equal(mig_gi_create(&b, &s, 14, 6, &id), -EINVAL);
	assert_int_equal(mig_gi_create(&b, &s, 5, 4, &id), -EINVAL);
	assert_int_equal(mig_gi_create(&b, &s, 9, 4, &id), 0);
	assert_int_equal(id, 2);
	assert_int_equal(mig_gi_create(&b, &s, 19, 4, &id), -ENOSPC); /* overlaps */
	assert_int_equal(mig_gi_create(&b, &s, 0, MIG_ANYWHERE, &id), -ENOSPC);
	assert_int_equal(mig_gi_destroy(&s, 7), -ENOENT);
	assert_int_equal(mig_gi_destroy(&s, 2), 0);
	assert_int_equal(mig_gi_create(&b, &s, 0, MIG_ANYWHERE, &id), 0);
}

static void check_numbers(const struct mig_state *s)
{
	for (size_t i = 0; i < MIG_GI_MAX; i++)
		for (size_t k = 0; s->gi[i].used && k < i; k++)
			assert_false(s->gi[k].used && s->gi[k].id == s->gi[i].id);
}

/* Makes one of each profile at each place where it fits, and removes every third that there is. */
static void fill_and_thin(const struct mig_board *b)
{
	struct mig_state s = {0};
	unsigned made = 0;
	uint8_t id;

	for (unsigned round = 0; round < 8; round++) {
		for (size_t i = 0; i < b->family->profile_count; i++) {
			size_t at = (i * 5 + round * 3) % b->family->profile_count;
			const struct mig_legal *legal = mig_legal(b, &b->family->profiles[at]);

			for (size_t k = 0; k < legal->count; k++) {
				made += mig_gi_create(b, &s, b->family->profiles[at].id,
						      legal->starts[k], &id) == 0;
				check_numbers(&s);
			}
		}
		for (size_t i = round % 3; i < MIG_GI_MAX; i += 3)
			if (s.gi[i].used)
				assert_int_equal(mig_gi_destroy(&s, s.gi[i].id), 0);
	}
	assert_true(made > 2);
}

/* Two instances once had one number on a shuffled board: what was done to one was done to the
 * other. */
static void test_no_two_instances_have_one_number(void **state)
{
	static const char *const models[] = {"a30-24gb", "a100-80gb", "h100-80gb", "b200-180gb",
					     "rtx-pro-6000-96gb"};

	for (size_t i = 0; i < ARRAY_SIZE(models); i++)
		for (uint32_t seed = 0; seed < 12; seed++) {
			struct mig_board b = board_of(models[i]);

			mig_shuffle(seed);
			mig_board_shuffle(&b);
			mig_shuffle(0);
			fill_and_thin(&b);
		}
}

/* The engines for images are one on an A100, so that one "+me" is all there is, and none beside 7g.
 */
static void test_media_engines_are_taken_once(void **state)
{
	struct mig_board b = board_of("a100-40gb"), pro = board_of("rtx-pro-6000-96gb");
	struct mig_state s = {0};
	uint8_t id;

	assert_int_equal(mig_gi_create(&b, &s, 20, MIG_ANYWHERE, &id), 0);
	assert_int_equal(mig_gi_create(&b, &s, 20, MIG_ANYWHERE, &id), -ENOSPC);
	assert_int_equal(mig_gi_remaining(&b, &s, mig_profile_by_id(&b, 20)), 0);
	assert_int_equal(mig_gi_remaining(&b, &s, mig_profile_by_id(&b, 19)), 6);

	/* "+me.all" leaves room only for profiles without media engines. */
	memset(&s, 0, sizeof(s));
	assert_int_equal(mig_gi_create(&pro, &s, 65, MIG_ANYWHERE, &id), 0);
	for (size_t i = 0; i < pro.family->profile_count; i++) {
		const struct mig_profile *p = &pro.family->profiles[i];
		const char *tail = p->name + strlen(p->name) - 3;

		assert_int_equal(mig_gi_remaining(&pro, &s, p) > 0, !strcmp(tail, "-me"));
	}
}

/* NVML's table of compute instances on Ampere, by GPU instance size. */
static void test_compute_instances_of_ampere(void **state)
{
	json_t *all = json_load_file(MIG_PROFILES, 0, NULL);
	const json_t *table =
		json_object_get(json_object_get(all, "compute_instance_profiles"), "ampere");
	static const struct {
		const char *size;
		uint32_t profile_id;
	} sizes[] = {{"1g", 19}, {"2g", 14}, {"3g", 9}, {"4g", 5}, {"7g", 0}};
	struct mig_board b = board_of("a100-40gb");

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		const json_t *counts = json_object_get(table, sizes[i].size);
		struct mig_gi gi = {.used = 1, .profile_id = (uint8_t)sizes[i].profile_id};
		size_t found = 0;

		for (uint32_t profile = 0; profile < 8; profile++) {
			struct mig_compute_profile c;
			char name[8];

			if (!mig_compute_profile(&b, &gi, profile, &c))
				continue;
			snprintf(name, sizeof(name), "%uc", c.slices);
			assert_int_equal(c.max_instances,
					 json_integer_value(json_object_get(counts, name)));
			assert_int_equal(mig_ci_remaining(&b, &gi, profile), c.max_instances);
			assert_int_equal(c.sm, 14 * c.slices);
			found++;
		}
		assert_int_equal(found, json_object_size(counts));
	}
	json_decref(all);
}

static void test_compute_instances_of_hopper(void **state)
{
	struct mig_board b = board_of("h100-80gb");
	struct mig_gi twice = {.used = 1, .profile_id = 15}, two = {.used = 1, .profile_id = 14};
	struct mig_compute_profile c;

	/* 1g with double memory: all its 26 SMs as profile 7, a plain slice as profile 0. */
	assert_true(mig_compute_profile(&b, &twice, 7, &c));
	assert_int_equal(c.sm, 26);
	assert_string_equal(c.name, "1g.20gb");
	assert_true(mig_compute_profile(&b, &twice, 0, &c));
	assert_int_equal(c.sm, 16);
	assert_string_equal(c.name, "1c.1g.20gb");
	assert_true(mig_compute_profile(&b, &two, 7, &c));
	assert_int_equal(c.sm, 26);
	assert_true(mig_compute_profile(&b, &two, 1, &c));
	assert_int_equal(c.sm, 32);
	assert_string_equal(c.name, "2g.20gb");

	b = board_of("a100-40gb");
	assert_false(mig_compute_profile(&b, &twice, 7, &c));
	assert_true(mig_compute_profile(&b, &twice, 0, &c));
	assert_string_equal(c.name, "1g.10gb");
}

static void test_compute_instances_share_slices(void **state)
{
	struct mig_board b = board_of("a100-40gb");
	struct mig_state s = {0};
	struct mig_gi *gi;
	uint8_t gi_id, id;

	assert_int_equal(mig_gi_create(&b, &s, 9, 0, &gi_id), 0);
	gi = mig_gi_find(&s, gi_id);
	assert_int_equal(mig_ci_create(&b, gi, 0, MIG_ANYWHERE, &id), 0);
	assert_int_equal(id, 0);
	assert_int_equal(mig_ci_create(&b, gi, 2, MIG_ANYWHERE, &id), -ENOSPC); /* 3 slices */
	assert_int_equal(mig_ci_create(&b, gi, 0, 0, &id), -ENOSPC);
	assert_int_equal(mig_ci_create(&b, gi, 0, 2, &id), 0);
	assert_int_equal(id, 1);
	assert_int_equal(mig_ci_create(&b, gi, 3, MIG_ANYWHERE, &id), -EINVAL); /* 4 of 3 */
	assert_int_equal(mig_gi_destroy(&s, gi_id), -EBUSY);
	assert_int_equal(mig_ci_destroy(gi, 5), -ENOENT);
	assert_int_equal(mig_ci_destroy(gi, 0), 0);
	assert_int_equal(mig_ci_destroy(gi, 1), 0);
	assert_int_equal(mig_gi_destroy(&s, gi_id), 0);
}

/* Instances never overlap, IDs stay unique, and what is said to fit, fits, whatever comes and
 * goes. */
static void check_state(const struct mig_board *b, const struct mig_state *s)
{
	uint32_t units = 0, ids = 0;

	for (size_t i = 0; i < MIG_GI_MAX; i++) {
		const struct mig_gi *gi = &s->gi[i];
		uint32_t mask = ((1u << gi->size) - 1) << gi->start;

		if (!gi->used)
			continue;
		assert_false(units & mask);
		assert_false(ids & 1u << gi->id);
		assert_true(gi->start + gi->size <= b->die->memory_units);
		units |= mask;
		ids |= 1u << gi->id;
	}
}

static void random_life(const struct mig_board *b, unsigned int *seed)
{
	struct mig_state s = {0};

	for (int step = 0; step < 400; step++) {
		const struct mig_profile *p =
			&b->family->profiles[(size_t)rand_r(seed) % b->family->profile_count];
		uint32_t before = mig_gi_remaining(b, &s, p);
		uint8_t id = (uint8_t)(rand_r(seed) % 15);
		int r;

		if (rand_r(seed) % 2) {
			r = mig_gi_create(b, &s, p->id, MIG_ANYWHERE, &id);
			/* Where some cannot be together, what is said to remain is too much. */
			if (r == 0 || !b->family->not_together_count)
				assert_int_equal(r, before ? 0 : -ENOSPC);
			if (r == 0)
				assert_true(mig_gi_remaining(b, &s, p) < before);
			else
				assert_int_equal(r, -ENOSPC);
		} else {
			bool there = mig_gi_find(&s, id) != NULL;

			assert_int_equal(mig_gi_destroy(&s, id), there ? 0 : -ENOENT);
		}
		check_state(b, &s);
	}
}

static void test_random_lives(void **state)
{
	size_t n;
	const struct sim_model *models = sim_models(&n);
	unsigned int seed = 20;

	for (size_t i = 0; i < n; i++) {
		struct mig_board b;

		for (int life = 0; life < 5 && mig_board_find(&models[i], 580, &b); life++)
			random_life(&b, &seed);
	}
}

/* Boards on which three instances that fit beside each other cannot be made. */
static void test_some_profiles_cannot_be_together(void **state)
{
	struct mig_board b = board_of("gb300-278gb");
	struct mig_state s = {0};
	uint8_t id;

	assert_int_equal(mig_gi_create(&b, &s, 9, 4, &id), 0);
	assert_int_equal(mig_gi_create(&b, &s, 14, 0, &id), 0);
	assert_int_equal(mig_gi_remaining(&b, &s, mig_profile_by_id(&b, 14)), 1);
	assert_int_equal(mig_gi_create(&b, &s, 14, 2, &id), -ENOSPC);
	assert_int_equal(mig_gi_create(&b, &s, 19, 2, &id), 0);
}

static const char *name_of(const char *key, uint32_t branch, uint32_t id)
{
	struct mig_board b;

	assert_true(mig_board_find(sim_model_find(key), branch, &b));
	return mig_profile_by_id(&b, id) ? mig_profile_by_id(&b, id)->name : "none";
}

static void test_names_and_profiles_depend_on_the_driver(void **state)
{
	assert_string_equal(name_of("gb300-278gb", 595, 19), "1g.35gb");
	assert_string_equal(name_of("gb300-278gb", 610, 19), "1g.31gb");
	assert_string_equal(name_of("gb300-278gb", 610, 0), "7g.251gb");
	assert_string_equal(name_of("b300-269gb", 580, 19), "1g.34gb");
	assert_string_equal(name_of("b300-269gb", 595, 9), "3g.139gb");
	assert_string_equal(name_of("b300-269gb", 610, 9), "3g.126gb");
	assert_string_equal(name_of("rtx-pro-5000-48gb", 580, 14), "1g.12gb");
	assert_string_equal(name_of("rtx-pro-5000-48gb", 610, 14), "none");
	assert_string_equal(name_of("rtx-pro-5000-48gb", 610, 5), "1g.24gb");
}

static void test_memory_may_depend_on_the_place(void **state)
{
	struct mig_board b = board_of("a100-40gb");
	struct mig_gi low = {.used = 1, .profile_id = 9, .start = 0, .size = 4};
	struct mig_gi high = {.used = 1, .profile_id = 9, .start = 4, .size = 4};

	assert_int_equal(mig_gi_memory_mib(&b, &low), 20096);
	assert_int_equal(mig_gi_memory_mib(&b, &high), 20224);
}

static void test_changes_take_what_was_published(void **state)
{
	struct mig_board a30 = board_of("a30-24gb"), h100 = board_of("h100-80gb");

	for (uint8_t slices = 1; slices <= 7; slices++) {
		uint64_t made = mig_change_ns(&h100, slices, true, false) +
				mig_change_ns(&h100, slices, true, true);

		assert_in_range(made, 160000000, 420000000);
	}
	assert_int_equal(mig_change_ns(&a30, 1, true, false) + mig_change_ns(&a30, 1, true, true),
			 110000000);
}

static void test_uuid_names_the_place(void **state)
{
	uint8_t gpu[16] = {1, 2, 3}, other[16] = {1, 2, 4};
	struct mig_gi gi = {.used = 1, .id = 7}, gi2 = {.used = 1, .id = 8};
	struct mig_ci ci = {.used = 1};
	char a[MIG_UUID_SIZE], b[MIG_UUID_SIZE];

	mig_uuid(gpu, &gi, &ci, a);
	assert_int_equal(strlen(a), MIG_UUID_SIZE - 1);
	assert_int_equal(a[18], '5');
	gi.profile_id = 20; /* another profile at the same place: the same UUID */
	mig_uuid(gpu, &gi, &ci, b);
	assert_string_equal(a, b);
	mig_uuid(gpu, &gi2, &ci, b);
	assert_string_not_equal(a, b);
	mig_uuid(other, &gi, &ci, b);
	assert_string_not_equal(a, b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_board_is_complete),
		cmocka_unit_test(test_driver_traces),
		cmocka_unit_test(test_number_of_layouts),
		cmocka_unit_test(test_placement_errors),
		cmocka_unit_test(test_no_two_instances_have_one_number),
		cmocka_unit_test(test_media_engines_are_taken_once),
		cmocka_unit_test(test_compute_instances_of_ampere),
		cmocka_unit_test(test_compute_instances_of_hopper),
		cmocka_unit_test(test_compute_instances_share_slices),
		cmocka_unit_test(test_random_lives),
		cmocka_unit_test(test_some_profiles_cannot_be_together),
		cmocka_unit_test(test_names_and_profiles_depend_on_the_driver),
		cmocka_unit_test(test_memory_may_depend_on_the_place),
		cmocka_unit_test(test_changes_take_what_was_published),
		cmocka_unit_test(test_uuid_names_the_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
