#include "test_ptx_support.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"

#define TEXT_MAX ((size_t)1 << 20)
#define VARIABLES_MAX 32

static bool find_range(void *user, uint64_t address, struct ptx_range *ret_range)
{
	struct device *device = user;

	if (address - DEVICE_BASE >= DEVICE_BYTES)
		return false;
	*ret_range = (struct ptx_range){DEVICE_BASE, DEVICE_BYTES, device->memory, true};
	return true;
}

static void print(void *user, const char *text, size_t length)
{
	struct device *device = user;

	strncat(device->printed, text,
		MIN(length, sizeof(device->printed) - strlen(device->printed) - 1));
}

static uint64_t device_now(void *user)
{
	struct device *device = user;

	return device->clock;
}

static void device_pause(void *user, uint64_t ns, bool watching)
{
	struct device *device = user;

	device->pauses++;
	device->clock += ns;
}

void device_open(struct device *device)
{
	*device = (struct device){.used = 256};
	device->memory = calloc(1, DEVICE_BYTES);
	assert_non_null(device->memory);
	device->callbacks = (struct ptx_callbacks){
		.find_range = find_range, .print = print, .now = device_now, .pause = device_pause};
	device->clock = 1000;
}

void device_close(struct device *device)
{
	ptx_module_free(device->module);
	free(device->memory);
}

uint64_t device_alloc(struct device *device, size_t size)
{
	uint64_t at = ALIGN_UP(device->used, (uint64_t)256);

	assert_true(at + size <= DEVICE_BYTES);
	device->used = at + size;
	memset(device->memory + at, 0, size);
	return DEVICE_BASE + at;
}

void *device_host(struct device *device, uint64_t address)
{
	return device->memory + (address - DEVICE_BASE);
}

int device_compile(struct device *device, const char *text)
{
	struct ptx_source source = {.text = text, .length = strlen(text)};
	struct ptx_options options = {.sm = 90};

	ptx_module_free(device->module);
	device->module = NULL;
	return ptx_module_compile(&source, 1, &options, device->log, sizeof(device->log),
				  &device->module);
}

void device_load(struct device *device, const char *text)
{
	uint64_t addresses[VARIABLES_MAX];
	size_t count;

	if (device_compile(device, text) != 0)
		fail_msg("%s", device->log);
	count = ptx_module_variable_count(device->module);
	assert_true(count <= VARIABLES_MAX);
	for (size_t i = 0; i < count; i++)
		addresses[i] = device_alloc(device, ptx_module_variable(device->module, i)->size);
	assert_int_equal(ptx_module_bind(device->module, addresses, count), 0);
	for (size_t i = 0; i < count; i++)
		ptx_module_variable_init(device->module, i, device_host(device, addresses[i]));
}

void device_load_kernel(struct device *device, const char *name)
{
	char path[512];
	char *text = calloc(1, TEXT_MAX + 1);
	FILE *file;

	assert_non_null(text);
	snprintf(path, sizeof(path), "%s/%s.ptx", PTX_KERNELS, name);
	file = fopen(path, "r");
	if (!file)
		fail_msg("%s is missing", path);
	assert_true(fread(text, 1, TEXT_MAX, file) > 0);
	fclose(file);
	device_load(device, text);
	free(text);
}

int device_run(struct device *device, const char *kernel, uint32_t blocks, uint32_t threads,
	       unsigned count, ...)
{
	struct ptx_launch launch = device->launch;
	int index = ptx_module_kernel_find(device->module, kernel);
	const struct ptx_kernel_info *info;
	unsigned char params[256];
	va_list args;

	assert_true(index >= 0);
	info = ptx_module_kernel(device->module, (size_t)index);
	assert_int_equal(info->param_count, count);
	va_start(args, count);
	for (unsigned i = 0; i < count; i++) {
		uint64_t value = va_arg(args, uint64_t);

		memcpy(params + info->params[i].offset, &value, info->params[i].size);
	}
	va_end(args);
	launch.module = device->module;
	launch.kernel = (size_t)index;
	launch.grid[0] = blocks;
	launch.block[0] = threads;
	for (unsigned i = 0; i < 3; i++) {
		launch.grid[i] = MAX(launch.grid[i], 1u);
		launch.block[i] = MAX(launch.block[i], 1u);
	}
	launch.params = params;
	launch.param_bytes = info->param_bytes;
	launch.callbacks = &device->callbacks;
	launch.user = device;
	return ptx_launch_run(&launch, &device->result);
}
