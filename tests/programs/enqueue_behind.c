/* Hands work into one stream that waits for what is handed in last, into another one:
 * enqueue_behind COUNT. Prints the seconds that took. */
#include "cuda_check.h"

#define BYTES MIB(512)
#define COUNT_MOST 1024u

int main(int argc, char **argv)
{
	unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
	CUdeviceptr memory, words;
	CUstream waits, works;

	if (!count || count > COUNT_MOST)
		return 2;
	check_context();
	OK(cuMemAlloc_v2(&memory, BYTES));
	OK(cuMemAlloc_v2(&words, COUNT_MOST * sizeof(uint32_t)));
	OK(cuMemsetD32_v2(words, 0, COUNT_MOST));
	OK(cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&works, CU_STREAM_NON_BLOCKING));
	/* How long these take is known when it matters. */
	for (unsigned i = 0; i < COUNT_MOST / 64; i++)
		OK(cuMemsetD8Async(memory, 1, BYTES, works));
	OK(cuStreamSynchronize(works));
	double begin = check_seconds();
	for (unsigned i = 0; i < count; i++) {
		OK(cuStreamWaitValue32_v2(waits, words + i * sizeof(uint32_t), 1,
					  CU_STREAM_WAIT_VALUE_GEQ));
		OK(cuMemsetD8Async(memory, 2, BYTES, waits));
	}
	for (unsigned i = 0; i < count; i++)
		OK(cuStreamWriteValue32_v2(works, words + i * sizeof(uint32_t), 1, 0));
	OK(cuStreamSynchronize(waits));
	printf("%.3f\n", check_seconds() - begin);
	return 0;
}
