/* Takes 256 MiB blocks of GPU memory until it is refused, and tells how far it came.
 *
 * Usage: hog [SECONDS]: holds what it got for that long, then frees it. Exit 0 if it was refused
 * with CUDA_ERROR_OUT_OF_MEMORY, 1 on any other error. */
#include <unistd.h>

#include "example.h"

#define BLOCK ((size_t)256 << 20)
#define BLOCKS_MAX 4096

static CUdeviceptr blocks[BLOCKS_MAX];

int main(int argc, char **argv)
{
	size_t free_bytes, total_bytes;
	CUresult result = CUDA_SUCCESS;
	int count = 0;

	CUdevice device = example_start();
	MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	printf("hog: this GPU has %.0f MiB, %.0f MiB of it free\n", example_mib(total_bytes),
	       example_mib(free_bytes));
	while (count < BLOCKS_MAX && result == CUDA_SUCCESS) {
		result = cuMemAlloc_v2(&blocks[count], BLOCK);
		count += result == CUDA_SUCCESS;
	}
	MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	printf("hog: got %d blocks of 256 MiB = %d MiB, then %s\n", count, count * 256,
	       example_error(result));
	printf("hog: cuMemGetInfo now says %.0f MiB free of %.0f MiB\n", example_mib(free_bytes),
	       example_mib(total_bytes));
	fflush(stdout);
	if (argc > 1)
		sleep((unsigned)atoi(argv[1]));
	while (count)
		MUST(cuMemFree_v2(blocks[--count]));
	MUST(cuDevicePrimaryCtxRelease_v2(device));
	return result == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1;
}
