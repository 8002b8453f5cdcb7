/* Adding a hook to a container's config.json: the rest stays as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/macros.h"
#include "integrations/oci/splice.h"

#define HOOK "{\"path\":\"/h\"}"

static const struct {
	const char *text, *want; /* NULL: refused */
} cases[] = {
	{"{}", "{\"hooks\":{\"createRuntime\":[" HOOK "]}}"},
	{"{\"a\":1}", "{\"hooks\":{\"createRuntime\":[" HOOK "]},\"a\":1}"},
	{" { \"a\" : [1,{\"hooks\":{}}] } ",
	 " {\"hooks\":{\"createRuntime\":[" HOOK "]}, \"a\" : [1,{\"hooks\":{}}] } "},
	{"{\"hooks\":{}}", "{\"hooks\":{\"createRuntime\":[" HOOK "]}}"},
	{"{\"hooks\":null,\"b\":2}", "{\"hooks\":{\"createRuntime\":[" HOOK "]},\"b\":2}"},
	{"{\"hooks\":{\"prestart\":[{\"path\":\"/p\"}]}}",
	 "{\"hooks\":{\"createRuntime\":[" HOOK "],\"prestart\":[{\"path\":\"/p\"}]}}"},
	{"{\"hooks\":{\"createRuntime\":[]}}", "{\"hooks\":{\"createRuntime\":[" HOOK "]}}"},
	{"{\"hooks\":{\"createRuntime\":null}}", "{\"hooks\":{\"createRuntime\":[" HOOK "]}}"},
	{"{\"x\":\"}\\\"{\",\"hooks\":{\"createRuntime\":[{\"path\":\"/o\"}]}}",
	 "{\"x\":\"}\\\"{\",\"hooks\":{\"createRuntime\":[" HOOK ",{\"path\":\"/o\"}]}}"},
	/* No integer of 64 bits with a sign holds it. */
	{"{\"n\":18446744073709551615,\"f\":-1.50e3}",
	 "{\"hooks\":{\"createRuntime\":[" HOOK "]},\"n\":18446744073709551615,\"f\":-1.50e3}"},
	{"[]", NULL},
	{"", NULL},
	{"{\"a\":}", NULL},
	{"{\"hooks\":[]}", NULL},
	{"{\"hooks\":{\"createRuntime\":{}}}", NULL},
	{"{\"hooks\":{},\"hooks\":{}}", NULL},
};

static void test_a_hook_is_added_and_the_rest_kept(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t size = 0;
		char *made = oci_hook_splice(cases[i].text, strlen(cases[i].text), HOOK, &size);

		if (!cases[i].want) {
			assert_null(made);
			continue;
		}
		assert_non_null(made);
		assert_string_equal(made, cases[i].want);
		assert_int_equal(size, strlen(made));
		free(made);
	}
}

static void test_a_zero_byte_is_no_end(void **state)
{
	size_t size = 0;

	(void)state;
	assert_null(oci_hook_splice("{}\0{}", 5, HOOK, &size));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_hook_is_added_and_the_rest_kept),
		cmocka_unit_test(test_a_zero_byte_is_no_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
