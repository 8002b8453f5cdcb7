/* For programs that check the front from inside a process: a failed check is one line, and exit 1.
 */
#pragma once

#include <stdio.h>
#include <string.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

#define LIMIT GIB(1)
#define BLOCK MIB(2)

#define CHECK(e)                                                                \
	do {                                                                    \
		if (!(e)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
			return 1;                                               \
		}                                                               \
	} while (0)
#define OK(call) CHECK((call) == CUDA_SUCCESS)
#define REFUSED(call) CHECK((call) == CUDA_ERROR_OUT_OF_MEMORY)

struct check {
	const char *name;
	int (*run)(void);
	int unstarted; /* without start() before it */
};

/* Free bytes of the slice, as the program sees it. */
static inline size_t room(void)
{
	size_t free_bytes = 0, total = 0;

	cuMemGetInfo_v2(&free_bytes, &total);
	return free_bytes;
}

/* Initialises CUDA with a context. */
static inline int start(void)
{
	CUcontext context;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, 0));
	return 0;
}

/* Runs the check that is named on the command line. */
static inline int check_run(const struct check *checks, size_t count, int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < count; i++)
		if (strcmp(argv[1], checks[i].name) == 0)
			return (!checks[i].unstarted && start()) || checks[i].run();
	fprintf(stderr, "which check?\n");
	return 2;
}
