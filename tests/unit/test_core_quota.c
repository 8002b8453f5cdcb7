#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "core/quota.h"

static void limits(void **state)
{
	struct quota quota = {.vram_bytes = GIB(16), .sessions = 4, .gpus = 2};
	struct quota_use use = {.vram_bytes = GIB(16), .sessions = 4, .gpu_mask = 0x5};

	assert_int_equal(quota_check(&quota, use), QUOTA_WITHIN);
	use.vram_bytes++;
	assert_int_equal(quota_check(&quota, use), QUOTA_VRAM);
	use.vram_bytes--;
	use.sessions++;
	assert_int_equal(quota_check(&quota, use), QUOTA_SESSIONS);
	use.sessions--;
	use.gpu_mask |= 1ull << 63;
	assert_int_equal(quota_check(&quota, use), QUOTA_GPUS);
	quota = (struct quota){QUOTA_NONE, QUOTA_NONE, QUOTA_NONE};
	assert_int_equal(quota_check(&quota, use), QUOTA_WITHIN);
	quota.vram_bytes = 0;
	assert_int_equal(quota_check(&quota, use), QUOTA_VRAM);
}

static void sums(void **state)
{
	struct quota_use a = {.vram_bytes = GIB(3), .sessions = 1, .gpu_mask = 0x3};
	struct quota_use b = {.vram_bytes = GIB(4), .sessions = 1, .gpu_mask = 0x6};
	struct quota_use sum = quota_add(a, b);

	assert_int_equal(sum.vram_bytes, GIB(7));
	assert_int_equal(sum.sessions, 2);
	assert_int_equal(quota_gpus(sum), 3); /* one of them shared */
	a.vram_bytes = UINT64_MAX - 5;
	assert_true(quota_add(a, b).vram_bytes == UINT64_MAX); /* and not 2 GiB */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits),
		cmocka_unit_test(sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
