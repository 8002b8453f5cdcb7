/* Takes memory in one way until it is refused, on whatever driver is there.
 *
 *   slice_greedy FAMILY BYTES [hold]
 *
 * Prints what it got and what cuMemGetInfo said before, at the end and after giving all back, one
 * line of JSON. With "hold" it waits at the end, before giving back, until its input ends. Exits 1
 * where anything but CUDA_ERROR_OUT_OF_MEMORY refused. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

#define PIECES_MAX 8192

/* What one piece is made of, by family. */
union piece {
	CUdeviceptr ptr;
	CUarray array;
	CUmipmappedArray mipmap;
	CUcontext context;
	CUmodule module;
	struct {
		CUdeviceptr at;
		CUmemGenericAllocationHandle handle;
	} vmm;
	struct {
		CUgraph graph;
		CUgraphExec exec;
	} graph;
};

struct family {
	const char *name;
	CUresult (*take)(union piece *piece, size_t bytes);
	CUresult (*give)(union piece *piece, size_t bytes);
};

static CUmemoryPool pool;

static CUresult give_linear(union piece *p, size_t bytes)
{
	return cuMemFree_v2(p->ptr);
}

static CUresult take_linear(union piece *p, size_t bytes)
{
	return cuMemAlloc_v2(&p->ptr, bytes);
}

static CUresult take_pitch(union piece *p, size_t bytes)
{
	size_t pitch;

	return cuMemAllocPitch_v2(&p->ptr, &pitch, bytes / 1024, 1024, 4);
}

static CUresult take_managed(union piece *p, size_t bytes)
{
	return cuMemAllocManaged(&p->ptr, bytes, CU_MEM_ATTACH_GLOBAL);
}

static CUresult take_async(union piece *p, size_t bytes)
{
	return cuMemAllocAsync(&p->ptr, bytes, NULL);
}

static CUresult take_pool(union piece *p, size_t bytes)
{
	static const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUresult result = pool ? CUDA_SUCCESS : cuMemPoolCreate(&pool, &props);

	return result ? result
		      : cuMemAllocFromPoolAsync(&p->ptr, bytes, pool, CU_STREAM_PER_THREAD);
}

static CUresult give_async(union piece *p, size_t bytes)
{
	CUresult result = cuMemFreeAsync(p->ptr, NULL);

	return result ? result : cuCtxSynchronize();
}

/* Pool memory may be freed as linear memory is. */
static CUresult give_async_at_once(union piece *p, size_t bytes)
{
	CUresult result = cuMemFree_v2(p->ptr);

	return result ? result : cuCtxSynchronize();
}

static const CUmemAllocationProp on_device = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static CUresult take_vmm(union piece *p, size_t bytes)
{
	return cuMemCreate(&p->vmm.handle, bytes, &on_device, 0);
}

static CUresult give_vmm(union piece *p, size_t bytes)
{
	return cuMemRelease(p->vmm.handle);
}

/* The handle is released while the memory is mapped. */
static CUresult take_mapped(union piece *p, size_t bytes)
{
	CUresult result = take_vmm(p, bytes);

	if (result == CUDA_SUCCESS)
		result = cuMemAddressReserve(&p->vmm.at, bytes, 0, 0, 0);
	if (result == CUDA_SUCCESS)
		result = cuMemMap(p->vmm.at, bytes, 0, p->vmm.handle, 0);
	return result ? result : cuMemRelease(p->vmm.handle);
}

static CUresult give_mapped(union piece *p, size_t bytes)
{
	CUresult result = cuMemUnmap(p->vmm.at, bytes);

	return result ? result : cuMemAddressFree(p->vmm.at, bytes);
}

static CUresult take_array(union piece *p, size_t bytes)
{
	CUDA_ARRAY_DESCRIPTOR descriptor = {.Width = 4096,
					    .Height = bytes / (4096 * 16),
					    .Format = CU_AD_FORMAT_FLOAT,
					    .NumChannels = 4};

	return cuArrayCreate_v2(&p->array, &descriptor);
}

static CUresult give_array(union piece *p, size_t bytes)
{
	return cuArrayDestroy(p->array);
}

static CUresult take_mipmap(union piece *p, size_t bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = 4096,
					      .Height = bytes / (4096 * 16),
					      .Format = CU_AD_FORMAT_FLOAT,
					      .NumChannels = 4};

	return cuMipmappedArrayCreate(&p->mipmap, &descriptor, 4);
}

