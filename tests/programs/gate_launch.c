/* Launches for some time and says how long the longest launch took: gate_launch MS [THREADS
 * [fork]]. With "fork" a child that is forked after the first launch does the same beside. Over the
 * null driver. One line of JSON each; exit status 1: a launch failed. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

#define THREADS_MOST 256
#define LAUNCHES_AT_ONCE 100

static uint64_t until;
static CUcontext context;

struct thread {
	pthread_t id;
	uint64_t launches, longest_ns;
	CUresult result;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void *run(void *data)
{
	struct thread *t = data;
	uint64_t before = now_ns();

	t->result = cuCtxSetCurrent(context);
	while (before < until && t->result == CUDA_SUCCESS) {
		for (int i = 0; i < LAUNCHES_AT_ONCE && t->result == CUDA_SUCCESS; i++)
			t->result = cuLaunchKernel(NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL);
		t->launches += LAUNCHES_AT_ONCE;
		uint64_t now = now_ns();
		t->longest_ns = MAX(t->longest_ns, now - before);
		before = now;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static struct thread threads[THREADS_MOST];
	long ms = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	long count = argc > 2 ? strtol(argv[2], NULL, 10) : 1;
	uint64_t launches = 0, longest = 0;
	bool failed = false;
	pid_t child = -1;

	if (ms <= 0 || count <= 0 || count > THREADS_MOST || cuInit(0) != CUDA_SUCCESS ||
	    cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
		return 2;
	until = now_ns() + (uint64_t)ms * 1000000u;
	if (argc > 3) {
		/* So that there is something of the parent's to find. */
		if (cuLaunchKernel(NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL) != CUDA_SUCCESS)
			return 1;
		child = fork();
		if (child < 0)
			return 2;
	}
	for (long i = 0; i < count; i++)
		if (pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0)
			return 2;
	for (long i = 0; i < count; i++) {
		pthread_join(threads[i].id, NULL);
		launches += threads[i].launches;
		longest = MAX(longest, threads[i].longest_ns);
		failed |= threads[i].result != CUDA_SUCCESS;
	}
	printf("{\"launches\": %llu, \"longest_ns\": %llu}\n", (unsigned long long)launches,
	       (unsigned long long)longest);
	fflush(stdout);
	int status = 0;
	if (child > 0 && waitpid(child, &status, 0) < 0)
		return 2;
	return failed || status;
}
