#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/macros.h"
#include "front/table.h"

#define HANDLES 3000u

/* A table against the plainest possible model of one, over random operations on few handles, so
 * that runs of places collide, grow and close again. */
static void behaves_like_the_model(void **state)
{
	static uint64_t model[2][HANDLES];
	struct table t = {0};
	size_t count = 0;

	srandom(1);
	for (int i = 0; i < 400000; i++) {
		uint32_t which = (uint32_t)random() % HANDLES, kind = (uint32_t)random() % 2;
		uint64_t handle = which * 512ull, *expected = &model[kind][which];
		struct object object = {.kind = (uint16_t)(kind + 1), .handle = handle}, taken;

		if (random() % 2) {
			object.bytes = 1 + (uint64_t)random();
			assert_int_equal(table_put(&t, &object, NULL), 0);
			count += !*expected;
			*expected = object.bytes;
		} else {
			bool found = table_take(&t, kind + 1, handle, &taken);

			assert_int_equal(found, *expected != 0);
			assert_true(!found || taken.bytes == *expected);
			count -= found;
			*expected = 0;
		}
		assert_int_equal(t.used, count);
	}
	for (uint32_t i = 0; i < HANDLES; i++)
		for (uint32_t kind = 0; kind < 2; kind++) {
			struct object *object = table_find(&t, kind + 1, i * 512ull);

			assert_int_equal(object ? object->bytes : 0, model[kind][i]);
		}
}

static void gives_up_all_of_a_context(void **state)
{
	struct table t = {0};
	struct object taken;
	uint64_t sum = 0;
	size_t cursor = 0;

	for (uint64_t i = 0; i < 10000; i++) {
		struct object object = {
			.kind = OBJECT_LINEAR, .handle = i * 4096, .bytes = i, .context = i % 3};

		assert_int_equal(table_put(&t, &object, NULL), 0);
	}
	while (table_take_of_context(&t, 1, &cursor, &taken)) {
		assert_int_equal(taken.context, 1);
		sum += taken.bytes;
	}
	assert_int_equal(sum, 16665000 - 3333);
	assert_int_equal(t.used, 10000 - 3333);
}

static void empty_table_has_nothing(void **state)
{
	struct table t = {0};
	struct object taken;
	size_t cursor = 0;

	assert_null(table_find(&t, OBJECT_LINEAR, 0));
	assert_false(table_take(&t, OBJECT_LINEAR, 0, &taken));
	assert_false(table_take_of_context(&t, 0, &cursor, &taken));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(behaves_like_the_model),
		cmocka_unit_test(gives_up_all_of_a_context),
		cmocka_unit_test(empty_table_has_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
