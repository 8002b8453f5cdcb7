/* Which devices a container's config.json lets it open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/macros.h"
#include "integrations/oci/devices.h"

#define DENY "{\"allow\":false,\"access\":\"rwm\"}"
#define ALL "{\"allow\":true,\"access\":\"rwm\"}"
#define MAJOR "{\"allow\":true,\"type\":\"c\",\"major\":195,\"minor\":-1,\"access\":\"rw\"}"
#define ONE(allow, access) \
	"{\"allow\":" allow ",\"type\":\"c\",\"major\":195,\"minor\":3,\"access\":\"" access "\"}"
#define BLOCK "{\"allow\":true,\"type\":\"b\",\"major\":195,\"minor\":3,\"access\":\"rw\"}"
#define OTHER "{\"allow\":true,\"type\":\"c\",\"major\":195,\"minor\":4,\"access\":\"rw\"}"

static const struct {
	const char *rules;
	bool allows;
} cases[] = {
	{"", false},
	{DENY, false},
	{ALL, true},
	{DENY "," MAJOR, true},
	{DENY "," ONE("true", "rw"), true},
	{DENY "," ONE("true", "r"), false},
	{DENY "," ONE("true", "r") "," ONE("true", "w"), true},
	{DENY "," BLOCK, false},
	{DENY "," OTHER, false},
	/* The last one counts. */
	{ONE("true", "rw") "," DENY, false},
	{ALL "," ONE("false", "w"), false},
	{"1,[],null," ALL, true},
};

static void test_the_last_rule_that_is_about_a_device_counts(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *text = json_sprintf("{\"linux\":{\"resources\":{\"devices\":[%s]}}}",
					    cases[i].rules);
		/* As the hook reads it. */
		json_t *config = json_loads(json_string_value(text), JSON_DECODE_INT_AS_REAL, NULL);

		assert_non_null(config);
		assert_int_equal(oci_config_allows(config, 195, 3), cases[i].allows);
		json_decref(config);
		json_decref(text);
	}
	assert_false(oci_config_allows(NULL, 195, 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_last_rule_that_is_about_a_device_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
