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

TEST_DEVICE

/* Numbers that look random, the same every time. */
static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void test_matmul(void **state)
{
	enum { N = 64, TILE = 16 };
	uint64_t a = device_alloc(&device, sizeof(float) * N * N),
		 b = device_alloc(&device, sizeof(float) * N * N);
	uint64_t c = device_alloc(&device, sizeof(float) * N * N);
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

static void test_vector_add(void **state)
{
	enum { N = 1000 };
	uint64_t a = device_alloc(&device, sizeof(int[N])),
		 b = device_alloc(&device, sizeof(int[N]));
	uint64_t c = device_alloc(&device, sizeof(int[N + 1]));
	float *pa = device_host(&device, a), *pb = device_host(&device, b);
	const float *pc = device_host(&device, c);

	for (int i = 0; i < N; i++) {
		pa[i] = (float)i / 3;
		pb[i] = (float)(N - i) * 1.5f;
	}
	device_load_kernel(&device, "vector_add");
	device_must_run(&device, "vector_add", 8, 128, 4, a, b, c, (uint64_t)N);
	for (int i = 0; i < N; i++)
		assert_true(pc[i] == pa[i] + pb[i]);
	assert_true(pc[N] == 0);
	assert_true(device.result.warp_instructions > 320);
}

static void test_histogram(void **state)
{
	enum { N = 20000 };
	uint64_t data = device_alloc(&device, N), bins = device_alloc(&device, sizeof(int[256]));
	unsigned char *bytes = device_host(&device, data);
	const int *counted = device_host(&device, bins);
	int expected[256] = {0};
	uint32_t seed = 7;

	for (int i = 0; i < N; i++) {
		bytes[i] = (unsigned char)(next_random(&seed) >> i % 9);
		expected[bytes[i]]++;
	}
	device_load_kernel(&device, "histogram");
	device_must_run(&device, "histogram", 5, 96, 3, data, (uint64_t)N, bins);
	assert_memory_equal(counted, expected, sizeof(expected));
}

static void test_reduce(void **state)
{
	enum { N = 12345 };
	uint64_t data = device_alloc(&device, sizeof(int[N])), sum = device_alloc(&device, 4);
	int *values = device_host(&device, data), expected = 0;
	uint32_t seed = 3;

	for (int i = 0; i < N; i++) {
		values[i] = (int)next_random(&seed) - (1 << 23);
		expected += values[i];
	}
	device_load_kernel(&device, "reduce");
	device_must_run(&device, "reduce", 3, 256, 3, data, (uint64_t)N, sum);
	assert_int_equal(*(const int *)device_host(&device, sum), expected);
}

static void test_scan(void **state)
{
	enum { BLOCKS = 2, THREADS = 1024, N = BLOCKS * THREADS };
	uint64_t in = device_alloc(&device, sizeof(int[N])),
		 out = device_alloc(&device, sizeof(int[N]));
	int *values = device_host(&device, in), sum = 0;
	const int *sums = device_host(&device, out);

	for (int i = 0; i < N; i++)
		values[i] = i * 7 - 1000;
	device_load_kernel(&device, "scan");
	device_must_run(&device, "scan", BLOCKS, THREADS, 2, in, out);
	for (int i = 0; i < N; i++) {
		sum = (i % THREADS ? sum : 0) + values[i];
		assert_int_equal(sums[i], sum);
	}
}

static int compare_ints(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

static void test_sort(void **state)
{
	enum { N = 512 };
	uint64_t data = device_alloc(&device, sizeof(int[N]));
	int *values = device_host(&device, data), expected[N];
	uint32_t seed = 11;

	for (int i = 0; i < N; i++)
		values[i] = (int)(next_random(&seed) % 1000) - 500;
	memcpy(expected, values, sizeof(expected));
	qsort(expected, N, sizeof(*expected), compare_ints);
	device_load_kernel(&device, "sort");
	device.launch.shared_bytes = N * 4;
	device_must_run(&device, "sort", 1, N / 2, 2, data, (uint64_t)0);
	assert_memory_equal(values, expected, sizeof(expected));
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
	return b ? gcd(b, a % b) : a;
}

static uint32_t collatz(uint32_t n)
{
	return n == 1 ? 0 : 1 + collatz(n & 1 ? 3 * n + 1 : n / 2);
}

static uint32_t branchy(uint32_t i)
{
	uint32_t value = 0;

	switch (i % 7) {
	case 0:
		value = collatz(i + 1);
		break;
	case 1:
		value = gcd(i * 12, 360);
		break;
	case 2:
		for (uint32_t k = 0; k < i % 32 && k != 17; k++)
			value += k % 3 ? k * k : 0;
		break;
	case 3:
		value = (uint32_t)(((int)i - 500) / 7);
		break;
	case 4:
		value = (uint32_t)(__builtin_popcount(i) + __builtin_clz(i));
		break;
	case 5:
		return 77;
	default:
		value = ~i;
	}
	return value + (i & 1 ? gcd(i, 30) : collatz(27));
}

static void test_branchy(void **state)
{
	enum { N = 1000 };
	uint64_t out = device_alloc(&device, sizeof(int[1024]));
	const uint32_t *values = device_host(&device, out);

	device_load_kernel(&device, "branchy");
	device_must_run(&device, "branchy", 4, 256, 2, out, (uint64_t)N);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(values[i], branchy(i));
	for (uint32_t i = N; i < 1024; i++)
		assert_int_equal(values[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_vector_add, setup, teardown),
		cmocka_unit_test_setup_teardown(test_matmul, setup, teardown),
		cmocka_unit_test_setup_teardown(test_histogram, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reduce, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scan, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sort, setup, teardown),
		cmocka_unit_test_setup_teardown(test_branchy, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
