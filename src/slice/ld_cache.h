/* The list of libraries that ld.so goes by (ldconfig(8)), as it lies in /etc/ld.so.cache. Format:
 * glibc's, "glibc-ld.so.cache1.1", in the host's byte order; other formats hold nothing. */
#pragma once

#include <stddef.h>

#define LD_CACHE_PATH "/etc/ld.so.cache"

/* Calls `cb` with the path of each library that is called `name` (libcuda.so.1), in the cache's
 * order. `data` may hold anything. */
void ld_cache_each(const void *data, size_t size, const char *name,
		   void (*cb)(void *arg, const char *path), void *arg);

/* The cache of this host, mapped for reading: for munmap(). NULL: there is none. */
void *ld_cache_map(size_t *ret_size);
