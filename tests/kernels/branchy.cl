/* Lanes that go different ways: loops of different lengths, a switch, calls, early ends. */
#include "nvptx.h"

__attribute__((noinline)) static uint gcd(uint a, uint b)
{
	while (b) {
		uint rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

__attribute__((noinline)) static int collatz(uint n)
{
	int steps = 0;

	for (; n != 1; steps++)
		n = n & 1 ? 3 * n + 1 : n / 2;
	return steps;
}

__kernel void branchy(__global uint *out, int n)
{
	uint i = thread_x, value = 0;

	if (i >= n)
		return;
	switch (i % 7) {
	case 0:
		value = collatz(i + 1);
		break;
	case 1:
		value = gcd(i * 12, 360);
		break;
	case 2:
		for (uint k = 0; k < i % 32; k++) {
			if (k == 17)
				break;
			if (k % 3 == 0)
				continue;
			value += k * k;
		}
		break;
	case 3:
		value = (uint)((int)(i - 500) / 7);
		break;
	case 4:
		value = __builtin_popcount(i) + __builtin_clz(i);
		break;
	case 5:
		out[i] = 77;
		return;
	default:
		value = ~i;
	}
	out[i] = value + (i & 1 ? gcd(i, 30) : collatz(27));
}
