/* Preloaded into a daemon, leaves it without memory for what has exactly LACKED bytes. */
#include <stdlib.h>

#define LACKED 12345

extern void *__libc_malloc(size_t size);

__attribute__((visibility("default"))) void *malloc(size_t size)
{
	return size == LACKED ? NULL : __libc_malloc(size);
}
