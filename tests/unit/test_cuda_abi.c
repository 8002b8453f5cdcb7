/* Our declaration of the CUDA (or, built with its table, the NVML) ABI against the vendor's header,
 * number by number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_abi_table.h"

static void test_numbers_are_the_vendors(void **state)
{
	if (!abi_vendor_count)
		skip();
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

	return cmocka_run_group_tests(tests, NULL, NULL);
}
