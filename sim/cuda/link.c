/* The JIT linker: PTX in pieces, put together. The result is our own image, which names the
 * pieces; cuModuleLoadData takes it. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/handle.h"
#include "cuda/library.h"

struct piece_of_text {
	char *text;
	char *name;
};

struct CUlinkState_st {
	struct jit_log log;
	size_t count;
	struct piece_of_text *pieces;
	char *image; /* the result of cuLinkComplete; lives as long as this */
};

static void link_free(CUlinkState link)
{
	handle_remove(link);
	for (size_t i = 0; i < link->count; i++) {
		free(link->pieces[i].text);
		free(link->pieces[i].name);
	}
	free(link->pieces);
	free(link->image);
	free(link);
}

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values,
			 CUlinkState *link)
{
	API_BEGIN_CONTEXT(ctx);
	if (!link)
		return CUDA_ERROR_INVALID_VALUE;
	CUlinkState made = calloc(1, sizeof(*made));
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = jit_options_parse(count, options, values, &made->log);
	if (result == CUDA_SUCCESS && !handle_add(made, HANDLE_LINK))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		free(made);
		return result;
	}
	*link = made;
	return CUDA_SUCCESS;
}

/* Data with a length need not end with a NUL, as images do. */
static CUresult data_text(const void *data, size_t size, char **ret)
{
	char *copy = calloc(1, size + 8);
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (copy) {
		memcpy(copy, data, size);
		result = image_text(copy, ret);
	}
	free(copy);
	return result;
}

CUresult cuLinkAddData_v2(CUlinkState link, CUjitInputType type, void *data, size_t size,
			  const char *name, unsigned int count, CUjit_option *options,
			  void **values)
{
	cleanup_free char *text = NULL;

	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(link, HANDLE_LINK))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!data || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	CUresult result = data_text(data, size, &text);
	if (result != CUDA_SUCCESS)
		return result;
	struct piece_of_text *grown =
		realloc(link->pieces, (link->count + 1) * sizeof(link->pieces[0]));
	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	link->pieces = grown;
	grown[link->count++] = (struct piece_of_text){steal_ptr(&text), name ? strdup(name) : NULL};
	return CUDA_SUCCESS;
}

CUresult cuLinkAddFile_v2(CUlinkState link, CUjitInputType type, const char *path,
			  unsigned int count, CUjit_option *options, void **values)
{
	cleanup_free void *data = NULL;
	size_t size;

	API_BEGIN_CONTEXT(ctx);
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = image_read(path, &data, &size);
	return result == CUDA_SUCCESS
		       ? cuLinkAddData_v2(link, type, data, size + 1, path, count, options, values)
		       : result;
}

/* Compiles what is there, for its errors. */
static CUresult link_check(CUcontext ctx, CUlinkState link)
{
	struct ptx_source *sources = calloc(link->count, sizeof(*sources));

	if (!sources)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < link->count; i++)
		sources[i] = (struct ptx_source){.text = link->pieces[i].text,
						 .length = strlen(link->pieces[i].text),
						 .name = link->pieces[i].name};
	CUresult result = sources_check(ctx, sources, link->count, &link->log);
	free(sources);
	return result;
}

/* The image is made of the texts, one after another. */
CUresult cuLinkComplete(CUlinkState link, void **image, size_t *size)
{
	size_t bytes = sizeof(struct linked_image);

	API_BEGIN_CONTEXT(ctx);
	if (!handle_is(link, HANDLE_LINK))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!image || !link->count)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = link_check(ctx, link);
	if (result != CUDA_SUCCESS)
		return result;
	for (size_t i = 0; i < link->count; i++)
		bytes += strlen(link->pieces[i].text) + 1;
	free(link->image);
	link->image = malloc(bytes);
	if (!link->image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	const struct linked_image head = {LINKED_IMAGE_MAGIC, (uint32_t)link->count};
	char *at = link->image;
	memcpy(at, &head, sizeof(head));
	at += sizeof(head);
	for (size_t i = 0; i < link->count; i++)
		at = stpcpy(at, link->pieces[i].text) + 1;
	*image = link->image;
	if (size)
		*size = bytes;
	return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState link)
{
	API_BEGIN();
	if (!handle_is(link, HANDLE_LINK))
		return CUDA_ERROR_INVALID_HANDLE;
	link_free(link);
	return CUDA_SUCCESS;
}
