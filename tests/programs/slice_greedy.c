/* Takes memory in one way until it is refused, on whatever driver is there.
 *
 *   slice_greedy FAMILY BYTES [hold]
 *
 * Prints one line of JSON: what it got, and what cuMemGetInfo said before, at the end and after
 * giving all back. With "hold" it waits at the end, before giving back, until its input ends. Exits
 * 1 where anything but CUDA_ERROR_OUT_OF_MEMORY refused. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cuda_abi.h"
#include "slice_families.h"

#define PIECES_MAX 8192

static size_t room(void)
{
	size_t free_bytes = 0, total;

	cuMemGetInfo_v2(&free_bytes, &total);
	return free_bytes;
}

static void wait_for_line(void)
{
	int c;

	fflush(stdout);
	do
		c = getchar();
	while (c != '\n' && c != EOF);
}

int main(int argc, char **argv)
{
	static union slice_piece pieces[PIECES_MAX];
	const struct slice_family *family = argc > 2 ? slice_family_find(argv[1]) : NULL;
	size_t bytes = family ? strtoull(argv[2], NULL, 10) : 0, before, full, total, unused;
	CUcontext context;
	CUresult result = CUDA_SUCCESS;
	int count = 0;
	bool given = true, race = argc > 3 && strcmp(argv[3], "race") == 0;

	if (!bytes || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
	    cuCtxSetCurrent(context) || cuMemGetInfo_v2(&unused, &total))
		return 2;
	before = room();
	if (race) {
		puts("ready");
		wait_for_line();
	}
	while (count < PIECES_MAX && (result = family->take(&pieces[count], bytes)) == CUDA_SUCCESS)
		count++;
	full = room();
	if (race) {
		printf("%d\n", count);
		wait_for_line();
	}
	for (int i = count; i-- > 0;)
		given &= family->give(&pieces[i], bytes) == CUDA_SUCCESS;
	printf("{\"pieces\": %d, \"result\": %d, \"total\": %zu, \"before\": %zu, \"full\": %zu, "
	       "\"after\": %zu, \"given\": %s}\n",
	       count, (int)result, total, before, full, room(), given ? "true" : "false");
	return result == CUDA_ERROR_OUT_OF_MEMORY && given ? 0 : 1;
}
