/* The allocation families beyond linear memory: pools, virtual memory, arrays, managed and host
 * memory, sharing between processes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_check.h"

static uint64_t pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	cuuint64_t value;

	OK(cuMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

static void check_pool(int argc, char **argv)
{
	CUmemoryPool pool, current;
	CUdeviceptr p, q;
	CUstream stream;
	cuuint64_t keep = UINT64_MAX, zero = 0;

	check_context();
	size_t before = check_free_bytes();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuDeviceGetMemPool(&current, 0));
	EXPECT(current == pool);
	EXPECT(pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
	OK(cuMemAllocAsync(&p, 1000, stream));
	EXPECT(pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == MIB(32));
	EXPECT(pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 1000);
	EXPECT(before - check_free_bytes() == MIB(32));
	OK(cuMemsetD8Async(p, 1, 1000, stream));
	/* Freed in the stream's order, given again in it at once, however often. */
	for (int i = 0; i < 100; i++) {
		OK(cuMemFreeAsync(p, stream));
		EXPECT_RESULT(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
		OK(cuMemAllocAsync(&p, 1001 + (size_t)i % 20, stream));
		OK(cuMemsetD8Async(p, 1, 1001 + (size_t)i % 20, stream));
	}
	EXPECT(pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == MIB(32));
	OK(cuMemAllocAsync(&q, MIB(100), stream));
	EXPECT(before - check_free_bytes() == MIB(32) + MIB(128));
	OK(cuMemFreeAsync(q, stream));
	/* The default threshold is 0: what is unused goes back with the next synchronization. */
	OK(cuStreamSynchronize(stream));
	EXPECT(before - check_free_bytes() == MIB(32));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamSynchronize(stream));
	EXPECT(before - check_free_bytes() == MIB(32));
	EXPECT(pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
	OK(cuMemPoolTrimTo(pool, 0));
	EXPECT(check_free_bytes() == before);
	EXPECT(pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == MIB(160));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
	EXPECT(pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 0);
	EXPECT_RESULT(cuMemAllocAsync(&p, before + MIB(1), stream), CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT_RESULT(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
}

static void check_own_pool(int argc, char **argv)
{
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool, current;
	CUdeviceptr p;

	check_context();
	size_t before = check_free_bytes();
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&p, MIB(5), pool, NULL));
	EXPECT(before - check_free_bytes() == MIB(32));
	OK(cuDeviceSetMemPool(0, pool));
	OK(cuDeviceGetMemPool(&current, 0));
	EXPECT(current == pool);
	/* The pool lives as long as its memory. */
	OK(cuMemPoolDestroy(pool));
	EXPECT_RESULT(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(before - check_free_bytes() == MIB(32));
	OK(cuMemsetD8_v2(p, 0, MIB(5)));
	OK(cuMemFree_v2(p));
	EXPECT(check_free_bytes() == before);
}

static CUmemAllocationProp device_prop(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};
}

