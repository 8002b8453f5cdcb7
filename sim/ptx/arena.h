/* Memory that is freed all at once: what one compilation makes lives as long as its module. */
#pragma once

#include <stddef.h>

struct arena_chunk;

/* Zeroed is empty. One thread at a time. */
struct arena {
	struct arena_chunk *chunks;
	size_t used; /* the used bytes of the newest chunk */
};

/* Zeroed memory, aligned for any object; NULL when there is none. */
void *arena_alloc(struct arena *arena, size_t size);
/* A NUL-terminated copy; NULL when there is no memory. */
char *arena_copy(struct arena *arena, const char *text, size_t length);
void arena_free(struct arena *arena);
