/* The real driver's library: where it is, loading it, its functions. Any thread, at any time;
 * nothing here is undone. Loading happens at the first call or look-up of one of its functions,
 * never before. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Finds where the real library is: the path in the library's environment variable. Else it is the
 * first of LD_LIBRARY_PATH and of the usual directories that holds a file of that name which is not
 * the front itself. 0 or -ENOENT. Does not load it. */
int driver_path(char *buf, size_t size);

/* Whether the variable names a file of the slice's own directory: with driver_path() failing, that
 * is not to be seen here. */
bool driver_is_hidden(void);

/* The loaded driver's handle, loading it where that was not done yet. NULL: there is none. */
void *driver_handle(void);

/* For the lazy entries: has all slots filled, and returns where that function's slot now leads. */
void *driver_resolve(uint32_t index);

/* Index of an exported function by its exact name, -1: not one of ours. */
int driver_function_index(const char *name);

/* The hook that stands for a function of the real driver at this address, the address itself where
 * it is not hooked. Constant time. */
void *driver_hook_for(void *address);
