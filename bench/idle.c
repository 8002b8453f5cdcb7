/* Processes that use the GPU and do nothing: each has a context and one allocation.
 *
 *   idle COUNT
 *
 * Prints "ready" when all have theirs, and ends them when its standard input ends. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

static int take(void)
{
	CUcontext context;
	CUdeviceptr ptr;

	CUresult result = cuInit(0);

	if (result == CUDA_SUCCESS)
		result = cuDevicePrimaryCtxRetain(&context, 0);
	if (result == CUDA_SUCCESS)
		result = cuCtxSetCurrent(context);
	return (int)(result == CUDA_SUCCESS ? cuMemAlloc_v2(&ptr, MIB(2)) : result);
}

/* Ends when `stop`, a pipe that nobody writes to, loses its last writer. */
_Noreturn static void idle(int ready, int stop)
{
	int result = take();
	char byte = 0;

	if (result)
		fprintf(stderr, "idle: error %d of the driver\n", result);
	_exit(result || write(ready, &byte, 1) != 1 || read(stop, &byte, 1) != 0);
}

/* Starts one process and waits until it has its memory. */
static bool start(const int stop[2])
{
	int ready[2];
	char byte;

	if (pipe(ready) < 0)
		return false;
	pid_t child = fork();
	if (child == 0) {
		close(stop[1]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		idle(ready[1], stop[0]);
	}
	close(ready[1]);
	/* Of a child that failed, the end. */
	bool ok = child > 0 && read(ready[0], &byte, 1) == 1;
	close(ready[0]);
	return ok;
}

int main(int argc, char **argv)
{
	int count = argc == 2 ? (int)strtol(argv[1], NULL, 10) : -1, stop[2], failed = 0, status;
	char byte;

	if (count < 0 || pipe(stop) < 0)
		return 2;
	/* One after the other: a context's reserved cost is settled before the next. */
	for (int i = 0; i < count; i++)
		if (!start(stop))
			return 1;
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	close(stop[1]);
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
