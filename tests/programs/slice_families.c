#include "slice_families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

static CUmemoryPool pool;

static CUresult give_linear(union slice_piece *p, size_t bytes)
{
	return cuMemFree_v2(p->ptr);
}

static CUresult take_linear(union slice_piece *p, size_t bytes)
{
	return cuMemAlloc_v2(&p->ptr, bytes);
}

static CUresult take_pitch(union slice_piece *p, size_t bytes)
{
	size_t pitch;

	return cuMemAllocPitch_v2(&p->ptr, &pitch, bytes / 1024, 1024, 4);
}

static CUresult take_managed(union slice_piece *p, size_t bytes)
{
	return cuMemAllocManaged(&p->ptr, bytes, CU_MEM_ATTACH_GLOBAL);
}

static CUresult take_async(union slice_piece *p, size_t bytes)
{
	return cuMemAllocAsync(&p->ptr, bytes, NULL);
}

static CUresult take_pool(union slice_piece *p, size_t bytes)
{
	static const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUresult result = pool ? CUDA_SUCCESS : cuMemPoolCreate(&pool, &props);

	return result ? result
		      : cuMemAllocFromPoolAsync(&p->ptr, bytes, pool, CU_STREAM_PER_THREAD);
}

static CUresult give_async(union slice_piece *p, size_t bytes)
{
	CUresult result = cuMemFreeAsync(p->ptr, NULL);

	return result ? result : cuCtxSynchronize();
}

/* Pool memory may be freed as linear memory is. */
static CUresult give_async_at_once(union slice_piece *p, size_t bytes)
{
	CUresult result = cuMemFree_v2(p->ptr);

	return result ? result : cuCtxSynchronize();
}

static const CUmemAllocationProp on_device = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static CUresult take_vmm(union slice_piece *p, size_t bytes)
{
	return cuMemCreate(&p->vmm.handle, bytes, &on_device, 0);
}

static CUresult give_vmm(union slice_piece *p, size_t bytes)
{
	return cuMemRelease(p->vmm.handle);
}

/* The handle is released while the memory is mapped. */
static CUresult take_mapped(union slice_piece *p, size_t bytes)
{
	CUresult result = take_vmm(p, bytes);

	if (result == CUDA_SUCCESS)
		result = cuMemAddressReserve(&p->vmm.at, bytes, 0, 0, 0);
	if (result == CUDA_SUCCESS)
		result = cuMemMap(p->vmm.at, bytes, 0, p->vmm.handle, 0);
	return result ? result : cuMemRelease(p->vmm.handle);
}

static CUresult give_mapped(union slice_piece *p, size_t bytes)
{
	CUresult result = cuMemUnmap(p->vmm.at, bytes);

	return result ? result : cuMemAddressFree(p->vmm.at, bytes);
}

static CUresult take_array(union slice_piece *p, size_t bytes)
{
	CUDA_ARRAY_DESCRIPTOR descriptor = {.Width = 4096,
					    .Height = bytes / (4096 * 16),
					    .Format = CU_AD_FORMAT_FLOAT,
					    .NumChannels = 4};

	return cuArrayCreate_v2(&p->array, &descriptor);
}

static CUresult give_array(union slice_piece *p, size_t bytes)
{
	return cuArrayDestroy(p->array);
}

static CUresult take_mipmap(union slice_piece *p, size_t bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = 4096,
					      .Height = bytes / (4096 * 16),
					      .Format = CU_AD_FORMAT_FLOAT,
					      .NumChannels = 4};

	return cuMipmappedArrayCreate(&p->mipmap, &descriptor, 4);
}

static CUresult give_mipmap(union slice_piece *p, size_t bytes)
{
	return cuMipmappedArrayDestroy(p->mipmap);
}

static CUresult take_graph(union slice_piece *p, size_t bytes)
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

static CUresult give_graph(union slice_piece *p, size_t bytes)
{
	CUresult result = cuMemFree_v2(p->ptr);

	if (result == CUDA_SUCCESS)
		result = cuCtxSynchronize();
	return result ? result : cuDeviceGraphMemTrim(0);
}

static CUresult take_context(union slice_piece *p, size_t bytes)
{
	return cuCtxCreate_v2(&p->context, 0, 0);
}

static CUresult give_context(union slice_piece *p, size_t bytes)
{
	return cuCtxDestroy_v2(p->context);
}

/* A module with a variable of that size. */
static CUresult take_module(union slice_piece *p, size_t bytes)
{
	char text[256];

	snprintf(text, sizeof(text),
		 ".version 6.0\n.target sm_50\n.address_size 64\n"
		 ".visible .global .align 16 .b8 big[%zu];\n"
		 ".visible .entry nothing()\n{\n\tret;\n}\n",
		 bytes);
	return cuModuleLoadData(&p->module, text);
}

static CUresult give_module(union slice_piece *p, size_t bytes)
{
	return cuModuleUnload(p->module);
}

static const struct slice_family families[] = {
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

const struct slice_family *slice_family_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		if (strcmp(families[i].name, name) == 0)
			return &families[i];
	fprintf(stderr, "no family '%s'\n", name);
	exit(2);
}
