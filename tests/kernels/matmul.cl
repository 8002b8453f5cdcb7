/* C = A * B for square row-major float matrices of n x n, n a multiple of TILE; one thread an element,
 * TILE x TILE threads a block. The products are summed in order of k, so that a CPU doing the same gets
 * the same bits. */
#include "nvptx.h"

#define TILE 16

__kernel void matmul(__global const float *a, __global const float *b, __global float *c, int n)
{
	__local float tile_a[TILE][TILE], tile_b[TILE][TILE];
	int row = ctaid_y * TILE + tid_y, column = ctaid_x * TILE + tid_x;
	float sum = 0;

	for (int k = 0; k < n; k += TILE) {
		tile_a[tid_y][tid_x] = a[row * n + k + tid_x];
		tile_b[tid_y][tid_x] = b[(k + tid_y) * n + column];
		block_sync();
		for (int i = 0; i < TILE; i++)
			sum = __builtin_fmaf(tile_a[tid_y][i], tile_b[i][tid_x], sum);
		block_sync();
	}
	c[row * n + column] = sum;
}
