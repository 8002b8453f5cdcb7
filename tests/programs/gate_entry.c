/* The front's entries of launches, with their arguments, their results and the stack:
 * gate_entry MS. Over the null driver, whose launches say what reached them, and call back from
 * inside. A first launch of each is followed by a pause of MS milliseconds, in which the process
 * gets ready for the short way through an open gate. Exit status 1: something got lost, which
 * stderr names. */
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

#define FRAMES 64
#define TIMES 3

static CUresult (*in_launch)(void (*call)(void));
static const void *expected; /* a return address below the launch */
static bool seen;
static int failures;

#define AS(type, number) ((type)(uintptr_t)(number))

static CUresult launch_kernel(CUstream stream)
{
	return cuLaunchKernel(AS(CUfunction, 1), 2, 3, 4, 5, 6, 7, 8, stream, AS(void **, 9),
			      AS(void **, 10));
}

static CUresult launch_kernel_ptsz(CUstream stream)
{
	return cuLaunchKernel_ptsz(AS(CUfunction, 1), 2, 3, 4, 5, 6, 7, 8, stream, AS(void **, 9),
				   AS(void **, 10));
}

static CUresult launch_cooperative(CUstream stream)
{
	return cuLaunchCooperativeKernel(AS(CUfunction, 1), 2, 3, 4, 5, 6, 7, 8, stream,
					 AS(void **, 9));
}

static CUresult launch_cooperative_ptsz(CUstream stream)
{
	return cuLaunchCooperativeKernel_ptsz(AS(CUfunction, 1), 2, 3, 4, 5, 6, 7, 8, stream,
					      AS(void **, 9));
}

static CUresult launch_ex(CUstream stream)
{
	CUlaunchConfig config = {.gridDimX = 5, .hStream = stream};

	return cuLaunchKernelEx(&config, AS(CUfunction, 2), AS(void **, 3), AS(void **, 4));
}

static CUresult launch_ex_ptsz(CUstream stream)
{
	CUlaunchConfig config = {.gridDimX = 5, .hStream = stream};

	return cuLaunchKernelEx_ptsz(&config, AS(CUfunction, 2), AS(void **, 3), AS(void **, 4));
}

static CUresult launch_graph_ptsz(CUstream stream)
{
	return cuGraphLaunch_ptsz(AS(CUgraphExec, 7), stream);
}

#define GRID_SUM (2 + 6 + 12 + 20 + 30 + 42 + 56)

struct entry {
	const char *name;
	CUresult (*launch)(CUstream stream);
	uint32_t sum, per_stream;
	bool calls_back;
};

static const struct entry entries[] = {
	{"cuLaunchKernel", launch_kernel, GRID_SUM + 1 + 9 + 10, 1, false},
	{"cuLaunchKernel_ptsz", launch_kernel_ptsz, GRID_SUM + 1 + 27 + 40, 2, true},
	{"cuLaunchCooperativeKernel", launch_cooperative, GRID_SUM + 1 + 27, 2, true},
	{"cuLaunchCooperativeKernel_ptsz", launch_cooperative_ptsz, GRID_SUM + 1 + 27, 2, true},
	{"cuLaunchKernelEx", launch_ex, 5 + 4 + 9 + 16, 1, true},
	{"cuLaunchKernelEx_ptsz", launch_ex_ptsz, 5 + 4 + 9 + 16, 1, true},
	{"cuGraphLaunch_ptsz", launch_graph_ptsz, 7, 2, true},
};

static void fail(const char *name, const char *what, long is, long should)
{
	fprintf(stderr, "gate_entry: %s: %s: %ld instead of %ld\n", name, what, is, should);
	failures++;
}

/* Called from inside of the driver's function. */
static void look_back(void)
{
	void *frames[FRAMES];
	int count = backtrace(frames, FRAMES);

	seen = false;
	for (int i = 0; i < count; i++)
		seen = seen || frames[i] == expected;
}

/* NULL, and the two names of default streams. */
static __attribute__((noinline)) void check_entry(const struct entry *entry)
{
	static const uintptr_t streams[] = {0, 1, 2, 0};

	expected = __builtin_return_address(0);
	for (size_t i = 0; i < TIMES * ARRAY_SIZE(streams); i++) {
		uintptr_t stream = streams[i / TIMES];
		uint32_t sum = entry->sum + entry->per_stream * (uint32_t)stream;

		seen = !entry->calls_back;
		uint32_t result = (uint32_t)entry->launch(AS(CUstream, stream));
		if (result != sum)
			fail(entry->name, "arguments add up to", (long)result, (long)sum);
		if (!seen)
			fail(entry->name, "callers seen from inside", 0, 1);
	}
}

static void note(void *ran)
{
	*(bool *)ran = true;
}

static void leave(void)
{
	pthread_exit(&failures);
}

struct ending {
	const struct entry *entry;
	bool cleaned;
};

/* Warms its own record up, then ends inside of a launch. */
static void *end_inside(void *data)
{
	struct ending *ending = data;

	in_launch(NULL);
	for (int i = 0; i < TIMES; i++)
		ending->entry->launch(NULL);
	pthread_cleanup_push(note, &ending->cleaned);
	in_launch(leave);
	ending->entry->launch(NULL);
	pthread_cleanup_pop(0);
	return NULL;
}

/* The stack of a thread that ends inside is unwound through the entry, as for an exception. */
static void check_unwinding(const struct entry *entry)
{
	struct ending ending = {.entry = entry};
	pthread_t thread;
	void *result;

	if (pthread_create(&thread, NULL, end_inside, &ending) != 0 ||
	    pthread_join(thread, &result) != 0 || result != &failures || !ending.cleaned)
		fail(entry->name, "cleaned up behind a thread that ended inside", ending.cleaned,
		     1);
}

int main(int argc, char **argv)
{
	long ms = argc > 1 ? strtol(argv[1], NULL, 10) : -1;
	CUcontext context;
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	if (ms < 0 || !driver || cuInit(0) != CUDA_SUCCESS ||
	    cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
		return 2;
	void *found = dlsym(driver, "cuNullInLaunch");
	if (!found)
		return 2;
	memcpy(&in_launch, &found, sizeof(found));
	in_launch(look_back);
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		check_entry(&entries[i]);
	usleep((useconds_t)ms * 1000);
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		check_entry(&entries[i]);
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		if (entries[i].calls_back)
			check_unwinding(&entries[i]);
	return failures ? 1 : 0;
}
