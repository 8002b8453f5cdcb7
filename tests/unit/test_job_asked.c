/* The request of a job as it is shown: copied from its text, member by member. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/macros.h"
#include "daemon/queue/job_asked.h"
#include "proto/shim_sweep.h"

static void shows(const char *text, int64_t index, const char *expected)
{
	char *asked = job_asked_text(text, index);

	assert_non_null(asked);
	assert_string_equal(asked, expected);
	free(asked);
}

static void test_what_is_private_is_left_out(void **state)
{
	shows("{}", -1, "{}");
	shows("{\"env\":[\"A=1\"]}", -1, "{}");
	shows("{\"env\":[\"A=]\",\"B={\"],\"argv\":[\"true\"],\"umask\":18}", -1,
	      "{\"argv\":[\"true\"]}");
	shows("{\"argv\":[\"env\",\"\\\"env\\\":\"],\"limits\":{\"7\":[1,{}]},\"cwd\":\"/\"}", -1,
	      "{\"argv\":[\"env\",\"\\\"env\\\":\"],\"cwd\":\"/\"}");
	/* A name that is longer, or shorter, is another one. */
	shows("{\"environment\":1,\"en\":2}", -1, "{\"environment\":1,\"en\":2}");
}

/* As by the function that chooses from what was parsed. */
static void test_a_sweeps_job_is_shown_with_its_own_values(void **state)
{
	static const char *const texts[] = {
		"{\"params\":{\"a\":[\"1\",\"2,3\",\"]\"],\"b\":[\"x\",\"}\"]}}",
		"{\"params\":{\"a\":[],\"b\":[\"\\\\\",\"\\\"\"]},\"name\":\"n\"}",
		"{\"params\":{}}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		for (int64_t index = -1; index < 8; index++) {
			char *asked = job_asked_text(texts[i], index);
			json_t *shown = json_loads(asked, 0, NULL),
			       *whole = json_loads(texts[i], 0, NULL);

			assert_non_null(shown);
			json_object_set_new(
				whole, "params",
				shim_sweep_choose(json_object_get(whole, "params"), index));
			assert_true(json_equal(shown, whole));
			json_decref(shown);
			json_decref(whole);
			free(asked);
		}
}

static void test_a_text_that_is_cut_off_ends_there(void **state)
{
	const char *text =
		"{\"argv\":[\"a\\\"\",{\"b\":1}],\"params\":{\"a\":[\"1\",\"2\"]},\"x\":2}";

	for (size_t size = 0; size <= strlen(text); size++) {
		char *cut = strndup(text, size), *asked = job_asked_text(cut, 1);

		assert_true(size ? asked && strlen(asked) <= size + 3 : !asked);
		free(asked);
		free(cut);
	}
	assert_null(job_asked_text("[1]", 0));
}

static void test_values_are_counted_outside_of_strings(void **state)
{
	static const struct {
		const char *text;
		size_t count;
	} texts[] = {
		{"1", 1},          {"[1,2]", 3}, {"\"a,b,[,{\"", 1}, {"{\"a\\\",\":[\"x\",{}]}", 5},
		{"\"\\\\\",1", 2}, {"", 1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		assert_int_equal(job_asked_values(texts[i].text, strlen(texts[i].text)),
				 texts[i].count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_private_is_left_out),
		cmocka_unit_test(test_a_sweeps_job_is_shown_with_its_own_values),
		cmocka_unit_test(test_a_text_that_is_cut_off_ends_there),
		cmocka_unit_test(test_values_are_counted_outside_of_strings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
