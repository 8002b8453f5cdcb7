/* An image of code: any bytes are measured, within their bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "front/books.h"
#include "front/cuda/charge/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A copy, so that a sanitizer sees what lies beyond it. */
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	struct image_memory m = image_measure(copy, size);
	if (m.surely > BOOKS_MOST + 1 || m.perhaps > BOOKS_MOST + 1)
		abort();
	free(copy);
	return 0;
}
