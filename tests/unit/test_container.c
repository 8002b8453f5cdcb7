#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "container/cdi.h"
#include "container/edits.h"
#include "container/layout.h"

static void device_names_are_those_of_cdi(void **state)
{
	static const char *const good[] = {"s-7k2m9q", "8gib", "a", "a.b_c-d"};
	static const char *const bad[] = {"", "-a", "a-", ".", "a/b", "a b", "a=b", "\xc3\xa4"};
	char longest[CDI_NAME_MAX + 2];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(cdi_name_valid(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(cdi_name_valid(bad[i]));
	memset(longest, 'a', sizeof(longest));
	longest[CDI_NAME_MAX + 1] = '\0';
	assert_false(cdi_name_valid(longest));
	longest[CDI_NAME_MAX] = '\0';
	assert_true(cdi_name_valid(longest));
}

static void a_spec_of_another_program_is_nobodys_session(void **state)
{
	static const char *const others[] = {"nvidia.json",
					     "carve.dev-slice_.json",
					     "carve.dev-slice_s-1.yaml",
					     ".carve.dev-slice_s-1.new",
					     "carve.dev-slice_../x.json",
					     "carve.dev-slice_s-1",
					     "carve.dev-slice_"};
	char id[CDI_NAME_MAX + 1];

	assert_true(cdi_file_session("carve.dev-slice_s-7k2m9q.json", id));
	assert_string_equal(id, "s-7k2m9q");
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_false(cdi_file_session(others[i], id));
}

static void a_spec_has_what_cdi_asks_for(void **state)
{
	json_t *edits = container_edits_new(), *devices = json_array();

	container_edits_mount(edits, "/a", "/b");
	container_edits_mount(edits, "", "/c");
	container_edits_env(edits, "NAME", "a=b");
	container_edits_node(edits, "/dev/null");
	json_array_append_new(devices, cdi_device("one", edits));
	json_t *spec = cdi_spec(CDI_SLICE_KIND, devices, NULL);
	json_t *want = json_pack(
		"{s:s, s:s, s:[{s:s, s:{s:[s], s:[{s:s, s:s, s:[s, s, s, s]}], s:[{s:s}]}}]}",
		"cdiVersion", "0.5.0", "kind", "carve.dev/slice", "devices", "name", "one",
		"containerEdits", "env", "NAME=a=b", "mounts", "hostPath", "/a", "containerPath",
		"/b", "options", "ro", "nosuid", "nodev", "bind", "deviceNodes", "path",
		"/dev/null");

	assert_true(json_equal(spec, want));
	json_decref(want);
	json_decref(spec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_names_are_those_of_cdi),
		cmocka_unit_test(a_spec_of_another_program_is_nobodys_session),
		cmocka_unit_test(a_spec_has_what_cdi_asks_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
