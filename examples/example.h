/* The needs of both examples: a call that must succeed, and a context on the first GPU. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "base/cuda_abi.h"

static inline const char *example_error(CUresult result)
{
	const char *name = NULL;

	return cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "an unknown error";
}

/* Ends the program with one line where a driver call fails. */
#define MUST(call)                                                                \
	do {                                                                      \
		CUresult must_ = (call);                                          \
		if (must_ != CUDA_SUCCESS) {                                      \
			fprintf(stderr, "%s: %s\n", #call, example_error(must_)); \
			exit(1);                                                  \
		}                                                                 \
	} while (0)

/* Initialises the driver and makes the first GPU's primary context current. */
static inline CUdevice example_start(void)
{
	CUdevice device;
	CUcontext context;

	MUST(cuInit(0));
	MUST(cuDeviceGet(&device, 0));
	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
	return device;
}

static inline double example_mib(size_t bytes)
{
	return (double)bytes / (1 << 20);
}
