/* The families of allocation beside linear memory, in a slice of 1 GiB over the null driver. */
#include "front_check.h"

#define STEP MIB(32) /* the null driver's pools grow by this */

static const CUmemAllocationProp on_device = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static int check_pool(void)
{
	CUdeviceptr a, b;
	CUmemoryPool own;
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = on_device.location};

	OK(cuMemAllocAsync(&a, MIB(1), NULL));
	CHECK(room() == LIMIT - STEP);
	OK(cuMemAllocAsync_ptsz(&b, MIB(31), NULL));
	CHECK(room() == LIMIT - STEP);
	OK(cuMemFreeAsync(b, NULL));
	OK(cuMemFreeAsync_ptsz(a, NULL));
	CHECK(room() == LIMIT - STEP);
	OK(cuStreamSynchronize(NULL));
	CHECK(room() == LIMIT);

	OK(cuMemPoolCreate(&own, &props));
	OK(cuMemAllocFromPoolAsync(&a, MIB(500), own, NULL));
	CHECK(room() == LIMIT - MIB(512));
	REFUSED(cuMemAllocAsync(&b, MIB(600), NULL));
	CHECK(room() == LIMIT - MIB(512));
	OK(cuMemFreeAsync(a, NULL));
	OK(cuMemPoolTrimTo(own, 0));
	CHECK(room() == LIMIT);
	OK(cuMemAllocFromPoolAsync(&a, MIB(100), own, NULL));
	OK(cuMemFreeAsync(a, NULL));
	OK(cuMemPoolDestroy(own));
	CHECK(room() == LIMIT);
	return 0;
}

/* To one step of growth; and what pools hold unused is given up for what is asked. */
static int check_pool_limit(void)
{
	CUdeviceptr ptr, all;
	int steps = 0;

	while (cuMemAllocAsync(&ptr, STEP, NULL) == CUDA_SUCCESS)
		steps++;
	CHECK(steps == (int)(LIMIT / STEP) && room() == 0);
	OK(cuMemFreeAsync(ptr, NULL));
	/* Nothing was synchronised: one step is free in the pool. */
	REFUSED(cuMemAlloc_v2(&all, STEP + 1));
	OK(cuMemAlloc_v2(&all, STEP));
	CHECK(room() == 0);
	OK(cuMemFree_v2(all));
	OK(cuMemAllocAsync(&ptr, MIB(16), NULL));
	OK(cuMemAllocAsync(&ptr, MIB(16), NULL));
	CHECK(room() == 0);
	REFUSED(cuMemAllocAsync(&ptr, 512, NULL));
	return 0;
}

static int check_pool_on_host(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {.type = CU_MEM_LOCATION_TYPE_HOST}};
	CUmemoryPool pool;
	CUdeviceptr ptr, freed;

	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&ptr, GIB(2), pool, NULL));
	CHECK(room() == LIMIT);
	/* The driver keeps its default pools, and one of the host's stays nobody's to pay. */
	OK(cuMemGetDefaultMemPool(&pool, &props.location, props.allocType));
	OK(cuMemAllocFromPoolAsync(&ptr, MIB(200), pool, NULL));
	OK(cuMemAllocFromPoolAsync(&freed, MIB(64), pool, NULL));
	CHECK(cuMemPoolDestroy(pool) == CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeAsync(freed, NULL));
	OK(cuStreamSynchronize(NULL));
	CHECK(room() == LIMIT);
	return 0;
}

/* Wherever it is said to be: its memory may be on the GPU. */
static int check_pool_managed(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
				.location = {.type = CU_MEM_LOCATION_TYPE_HOST}};
	CUmemoryPool pool;
	CUdeviceptr a, b;

	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&a, MIB(100), pool, NULL));
	CHECK(room() == LIMIT - MIB(100));
	OK(cuMemAllocFromPoolAsync(&b, MIB(3), pool, NULL));
	CHECK(room() == LIMIT - MIB(104));
	OK(cuMemFree_v2(b));
	REFUSED(cuMemAllocFromPoolAsync(&b, LIMIT, pool, NULL));
	CHECK(room() == LIMIT - MIB(100));
	OK(cuMemFree_v2(a));
	CHECK(room() == LIMIT);
	OK(cuMemAllocFromPoolAsync(&a, LIMIT, pool, NULL));
	CHECK(room() == 0);
	return 0;
}

