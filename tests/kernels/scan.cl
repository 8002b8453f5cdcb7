/* Inclusive prefix sums of each block's ntid ints (at most 1024), doubling the distance each step. */
#include "nvptx.h"

__kernel void scan(__global const int *in, __global int *out)
{
	__local int sums[2][1024];
	int from = 0;

	sums[0][tid_x] = in[thread_x];
	block_sync();
	for (int distance = 1; distance < ntid_x; distance *= 2) {
		int value = sums[from][tid_x];

		if (tid_x >= distance)
			value += sums[from][tid_x - distance];
		sums[1 - from][tid_x] = value;
		from = 1 - from;
		block_sync();
	}
	out[thread_x] = sums[from][tid_x];
}
