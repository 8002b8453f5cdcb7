/* The driver API's rarer calls, and what older programs call. */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_check.h"

static const char *const ptx =
	".version 7.8\n.target sm_90\n.address_size 64\n" CHECK_PTX_ADD
	".visible .entry sleep(.param .u32 ns)\n{\n"
	".reg .b32 %r<2>;\nld.param.u32 %r1, [ns]; nanosleep.u32 %r1;\nret;\n}\n"
	/* sleeps, and then stores */
	".visible .entry late(.param .u64 p, .param .u32 ns)\n{\n"
	".reg .b64 %rd<2>; .reg .b32 %r<2>;\n"
	"ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [ns]; nanosleep.u32 %r1;\n"
	"st.global.u32 [%rd1], 1;\nret;\n}\n";

static void launch(CUfunction f, CUstream stream, void **params)
{
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* cuMemAlloc without "_v2" is not what cuda.h means by it: it belongs to contexts of CUDA 3.1. */
static void check_older_forms(int argc, char **argv)
{
	static const char *const names[] = {"cuMemAlloc",   "cuMemFree",    "cuMemcpyHtoD",
					    "cuMemcpyDtoH", "cuMemGetInfo", "cuMemsetD8",
					    "cuArrayCreate"};
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	uint64_t space[32] = {0};

	EXPECT(library);
	for (int pass = 0; pass < 3; pass++) {
		if (pass == 1)
			OK(cuInit(0));
		if (pass == 2)
			check_context();
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			CUresult (*call)(void *, void *, void *);

			*(void **)&call = dlsym(library, names[i]);
			EXPECT(call);
			EXPECT_RESULT(call(space, space, space), pass ? CUDA_ERROR_INVALID_CONTEXT
								      : CUDA_ERROR_NOT_INITIALIZED);
		}
	}
}