/* Alive while a handle or a mapping is. */
static int check_vmm(void)
{
	CUmemGenericAllocationHandle handle, again;
	CUmemAllocationProp on_host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = {.type = CU_MEM_LOCATION_TYPE_HOST}};
	/* A type of location that came later: a locality domain, whose device is its lowest byte.
	 */
	CUmemAllocationProp in_domain = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					 .location = {.type = (CUmemLocationType)6, .id = 0x100}};
	CUdeviceptr at = GIB(700);

	OK(cuMemCreate(&handle, MIB(100), &on_device, 0));
	CHECK(room() == LIMIT - MIB(100));
	OK(cuMemMap(at, MIB(100), 0, handle, 0));
	OK(cuMemMap(at + MIB(100), MIB(100), 0, handle, 0));
	OK(cuMemRelease(handle));
	CHECK(room() == LIMIT - MIB(100));
	OK(cuMemRetainAllocationHandle(&again, (void *)at));
	OK(cuMemUnmap(at, MIB(200)));
	CHECK(room() == LIMIT - MIB(100));
	OK(cuMemRelease(again));
	CHECK(room() == LIMIT);

	OK(cuMemCreate(&handle, LIMIT, &on_device, 0));
	REFUSED(cuMemCreate(&again, BLOCK, &on_device, 0));
	REFUSED(cuMemCreate(&again, BLOCK, &in_domain, 0));
	OK(cuMemCreate(&again, LIMIT, &on_host, 0));
	OK(cuMemRelease(again));
	CHECK(room() == 0);
	OK(cuMemRelease(handle));
	CHECK(room() == LIMIT);
	/* Not ours, and refused by the driver. */
	CHECK(cuMemRelease(1) == CUDA_ERROR_INVALID_VALUE);
	return 0;
}

/* The driver may keep memory for what is neither a handle nor a mapping of the process's. The test
 * counts how often the daemon is asked about it. */
static int keep(int way)
{
	CUarrayMapInfo info = {.memOperationType = CU_MEM_OPERATION_TYPE_MAP};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at = GIB(700);
	int fd;

	OK(cuMemCreate(&handle, MIB(100), &on_device, 0));
	OK(cuMemMap(at, MIB(100), 0, handle, 0));
	info.memHandle.memHandle = handle;
	if (way == 1)
		OK(cuMemMapArrayAsync(&info, 1, NULL));
	if (way == 2)
		OK(cuMulticastBindMem(1, 0, handle, 0, MIB(100), 0));
	if (way == 3)
		OK(cuMulticastBindAddr(1, 0, at + MIB(50), MIB(50), 0));
	if (way == 4)
		OK(cuMemGetHandleForAddressRange(&fd, at, MIB(100), 1, 0));
	if (way == 5)
		OK(cuMulticastBindMem_v2(1, 0, 0, handle, 0, MIB(100), 0));
	if (way == 6)
		OK(cuMulticastBindAddr_v2(1, 0, 0, at + MIB(50), MIB(50), 0));
	if (way == 7)
		OK(cuLogicalEndpointBindMem(1, 0, 0, handle, 0, MIB(100), 0));
	if (way == 8)
		OK(cuLogicalEndpointBindAddr(1, 0, 0, (void *)(at + MIB(50)), MIB(50), 0));
	OK(cuMemRelease(handle));
	OK(cuMemUnmap(at, MIB(100)));
	CHECK(room() == LIMIT);
	return 0;
}

