/* Sorts 2 * ntid ints in shared memory (dynamic): a bitonic network. */
#include "nvptx.h"

__kernel void sort(__global int *data, __local int *work)
{
	int n = 2 * ntid_x;

	for (int i = tid_x; i < n; i += ntid_x)
		work[i] = data[i];
	for (int size = 2; size <= n; size *= 2) {
		for (int stride = size / 2; stride > 0; stride /= 2) {
			int low = 2 * stride * (tid_x / stride) + tid_x % stride;
			int high = low + stride;
			int up = (low & size) == 0;

			block_sync();
			if ((work[low] > work[high]) == up) {
				int kept = work[low];

				work[low] = work[high];
				work[high] = kept;
			}
		}
	}
	block_sync();
	for (int i = tid_x; i < n; i += ntid_x)
		data[i] = work[i];
}
