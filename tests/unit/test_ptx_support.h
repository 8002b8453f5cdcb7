/* A device for the interpreter's tests: one range of memory, modules from text or from the kernels
 * that were built, launches that must succeed or whose result is looked at. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "ptx/ptx.h"

#define DEVICE_BASE 0x700000000000ULL
#define DEVICE_BYTES ((size_t)64 << 20)

struct device {
	unsigned char *memory;
	uint64_t used;
	struct ptx_module *module;
	char log[1024];
	char printed[8192];
	uint64_t clock; /* ns; 0: the host's */
	unsigned pauses;
	struct ptx_callbacks callbacks;
	struct ptx_launch launch; /* what tests may preset: resident_blocks, shared_bytes ... */
	struct ptx_result result;
};

void device_open(struct device *device);
void device_close(struct device *device);
/* The one that a file's tests share, with setup() and teardown() around each of them. */
#define TEST_DEVICE                       \
	static struct device device;      \
                                          \
	static int setup(void **state)    \
	{                                 \
		device_open(&device);     \
		return 0;                 \
	}                                 \
                                          \
	static int teardown(void **state) \
	{                                 \
		device_close(&device);    \
		return 0;                 \
	}
/* Zeroed; a device address. */
uint64_t device_alloc(struct device *device, size_t size);
void *device_host(struct device *device, uint64_t address);
/* Compiles for sm_90 and binds; replaces the module. Fails the test on an error. */
void device_load(struct device *device, const char *text);
/* The named kernel of tests/kernels, as it was built. */
void device_load_kernel(struct device *device, const char *name);
/* Just compiles; device->log says what was wrong. */
int device_compile(struct device *device, const char *text);
/* Arguments are 64-bit each; they are cut to the parameters' sizes. Gives the launch's result. */
int device_run(struct device *device, const char *kernel, uint32_t blocks, uint32_t threads,
	       unsigned count, ...);
/* The same, and it must be 0. */
#define device_must_run(device, ...) assert_int_equal(device_run((device), __VA_ARGS__), 0)
