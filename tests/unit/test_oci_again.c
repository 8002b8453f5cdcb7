/* The request for the slice of a container that is started again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/error.h"
#include "base/macros.h"
#include "integrations/oci/again.h"

#define HEAD "{\"id\":\"s-abcdef\",\"vram_bytes\":4294967296,\"compute_request\":"

static const struct {
	const char *ended;
	const char *gpu_ids; /* NULL: it does not come back */
	const char *compute;
} cases[] = {
	{HEAD "1.0,\"gpus\":[{\"index\":1}]}", "1", NULL},
	{HEAD "0.0,\"gpus\":[{\"index\":1},{\"index\":0}]}", "1,0", NULL},
	{HEAD "0.25,\"gpus\":[{\"index\":0}]}", "0", "25%"},
	{HEAD "1.0,\"gpus\":[{\"index\":0,\"gpu_instance\":3}]}", NULL, NULL},
	{HEAD "1.0,\"gpus\":[{\"index\":0,\"instance\":\"MIG-x\"}]}", NULL, NULL},
	{HEAD "1.0,\"gpus\":[]}", NULL, NULL},
	{"{\"gpus\":[{\"index\":0}]}", NULL, NULL},
	{"[]", NULL, NULL},
};

static void test_the_same_size_is_asked_for_on_the_same_gpus(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *ended = json_loads(cases[i].ended, 0, NULL), *request = NULL;
		struct error err = {0};
		int rc = oci_again_request(ended, &request, &err);

		assert_non_null(ended);
		assert_int_equal(rc == 0, cases[i].gpu_ids != NULL);
		assert_int_equal(*err.message != 0, rc < 0);
		if (rc == 0) {
			const json_t *compute = json_object_get(request, "gpu_compute");

			assert_string_equal(json_string_value(json_object_get(request, "gpu_ids")),
					    cases[i].gpu_ids);
			assert_string_equal(json_string_value(json_object_get(request, "id")),
					    "s-abcdef");
			assert_int_equal(json_integer_value(json_object_get(request, "vram_bytes")),
					 4294967296);
			assert_int_equal(compute != NULL, cases[i].compute != NULL);
			if (compute)
				assert_string_equal(json_string_value(compute), cases[i].compute);
		}
		json_decref(request);
		json_decref(ended);
	}
}

static void test_the_session_is_that_of_the_first_programs_variables(void **state)
{
	(void)state;
	json_t *one = json_pack("[s, s, i]", "PATH=/bin", "CARVE_SESSION=s-abcdef", 1);
	json_t *none = json_pack("[s, s]", "CARVE_SESSION=", "CARVE_SESSIONS=s-abcdef");

	assert_string_equal(oci_again_id(one), "s-abcdef");
	assert_null(oci_again_id(none));
	assert_null(oci_again_id(NULL));
	json_decref(one);
	json_decref(none);
}

static const struct {
	const char *mount;
	bool is_carves;
} mounts[] = {
	{"{\"source\":\"/run/carve/containers\",\"destination\":\"/run/carve-slice/attach\"}",
	 true},
	{"{\"source\":\"/run/carve/attach.sock\",\"destination\":\"/run/carve-slice/attach/"
	 "attach.sock\"}",
	 true},
	{"{\"source\":\"/data/volumes/1\",\"destination\":\"/run/carve-slice/attach\"}", false},
	{"{\"source\":\"/run/carve/containers\",\"destination\":\"/run/carve-slice\"}", false},
	{"{\"source\":\"/run/carve/attach.sock\",\"destination\":\"/run/carve-slice/attach\"}",
	 false},
	{"{\"destination\":\"/run/carve-slice/attach\"}", false},
	{"7", false},
};

static void test_the_socket_of_the_daemon_is_carves_alone_to_mount(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
		json_t *config = json_pack("{s:[{}, o]}", "mounts",
					   json_loads(mounts[i].mount, JSON_DECODE_ANY, NULL));

		assert_non_null(config);
		assert_int_equal(oci_again_attaches(config, "/run/carve"), mounts[i].is_carves);
		json_decref(config);
	}
	assert_false(oci_again_attaches(NULL, "/run/carve"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_same_size_is_asked_for_on_the_same_gpus),
		cmocka_unit_test(test_the_session_is_that_of_the_first_programs_variables),
		cmocka_unit_test(test_the_socket_of_the_daemon_is_carves_alone_to_mount),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
