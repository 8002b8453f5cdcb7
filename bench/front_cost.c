/* Nanoseconds of driver calls over the null driver: run without and with the front before it, the
 * difference is what the front costs. scripts/bench-front does both. One line of JSON. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

#define CALLS 20000000
#define PAIRS 1000000
#define LIVE 50000

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double forwarded(void)
{
	double begin = now_ns();
	int version;

	for (int i = 0; i < CALLS; i++)
		cuDriverGetVersion(&version);
	return (now_ns() - begin) / CALLS;
}

static double pairs(size_t bytes)
{
	double begin = now_ns();

	for (int i = 0; i < PAIRS; i++) {
		CUdeviceptr ptr;

		if (cuMemAlloc_v2(&ptr, bytes) != CUDA_SUCCESS)
			exit(1);
		cuMemFree_v2(ptr);
	}
	return (now_ns() - begin) / PAIRS;
}

int main(void)
{
	CUcontext context;
	CUdeviceptr ptr;
	double begin = now_ns();

	if (cuInit(0) != CUDA_SUCCESS)
		return 1;
	double init = now_ns() - begin;
	if (cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
		return 1;
	double call = forwarded(), none = pairs(MIB(2)), small = pairs(512);
	for (int i = 0; i < LIVE; i++)
		if (cuMemAlloc_v2(&ptr, 512) != CUDA_SUCCESS)
			return 1;
	printf("{\"cuInit\": %.0f, \"forwarded\": %.2f, \"alloc_free\": %.1f, "
	       "\"alloc_free_small\": %.1f, \"alloc_free_50000_live\": %.1f}\n",
	       init, call, none, small, pairs(MIB(2)));
	return 0;
}
