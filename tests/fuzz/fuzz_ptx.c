/* PTX from anybody: text that is no PTX is refused, and what compiles may run without touching
 * memory that it was not given. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/ptx.h"

#define MEMORY_BASE 0x700000000000ULL
#define MEMORY_BYTES 65536
#define VARIABLES_MAX 16
#define SHARED_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool find_range(void *user, uint64_t address, struct ptx_range *ret_range)
{
	*ret_range = (struct ptx_range){MEMORY_BASE, MEMORY_BYTES, user, true};
	return address - MEMORY_BASE < MEMORY_BYTES;
}

static uint64_t now(void *user)
{
	return 0;
}

static void wait_not(void *user, uint64_t ns, bool watching)
{
}

static int stop(void *user, uint64_t count)
{
	return 1;
}

static void run(const struct ptx_module *module, size_t kernel, void *memory)
{
	const struct ptx_callbacks callbacks = {
		.find_range = find_range, .now = now, .pause = wait_not, .checkpoint = stop};
	const struct ptx_kernel_info *info = ptx_module_kernel(module, kernel);
	struct ptx_launch launch = {
		.module = module,
		.kernel = kernel,
		.grid = {2, 1, 1},
		.block = {33, 1, 1},
		.shared_bytes = 64,
		.param_bytes = info->param_bytes,
		.callbacks = &callbacks,
		.user = memory,
	};
	struct ptx_result result;
	void *params = calloc(1, info->param_bytes + 1);

	launch.params = params;
	if (params && info->shared_bytes <= SHARED_MAX && info->local_bytes <= SHARED_MAX)
		ptx_launch_run(&launch, &result);
	free(params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ptx_source source = {.text = (const char *)data, .length = size};
	struct ptx_options options = {.sm = 90};
	uint64_t addresses[VARIABLES_MAX];
	struct ptx_module *module;
	char log[256];
	size_t count;
	void *memory;

	if (ptx_module_compile(&source, 1, &options, log, sizeof(log), &module) < 0)
		return 0;
	memory = calloc(1, MEMORY_BYTES);
	count = ptx_module_variable_count(module);
	for (size_t i = 0; i < MIN(count, (size_t)VARIABLES_MAX); i++)
		addresses[i] = MEMORY_BASE + 4096 * i;
	if (memory && count <= VARIABLES_MAX && ptx_module_bind(module, addresses, count) == 0) {
		for (size_t i = 0; i < count; i++) {
			if (ptx_module_variable(module, i)->size <= MEMORY_BYTES)
				ptx_module_variable_init(module, i, memory);
		}
		for (size_t i = 0; i < ptx_module_kernel_count(module); i++)
			run(module, i, memory);
	}
	free(memory);
	ptx_module_free(module);
	return 0;
}
