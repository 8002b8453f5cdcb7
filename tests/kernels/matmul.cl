/* C = A * B for square row-major float matrices of n x n, n a multiple of TILE; one thread an element,
 * TILE x TILE threads a block. The products are summed in order of k, so that a CPU doing the same gets
 * the same bits. */
#define TILE 16

#define tid_x __nvvm_read_ptx_sreg_tid_x()
#define tid_y __nvvm_read_ptx_sreg_tid_y()
#define ctaid_x __nvvm_read_ptx_sreg_ctaid_x()
#define ctaid_y __nvvm_read_ptx_sreg_ctaid_y()

__kernel void matmul(__global const float *a, __global const float *b, __global float *c, int n)
{
	__local float tile_a[TILE][TILE], tile_b[TILE][TILE];
	int row = ctaid_y * TILE + tid_y, column = ctaid_x * TILE + tid_x;
	float sum = 0;

	for (int k = 0; k < n; k += TILE) {
		tile_a[tid_y][tid_x] = a[row * n + k + tid_x];
		tile_b[tid_y][tid_x] = b[(k + tid_y) * n + column];
		__nvvm_bar_sync(0);
		for (int i = 0; i < TILE; i++)
			sum = __builtin_fmaf(tile_a[tid_y][i], tile_b[i][tid_x], sum);
		__nvvm_bar_sync(0);
	}
	c[row * n + column] = sum;
}
