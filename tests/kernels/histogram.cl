/* Counts of the bytes of `data`: a histogram a block in shared memory, then added to the whole. */
#include "nvptx.h"

#define BINS 256

__kernel void histogram(__global const uchar *data, int n, __global int *bins)
{
	__local int own[BINS];

	for (int i = tid_x; i < BINS; i += ntid_x)
		own[i] = 0;
	block_sync();
	for (int i = thread_x; i < n; i += ntid_x * nctaid_x)
		atomic_add_int(&own[data[i]], 1);
	block_sync();
	for (int i = tid_x; i < BINS; i += ntid_x)
		atomic_add_int(&bins[i], own[i]);
}
