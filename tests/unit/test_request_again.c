/* The command that requests a session once more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/units.h"
#include "daemon/request/request_again.h"

#define GIB (1ull << 30)
#define SECOND 1000000000ull

static void says(const struct store_session *session, const char *expected)
{
	char text[REQUEST_AGAIN_SIZE];

	assert_string_equal(request_again(session, text), expected);
}

static void test_bytes_have_the_largest_unit_that_is_exact(void **state)
{
	struct store_gpu gpu = {.bytes = 3 * GIB, .requested = 4 * GIB};
	struct store_session session = {.kind = PLACE_BYTES, .gpu_count = 1, .gpu = &gpu};

	says(&session, "carve session request --vram 4GiB");
	gpu.requested = 5 * GIB / 2;
	says(&session, "carve session request --vram 2560MiB");
	gpu.requested = 4000000000;
	says(&session, "carve session request --vram 4000000000B");
}

static void test_all_that_a_session_was_requested_with_is_named(void **state)
{
	struct store_gpu gpus[2] = {{.requested = 4 * GIB}, {.requested = 4 * GIB}};
	struct store_session session = {.kind = PLACE_BYTES,
					.compute = SHARE_ONE / 4,
					.gpu_count = 2,
					.gpu = gpus,
					.timeout_ns = 5400 * SECOND,
					.name = "train"};

	says(&session, "carve session request --vram 4GiB --gpu-compute 25% --gpus 2 "
		       "--session-timeout 1h30m --name train");
}

static void test_fractions_whole_gpus_and_profiles_are_named_as_such(void **state)
{
	struct store_gpu gpus[2] = {{.requested = 4 * GIB, .profile = "1g.10gb"},
				    {.requested = 4 * GIB, .profile = "1g.10gb"}};
	struct store_session session = {.kind = PLACE_FRACTION,
					.compute = SHARE_ONE / 8,
					.gpu_count = 1,
					.gpu = gpus,
					.timeout_ns = SECOND / 2};

	says(&session, "carve session request --gpu 0.125 --session-timeout 500ms");
	session.timeout_ns = 0;
	session.gpu_count = 2;
	session.kind = PLACE_WHOLE;
	says(&session, "carve session request --gpu 2");
	session.kind = PLACE_PROFILE;
	session.compute = 0;
	says(&session, "carve session request --mig-profile 1g.10gb --gpus 2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes_have_the_largest_unit_that_is_exact),
		cmocka_unit_test(test_all_that_a_session_was_requested_with_is_named),
		cmocka_unit_test(test_fractions_whole_gpus_and_profiles_are_named_as_such),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
