/* Devices, contexts, linear memory, copies, streams and events. */
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_check.h"
#include "share_kernel.h"

static void check_not_initialised(int argc, char **argv)
{
	int count;
	CUdeviceptr p;

	EXPECT_RESULT(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT_RESULT(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT_RESULT(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	OK(cuInit(0));
	OK(cuInit(0));
	EXPECT_RESULT(cuMemAlloc_v2(&p, 1), CUDA_ERROR_INVALID_CONTEXT);
}

static void check_devices(int argc, char **argv)
{
	char name[100], bus[32];
	CUdevice device, again;
	CUuuid uuid;
	int count, value;
	size_t total;

	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	for (int i = 0; i < count; i++) {
		OK(cuDeviceGet(&device, i));
		OK(cuDeviceGetName(name, sizeof(name), device));
		OK(cuDeviceGetUuid_v2(&uuid, device));
		OK(cuDeviceTotalMem_v2(&total, device));
		OK(cuDeviceGetPCIBusId(bus, sizeof(bus), device));
		OK(cuDeviceGetByPCIBusId(&again, bus));
		EXPECT(again == device);
		OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
		printf("%d %s GPU-", i, name);
		for (int k = 0; k < 16; k++)
			printf("%s%02x", k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "",
			       (unsigned char)uuid.bytes[k]);
		printf(" %zu %d\n", total, value);
	}
	EXPECT_RESULT(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
	EXPECT_RESULT(cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, 0),
		      CUDA_ERROR_INVALID_VALUE);
}

static void check_contexts(int argc, char **argv)
{
	CUcontext a, b, current, primary, again;
	unsigned int flags;
	int active;

	OK(cuInit(0));
	OK(cuCtxGetCurrent(&current));
	EXPECT(!current);
	OK(cuCtxCreate_v2(&a, CU_CTX_SCHED_YIELD, 0));
	OK(cuCtxCreate_v2(&b, 0, 0));
	OK(cuCtxGetCurrent(&current));
	EXPECT(current == b);
	OK(cuCtxPopCurrent_v2(&current));
	EXPECT(current == b);
	OK(cuCtxGetFlags(&flags));
	EXPECT(flags == CU_CTX_SCHED_YIELD);
	OK(cuCtxPushCurrent_v2(b));
	OK(cuCtxDestroy_v2(b));
	OK(cuCtxGetCurrent(&current));
	EXPECT(current == a);
	EXPECT_RESULT(cuCtxPushCurrent_v2(b), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EXPECT(!active);
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	EXPECT(primary == again && primary != a);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EXPECT(active);
	OK(cuCtxSetCurrent(primary));
	CUdeviceptr p;
	OK(cuMemAlloc_v2(&p, 4 << 20));
	OK(cuDevicePrimaryCtxReset_v2(0));
	EXPECT_RESULT(cuMemAlloc_v2(&p, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	EXPECT(again == primary);
	OK(cuMemAlloc_v2(&p, 1));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	EXPECT_RESULT(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

static void check_linear(int argc, char **argv)
{
	CUdeviceptr p[64], base;
	size_t pitch, size;

	CUcontext ctx = check_context();
	size_t before = check_free_bytes();
	/* Small ones share 2 MiB. */
	for (int i = 0; i < 64; i++) {
		OK(cuMemAlloc_v2(&p[i], 1000));
		EXPECT(p[i] % 512 == 0);
		for (int k = 0; k < i; k++)
			EXPECT(p[k] + 1000 <= p[i] || p[i] + 1000 <= p[k]);
	}
	EXPECT(before - check_free_bytes() == MIB(2));
	for (int i = 0; i < 64; i++)
		OK(cuMemFree_v2(p[i]));
	EXPECT(check_free_bytes() == before);
	OK(cuMemAlloc_v2(&p[0], MIB(3)));
	EXPECT(before - check_free_bytes() == MIB(4));
	OK(cuMemGetAddressRange_v2(&base, &size, p[0] + 12345));
	EXPECT(base == p[0] && size == MIB(3));
	EXPECT_RESULT(cuMemFree_v2(p[0] + 512), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAllocPitch_v2(&p[1], &pitch, 1000, 3000, 4));
	EXPECT(pitch >= 1000 && pitch % 512 == 0);
	EXPECT(before - check_free_bytes() == MIB(4) + ALIGN_UP(pitch * 3000, MIB(2)));
	EXPECT_RESULT(cuMemAlloc_v2(&p[2], before), CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT_RESULT(cuMemAlloc_v2(&p[2], SIZE_MAX - 5), CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT_RESULT(cuMemAlloc_v2(&p[2], 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(p[0]));
	EXPECT_RESULT(cuMemFree_v2(p[0]), CUDA_ERROR_INVALID_VALUE);
	/* The context's end frees the rest. */
	OK(cuCtxDestroy_v2(ctx));
	OK(cuCtxCreate_v2(&ctx, 0, 0));
	EXPECT(check_free_bytes() == before);
}

static void check_copies(int argc, char **argv)
{
	enum { SIZE = 3 << 20 };
	unsigned char *in = malloc(SIZE), *out = calloc(1, SIZE);
	CUdeviceptr a, b;
	void *pinned;
	CUstream stream;

	check_context();
	for (int i = 0; i < SIZE; i++)
		in[i] = (unsigned char)(i * 7 + i / 1000);
	OK(cuMemAlloc_v2(&a, SIZE));
	OK(cuMemAlloc_v2(&b, SIZE));
	OK(cuMemcpyHtoD_v2(a, in, SIZE));
	OK(cuMemcpyDtoD_v2(b, a, SIZE));
	OK(cuMemcpyDtoH_v2(out, b, SIZE));
	EXPECT(memcmp(in, out, SIZE) == 0);
	OK(cuMemsetD32_v2(a, 0xdeadbeef, 1000));
	OK(cuMemsetD16_v2(a + 4000, 0x1234, 500));
	OK(cuMemcpyDtoH_v2(out, a, SIZE));
	EXPECT(((uint32_t *)out)[999] == 0xdeadbeef && ((uint16_t *)out)[2000] == 0x1234);
	EXPECT(memcmp(out + 5000, in + 5000, SIZE - 5000) == 0);
	EXPECT_RESULT(cuMemcpyHtoD_v2(a + 1, in, SIZE), CUDA_ERROR_INVALID_VALUE);
	EXPECT_RESULT(cuMemsetD8_v2(a + SIZE, 0, 1), CUDA_ERROR_INVALID_VALUE);
	/* A pageable source may be reused at once. */
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemcpyHtoDAsync_v2(b, in, 4096, stream));
	memset(in, 0x55, 4096);
	OK(cuMemcpyDtoHAsync_v2(out, b, 4096, stream));
	OK(cuStreamSynchronize(stream));
	EXPECT(out[0] == 0 && out[1] == 7);
	/* Two dimensions, from pinned memory to a pitched place, unified. */
	OK(cuMemHostAlloc(&pinned, 100 * 100, 0));
	for (int i = 0; i < 100 * 100; i++)
		((unsigned char *)pinned)[i] = (unsigned char)i;
	CUDA_MEMCPY2D p = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			   .srcDevice = (CUdeviceptr)(uintptr_t)pinned,
			   .srcPitch = 100,
			   .srcXInBytes = 10,
			   .srcY = 20,
			   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			   .dstDevice = a,
			   .dstPitch = 512,
			   .WidthInBytes = 30,
			   .Height = 40};
	OK(cuMemcpy2DAsync_v2(&p, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH_v2(out, a, 512 * 40));
	for (int y = 0; y < 40; y++)
		EXPECT(memcmp(out + 512 * y, (char *)pinned + (20 + y) * 100 + 10, 30) == 0);
	OK(cuMemFreeHost(pinned));
}

static void host_function(void *data)
{
	usleep(20000);
	__atomic_fetch_add((int *)data, 1, __ATOMIC_SEQ_CST);
}

static CUcontext check_shared;

static void host_count(void *data)
{
	__atomic_fetch_add((int *)data, 1, __ATOMIC_SEQ_CST);
}

static void check_streams(int argc, char **argv)
{
	CUstream a, b;
	CUevent event;
	int done = 0;

	check_context();
	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	/* Calls return at once; work is ordered in its stream, and across them by events. */
	OK(cuLaunchHostFunc(a, host_function, &done));
	EXPECT(__atomic_load_n(&done, __ATOMIC_SEQ_CST) == 0);
	EXPECT_RESULT(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
	OK(cuEventRecord(event, a));
	EXPECT_RESULT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	OK(cuStreamWaitEvent(b, event, 0));
	OK(cuLaunchHostFunc(b, host_function, &done));
	OK(cuStreamSynchronize(b));
	EXPECT(done == 2);
	OK(cuEventQuery(event));
	/* The NULL stream waits for blocking streams and they for it; others do not. */
	CUstream blocking;
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuLaunchHostFunc(blocking, host_function, &done));
	OK(cuLaunchHostFunc(NULL, host_function, &done));
	EXPECT_RESULT(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	OK(cuStreamQuery(a));
	OK(cuStreamSynchronize(NULL));
	EXPECT(done == 4);
	OK(cuLaunchHostFunc(a, host_function, &done));
	OK(cuCtxSynchronize());
	EXPECT(done == 5);
	OK(cuLaunchHostFunc(a, host_function, &done));
	OK(cuStreamDestroy_v2(a));
	/* Its work goes on, and the context waits for that too. */
	OK(cuCtxSynchronize());
	EXPECT(done == 6);
	EXPECT_RESULT(cuStreamQuery(a), CUDA_ERROR_INVALID_HANDLE);
}

static void check_memops(int argc, char **argv)
{
	CUstream a, b;
	uint32_t *word;
	CUdeviceptr address;

	check_context();
	OK(cuMemHostAlloc((void **)&word, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer_v2(&address, word, 0));
	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	word[0] = word[1] = 0;
	OK(cuStreamWaitValue32(a, address, 5, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuStreamWriteValue32_v2(a, address + 4, 9, 0));
	usleep(10000);
	EXPECT_RESULT(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
	EXPECT(__atomic_load_n(&word[1], __ATOMIC_SEQ_CST) == 0);
	OK(cuStreamWriteValue32_v2(b, address, 6, 0));
	OK(cuStreamSynchronize(a));
	EXPECT(word[1] == 9);
}

/* The GPU's time for 100 kernels that are all there when the first starts. */
static float kernels_ms(CUfunction function, CUdeviceptr ring, CUdeviceptr word, bool marked)
{
	uint32_t slots = 1, naps = 1, nap_ns = 20000, spin = 0;
	CUdeviceptr count = ring + 16;
	void *arguments[] = {&ring, &count, &slots, &naps, &nap_ns, &spin};
	CUstream stream, other;
	CUevent start, end;
	float ms;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&start, 0));
	OK(cuEventCreate(&end, 0));
	OK(cuStreamWriteValue32_v2(other, word, 0, 0));
	OK(cuStreamSynchronize(other));
	OK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuEventRecord(start, stream));
	for (uint32_t i = 0; i < 100; i++) {
		OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
		if (marked)
			OK(cuStreamWriteValue32_v2(stream, word + 4, i, 0));
	}
	OK(cuEventRecord(end, stream));
	OK(cuStreamWriteValue32_v2(other, word, 1, 0));
	OK(cuStreamSynchronize(stream));
	OK(cuEventElapsedTime(&ms, start, end));
	return ms;
}

/* Writes of a stream's between its kernels take none of the GPU's time. */
static void check_marks(int argc, char **argv)
{
	CUmodule module;
	CUfunction function;
	CUdeviceptr ring, word;
	void *words;

	check_context();
	OK(cuModuleLoadData(&module, share_kernel_ptx));
	OK(cuModuleGetFunction(&function, module, SHARE_KERNEL_NAME));
	OK(cuMemAlloc_v2(&ring, 24));
	OK(cuMemsetD8_v2(ring, 0, 24));
	OK(cuMemHostAlloc(&words, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer_v2(&word, words, 0));
	(void)kernels_ms(function, ring, word, false);
	float plain = kernels_ms(function, ring, word, false);
	float marked = kernels_ms(function, ring, word, true);
	printf("%f %f\n", plain, marked);
	EXPECT(marked < plain * 1.25f);
}

static void check_events(int argc, char **argv)
{
	CUevent start, end, mute;
	CUdeviceptr p;
	float ms;

	check_context();
	OK(cuMemAlloc_v2(&p, MIB(512)));
	OK(cuEventCreate(&start, 0));
	OK(cuEventCreate(&end, 0));
	OK(cuEventCreate(&mute, CU_EVENT_DISABLE_TIMING));
	EXPECT_RESULT(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventRecord(start, NULL));
	OK(cuMemsetD8Async(p, 0, MIB(512), NULL));
	OK(cuEventRecord(end, NULL));
	OK(cuEventSynchronize(end));
	OK(cuEventElapsedTime(&ms, start, end));
	printf("%f\n", ms);
	OK(cuEventRecord(mute, NULL));
	OK(cuEventSynchronize(mute));
	EXPECT_RESULT(cuEventElapsedTime(&ms, start, mute), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventDestroy_v2(start));
	EXPECT_RESULT(cuEventQuery(start), CUDA_ERROR_INVALID_HANDLE);
}

static void check_fork(int argc, char **argv)
{
	CUdeviceptr p;
	int status;

	check_context();
	pid_t child = fork();
	if (child == 0) {
		if (cuMemAlloc_v2(&p, 1) != CUDA_ERROR_NOT_INITIALIZED)
			_exit(1);
		_exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 2);
	}
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	OK(cuMemAlloc_v2(&p, 1));
}

static void *thread_main(void *arg)
{
	CUcontext ctx = arg;
	CUstream stream;
	CUdeviceptr p;
	uint32_t value;

	OK(cuCtxSetCurrent(ctx));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t i = 0; i < 200; i++) {
		OK(cuMemAlloc_v2(&p, 100 + i * 4096));
		OK(cuMemsetD32Async(p, i, 25, stream));
		OK(cuMemcpyDtoHAsync_v2(&value, p + 96, 4, stream));
		OK(cuStreamSynchronize(stream));
		EXPECT(value == i);
		OK(cuMemFree_v2(p));
	}
	OK(cuStreamDestroy_v2(stream));
	return NULL;
}

static void check_threads(int argc, char **argv)
{
	pthread_t threads[8];

	CUcontext ctx = check_context();
	size_t before = check_free_bytes();
	for (int i = 0; i < 8; i++)
		EXPECT(pthread_create(&threads[i], NULL, thread_main, ctx) == 0);
	for (int i = 0; i < 8; i++)
		EXPECT(pthread_join(threads[i], NULL) == 0);
	EXPECT(check_free_bytes() == before);
}

static void *per_thread_main(void *arg)
{
	OK(cuCtxSetCurrent(arg));
	EXPECT_RESULT(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	return NULL;
}

static void check_per_thread(int argc, char **argv)
{
	pthread_t thread;
	unsigned long long legacy, own;
	int done = 0;

	CUcontext ctx = check_context();
	OK(cuStreamGetId(NULL, &legacy));
	OK(cuStreamGetId_ptsz(NULL, &own));
	EXPECT(legacy != own);
	OK(cuStreamGetId(CU_STREAM_PER_THREAD, &legacy));
	EXPECT(legacy == own);
	OK(cuLaunchHostFunc_ptsz(NULL, host_function, &done));
	EXPECT_RESULT(cuStreamQuery_ptsz(NULL), CUDA_ERROR_NOT_READY);
	EXPECT(pthread_create(&thread, NULL, per_thread_main, ctx) == 0);
	EXPECT(pthread_join(thread, NULL) == 0);
	OK(cuStreamSynchronize_ptsz(NULL));
	EXPECT(done == 1);
}

/* Drivers before CUDA 12.5 lack it. */
__attribute__((weak)) __typeof__(cuCtxCreate_v4) cuCtxCreate_v4;

static void check_procaddr(int argc, char **argv)
{
	CUdriverProcAddressQueryResult status;
	void *f;

	OK(cuInit(0));
	OK(cuGetProcAddress_v2("cuMemAlloc", &f, 12000, 0, &status));
	EXPECT(f == (void *)cuMemAlloc_v2 && status == CU_GET_PROC_ADDRESS_SUCCESS);
	OK(cuGetProcAddress_v2("cuMemAlloc", &f, 2000, 0, &status));
	EXPECT(f == (void *)cuMemAlloc);
	OK(cuGetProcAddress_v2("cuMemPrefetchAsync", &f, 12010, 0, &status));
	EXPECT(f == (void *)cuMemPrefetchAsync);
	OK(cuGetProcAddress_v2("cuMemPrefetchAsync", &f, 12020, 0, &status));
	EXPECT(f == (void *)cuMemPrefetchAsync_v2);
	OK(cuGetProcAddress_v2("cuLaunchKernel", &f, 12000,
			       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
	EXPECT(f == (void *)cuLaunchKernel_ptsz);
	OK(cuGetProcAddress_v2("cuNoSuchThing", &f, 12000, 0, &status));
	EXPECT(!f && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	OK(cuGetProcAddress_v2("cuMemAllocAsync", &f, 11010, 0, &status));
	EXPECT(!f && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	EXPECT_RESULT(cuGetProcAddress("cuNoSuchThing", &f, 12000, 0), CUDA_ERROR_NOT_FOUND);
	OK(cuGetProcAddress_v2("cuCtxCreate", &f, 13000, 0, &status));
	printf("%s\n", f == (void *)cuCtxCreate_v4   ? "v4"
		       : f == (void *)cuCtxCreate_v3 ? "v3"
						     : "?");
}

/* Threads come and go; so do their default streams. */
static void *default_stream_main(void *arg)
{
	int *done = arg;

	OK(cuCtxSetCurrent(check_shared));
	OK(cuLaunchHostFunc_ptsz(NULL, host_count, done));
	OK(cuStreamSynchronize_ptsz(NULL));
	return NULL;
}

static void check_many_threads(int argc, char **argv)
{
	pthread_t thread;
	int done = 0;

	check_shared = check_context();
	for (int i = 0; i < 1500; i++) {
		EXPECT(pthread_create(&thread, NULL, default_stream_main, &done) == 0);
		EXPECT(pthread_join(thread, NULL) == 0);
	}
	EXPECT(done == 1500);
}

static void check_unsupported(int argc, char **argv)
{
	CUmemGenericAllocationHandle handle;
	CUmulticastObjectProp prop = {.numDevices = 1};

	check_context();
	EXPECT_RESULT(cuMulticastCreate(&handle, &prop), CUDA_ERROR_NOT_SUPPORTED);
	fflush(stdout);
	getchar();
}

/* Before each line that it reads it has allocated, waited and launched, and said what came of it.
 */
static void check_ask(int argc, char **argv)
{
	static const char *const empty =
		".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
	CUmodule module;
	CUfunction f;
	CUdeviceptr p;

	check_context();
	OK(cuModuleLoadData(&module, empty));
	OK(cuModuleGetFunction(&f, module, "k"));
	do {
		CUresult alloc = cuMemAlloc_v2(&p, 1000);
		if (alloc == CUDA_SUCCESS)
			cuMemFree_v2(p);
		CUresult launch = cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
		printf("%d %d %d\n", alloc, launch, cuCtxSynchronize());
		fflush(stdout);
	} while (getchar() == '\n');
}

/* Takes memory, says so, and waits to be killed or told to go. */
static void check_hold(int argc, char **argv)
{
	CUdeviceptr p;

	check_context();
	OK(cuMemAlloc_v2(&p, (size_t)atoll(argv[0])));
	if (argc > 1 && fork() == 0) {
		/* A worker that only keeps the file descriptors. */
		pause();
		_exit(0);
	}
	puts("ready");
	fflush(stdout);
	getchar();
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"not-initialised", check_not_initialised},
		{"devices", check_devices},
		{"contexts", check_contexts},
		{"linear", check_linear},
		{"copies", check_copies},
		{"streams", check_streams},
		{"memops", check_memops},
		{"marks", check_marks},
		{"events", check_events},
		{"fork", check_fork},
		{"threads", check_threads},
		{"per-thread", check_per_thread},
		{"many-threads", check_many_threads},
		{"procaddr", check_procaddr},
		{"unsupported", check_unsupported},
		{"ask", check_ask},
		{"hold", check_hold},
	};

	return checks_main(argc, argv, checks, ARRAY_SIZE(checks));
}