static void check_cooperative_devices(int argc, char **argv)
{
	CUDA_LAUNCH_PARAMS list[2] = {{0}};
	CUcontext contexts[2];
	CUdeviceptr p[2];
	uint32_t value = 5, got;
	void *params[2][2];

	OK(cuInit(0));
	for (int i = 0; i < 2; i++) {
		OK(cuCtxCreate_v2(&contexts[i], 0, i));
		OK(cuMemAlloc_v2(&p[i], 4));
		OK(cuMemsetD32_v2(p[i], 1, 1));
		params[i][0] = &p[i];
		params[i][1] = &value;
		list[i] = (CUDA_LAUNCH_PARAMS){.function = check_kernel(ptx, "add"),
					       .gridDimX = 3,
					       .gridDimY = 1,
					       .gridDimZ = 1,
					       .blockDimX = 2,
					       .blockDimY = 1,
					       .blockDimZ = 1,
					       .kernelParams = params[i]};
		OK(cuStreamCreate(&list[i].hStream, 0));
	}
	OK(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
	for (int i = 0; i < 2; i++) {
		OK(cuCtxSetCurrent(contexts[i]));
		OK(cuCtxSynchronize());
		OK(cuMemcpyDtoH_v2(&got, p[i], 4));
		EXPECT(got == 1 + 3 * 2 * value);
	}
	EXPECT_RESULT(cuLaunchCooperativeKernelMultiDevice(list, 0, 0), CUDA_ERROR_INVALID_VALUE);
	list[1].hStream = list[0].hStream;
	EXPECT_RESULT(cuLaunchCooperativeKernelMultiDevice(list, 2, 0), CUDA_ERROR_INVALID_DEVICE);
	list[1].hStream = NULL;
	EXPECT_RESULT(cuLaunchCooperativeKernelMultiDevice(list, 2, 0), CUDA_ERROR_INVALID_HANDLE);
}

/* An event after all streams of a context, and one that all of them wait for. */
static void check_context_events(int argc, char **argv)
{
	CUcontext ctx = check_context();
	CUfunction f = check_kernel(ptx, "sleep");
	CUstream a, b;
	CUevent all, one;
	uint32_t ns = 150000000;
	void *params[] = {&ns};

	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&all, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&one, CU_EVENT_DISABLE_TIMING));
	double start = check_seconds();
	launch(f, a, params);
	OK(cuCtxRecordEvent(ctx, all));
	EXPECT_RESULT(cuEventQuery(all), CUDA_ERROR_NOT_READY);
	EXPECT_RESULT(cuStreamQuery(b), CUDA_SUCCESS);
	OK(cuEventSynchronize(all));
	EXPECT(check_seconds() - start >= 0.15);
	OK(cuStreamQuery(a));

	launch(f, a, params);
	OK(cuEventRecord(one, a));
	OK(cuCtxWaitEvent(ctx, one));
	EXPECT_RESULT(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
	OK(cuStreamSynchronize(b));
	OK(cuEventQuery(one));
	OK(cuStreamSynchronize(a));
	OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_RESULT(cuCtxRecordEvent(ctx, all), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EXPECT_RESULT(cuCtxWaitEvent(ctx, one), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

static void check_prefetch_batches(int argc, char **argv)
{
	CUdeviceptr p[3], none[1];
	size_t sizes[] = {1 << 20, 1 << 20, 1 << 20}, starts[] = {0, 2};
	CUmemLocation places[] = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
				  {.type = CU_MEM_LOCATION_TYPE_HOST}};
	CUstream stream;
	int where;

	check_context();
	OK(cuStreamCreate(&stream, 0));
	for (int i = 0; i < 3; i++)
		OK(cuMemAllocManaged(&p[i], sizes[i], CU_MEM_ATTACH_GLOBAL));
	OK(cuMemPrefetchBatchAsync(p, sizes, 3, places, starts, 2, 0, stream));
	for (int i = 0; i < 3; i++) {
		OK(cuMemRangeGetAttribute(&where, sizeof(where),
					  CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p[i],
					  sizes[i]));
		EXPECT(where == (i < 2 ? 0 : CU_DEVICE_CPU));
	}
	OK(cuMemDiscardBatchAsync(p, sizes, 3, 0, stream));
	OK(cuMemDiscardAndPrefetchBatchAsync(p, sizes, 3, places, starts, 1, 0, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemAlloc_v2(none, 4096));
	EXPECT_RESULT(cuMemPrefetchBatchAsync(none, sizes, 1, places, starts, 1, 0, stream),
		      CUDA_ERROR_INVALID_VALUE);
	EXPECT_RESULT(cuMemDiscardBatchAsync(p, sizes, 3, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	starts[0] = 1;
	EXPECT_RESULT(cuMemPrefetchBatchAsync(p, sizes, 3, places, starts, 2, 0, stream),
		      CUDA_ERROR_INVALID_VALUE);
}

static void check_clusters(int argc, char **argv)
{
	CUlaunchAttribute dims = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	CUlaunchConfig config = {.gridDimX = 64,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 1024,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .attrs = &dims,
				 .numAttrs = 1};
	int sms, count, size;

	check_context();
	CUfunction f = check_kernel(ptx, "add");
	OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	dims.value.clusterDim.x = 4;
	dims.value.clusterDim.y = dims.value.clusterDim.z = 1;
	OK(cuOccupancyMaxActiveClusters(&count, f, &config));
	EXPECT(count == sms * 2 / 4);
	OK(cuOccupancyMaxPotentialClusterSize(&size, f, &config));
	EXPECT(size == 8);
	dims.value.clusterDim.x = 1000;
	EXPECT_RESULT(cuOccupancyMaxActiveClusters(&count, f, &config),
		      CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

/* A picture names the kernels, the edges and what is in children. */
static void check_dot(int argc, char **argv)
{
	char path[] = "/tmp/cuda-extras-XXXXXX", text[4096] = "";
	CUgraph graph, child;
	CUgraphNode root, node;
	uint32_t ns = 1;
	void *params[] = {&ns};
	CUDA_KERNEL_NODE_PARAMS p = {.gridDimX = 7,
				     .gridDimY = 1,
				     .gridDimZ = 1,
				     .blockDimX = 32,
				     .blockDimY = 1,
				     .blockDimZ = 1,
				     .kernelParams = params};

	check_context();
	p.func = check_kernel(ptx, "sleep");
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&child, 0));
	OK(cuGraphAddEmptyNode(&root, child, NULL, 0));
	OK(cuGraphAddKernelNode_v2(&root, graph, NULL, 0, &p));
	OK(cuGraphAddChildGraphNode(&node, graph, &root, 1, child));
	int fd = mkstemp(path);
	EXPECT(fd >= 0);
	OK(cuGraphDebugDotPrint(graph, path, 0));
	FILE *f = fdopen(fd, "r");
	EXPECT(f && fread(text, 1, sizeof(text) - 1, f) > 0);
	remove(path);
	EXPECT(strncmp(text, "digraph", 7) == 0 && strstr(text, " -> "));
	EXPECT(strstr(text, "sleep") && strstr(text, "(7,1,1)") && strstr(text, "empty"));
	EXPECT_RESULT(cuGraphDebugDotPrint(graph, "/no/such/place", 0),
		      CUDA_ERROR_OPERATING_SYSTEM);
}

static void note_end(void *count)
{
	++*(int *)count;
}

/* A clone keeps what its original keeps. */
static void check_clones_keep_objects(int argc, char **argv)
{
	CUgraph graph, clone;
	CUuserObject object;
	int ends = 0;

	check_context();
	OK(cuGraphCreate(&graph, 0));
	OK(cuUserObjectCreate(&object, &ends, note_end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphDestroy(graph));
	EXPECT(ends == 0);
	OK(cuGraphDestroy(clone));
	EXPECT(ends == 1);
}

/* A stream's write is there when the work before it is over, not sooner; likewise what a kernel
 * stores after it has slept. */
static void check_order(int argc, char **argv)
{
	uint32_t ns = 200000000;
	volatile uint32_t *words;
	CUdeviceptr p;
	CUstream stream;
	CUevent between;

	check_context();
	CUfunction sleeper = check_kernel(ptx, "sleep"), late = check_kernel(ptx, "late");
	OK(cuMemHostAlloc((void **)&words, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer_v2(&p, (void *)words, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&between, CU_EVENT_DISABLE_TIMING));
	words[0] = words[1] = words[2] = 0;
	CUdeviceptr q = p + 8;
	void *sleep_params[] = {&ns}, *late_params[] = {&q, &ns};
	double start = check_seconds();
	launch(sleeper, stream, sleep_params);
	OK(cuEventRecord(between, stream));
	OK(cuStreamWriteValue32_v2(stream, p, 1, 0));
	OK(cuStreamWriteValue64_v2(stream, p + 16, 2, 0));
	EXPECT(words[0] == 0 && words[4] == 0);
	while (!words[0])
		EXPECT(check_seconds() - start < 30);
	OK(cuEventQuery(between));
	EXPECT(check_seconds() - start >= 0.2);
	OK(cuStreamSynchronize(stream));
	EXPECT(words[4] == 2);

	start = check_seconds();
	launch(late, stream, late_params);
	EXPECT(words[2] == 0);
	while (!words[2])
		EXPECT(check_seconds() - start < 30);
	EXPECT(check_seconds() - start >= 0.2);
	OK(cuStreamSynchronize(stream));
}

/* The beginning of every other process: the event that it reads, opened. */
static CUfunction other_begin(CUstream *stream, CUevent *event)
{
	CUipcEventHandle handle;

	check_context();
	CUfunction f = check_kernel(ptx, "sleep");
	OK(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
	EXPECT(fread(&handle, sizeof(handle), 1, stdin) == 1);
	OK(cuIpcOpenEventHandle(event, handle));
	return f;
}

/* The other process: opens what it reads, waits for it on a stream, and records it itself. */
static void check_shared_events_child(int argc, char **argv)
{
	uint32_t ns = 4000000000;
	void *params[] = {&ns};
	CUevent event;
	CUstream stream;
	CUfunction f = other_begin(&stream, &event);

	double start = check_seconds();
	EXPECT_RESULT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	OK(cuStreamWaitEvent(stream, event, 0));
	OK(cuStreamSynchronize(stream));
	EXPECT(check_seconds() - start > 0.05);
	OK(cuEventQuery(event));
	launch(f, stream, params);
	OK(cuEventRecord(event, stream));
	puts("recorded");
	fflush(stdout);
	OK(cuStreamSynchronize(stream));
	getchar();
	OK(cuEventDestroy_v2(event));
}

/* This program once more, with another check: what goes to its input, and comes from its output. */
struct child {
	pid_t pid;
	int to, from;
};

static struct child child_begin(const char *check)
{
	char self[4096] = "", command[8192];
	int from[2], to[2];

	EXPECT(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	EXPECT(pipe(from) == 0 && pipe(to) == 0);
	snprintf(command, sizeof(command), "exec '%s' %s <&%d >&%d %d<&- %d>&-", self, check, to[0],
		 from[1], to[1], from[0]);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	close(from[1]);
	close(to[0]);
	return (struct child){.pid = pid, .to = to[1], .from = from[0]};
}

static void child_end(const struct child *child)
{
	int status;

	EXPECT(write(child->to, "\n", 1) == 1);
	EXPECT(waitpid(child->pid, &status, 0) == child->pid && status == 0);
}

static void check_shared_events(int argc, char **argv)
{
	CUipcEventHandle handle;
	CUevent event, own;
	CUstream stream;
	char line[16] = "";
	uint32_t ns = 2000000000;
	void *params[] = {&ns};

	check_context();
	CUfunction f = check_kernel(ptx, "sleep");
	EXPECT_RESULT(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
	OK(cuEventCreate(&own, CU_EVENT_DISABLE_TIMING));
	EXPECT_RESULT(cuIpcGetEventHandle(&handle, own), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuEventQuery(event));
	OK(cuIpcGetEventHandle(&handle, event));
	EXPECT_RESULT(cuIpcOpenEventHandle(&own, handle), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	launch(f, stream, params);
	OK(cuEventRecord(event, stream));
	OK(cuEventRecord(event, stream));
	struct child child = child_begin("shared-events-child");
	EXPECT(write(child.to, &handle, sizeof(handle)) == sizeof(handle));
	OK(cuEventSynchronize(event));
	EXPECT(read(child.from, line, sizeof(line)) > 0);
	/* Now it is the other's. */
	double start = check_seconds();
	EXPECT_RESULT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	OK(cuEventSynchronize(event));
	EXPECT(check_seconds() - start > 0.05);
	child_end(&child);
	OK(cuEventQuery(event));
	OK(cuEventDestroy_v2(event));
}

/* The other process: records what it reads before the first one's work is done. */
static void check_shared_events_again_child(int argc, char **argv)
{
	uint32_t ns = 4000000000;
	void *params[] = {&ns};
	CUevent event;
	CUstream stream;
	CUfunction f = other_begin(&stream, &event);

	launch(f, stream, params);
	OK(cuEventRecord(event, stream));
	puts("recorded");
	fflush(stdout);
	getchar();
	OK(cuStreamSynchronize(stream));
	OK(cuEventDestroy_v2(event));
}

static void *wait_for_event(void *event)
{
	check_context();
	OK(cuEventSynchronize(event));
	return NULL;
}

/* A stream that waits for an event waits for what was recorded when it began to, whoever records it
 * then. */
static void check_shared_events_again(int argc, char **argv)
{
	CUipcEventHandle handle;
	CUevent event;
	CUstream stream;
	char line[16] = "";
	uint32_t ns = 2000000000;
	void *params[] = {&ns};
	pthread_t waiter;

	check_context();
	CUfunction f = check_kernel(ptx, "sleep");
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuIpcGetEventHandle(&handle, event));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	launch(f, stream, params);
	OK(cuEventRecord(event, stream));
	EXPECT(pthread_create(&waiter, NULL, wait_for_event, event) == 0);
	usleep(100000);
	struct child child = child_begin("shared-events-again-child");
	EXPECT(write(child.to, &handle, sizeof(handle)) == sizeof(handle));
	EXPECT(read(child.from, line, sizeof(line)) > 0);
	EXPECT(pthread_join(waiter, NULL) == 0);
	EXPECT_RESULT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	child_end(&child);
	OK(cuEventDestroy_v2(event));
}

/* A block of LZ4 that is a single run of literals, which is the simplest there is. */
static size_t lz4_make(uint8_t *to, const char *text, size_t length)
{
	size_t n = 0, rest = length - 15;

	to[n++] = 15 << 4;
	for (; rest >= 255; rest -= 255)
		to[n++] = 255;
	to[n++] = (uint8_t)rest;
	memcpy(to + n, text, length);
	return n + length;
}

/* A frame of Zstandard that is a single block, not compressed, which is the simplest there is. */
static size_t zstd_make(uint8_t *to, const char *text, size_t length)
{
	const uint8_t magic[] = {0x28, 0xb5, 0x2f, 0xfd}, descriptor = 0xa0; /* size in 4 bytes */
	const uint32_t size = (uint32_t)length, block = size << 3 | 1;       /* the last one */

	memcpy(to, magic, 4);
	to[4] = descriptor;
	memcpy(to + 5, &size, 4);
	memcpy(to + 9, &block, 3);
	memcpy(to + 12, text, length);
	return 12 + length;
}

#define FLAG_LZ4 0x2000
#define FLAG_ZSTD 0x8000

/* As nvcc writes PTX for a driver: in a fat binary, compressed. */
static size_t fatbin_make(uint8_t *to, const char *text, uint32_t flags)
{
	const size_t length = strlen(text) + 1, header_size = 16, entry_size = 64;
	uint8_t *data = to + header_size + entry_size;
	size_t n = flags & FLAG_ZSTD ? zstd_make(data, text, length) : lz4_make(data, text, length);
	const uint32_t header[4] = {0xba55ed50, 16 << 16 | 1, (uint32_t)(entry_size + n), 0};
	const uint32_t entry[16] = {
		[0] = 0x101 << 16 | 1, [1] = entry_size,       [2] = (uint32_t)n,
		[4] = (uint32_t)n,     [6] = 8 | 7 << 16,      [7] = 70,
		[10] = flags,          [14] = (uint32_t)length};

	memcpy(to, header, sizeof(header));
	memcpy(to + header_size, entry, sizeof(entry));
	return header_size + entry_size + n;
}

static void check_compressed(int argc, char **argv)
{
	static uint8_t image[65536];
	CUfunction f;
	CUmodule module;

	check_context();
	for (int i = 0; i < 2; i++) {
		size_t size = fatbin_make(image, ptx, (i ? FLAG_ZSTD : FLAG_LZ4) | 0x11);

		OK(cuModuleLoadData(&module, image));
		OK(cuModuleGetFunction(&f, module, "sleep"));
		OK(cuModuleUnload(module));
		/* It ends in the middle of a run; or is no frame. */
		memset(image + 16 + 64, 255, size - 16 - 64);
		EXPECT_RESULT(cuModuleLoadData(&module, image), CUDA_ERROR_INVALID_IMAGE);
	}
	/* By a method that nothing here knows. */
	fatbin_make(image, ptx, 0x4011);
	EXPECT_RESULT(cuModuleLoadData(&module, image), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

/* Things that functions which a stream calls may not do, however they were handed in. */
struct forbidden {
	CUdeviceptr before;
	CUstream stream;
	CUfunction function;
	CUgraphExec graph;
	int calls;
};

static void forbidden_calls(void *data)
{
	struct forbidden *f = data;
	CUdeviceptr pointer = 0, base;
	CUcontext context;
	CUstream stream;
	CUmodule module;
	size_t size, total;
	void *host;

	EXPECT_RESULT(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuMemGetInfo_v2(&size, &total), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuMemGetAddressRange_v2(&base, &size, f->before), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuMemAlloc_v2(&pointer, 1 << 20), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuMemAllocManaged(&pointer, 1 << 20, CU_MEM_ATTACH_GLOBAL),
		      CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuMemAllocAsync(&pointer, 1 << 20, f->stream), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuMemHostAlloc(&host, 4096, 0), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuMemFree_v2(f->before), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuMemFreeAsync(f->before, f->stream), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuModuleLoadData(&module, ptx), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuStreamCreate(&stream, 0), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuStreamSynchronize(f->stream), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuCtxSynchronize(), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuMemsetD8Async(f->before, 1, 16, f->stream), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuGraphLaunch(f->graph, f->stream), CUDA_ERROR_NOT_PERMITTED);
	EXPECT_RESULT(cuLaunchKernel(f->function, 1, 1, 1, 1, 1, 1, 0, f->stream,
				     (void *[]){&f->before, &(uint32_t){1}}, NULL),
		      CUDA_ERROR_NOT_PERMITTED);
	__atomic_fetch_add(&f->calls, 1, __ATOMIC_SEQ_CST);
}

static void forbidden_callback(CUstream stream, CUresult result, void *data)
{
	EXPECT(result == CUDA_SUCCESS && stream == ((struct forbidden *)data)->stream);
	forbidden_calls(data);
}

static void check_forbidden_calls(int argc, char **argv)
{
	struct forbidden f = {0};
	CUDA_HOST_NODE_PARAMS host = {.fn = forbidden_calls, .userData = &f};
	size_t free_before, free_after, total;
	CUgraphNode node;
	CUmodule module;
	CUgraph graph;

	check_context();
	OK(cuStreamCreate(&f.stream, CU_STREAM_NON_BLOCKING));
	OK(cuModuleLoadData(&module, ptx));
	OK(cuModuleGetFunction(&f.function, module, "late"));
	OK(cuMemAlloc_v2(&f.before, 1 << 20));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
	OK(cuGraphInstantiateWithFlags(&f.graph, graph, 0));
	OK(cuMemGetInfo_v2(&free_before, &total));
	for (int i = 1; i <= 3; i++) {
		OK(cuLaunchHostFunc(f.stream, forbidden_calls, &f));
		OK(cuStreamAddCallback(f.stream, forbidden_callback, &f, 0));
		OK(cuGraphLaunch(f.graph, f.stream));
		OK(cuStreamSynchronize(f.stream));
		EXPECT(__atomic_load_n(&f.calls, __ATOMIC_SEQ_CST) == 3 * i);
	}
	OK(cuMemGetInfo_v2(&free_after, &total));
	EXPECT(free_before == free_after);
	/* Nothing of it was done, and what comes after is permitted. */
	OK(cuMemFree_v2(f.before));
	OK(cuMemGetInfo_v2(&free_after, &total));
	EXPECT(free_after == free_before + (2 << 20) || free_after == free_before + (1 << 20));
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"forbidden-calls", check_forbidden_calls},
		{"older-forms", check_older_forms},
		{"cooperative-devices", check_cooperative_devices},
		{"context-events", check_context_events},
		{"prefetch-batches", check_prefetch_batches},
		{"clusters", check_clusters},
		{"dot", check_dot},
		{"compressed", check_compressed},
		{"clones-keep-objects", check_clones_keep_objects},
		{"order", check_order},
		{"shared-events", check_shared_events},
		{"shared-events-child", check_shared_events_child},
		{"shared-events-again", check_shared_events_again},
		{"shared-events-again-child", check_shared_events_again_child},
	};

	return checks_main(argc, argv, checks, ARRAY_SIZE(checks));
}
