/* Multiplies two matrices on the GPU and compares every element with the CPU's result.
 *
 * Usage: matmul [N [SECONDS]]: N x N floats (a multiple of 16, default 256), again and again for
 * that many seconds (default 0: once). Exit 0 if every round was right. */
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "example.h"

#include "base/file.h"

#define TILE 16

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The kernel's PTX lies beside this program's folder in the build tree. */
static char *kernel_text(void)
{
	static char text[1 << 20];
	char path[4200], dir[4096];

	if (executable_dir(dir, sizeof(dir)) < 0)
		return NULL;
	snprintf(path, sizeof(path), "%s/../tests/kernels/matmul.ptx", dir);
	if (file_read(path, text, sizeof(text)) < 0) {
		fprintf(stderr, "matmul: no kernel at %s: build first\n", path);
		return NULL;
	}
	return text;
}

/* The same sums in the same order as the kernel: the results must be equal to the bit. */
static void multiply_on_cpu(const float *a, const float *b, float *c, int n)
{
	for (int row = 0; row < n; row++) {
		memset(c + row * n, 0, sizeof(float) * n);
		for (int k = 0; k < n; k++) {
			for (int column = 0; column < n; column++)
				c[row * n + column] = __builtin_fmaf(
					a[row * n + k], b[k * n + column], c[row * n + column]);
		}
	}
}

struct matrices {
	int n;
	size_t bytes;
	float *a, *b, *c, *expected; /* on the CPU */
	CUdeviceptr gpu_a, gpu_b, gpu_c;
	CUfunction kernel;
};

static void matrices_make(struct matrices *m, int n)
{
	m->n = n;
	m->bytes = sizeof(float) * n * n;
	m->a = malloc(m->bytes);
	m->b = malloc(m->bytes);
	m->c = malloc(m->bytes);
	m->expected = malloc(m->bytes);
	if (!m->a || !m->b || !m->c || !m->expected)
		exit(1);
	for (int i = 0; i < n * n; i++) {
		m->a[i] = (float)(i * 7 % 101) / 64.0f - 0.5f;
		m->b[i] = (float)(i * 13 % 89) / 32.0f - 1.0f;
	}
	multiply_on_cpu(m->a, m->b, m->expected, n);
	MUST(cuMemAlloc_v2(&m->gpu_a, m->bytes));
	MUST(cuMemAlloc_v2(&m->gpu_b, m->bytes));
	MUST(cuMemAlloc_v2(&m->gpu_c, m->bytes));
	MUST(cuMemcpyHtoD_v2(m->gpu_a, m->a, m->bytes));
	MUST(cuMemcpyHtoD_v2(m->gpu_b, m->b, m->bytes));
}

static void matrices_free(struct matrices *m)
{
	MUST(cuMemFree_v2(m->gpu_a));
	MUST(cuMemFree_v2(m->gpu_b));
	MUST(cuMemFree_v2(m->gpu_c));
	free(m->a);
	free(m->b);
	free(m->c);
	free(m->expected);
}

/* One multiplication on the GPU; returns the number of elements that differ from the CPU's. */
static int multiply_on_gpu(struct matrices *m)
{
	void *arguments[] = {&m->gpu_a, &m->gpu_b, &m->gpu_c, &m->n};
	unsigned blocks = (unsigned)m->n / TILE;
	int wrong = 0;

	MUST(cuMemsetD8_v2(m->gpu_c, 0xff, m->bytes));
	MUST(cuLaunchKernel(m->kernel, blocks, blocks, 1, TILE, TILE, 1, 0, NULL, arguments, NULL));
	MUST(cuCtxSynchronize());
	MUST(cuMemcpyDtoH_v2(m->c, m->gpu_c, m->bytes));
	for (int i = 0; i < m->n * m->n; i++)
		wrong += m->c[i] != m->expected[i];
	return wrong;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 256, wrong = 0, rounds = 0;
	double seconds = argc > 2 ? atof(argv[2]) : 0, end;
	struct matrices m;
	CUmodule module;
	char name[128];

	if (n < TILE || n > 4096 || n % TILE || argc > 3) {
		fprintf(stderr, "usage: matmul [N [SECONDS]], N a multiple of %d up to 4096\n",
			TILE);
		return 2;
	}
	char *text = kernel_text();
	if (!text)
		return 1;
	CUdevice device = example_start();
	MUST(cuDeviceGetName(name, sizeof(name), device));
	MUST(cuModuleLoadData(&module, text));
	matrices_make(&m, n);
	MUST(cuModuleGetFunction(&m.kernel, module, "matmul"));
	end = now() + seconds;
	do {
		wrong += multiply_on_gpu(&m);
		rounds++;
	} while (now() < end);
	printf("matmul: %d x %d on %s, %d round%s: %s\n", n, n, name, rounds,
	       rounds == 1 ? "" : "s", wrong ? "WRONG" : "every element equals the CPU's");
	matrices_free(&m);
	MUST(cuDevicePrimaryCtxRelease_v2(device));
	return wrong ? 1 : 0;
}
