/* The functions that a shared library exports, as its file says: an ELF file of 64 bits in the
 * host's byte order, which has its section headers still. A file of another kind has none. */
#pragma once

#include <stddef.h>

/* Calls `cb` with the name of each function that is exported, in the file's order. `data` may hold
 * anything; names are valid as long as it is. */
void exports_each(const void *data, size_t size, void (*cb)(void *arg, const char *name),
		  void *arg);

/* A file mapped for reading: for munmap(). NULL: it cannot be read. */
void *exports_map(const char *path, size_t *ret_size);
