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
	char stamp[ATTACH_STAMP_SIZE];
	size_t length = (size_t)container_environment_text("s-abcdef", NULL, text, sizeof(text));

	(void)state;
	assert_true(oci_slice_text_session(text, session, stamp));
	assert_string_equal(session, "s-abcdef");
	assert_string_equal(stamp, "");
	snprintf(text + length, sizeof(text) - length, "X=1\n");
	assert_false(oci_slice_text_session(text, session, stamp));
	text[length - 1] = '\0';
	assert_false(oci_slice_text_session(text, session, stamp));
	assert_false(oci_slice_text_session("", session, stamp));
	assert_false(oci_slice_text_session("CARVE_SESSION=s-abcdef\n", session, stamp));
	container_environment_text("", NULL, text, sizeof(text));
	assert_false(oci_slice_text_session(text, session, stamp));
	container_environment_text("../s", NULL, text, sizeof(text));
	assert_false(oci_slice_text_session(text, session, stamp));
}

static void test_a_slices_file_says_with_which_stamp_it_was_written(void **state)
{
	static const struct {
		const char *stamp;
		bool is;
	} stamps[] = {
		{"0:GPU-1", true},
		{"1000:MIG-a,MIG-GPU-b/1/0", true},
		{"0:GPU-1\nX=1", false},
		{"0:GPU 1", false},
		{" ", false},
	};
	char text[ATTACH_SLICE_FILE_SIZE], session[CONTAINER_LABEL_MAX + 1];
	char stamp[ATTACH_STAMP_SIZE];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(stamps); i++) {
		container_environment_text("s-abcdef", stamps[i].stamp, text, sizeof(text));
		assert_int_equal(oci_slice_text_session(text, session, stamp), stamps[i].is);
		if (stamps[i].is)
			assert_string_equal(stamp, stamps[i].stamp);
	}
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
		cmocka_unit_test(test_a_slices_file_says_with_which_stamp_it_was_written),
		cmocka_unit_test(test_a_mount_of_others_is_no_slice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
