/* c = a + b, an element a thread. */
#include "nvptx.h"

__kernel void vector_add(__global const float *a, __global const float *b, __global float *c, int n)
{
	int i = thread_x;

	if (i < n)
		c[i] = a[i] + b[i];
}
