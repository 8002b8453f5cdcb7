/* Where ld.so would take a library from, found without loading it: a driver's library is large, and
 * runs code when it is loaded. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* By `library_path`, which is LD_LIBRARY_PATH or NULL, and the contents of ld.so's cache. True with
 * the absolute path. False: there is none, or only ld.so itself can tell, as it chooses among
 * variants for this CPU or goes by the working directory. */
bool driver_look(const char *name, const char *library_path, const void *cache, size_t size,
		 char path[static PATH_MAX]);
