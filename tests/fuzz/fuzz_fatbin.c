/* A fat binary's compressed PTX: the first byte says the method, the next two how large it is said
 * to be, and what follows is its data, from anybody. No more comes out than it is said to be. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatbin.h"
#include "cuda/module.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct {
		struct fatbin_header header;
		struct fatbin_compressed compressed;
		uint8_t data[];
	} * image;
	uint16_t plain_size;
	char *text = NULL;

	if (size < 3 || !(image = malloc(sizeof(*image) + size - 3)))
		return 0;
	memcpy(&plain_size, data + 1, 2);
	image->header = (struct fatbin_header){.magic = FATBIN_MAGIC,
					       .version = 1,
					       .header_size = sizeof(image->header),
					       .size = sizeof(image->compressed) + size - 3};
	image->compressed = (struct fatbin_compressed){
		.entry = {.kind = FATBIN_PTX,
			  .header_size = sizeof(image->compressed),
			  .size = size - 3,
			  .compressed_size = (uint32_t)(size - 3),
			  .flags = data[0] & 1 ? FATBIN_ZSTD : FATBIN_LZ4},
		.plain_size = plain_size,
	};
	memcpy(image->data, data + 3, size - 3);
	if (image_text(image, &text) == CUDA_SUCCESS && strlen(text) > plain_size)
		abort();
	free(text);
	free(image);
	return 0;
}
