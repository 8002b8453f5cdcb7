/* Sum of n ints: shuffles inside warps, shared memory between them, one atomic a block. */
#include "nvptx.h"

#define WARPS_MAX 32

static int warp_sum(int value)
{
	for (int offset = 16; offset > 0; offset /= 2)
		value += shuffle_down(value, offset);
	return value;
}

__kernel void reduce(__global const int *data, int n, __global int *sum)
{
	__local int sums[WARPS_MAX];
	int value = 0;

	for (int i = thread_x; i < n; i += ntid_x * nctaid_x)
		value += data[i];
	value = warp_sum(value);
	if (laneid == 0)
		sums[tid_x / 32] = value;
	block_sync();
	if (tid_x < 32) {
		value = warp_sum(tid_x < (ntid_x + 31) / 32 ? sums[tid_x] : 0);
		if (tid_x == 0)
			atomic_add_int(sum, value);
	}
}