static CUresult give_mipmap(union piece *p, size_t bytes)
{
	return cuMipmappedArrayDestroy(p->mipmap);
}

static CUresult take_graph(union piece *p, size_t bytes)
{
	static const CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.accessDescs = &access,
		.accessDescCount = 1,
		.bytesize = bytes,
	};
	CUgraphNode node;
	CUresult result = cuGraphCreate(&p->graph.graph, 0);

	if (result == CUDA_SUCCESS)
		result = cuGraphAddMemAllocNode(&node, p->graph.graph, NULL, 0, &params);
	if (result == CUDA_SUCCESS)
		result = cuGraphInstantiateWithFlags(&p->graph.exec, p->graph.graph, 0);
	if (result == CUDA_SUCCESS)
		result = cuGraphLaunch(p->graph.exec, NULL);
	p->ptr = params.dptr;
	return result;
}

static CUresult give_graph(union piece *p, size_t bytes)
{
	CUresult result = cuMemFree_v2(p->ptr);

	if (result == CUDA_SUCCESS)
		result = cuCtxSynchronize();
	return result ? result : cuDeviceGraphMemTrim(0);
}

static CUresult take_context(union piece *p, size_t bytes)
{
	return cuCtxCreate_v2(&p->context, 0, 0);
}

static CUresult give_context(union piece *p, size_t bytes)
{
	return cuCtxDestroy_v2(p->context);
}

/* A module with a variable of that size. */
static CUresult take_module(union piece *p, size_t bytes)
{
	char text[256];

	snprintf(text, sizeof(text),
		 ".version 6.0\n.target sm_50\n.address_size 64\n"
		 ".visible .global .align 16 .b8 big[%zu];\n"
		 ".visible .entry nothing()\n{\n\tret;\n}\n",
		 bytes);
	return cuModuleLoadData(&p->module, text);
}

static CUresult give_module(union piece *p, size_t bytes)
{
	return cuModuleUnload(p->module);
}

static const struct family families[] = {
	{"linear", take_linear, give_linear},
	{"pitch", take_pitch, give_linear},
	{"managed", take_managed, give_linear},
	{"async", take_async, give_async},
	{"async-free", take_async, give_async_at_once},
	{"pool", take_pool, give_async},
	{"vmm", take_vmm, give_vmm},
	{"mapped", take_mapped, give_mapped},
	{"array", take_array, give_array},
	{"mipmap", take_mipmap, give_mipmap},
	{"graph", take_graph, give_graph},
	{"context", take_context, give_context},
	{"module", take_module, give_module},
};

static const struct family *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		if (strcmp(families[i].name, name) == 0)
			return &families[i];
	fprintf(stderr, "no family '%s'\n", name);
	exit(2);
}

static size_t room(void)
{
	size_t free_bytes = 0, total;

	cuMemGetInfo_v2(&free_bytes, &total);
	return free_bytes;
}

static void wait_for_line(void)
{
	int c;

	fflush(stdout);
	do
		c = getchar();
	while (c != '\n' && c != EOF);
}

int main(int argc, char **argv)
{
	static union piece pieces[PIECES_MAX];
	const struct family *family = argc > 2 ? find(argv[1]) : NULL;
	size_t bytes = family ? strtoull(argv[2], NULL, 10) : 0, before, full, total, unused;
	CUcontext context;
	CUresult result = CUDA_SUCCESS;
	int count = 0;
	bool given = true, race = argc > 3 && strcmp(argv[3], "race") == 0;

	if (!bytes || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
	    cuCtxSetCurrent(context) || cuMemGetInfo_v2(&unused, &total))
		return 2;
	before = room();
	if (race) {
		puts("ready");
		wait_for_line();
	}
	while (count < PIECES_MAX && (result = family->take(&pieces[count], bytes)) == CUDA_SUCCESS)
		count++;
	full = room();
	if (race) {
		printf("%d\n", count);
		wait_for_line();
	}
	for (int i = count; i-- > 0;)
		given &= family->give(&pieces[i], bytes) == CUDA_SUCCESS;
	printf("{\"pieces\": %d, \"result\": %d, \"total\": %zu, \"before\": %zu, \"full\": %zu, "
	       "\"after\": %zu, \"given\": %s}\n",
	       count, (int)result, total, before, full, room(), given ? "true" : "false");
	return result == CUDA_ERROR_OUT_OF_MEMORY && given ? 0 : 1;
}
