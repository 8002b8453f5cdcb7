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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_same_size_is_asked_for_on_the_same_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
