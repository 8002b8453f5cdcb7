/* Our declaration of the CUDA (or, built with its table, the NVML) ABI against the vendor's header,
 * number by number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_abi_table.h"

static void test_numbers_are_the_vendors(void **state)
{
	assert_true(abi_ours_count > ABI_ENTRIES_MIN);
	assert_int_equal(abi_ours_count, abi_vendor_count);
	for (size_t i = 0; i < abi_ours_count; i++) {
		assert_string_equal(abi_ours[i].name, abi_vendor[i].name);
		if (abi_ours[i].value != abi_vendor[i].value)
			fail_msg("%s is %lld, the vendor's %lld", abi_ours[i].name,
				 abi_ours[i].value, abi_vendor[i].value);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers_are_the_vendors)};

	/* Said in TAP's own words: cmocka's word for a skipped test counts as failed. */
	if (!abi_vendor_count) {
		puts("1..0 # SKIP the vendor's header is not installed");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
