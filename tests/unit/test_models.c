/* The models' data hold together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "host/models.h"

static void test_keys_are_unique(void **state)
{
	size_t n;
	const struct sim_model *models = sim_models(&n);

	assert_true(n >= 20);
	for (size_t i = 0; i < n; i++) {
		assert_ptr_equal(sim_model_find(models[i].key), &models[i]);
		if (models[i].alias)
			assert_ptr_equal(sim_model_find(models[i].alias), &models[i]);
		assert_non_null(models[i].name);
		/* The host's page has room for 31 characters. */
		assert_true(strlen(models[i].key) < 32);
	}
	assert_null(sim_model_find("h100"));
	assert_null(sim_model_find(""));
}

static void test_memory_is_plausible(void **state)
{
	size_t n;
	const struct sim_model *models = sim_models(&n);

	for (size_t i = 0; i < n; i++) {
		const struct sim_model *m = &models[i];
		/* Double data rate over the bus, as the data sheets count; they round. */
		double bytes_per_s = 2e6 * m->clock_mem_mhz * m->bus_width / 8;
		double off = (double)m->bandwidth_memory / bytes_per_s - 1;

		assert_true(m->memory_reserved + 10 * m->context_bytes < m->memory_total);
		assert_true(off > -0.03 && off < 0.03);
		assert_true(m->power_idle_w < m->power_min_w);
		assert_true(m->power_min_w < m->power_limit_w);
		assert_int_equal(m->pci_device_id & 0xffff, 0x10de);
		assert_int_equal(m->pci_subsystem_id & 0xffff, 0x10de);
	}
}

/* The number in the key is the memory as sold, within what a decimal or binary giga makes of it. */
static void test_key_names_the_memory(void **state)
{
	size_t n;
	const struct sim_model *models = sim_models(&n);

	for (size_t i = 0; i < n; i++) {
		const char *key = models[i].key, *size = strstr(key, "gb");
		double said, real = (double)models[i].memory_total / (double)GIB(1);

		/* "gb200-186gb": the last "gb" is the unit, whose number follows a dash. */
		while (size && strstr(size + 1, "gb"))
			size = strstr(size + 1, "gb");
		if (!size) {
			fail_msg("%s", key);
			continue;
		}
		while (size > key && size[-1] != '-')
			size--;
		said = strtod(size, NULL);
		assert_true(real > said * 0.93 && real < said * 1.07);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys_are_unique),
		cmocka_unit_test(test_memory_is_plausible),
		cmocka_unit_test(test_key_names_the_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
