/* Which container of podman's a configuration is of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/macros.h"
#include "integrations/oci/state.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HOST "/run/overlay-containers/" ID "/userdata/hostname"

static const struct {
	const char *root, *source;
	const char *bundle; /* NULL: it is of another engine */
} cases[] = {
	{"/s/overlay/l1/merged", HOST, "/s/overlay-containers/" ID "/userdata"},
	{"/s/vfs/dir/l1", HOST, "/s/vfs-containers/" ID "/userdata"},
	{"/s/vfs/dir/l1", "/x/" ID "/hostname", NULL},
	{"/s/vfs/dir/l1", "/x/0123/userdata/hostname", NULL},
	{"/s/vfs/dir/l1", ID "/userdata/hostname", NULL},
	{"rootfs", HOST, NULL},
	{"/", HOST, NULL},
	{"/a/b", HOST, NULL},
	{"", HOST, NULL},
};

static void test_the_bundle_is_beside_the_layers(void **state)
{
	struct oci_container container;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *config = json_pack("{s:{s:s}, s:[{s:s}]}", "root", "path", cases[i].root,
					   "mounts", "source", cases[i].source);

		assert_int_equal(oci_podman_container(config, &container), cases[i].bundle != NULL);
		if (cases[i].bundle) {
			assert_string_equal(container.bundle, cases[i].bundle);
			assert_string_equal(container.id, ID);
		}
		json_decref(config);
	}
	assert_false(oci_podman_container(NULL, &container));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_bundle_is_beside_the_layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