static int check_kept_by_nobody(void)
{
	return keep(0);
}

static int check_kept_by_array(void)
{
	return keep(1);
}

static int check_kept_by_multicast(void)
{
	return keep(2);
}

static int check_kept_by_address(void)
{
	return keep(3);
}

static int check_kept_by_handle(void)
{
	return keep(4);
}

static int check_kept_by_multicast_v2(void)
{
	return keep(5);
}

static int check_kept_by_address_v2(void)
{
	return keep(6);
}

static int check_kept_by_endpoint(void)
{
	return keep(7);
}

static int check_kept_by_endpoint_address(void)
{
	return keep(8);
}

static int check_array(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
	CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 256,
					.Height = 256,
					.Depth = 64,
					.Format = CU_AD_FORMAT_UNSIGNED_INT8,
					.NumChannels = 1};
	CUarray array, arrays[4];
	CUmipmappedArray mipmap;

	OK(cuArrayCreate_v2(&array, &flat));
	CHECK(room() == LIMIT - MIB(16));
	OK(cuArray3DCreate_v2(&arrays[0], &deep));
	CHECK(room() == LIMIT - MIB(20));
	OK(cuMipmappedArrayCreate(&mipmap, &deep, 3));
	CHECK(room() == LIMIT - MIB(26));
	OK(cuArrayDestroy(array));
	OK(cuArrayDestroy(arrays[0]));
	OK(cuMipmappedArrayDestroy(mipmap));
	CHECK(room() == LIMIT);
	flat.Width = flat.Height = 4096; /* 256 MiB */
	for (size_t i = 0; i < ARRAY_SIZE(arrays); i++)
		OK(cuArrayCreate_v2(&arrays[i], &flat));
	REFUSED(cuArrayCreate_v2(&array, &flat));
	CHECK(room() == 0);
	deep.Flags = CUDA_ARRAY3D_SPARSE;
	OK(cuArray3DCreate_v2(&array, &deep));
	return 0;
}

static int check_graph(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = MIB(300)};
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;
	CUdeviceptr ptr;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(room() == LIMIT);
	OK(cuGraphLaunch(exec, NULL));
	CHECK(room() == LIMIT - MIB(320));
	OK(cuGraphLaunch(exec, NULL));
	CHECK(room() == LIMIT - MIB(320));
	OK(cuDeviceGraphMemTrim(0));
	CHECK(room() == LIMIT);
	OK(cuMemAlloc_v2(&ptr, MIB(800)));
	REFUSED(cuGraphLaunch(exec, NULL));
	CHECK(room() == LIMIT - MIB(800));
	OK(cuMemFree_v2(ptr));
	OK(cuGraphLaunch(exec, NULL));
	/* Memory that the graph does not use now makes room for what is asked. */
	OK(cuMemAlloc_v2(&ptr, LIMIT));
	OK(cuGraphExecDestroy(exec));
	CHECK(room() == 0);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"pool", check_pool, 0},
		{"pool-limit", check_pool_limit, 0},
		{"pool-on-host", check_pool_on_host, 0},
		{"pool-managed", check_pool_managed, 0},
		{"vmm", check_vmm, 0},
		{"kept-by-nobody", check_kept_by_nobody, 0},
		{"kept-by-array", check_kept_by_array, 0},
		{"kept-by-multicast", check_kept_by_multicast, 0},
		{"kept-by-address", check_kept_by_address, 0},
		{"kept-by-handle", check_kept_by_handle, 0},
		{"kept-by-multicast-v2", check_kept_by_multicast_v2, 0},
		{"kept-by-address-v2", check_kept_by_address_v2, 0},
		{"kept-by-endpoint", check_kept_by_endpoint, 0},
		{"kept-by-endpoint-address", check_kept_by_endpoint_address, 0},
		{"array", check_array, 0},
		{"graph", check_graph, 0},
	};

	return check_run(checks, ARRAY_SIZE(checks), argc, argv);
}
