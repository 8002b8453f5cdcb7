/* Launches that take long to hand in, each followed by a longer time in which the thread does
 * something else: gate_late TIMES. Over the null driver, which calls back from inside a launch. One
 * line of JSON; exit status 1: a launch failed. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cuda_abi.h"

#define INSIDE_US 200000u
/* Less than the front's helper sleeps where it believes that there is nothing to do. */
#define AFTER_US 700000u

static CUresult (*in_launch)(void (*call)(void));

static void take_long(void)
{
	usleep(INSIDE_US);
}

int main(int argc, char **argv)
{
	long times = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	void *found = driver ? dlsym(driver, "cuNullInLaunch") : NULL;
	CUlaunchConfig config = {0};
	CUcontext context;

	if (times <= 0 || !found || cuInit(0) != CUDA_SUCCESS ||
	    cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
		return 2;
	memcpy(&in_launch, &found, sizeof(found));
	in_launch(take_long);
	for (long i = 0; i < times; i++) {
		if (cuLaunchKernelEx(&config, NULL, NULL, NULL) != CUDA_SUCCESS)
			return 1;
		usleep(AFTER_US);
	}
	printf("{\"launches\": %ld}\n", times);
	return 0;
}
