/* The images that programs hand to cuModuleLoadData: PTX text, or a fat binary with PTX in it.
 * Machine code (cubin) is not for a simulated GPU. */
#include <errno.h>
#include <lz4.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/fatbin.h"
#include "base/file.h"
#include "base/macros.h"
#include "cuda/library.h"

/* A text that is said to be larger is no PTX. */
#define PTX_SIZE_MAX (1u << 30)

CUresult image_read(const char *path, void **ret, size_t *ret_size)
{
	FILE *file = fopen(path, "rbe");
	char *data = NULL;
	size_t size = 0, room = 0, n;

	if (!file)
		return CUDA_ERROR_FILE_NOT_FOUND;
	do {
		if (size + 65536 > room) {
			char *grown = realloc(data, room = room * 2 + 131072);

			if (!grown) {
				free(data);
				fclose(file);
				return CUDA_ERROR_OUT_OF_MEMORY;
			}
			data = grown;
		}
		n = fread(data + size, 1, 65535, file);
		size += n;
	} while (n);
	fclose(file);
	data[size] = '\0';
	*ret = data;
	*ret_size = size;
	return CUDA_SUCCESS;
}

static CUresult text_copy(const char *text, size_t size, char **ret)
{
	*ret = strndup(text, size);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t plain_size(const struct fatbin_entry *entry)
{
	return ((const struct fatbin_compressed *)entry)->plain_size;
}

static bool is_readable(const struct fatbin_entry *entry)
{
	uint64_t method = entry->flags & FATBIN_COMPRESSED;

	if (!method)
		return true;
	return (method == FATBIN_LZ4 || method == FATBIN_ZSTD) &&
	       entry->header_size >= sizeof(struct fatbin_compressed) &&
	       entry->compressed_size <= MIN(entry->size, PTX_SIZE_MAX) &&
	       plain_size(entry) <= PTX_SIZE_MAX;
}

/* To no more than plain_size(), which `text` has room for. */
static CUresult decompress(const struct fatbin_entry *entry, const char *data, char *text,
			   size_t *ret_size)
{
	if ((entry->flags & FATBIN_COMPRESSED) == FATBIN_LZ4) {
		int size = LZ4_decompress_safe(data, text, (int)entry->compressed_size,
					       (int)plain_size(entry));

		*ret_size = (size_t)size;
		return size < 0 ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
	}
	*ret_size = ZSTD_decompress(text, plain_size(entry), data, entry->compressed_size);
	if (!ZSTD_isError(*ret_size)) /* none for no frame at all */
		return *ret_size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
	return ZSTD_getErrorCode(*ret_size) == ZSTD_error_memory_allocation
		       ? CUDA_ERROR_OUT_OF_MEMORY
		       : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult entry_text(const struct fatbin_entry *entry, char **ret)
{
	const char *data = (const char *)entry + entry->header_size;

	if (!(entry->flags & FATBIN_COMPRESSED))
		return text_copy(data, entry->size, ret);
	char *text = malloc(plain_size(entry) + 1);
	if (!text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t size;
	CUresult result = decompress(entry, data, text, &size);
	if (result) {
		free(text);
		return result;
	}
	text[size] = '\0';
	*ret = text;
	return CUDA_SUCCESS;
}

/* Saying so once saves a hunt: the program's own words are mostly just the error's name. */
static CUresult no_text(void)
{
	static bool said;

	if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		fputs("libcuda.so.1 (simulated): this program brings machine code without PTX (a "
		      "cubin; NVRTC and nvcc make one for an architecture sm_NN); simulated GPUs "
		      "run PTX: compile for compute_NN.\n",
		      stderr);
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult fatbin_text(const struct fatbin_header *header, char **ret)
{
	const char *at = (const char *)header + header->header_size, *end = at + header->size;
	const struct fatbin_entry *best = NULL;

	while (at + sizeof(struct fatbin_entry) <= end) {
		const struct fatbin_entry *entry = (const struct fatbin_entry *)at;

		if (entry->header_size < sizeof(struct fatbin_entry) ||
		    entry->header_size > (uint64_t)(end - at) ||
		    entry->size > (uint64_t)(end - at) - entry->header_size)
			break;
		if (entry->kind == FATBIN_PTX && is_readable(entry) &&
		    (!best || entry->arch > best->arch))
			best = entry;
		at += entry->header_size + entry->size;
	}
	return best ? entry_text(best, ret) : no_text();
}

/* PTX begins with comments and directives: look for the first that must be there. */
static int looks_like_text(const char *image)
{
	for (size_t i = 0; i < 8; i++) {
		unsigned char c = (unsigned char)image[i];

		if (c == '\0')
			return i > 0;
		if (c >= 0x7f || (c < 0x20 && c != '\n' && c != '\r' && c != '\t'))
			return 0;
	}
	return 1;
}

CUresult image_text(const void *image, char **ret_text)
{
	uint32_t magic;

	memcpy(&magic, image, sizeof(magic));
	if (magic == FATBIN_WRAPPER_MAGIC) {
		image = ((const struct fatbin_wrapper *)image)->data;
		if (!image)
			return CUDA_ERROR_INVALID_IMAGE;
		memcpy(&magic, image, sizeof(magic));
	}
	if (magic == FATBIN_MAGIC)
		return fatbin_text(image, ret_text);
	if (memcmp(image, "\177ELF", 4) == 0)
		return no_text();
	if (!looks_like_text(image))
		return CUDA_ERROR_INVALID_IMAGE;
	return text_copy(image, strlen(image), ret_text);
}
