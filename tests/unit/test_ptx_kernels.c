/* Kernels in OpenCL C, compiled by clang, against the same done by the CPU: exactly. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "test_ptx_support.h"

static struct device device;

static int setup(void **state)
{
	device_open(&device);
	return 0;
}

static int teardown(void **state)
{
	device_close(&device);
	return 0;
}

/* Numbers that look random, the same every time. */
static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void test_matmul(void **state)
{
	enum { N = 64, TILE = 16 };
	uint64_t a = device_alloc(&device, N * N * 4), b = device_alloc(&device, N * N * 4);
	uint64_t c = device_alloc(&device, N * N * 4);
	float *pa = device_host(&device, a), *pb = device_host(&device, b);
	const float *pc = device_host(&device, c);
	uint32_t seed = 1;

	for (int i = 0; i < N * N; i++) {
		pa[i] = (float)next_random(&seed) / 65536;
		pb[i] = (float)next_random(&seed) / 65536;
	}
	device_load_kernel(&device, "matmul");
	device.launch.grid[1] = N / TILE;
	device.launch.block[1] = TILE;
	device_must_run(&device, "matmul", N / TILE, TILE, 4, a, b, c, (uint64_t)N);
	for (int row = 0; row < N; row++) {
		for (int column = 0; column < N; column++) {
			float sum = 0;

			for (int k = 0; k < N; k++)
				sum = fmaf(pa[row * N + k], pb[k * N + column], sum);
			assert_memory_equal(&sum, &pc[row * N + column], 4);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_matmul, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