static void check_vmm(int argc, char **argv)
{
	const CUmemAllocationProp prop = device_prop();
	const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle a, b, again;
	CUdeviceptr at;
	size_t unit;
	uint32_t value;

	check_context();
	size_t before = check_free_bytes();
	OK(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	EXPECT(unit == MIB(2));
	EXPECT_RESULT(cuMemCreate(&a, unit + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAddressReserve(&at, 4 * unit, 0, 0, 0));
	EXPECT(check_free_bytes() == before);
	OK(cuMemCreate(&a, unit, &prop, 0));
	OK(cuMemCreate(&b, 2 * unit, &prop, 0));
	EXPECT(before - check_free_bytes() == 3 * unit);
	OK(cuMemMap(at, unit, 0, a, 0));
	OK(cuMemMap(at + unit, 2 * unit, 0, b, 0));
	EXPECT_RESULT(cuMemMap(at + unit, unit, 0, a, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT_RESULT(cuMemsetD8_v2(at, 0, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemSetAccess(at, 3 * unit, &access, 1));
	/* Side by side they are one memory. */
	OK(cuMemsetD32_v2(at, 77, 3 * unit / 4));
	OK(cuMemcpyDtoH_v2(&value, at + 2 * unit - 4, 4));
	EXPECT(value == 77);
	/* Physical memory lives until the last handle and the last mapping are gone. */
	OK(cuMemRelease(a));
	EXPECT_RESULT(cuMemRelease(a), CUDA_ERROR_INVALID_VALUE);
	EXPECT(before - check_free_bytes() == 3 * unit);
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 100)));
	EXPECT_RESULT(cuMemUnmap(at, 2 * unit), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemUnmap(at, 3 * unit));
	EXPECT(before - check_free_bytes() == 3 * unit);
	OK(cuMemRelease(again));
	EXPECT(before - check_free_bytes() == 2 * unit);
	OK(cuMemRelease(b));
	EXPECT(check_free_bytes() == before);
	OK(cuMemAddressFree(at, 4 * unit));
	EXPECT_RESULT(cuMemAddressFree(at, 4 * unit), CUDA_ERROR_INVALID_VALUE);
}

static void check_arrays(int argc, char **argv)
{
	const CUDA_ARRAY_DESCRIPTOR desc = {100, 50, CU_AD_FORMAT_FLOAT, 2};
	const CUDA_ARRAY3D_DESCRIPTOR big = {4096, 4096, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
	CUDA_ARRAY_DESCRIPTOR got;
	CUarray array, level;
	CUmipmappedArray mipmap;
	char in[100 * 8 * 50], out[100 * 8 * 50];

	check_context();
	size_t before = check_free_bytes();
	OK(cuArrayCreate_v2(&array, &desc));
	EXPECT(before - check_free_bytes() == MIB(2));
	OK(cuArrayGetDescriptor_v2(&got, array));
	EXPECT(memcmp(&got, &desc, sizeof(got)) == 0);
	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (char)(i * 3);
	CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			      .srcHost = in,
			      .srcPitch = 800,
			      .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			      .dstArray = array,
			      .WidthInBytes = 800,
			      .Height = 50};
	OK(cuMemcpy2D_v2(&copy));
	memset(out, 0, sizeof(out));
	CUDA_MEMCPY2D back = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
			      .srcArray = array,
			      .dstMemoryType = CU_MEMORYTYPE_HOST,
			      .dstHost = out,
			      .dstPitch = 800,
			      .WidthInBytes = 800,
			      .Height = 50};
	OK(cuMemcpy2D_v2(&back));
	EXPECT(memcmp(in, out, sizeof(in)) == 0);
	back.WidthInBytes = 801;
	EXPECT_RESULT(cuMemcpy2D_v2(&back), CUDA_ERROR_INVALID_VALUE);
	OK(cuArrayDestroy(array));
	EXPECT(check_free_bytes() == before);
	EXPECT_RESULT(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
	OK(cuMipmappedArrayCreate(&mipmap, &big, 13));
	size_t taken = before - check_free_bytes();
	EXPECT(taken >= MIB(64) * 4 / 3 && taken <= MIB(64) * 4 / 3 + MIB(4));
	OK(cuMipmappedArrayGetLevel(&level, mipmap, 12));
	EXPECT_RESULT(cuMipmappedArrayGetLevel(&level, mipmap, 13), CUDA_ERROR_INVALID_VALUE);
	EXPECT_RESULT(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
	OK(cuMipmappedArrayDestroy(mipmap));
	EXPECT(check_free_bytes() == before);
}

static void check_managed(int argc, char **argv)
{
	CUdeviceptr p;
	int is_managed, location;

	check_context();
	size_t before = check_free_bytes();
	OK(cuMemAllocManaged(&p, MIB(3), CU_MEM_ATTACH_GLOBAL));
	EXPECT(before - check_free_bytes() == MIB(4));
	/* One address for both. */
	uint32_t *words = (uint32_t *)(uintptr_t)p;
	OK(cuMemsetD32_v2(p, 3, MIB(3) / 4));
	OK(cuCtxSynchronize());
	EXPECT(words[100] == 3);
	words[100] = 4;
	uint32_t value;
	OK(cuMemcpyDtoH_v2(&value, p + 400, 4));
	EXPECT(value == 4);
	OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 5));
	EXPECT(is_managed);
	OK(cuMemAdvise(p, MIB(3), CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
	OK(cuMemRangeGetAttribute(&location, sizeof(location),
				  CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, MIB(3)));
	EXPECT(location == 0);
	OK(cuMemPrefetchAsync(p, MIB(3), CU_DEVICE_CPU, NULL));
	OK(cuMemFree_v2(p));
	EXPECT(check_free_bytes() == before);
}

static void check_host(int argc, char **argv)
{
	static char own[8192];
	void *p;
	CUdeviceptr address;
	unsigned int flags;
	CUmemorytype type;

	check_context();
	size_t before = check_free_bytes();
	OK(cuMemHostAlloc(&p, MIB(10), CU_MEMHOSTALLOC_PORTABLE));
	EXPECT(check_free_bytes() == before);
	OK(cuMemHostGetDevicePointer_v2(&address, p, 0));
	OK(cuMemHostGetFlags(&flags, p));
	EXPECT(flags & CU_MEMHOSTALLOC_PORTABLE);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
	EXPECT(type == CU_MEMORYTYPE_HOST);
	EXPECT_RESULT(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeHost(p));
	OK(cuMemHostRegister_v2(own, sizeof(own), 0));
	EXPECT_RESULT(cuMemHostRegister_v2(own + 10, 10, 0),
		      CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cuMemHostUnregister(own));
	EXPECT_RESULT(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/* Memory that a program gets without asking for it. */
static void check_implicit(int argc, char **argv)
{
	CUmodule module;
	size_t value;

	OK(cuInit(0));
	CUcontext ctx = check_context();
	size_t before = check_free_bytes();
	OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	EXPECT(value == MIB(8));
	OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, MIB(108)));
	EXPECT(before - check_free_bytes() == MIB(100));
	OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, MIB(8)));
	EXPECT(check_free_bytes() == before);
	/* A stack is there for every thread that the GPU can hold. */
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	EXPECT(before - check_free_bytes() >= 132ull * 2048 * 3072);
	EXPECT_RESULT(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, MIB(1)), CUDA_ERROR_INVALID_VALUE);
	EXPECT_RESULT(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, before + MIB(64)),
		      CUDA_ERROR_OUT_OF_MEMORY);
	before = check_free_bytes();
	OK(cuModuleLoadData(&module, ".version 6.4\n.target sm_70\n.address_size 64\n"
				     ".global .align 4 .b8 data[5000000];\n"
				     ".visible .entry k()\n{\nret;\n}\n"));
	EXPECT(before - check_free_bytes() == MIB(2) + MIB(6));
	OK(cuModuleUnload(module));
	EXPECT(check_free_bytes() == before);
	OK(cuCtxDestroy_v2(ctx));
}

