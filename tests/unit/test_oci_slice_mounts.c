/* What tells a mount of carve's from another one at the same place, as far as texts do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/error.h"
#include "base/macros.h"
#include "container/layout.h"
#include "integrations/oci/slice_mounts.h"

static const struct {
	const char *path, *clean; /* NULL: it is none */
} paths[] = {
	{"/run/carve-slice", "/run/carve-slice"},
	{"/run//carve-slice/", "/run/carve-slice"},
	{"/run/./carve-slice/.", "/run/carve-slice"},
	{"/run/x/../carve-slice", "/run/carve-slice"},
	{"/../../run/carve-slice", "/run/carve-slice"},
	{"/run/carve-slice/..", "/run"},
	{"/..", "/"},
	{"/", "/"},
	{"/run/...", "/run/..."},
	{"run/carve-slice", NULL},
	{"", NULL},
};

static void test_a_destination_has_one_spelling(void **state)
{
	char buf[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		bool is = oci_path_clean(paths[i].path, buf, sizeof(buf));

		assert_int_equal(is, paths[i].clean != NULL);
		if (is)
			assert_string_equal(buf, paths[i].clean);
	}
	assert_false(oci_path_clean("/run/carve-slice", buf, sizeof("/run/carve-slice") - 1));
}

static void test_a_slices_file_is_carves_to_the_letter(void **state)
{
	char text[ATTACH_SLICE_FILE_SIZE + 16], session[CONTAINER_LABEL_MAX + 1];
	size_t length = (size_t)container_environment_text("s-abcdef", text, sizeof(text));

	(void)state;
	assert_true(oci_slice_text_session(text, session));
	assert_string_equal(session, "s-abcdef");
	snprintf(text + length, sizeof(text) - length, "X=1\n");
	assert_false(oci_slice_text_session(text, session));
	text[length - 1] = '\0';
	assert_false(oci_slice_text_session(text, session));
	assert_false(oci_slice_text_session("", session));
	assert_false(oci_slice_text_session("CARVE_SESSION=s-abcdef\n", session));
	container_environment_text("", text, sizeof(text));
	assert_false(oci_slice_text_session(text, session));
	container_environment_text("../s", text, sizeof(text));
	assert_false(oci_slice_text_session(text, session));
}

static const struct {
	const char *mount;
	bool refused;
} mounts[] = {
	{"{\"destination\":\"/run\",\"source\":\"tmpfs\"}", false},
	{"{\"destination\":\"/run/carve\",\"source\":\"/run/carve\"}", false},
	{"{\"destination\":\"/run/carve-slices\",\"source\":\"/data/1\"}", false},
	/* An image's own list of libraries to preload. */
	{"{\"destination\":\"/etc/ld.so.preload\",\"source\":\"/data/1\"}", false},
	{"{\"destination\":\"/run/carve-slice\",\"source\":\"/data/1\"}", true},
	{"{\"destination\":\"/run/carve-slice\",\"source\":\"tmpfs\"}", true},
	{"{\"destination\":\"/run/carve-slice\"}", true},
	{"{\"destination\":\"//run/./carve-slice/x/..\",\"source\":\"/data/1\"}", true},
	{"{\"destination\":\"/run/carve-slice/attach\",\"source\":\"/\"}", true},
	{"{\"destination\":\"/run/carve-slice/driver/libcuda.so.1\",\"source\":\"/\"}", true},
	{"{\"destination\":\"/run/carve-slice/environment\",\"source\":\"/dev/null\"}", true},
	{"{\"destination\":\"/run/carve-slice/front/libcuda.so.1\",\"source\":\"relative\"}", true},
	{"7", false},
};

static void test_a_mount_of_others_is_no_slice(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(mounts); i++)
		for (int pods = 0; pods < 2; pods++) {
			json_t *config =
				json_pack("{s:[{}, o]}", "mounts",
					  json_loads(mounts[i].mount, JSON_DECODE_ANY, NULL));
			struct oci_slice slice;
			struct error err = {0};

			assert_non_null(config);
			int rc = oci_slice_find(config, pods, &slice, &err);
			assert_int_equal(rc < 0, mounts[i].refused);
			assert_int_equal(*err.message && *err.hint, mounts[i].refused);
			if (rc == 0)
				assert_string_equal(slice.session, "");
			json_decref(config);
		}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_destination_has_one_spelling),
		cmocka_unit_test(test_a_slices_file_is_carves_to_the_letter),
		cmocka_unit_test(test_a_mount_of_others_is_no_slice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
