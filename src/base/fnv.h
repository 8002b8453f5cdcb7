/* FNV-1a: a number for some bytes, which nobody has to be kept from guessing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FNV_BASIS 0xcbf29ce484222325ull
#define FNV_PRIME 0x100000001b3ull

static inline uint64_t fnv_add(uint64_t hash, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * FNV_PRIME;
	return hash;
}