/* The other process of a check, which never saw this one's driver. */
struct peer {
	pid_t pid;
	int socket;
};

static struct peer peer_start(const char *self, const char *check)
{
	struct peer peer;
	int pair[2];

	EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	peer.pid = fork();
	if (peer.pid == 0) {
		dup2(pair[1], 3);
		execl(self, self, check, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	peer.socket = pair[0];
	return peer;
}

static void peer_end(struct peer *peer)
{
	int status;

	EXPECT(waitpid(peer->pid, &status, 0) == peer->pid);
	EXPECT(status == 0);
}

static void send_fd(int socket, int fd)
{
	char byte = 0, space[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = space,
			     .msg_controllen = sizeof(space)};
	struct cmsghdr *m = CMSG_FIRSTHDR(&msg);

	m->cmsg_level = SOL_SOCKET;
	m->cmsg_type = SCM_RIGHTS;
	m->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(m), &fd, sizeof(int));
	EXPECT(sendmsg(socket, &msg, 0) == 1);
}

static int receive_fd(int socket)
{
	char byte, space[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = space,
			     .msg_controllen = sizeof(space)};
	int fd;

	EXPECT(recvmsg(socket, &msg, 0) == 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	return fd;
}

/* The importers: they see what was written, change it, and pay nothing. */
static void ipc_child(int argc, char **argv)
{
	CUipcMemHandle handle;
	CUdeviceptr p;
	uint32_t value;

	check_context();
	EXPECT(read(3, &handle, sizeof(handle)) == sizeof(handle));
	size_t before = check_free_bytes();
	OK(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	EXPECT(check_free_bytes() == before);
	OK(cuMemcpyDtoH_v2(&value, p + 1000, 4));
	EXPECT(value == 42);
	OK(cuMemsetD32_v2(p + 1000, 43, 1));
	OK(cuCtxSynchronize());
	EXPECT_RESULT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	OK(cuIpcCloseMemHandle(p));
}

static void check_ipc(int argc, char **argv)
{
	CUipcMemHandle handle;
	CUdeviceptr p, q;
	uint32_t value;

	struct peer peer = peer_start("/proc/self/exe", "ipc-child");
	check_context();
	OK(cuMemAlloc_v2(&q, 100));
	OK(cuMemAlloc_v2(&p, 4096));
	OK(cuMemsetD32_v2(p + 1000, 42, 1));
	OK(cuCtxSynchronize());
	OK(cuIpcGetMemHandle(&handle, p));
	EXPECT_RESULT(cuIpcOpenMemHandle_v2(&q, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(write(peer.socket, &handle, sizeof(handle)) == sizeof(handle));
	peer_end(&peer);
	OK(cuMemcpyDtoH_v2(&value, p + 1000, 4));
	EXPECT(value == 43);
}

static void vmm_child(int argc, char **argv)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	uint32_t value;

	check_context();
	int fd = receive_fd(3);
	size_t before = check_free_bytes();
	OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	OK(cuMemAddressReserve(&at, MIB(4), 0, 0, 0));
	OK(cuMemMap(at, MIB(4), 0, handle, 0));
	OK(cuMemSetAccess(at, MIB(4), &access, 1));
	EXPECT(check_free_bytes() == before);
	OK(cuMemcpyDtoH_v2(&value, at + MIB(3), 4));
	EXPECT(value == 42);
	OK(cuMemsetD32_v2(at + MIB(3), 43, 1));
	OK(cuCtxSynchronize());
}

static void check_vmm_share(int argc, char **argv)
{
	const CUmemAllocationProp prop = device_prop();
	const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	uint32_t value;
	int fd;

	struct peer peer = peer_start("/proc/self/exe", "vmm-child");
	check_context();
	OK(cuMemCreate(&handle, MIB(4), &prop, 0));
	OK(cuMemAddressReserve(&at, MIB(4), 0, 0, 0));
	OK(cuMemMap(at, MIB(4), 0, handle, 0));
	OK(cuMemSetAccess(at, MIB(4), &access, 1));
	OK(cuMemsetD32_v2(at + MIB(3), 42, 1));
	OK(cuCtxSynchronize());
	OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_fd(peer.socket, fd);
	peer_end(&peer);
	OK(cuMemcpyDtoH_v2(&value, at + MIB(3), 4));
	EXPECT(value == 43);
}

static void pool_child(int argc, char **argv)
{
	CUmemPoolPtrExportData data;
	CUmemoryPool pool;
	CUdeviceptr p;
	uint32_t value;

	check_context();
	int fd = receive_fd(3);
	EXPECT(read(3, &data, sizeof(data)) == sizeof(data));
	size_t before = check_free_bytes();
	OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	EXPECT_RESULT(cuMemAllocFromPoolAsync(&p, 100, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemPoolImportPointer(&p, pool, &data));
	EXPECT(check_free_bytes() == before);
	OK(cuMemcpyDtoH_v2(&value, p, 4));
	EXPECT(value == 42);
	OK(cuMemFreeAsync(p, NULL));
	OK(cuCtxSynchronize());
	EXPECT_RESULT(cuMemcpyDtoH_v2(&value, p, 4), CUDA_ERROR_INVALID_VALUE);
}

static void check_pool_share(int argc, char **argv)
{
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemPoolPtrExportData data;
	CUmemoryPool pool;
	CUdeviceptr p;
	int fd;

	struct peer peer = peer_start("/proc/self/exe", "pool-child");
	check_context();
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&p, 5000, pool, NULL));
	OK(cuMemsetD32_v2(p, 42, 1));
	OK(cuCtxSynchronize());
	OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					    0));
	OK(cuMemPoolExportPointer(&data, p));
	send_fd(peer.socket, fd);
	EXPECT(write(peer.socket, &data, sizeof(data)) == sizeof(data));
	peer_end(&peer);
}

static void check_pointers(int argc, char **argv)
{
	CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
					    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					    CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	CUcontext ctx, got;
	unsigned int type;
	size_t size;
	void *data[] = {&got, &type, &size};
	CUdeviceptr p;

	ctx = check_context();
	OK(cuMemAlloc_v2(&p, 1234));
	OK(cuPointerGetAttributes(3, attributes, data, p + 1000));
	EXPECT(got == ctx && type == CU_MEMORYTYPE_DEVICE && size == 1234);
	/* For ordinary memory there is no error, and nothing is known. */
	OK(cuPointerGetAttributes(3, attributes, data, (CUdeviceptr)(uintptr_t)&p));
	EXPECT(!got && !type && !size);
	EXPECT_RESULT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					    (CUdeviceptr)(uintptr_t)&p),
		      CUDA_ERROR_INVALID_VALUE);
}

