/* Shared libraries: any bytes are read, and only whole strings within them handed on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "slice/exports.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bounds {
	const char *data;
	size_t size;
};

static void check(void *arg, const char *name)
{
	const struct bounds *bounds = arg;

	if (name < bounds->data || name + strlen(name) >= bounds->data + bounds->size)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A copy, so that a sanitizer sees what lies beyond it. */
	char *copy = malloc(size ? size : 1);
	struct bounds bounds = {.data = copy, .size = size};

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	exports_each(copy, size, check, &bounds);
	free(copy);
	return 0;
}
