/* Steps a process through the front and kills it after every so-manieth instruction, each time a
 * new one, until one gets through.
 *
 *   front_tracer SCENARIO STRIDE
 *
 * Prints how many were killed. Run by front_host, whose ledger must be whole afterwards; meanwhile
 * this process allocates, too, and must never be made to wait or be refused what is free. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "front_check.h"

static void expect(bool holds)
{
	if (!holds)
		_exit(3);
}

/* From here on the tracer counts. */
static void trace_me(void)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
}

static void run_allocate(void)
{
	CUdeviceptr large, small, other;

	expect(start() == 0);
	/* Everything is loaded and bound. */
	expect(cuMemAlloc_v2(&large, MIB(10)) == CUDA_SUCCESS &&
	       cuMemFree_v2(large) == CUDA_SUCCESS);
	trace_me();
	expect(cuMemAlloc_v2(&large, MIB(10)) == CUDA_SUCCESS);
	expect(cuMemAlloc_v2(&small, 1000) == CUDA_SUCCESS);
	expect(cuMemAlloc_v2(&other, 2000) == CUDA_SUCCESS);
	expect(cuMemAlloc_v2(&other, GIB(2)) == CUDA_ERROR_OUT_OF_MEMORY);
	expect(cuMemFree_v2(small) == CUDA_SUCCESS);
	expect(cuMemFree_v2(large) == CUDA_SUCCESS);
}

static void run_attach(void)
{
	CUdeviceptr ptr;
	int version;

	expect(cuDriverGetVersion(&version) == CUDA_SUCCESS);
	trace_me();
	expect(start() == 0);
	expect(cuMemAlloc_v2(&ptr, MIB(10)) == CUDA_SUCCESS);
}

static void run_map(void)
{
	static const CUmemAllocationProp on_device = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;

	expect(start() == 0);
	trace_me();
	expect(cuMemCreate(&handle, MIB(20), &on_device, 0) == CUDA_SUCCESS);
	expect(cuMemMap(GIB(600), MIB(20), 0, handle, 0) == CUDA_SUCCESS);
	expect(cuMemRelease(handle) == CUDA_SUCCESS);
	expect(cuMemUnmap(GIB(600), MIB(20)) == CUDA_SUCCESS);
	expect(cuMemAllocAsync(&ptr, MIB(40), NULL) == CUDA_SUCCESS);
	expect(cuMemFreeAsync(ptr, NULL) == CUDA_SUCCESS);
	expect(cuStreamSynchronize(NULL) == CUDA_SUCCESS);
}

/* The one that is killed forks; its child goes on with a slot of its own. */
static void run_fork(void)
{
	CUdeviceptr ptr;

	expect(start() == 0);
	expect(cuMemAlloc_v2(&ptr, MIB(10)) == CUDA_SUCCESS);
	trace_me();
	if (fork() == 0) {
		expect(cuMemAlloc_v2(&ptr, MIB(30)) == CUDA_SUCCESS);
		_exit(0);
	}
	expect(cuMemFree_v2(ptr) == CUDA_SUCCESS);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

static const struct scenario {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"allocate", run_allocate},
	{"attach", run_attach},
	{"map", run_map},
	{"fork", run_fork},
};

/* Steps a traced child so many times; true: it was still there to be killed. */
static bool step_and_kill(pid_t child, long steps, int *status)
{
	waitpid(child, status, 0);
	while (steps-- > 0 && WIFSTOPPED(*status)) {
		int signal = WSTOPSIG(*status);

		ptrace(PTRACE_SINGLESTEP, child, NULL,
		       signal == SIGTRAP || signal == SIGSTOP ? 0 : signal);
		waitpid(child, status, 0);
	}
	if (!WIFSTOPPED(*status))
		return false;
	kill(child, SIGKILL);
	waitpid(child, status, 0);
	return true;
}

/* A neighbour's view of the kills, in the same slice: nothing. */
static int neighbour_allocates(void)
{
	CUdeviceptr ptr;

	OK(cuMemAlloc_v2(&ptr, MIB(100)));
	OK(cuMemFree_v2(ptr));
	return 0;
}

static int run(const struct scenario *scenario, long stride)
{
	long kills = 0;
	int status = 0;

	for (long steps = 0;; steps += stride, kills++) {
		pid_t child = fork();

		if (child == 0) {
			scenario->run();
			_exit(0);
		}
		if (!step_and_kill(child, steps, &status))
			break;
		if (kills % 16 == 0)
			CHECK(neighbour_allocates() == 0);
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	printf("%ld\n", kills);
	return 0;
}

int main(int argc, char **argv)
{
	long stride = argc > 2 ? strtol(argv[2], NULL, 10) : 0;

	for (size_t i = 0; stride > 0 && i < ARRAY_SIZE(scenarios); i++)
		if (strcmp(argv[1], scenarios[i].name) == 0)
			return start() || run(&scenarios[i], stride);
	fprintf(stderr, "which scenario, and every how many instructions?\n");
	return 2;
}
