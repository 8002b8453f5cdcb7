#include "ptx/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define CHUNK_BYTES ((size_t)65536)
#define UNIT 16

struct arena_chunk {
	struct arena_chunk *next;
	size_t size;
	_Alignas(UNIT) unsigned char bytes[];
};

static int arena_grow(struct arena *arena, size_t size)
{
	size_t bytes = MAX(size, CHUNK_BYTES);
	struct arena_chunk *chunk = calloc(1, sizeof(*chunk) + bytes);

	if (!chunk)
		return -1;
	chunk->size = bytes;
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	arena->used = 0;
	return 0;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	void *result;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = ALIGN_UP(MAX(size, 1), UNIT);
	if (!arena->chunks || arena->chunks->size - arena->used < size) {
		if (arena_grow(arena, size) < 0)
			return NULL;
	}
	result = arena->chunks->bytes + arena->used;
	arena->used += size;
	return result;
}

char *arena_copy(struct arena *arena, const char *text, size_t length)
{
	char *copy = arena_alloc(arena, length + 1);

	if (copy)
		memcpy(copy, text, length);
	return copy;
}

void arena_free(struct arena *arena)
{
	while (arena->chunks) {
		struct arena_chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		free(chunk);
	}
}