static _Atomic bool retained_enough;

static void *retain_again(void *address)
{
	CUmemGenericAllocationHandle handle;

	while (!retained_enough)
		if (cuMemRetainAllocationHandle(&handle, address) == CUDA_SUCCESS)
			OK(cuMemRelease(handle));
	return NULL;
}

/* Memory whose last mapping goes just when another thread asks for its handle. */
static void check_retain(int argc, char **argv)
{
	const CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handle;
	pthread_t threads[3];
	CUdeviceptr at;

	check_context();
	size_t before = check_free_bytes();
	OK(cuMemAddressReserve(&at, MIB(2), 0, 0, 0));
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		EXPECT(pthread_create(&threads[i], NULL, retain_again, (void *)(uintptr_t)at) == 0);
	for (int i = 0; i < 4000; i++) {
		OK(cuMemCreate(&handle, MIB(2), &prop, 0));
		OK(cuMemMap(at, MIB(2), 0, handle, 0));
		OK(cuMemRelease(handle));
		OK(cuMemUnmap(at, MIB(2)));
	}
	retained_enough = true;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		EXPECT(pthread_join(threads[i], NULL) == 0);
	EXPECT(check_free_bytes() == before);
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"pool", check_pool},         {"own-pool", check_own_pool},
		{"vmm", check_vmm},           {"arrays", check_arrays},
		{"managed", check_managed},   {"host", check_host},
		{"implicit", check_implicit}, {"ipc", check_ipc},
		{"ipc-child", ipc_child},     {"vmm-share", check_vmm_share},
		{"vmm-child", vmm_child},     {"pool-share", check_pool_share},
		{"pool-child", pool_child},   {"pointers", check_pointers},
		{"retain", check_retain},
	};

	return checks_main(argc, argv, checks, ARRAY_SIZE(checks));
}
