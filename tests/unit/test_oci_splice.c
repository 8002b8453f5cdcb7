/* Adding a hook to a container's config.json: the rest stays as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
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

#define OURS "{\"path\":\"/bin/carve-hook\",\"args\":[\"carve-hook\"]}"
#define MORE "{\"path\":\"/bin/carve-hook\",\"args\":[\"carve-hook\",\"--required\"]}"
#define HOOKS(list) "{\"hooks\":{\"createRuntime\":[" list "]},\"a\":1}"

static void test_installed_hooks_are_taken_out_and_no_others(void **state)
{
	static const struct {
		const char *text, *want;
	} texts[] = {
		{HOOKS(OURS), HOOKS("")},
		{HOOKS(HOOK "," OURS), HOOKS(HOOK)},
		{HOOKS(OURS " , " HOOK), HOOKS(HOOK)},
		{HOOKS(OURS "," HOOK "," OURS "," MORE), HOOKS(HOOK "," MORE)},
		{HOOKS(MORE), HOOKS(MORE)},
		{HOOKS(""), HOOKS("")},
		{"{\"hooks\":{\"prestart\":[" OURS "]}}", "{\"hooks\":{\"prestart\":[" OURS "]}}"},
		{"{\"hooks\":{\"createRuntime\":null}}", "{\"hooks\":{\"createRuntime\":null}}"},
		{"[]", "[]"},
		{"", ""},
		/* broken off */
		{"{\"hooks\":{\"createRuntime\":[" OURS ",", "{\"hooks\":{\"createRuntime\":["},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		char *text = strdup(texts[i].text);

		assert_int_equal(oci_installed_hooks_drop(text, strlen(text)),
				 strlen(texts[i].want));
		assert_string_equal(text, texts[i].want);
		free(text);
	}
}

#define CAPABILITIES(lists) \
	"{\"process\":{\"capabilities\":{" lists "\"bounding\":[\"CAP_KILL\"]}}}"

static void test_missing_lists_of_capabilities_are_found(void **state)
{
	static const struct {
		const char *text, *want;
	} texts[] = {
		{CAPABILITIES(""), CAPABILITIES("\"ambient\":[],\"inheritable\":[],")},
		{CAPABILITIES("\"ambient\":[\"CAP_KILL\"],"),
		 CAPABILITIES("\"inheritable\":[],\"ambient\":[\"CAP_KILL\"],")},
		{CAPABILITIES("\"inheritable\":[],"),
		 CAPABILITIES("\"ambient\":[],\"inheritable\":[],")},
		{CAPABILITIES("\"inheritable\":[],\"ambient\":[],"),
		 CAPABILITIES("\"inheritable\":[],\"ambient\":[],")},
		{"{\"process\":{\"capabilities\":{}}}", "{\"process\":{\"capabilities\":{}}}"},
		{"{\"process\":{}}", "{\"process\":{}}"},
		{"{\"process\"", "{\"process\""},
		{"", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		const char *lists, *text = texts[i].text;
		size_t at = oci_lists_missing(text, &lists);
		char made[256];

		snprintf(made, sizeof(made), "%.*s%s%s", (int)at, text, lists, text + at);
		assert_string_equal(made, texts[i].want);
	}
}

static void test_the_filter_of_system_calls_is_left_out(void **state)
{
	static const struct {
		const char *text, *want;
	} texts[] = {
		{"{\"linux\":{\"seccomp\":{\"names\":[\"}\",\"]\"]},\"a\":1},\"b\":2}",
		 "{\"linux\":{\"seccomp\":null,\"a\":1},\"b\":2}"},
		{"{\"linux\":{\"a\":1}}", "{\"linux\":{\"a\":1}}"},
		{"{\"seccomp\":{}}", "{\"seccomp\":{}}"},
		{"{\"linux\":{\"seccomp\":1", "{\"linux\":{\"seccomp\":null"},
		{"{\"linux\":{\"seccomp\"", "{\"linux\":{\"seccomp\""},
		{"{\"linux\":{\"seccomp\":", "{\"linux\":{\"seccomp\":null"},
		{"", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		size_t size = 0;
		char *made = oci_seccomp_drop(texts[i].text, strlen(texts[i].text), &size);

		assert_non_null(made);
		assert_string_equal(made, texts[i].want);
		assert_int_equal(size, strlen(made));
		free(made);
	}
}

#define DEVICE              \
	"{\"path\":\"/dev/" \
	"nvidia3\",\"type\":\"c\",\"major\":195,\"minor\":3,\"fileMode\":438,\"uid\":0,\"gid\":0}"
#define RULE "{\"allow\":true,\"type\":\"c\",\"major\":195,\"minor\":3,\"access\":\"rw\"}"
#define DENY "{\"allow\":false,\"access\":\"rwm\"}"

static const struct {
	const char *text, *want; /* NULL: refused */
} device_cases[] = {
	{"{}", "{\"linux\":{\"resources\":{\"devices\":[" RULE "]},\"devices\":[" DEVICE "]}}"},
	{"{\"linux\":{\"resources\":{\"devices\":[" DENY
	 "],\"pids\":{\"limit\":-1}},\"devices\":[]}}",
	 "{\"linux\":{\"resources\":{\"devices\":[" DENY "," RULE
	 "],\"pids\":{\"limit\":-1}},\"devices\":[" DEVICE "]}}"},
	{"{\"linux\":{\"devices\":[ {\"path\":\"/x\"} ], \"resources\":null}}",
	 "{\"linux\":{\"devices\":[ {\"path\":\"/x\"} ," DEVICE
	 "], \"resources\":{\"devices\":[" RULE "]}}}"},
	{"{\"linux\":{\"devices\":null,\"resources\":{\"devices\":null}}}",
	 "{\"linux\":{\"devices\":[" DEVICE "],\"resources\":{\"devices\":[" RULE "]}}}"},
	{"{\"linux\":[]}", NULL},
	{"{\"linux\":{\"resources\":{\"devices\":{}}}}", NULL},
};

static void test_a_device_is_added_with_a_rule_behind_the_others(void **state)
{
	const struct oci_device device = {"/dev/nvidia3", 195, 3, 0666};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(device_cases); i++) {
		size_t size = 0;
		char *made = oci_devices_splice(device_cases[i].text, strlen(device_cases[i].text),
						&device, 1, &size);

		if (!device_cases[i].want) {
			assert_null(made);
			continue;
		}
		assert_non_null(made);
		assert_string_equal(made, device_cases[i].want);
		assert_int_equal(size, strlen(made));
		free(made);
	}
}

static void test_several_devices_are_in_their_order(void **state)
{
	const struct oci_device devices[] = {{"/dev/nvidia3", 195, 3, 0666},
					     {"/dev/nvidia3", 195, 3, 0666}};
	size_t size = 0;
	char *made = oci_devices_splice("{}", 2, devices, 2, &size);

	(void)state;
	assert_string_equal(made, "{\"linux\":{\"resources\":{\"devices\":[" RULE "," RULE
				  "]},\"devices\":[" DEVICE "," DEVICE "]}}");
	free(made);
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
		cmocka_unit_test(test_installed_hooks_are_taken_out_and_no_others),
		cmocka_unit_test(test_missing_lists_of_capabilities_are_found),
		cmocka_unit_test(test_the_filter_of_system_calls_is_left_out),
		cmocka_unit_test(test_a_device_is_added_with_a_rule_behind_the_others),
		cmocka_unit_test(test_several_devices_are_in_their_order),
		cmocka_unit_test(test_a_zero_byte_is_no_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
