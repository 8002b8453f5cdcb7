/* Opens a library that only its own RPATH ($ORIGIN/part) leads to: whoever wraps dlopen must not
 * come between. */
#include <dlfcn.h>

extern __attribute__((visibility("default"))) int front_origin_opens(void);

int front_origin_opens(void)
{
	return dlopen("libfront_origin_part.so", RTLD_NOW) != 0;
}
