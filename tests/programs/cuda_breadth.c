/* The driver API besides the parts that programs use most: each family's less usual forms. */
#include <stdbool.h>
#include <unistd.h>

#include "cuda_check.h"

enum { WIDE = 64, HIGH = 8, DEEP = 4, CELLS = WIDE * HIGH * DEEP };

static const char *const ptx = ".version 6.4\n.target sm_70\n.address_size 64\n"
			       ".visible .global .align 4 .u32 level = 7;\n" CHECK_PTX_ADD
			       ".visible .entry nothing()\n{\nret;\n}\n";

static CUdeviceptr number_make(uint32_t value)
{
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 8));
	OK(cuMemsetD32_v2(p, value, 2));
	OK(cuCtxSynchronize());
	return p;
}

static uint32_t number_at(CUdeviceptr p)
{
	uint32_t value;

	OK(cuMemcpyDtoH_v2(&value, p, sizeof(value)));
	return value;
}

static void check_contexts(int argc, char **argv)
{
	CUcontext first = check_context(), second, current, primary, again;
	unsigned int flags, version;
	unsigned long long id, other;
	size_t limit;
	CUdevice device;
	int least, greatest, active;
	CUfunc_cache cache;

	OK(cuCtxCreate_v2(&second, CU_CTX_SCHED_YIELD, 0));
	OK(cuCtxGetFlags(&flags));
	EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD);
	OK(cuCtxPopCurrent_v2(&current));
	EXPECT(current == second);
	OK(cuCtxGetCurrent(&current));
	EXPECT(current == first);
	OK(cuCtxPushCurrent_v2(second));
	OK(cuCtxPushCurrent_v2(second));
	OK(cuCtxPopCurrent_v2(&current));
	OK(cuCtxGetCurrent(&current));
	EXPECT(current == second);
	OK(cuCtxGetId(first, &id));
	OK(cuCtxGetId(second, &other));
	EXPECT(id != other);
	OK(cuCtxGetApiVersion(first, &version));
	EXPECT(version >= 3000);
	OK(cuCtxGetDevice(&device));
	EXPECT(device == 0);
	OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	EXPECT(least == 0 && greatest < 0);
	OK(cuCtxGetLimit(&limit, CU_LIMIT_PRINTF_FIFO_SIZE));
	EXPECT(limit == MIB(1));
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	OK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
	EXPECT(limit >= 4096);
	OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
	OK(cuCtxGetCacheConfig(&cache));
	OK(cuCtxDestroy_v2(second));
	EXPECT_RESULT(cuCtxGetApiVersion(second, &version), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EXPECT(!active);
	OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	EXPECT(primary == again);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EXPECT(active && (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EXPECT(active);
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EXPECT(!active);
	OK(cuCtxSetCurrent(NULL));
	EXPECT_RESULT(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT_RESULT(cuCtxPopCurrent_v2(&current), CUDA_ERROR_INVALID_CONTEXT);
}

static void check_devices(int argc, char **argv)
{
	const char *text;
	int count, can, major, minor;
	CUdevprop properties;
	CUuuid a, b;

	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	EXPECT(count >= 2);
	OK(cuDeviceCanAccessPeer(&can, 0, 1));
	EXPECT(can == 1);
	OK(cuDeviceCanAccessPeer(&can, 0, 0));
	EXPECT(can == 0);
	OK(cuDeviceGetUuid(&a, 0));
	OK(cuDeviceGetUuid(&b, 1));
	EXPECT(memcmp(&a, &b, sizeof(a)) != 0);
	OK(cuDeviceComputeCapability(&major, &minor, 0));
	EXPECT(major == 9 && minor == 0);
	OK(cuDeviceGetProperties(&properties, 0));
	EXPECT(properties.maxThreadsPerBlock == 1024 && properties.SIMDWidth == 32);
	OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
	EXPECT(!strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
	OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
	EXPECT(text && *text);
	EXPECT_RESULT(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
	EXPECT(!text);
	EXPECT_RESULT(cuDeviceComputeCapability(&major, &minor, count), CUDA_ERROR_INVALID_DEVICE);
}

static void check_memsets(int argc, char **argv)
{
	uint16_t got16[16];
	uint32_t got32[16];
	CUdeviceptr p;
	CUstream stream;
	size_t pitch;

	check_context();
	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	OK(cuMemAllocPitch_v2(&p, &pitch, 64, 4, 4));
	EXPECT(pitch >= 64 && pitch % 256 == 0);
	OK(cuMemsetD8_v2(p, 0, 4 * pitch));
	OK(cuMemsetD2D16_v2(p, pitch, 0xabcd, 2, 4));
	OK(cuMemcpyDtoH_v2(got16, p + 3 * pitch, sizeof(got16)));
	EXPECT(got16[0] == 0xabcd && got16[1] == 0xabcd && got16[2] == 0);
	OK(cuMemsetD2D32Async(p, pitch, 0x12345678, 3, 2, stream));
	OK(cuMemsetD16Async(p + 2 * pitch, 0x1111, 4, stream));
	OK(cuMemsetD2D8Async(p + 3 * pitch, pitch, 0x22, 4, 1, stream));
	OK(cuMemcpyDtoHAsync_v2(got32, p + pitch, sizeof(got32), stream));
	OK(cuStreamSynchronize(stream));
	EXPECT(got32[2] == 0x12345678 && got32[3] == 0);
	EXPECT(number_at(p + 2 * pitch) == 0x11111111);
	EXPECT(number_at(p + 3 * pitch) == 0x22222222);
	EXPECT_RESULT(cuMemsetD32_v2(p + 2, 1, 1), CUDA_ERROR_INVALID_VALUE);
	EXPECT_RESULT(cuMemsetD16_v2(p + 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(p));
}

/* Host -> device -> another device -> an array -> host, by the forms with three dimensions. */
static void check_copies_3d(int argc, char **argv)
{
	static uint8_t from[CELLS], to[CELLS];
	CUcontext first = check_context(), second;
	const CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = WIDE,
						    .Height = HIGH,
						    .Depth = DEEP,
						    .Format = CU_AD_FORMAT_UNSIGNED_INT8,
						    .NumChannels = 1};
	CUDA_ARRAY3D_DESCRIPTOR got;
	CUdeviceptr a, b;
	CUarray array;

	for (int i = 0; i < CELLS; i++)
		from[i] = (uint8_t)(i * 7 + i / 256);
	OK(cuMemAlloc_v2(&a, CELLS));
	OK(cuArray3DCreate_v2(&array, &descriptor));
	OK(cuArray3DGetDescriptor_v2(&got, array));
	EXPECT(got.Depth == DEEP && got.Width == WIDE);
	OK(cuCtxCreate_v2(&second, 0, 1));
	OK(cuMemAlloc_v2(&b, CELLS));
	OK(cuMemsetD8_v2(b, 0, CELLS));
	OK(cuCtxSetCurrent(first));
	CUDA_MEMCPY3D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			    .srcHost = from,
			    .srcPitch = WIDE,
			    .srcHeight = HIGH,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstDevice = a,
			    .dstPitch = WIDE,
			    .dstHeight = HIGH,
			    .WidthInBytes = WIDE,
			    .Height = HIGH,
			    .Depth = DEEP};
	OK(cuMemcpy3D_v2(&up));
	/* The inner part alone. */
	CUDA_MEMCPY3D_PEER across = {.srcXInBytes = 1,
				     .srcY = 1,
				     .srcZ = 1,
				     .dstXInBytes = 1,
				     .dstY = 1,
				     .dstZ = 1,
				     .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				     .srcDevice = a,
				     .srcContext = first,
				     .srcPitch = WIDE,
				     .srcHeight = HIGH,
				     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				     .dstDevice = b,
				     .dstContext = second,
				     .dstPitch = WIDE,
				     .dstHeight = HIGH,
				     .WidthInBytes = WIDE - 2,
				     .Height = HIGH - 2,
				     .Depth = DEEP - 2};
	OK(cuMemcpy3DPeer(&across));
	CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			      .srcDevice = b,
			      .srcPitch = WIDE,
			      .srcHeight = HIGH,
			      .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			      .dstArray = array,
			      .WidthInBytes = WIDE,
			      .Height = HIGH,
			      .Depth = DEEP};
	OK(cuMemcpy3DAsync_v2(&back, NULL));
	CUDA_MEMCPY3D down = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
			      .srcArray = array,
			      .dstMemoryType = CU_MEMORYTYPE_HOST,
			      .dstHost = to,
			      .dstPitch = WIDE,
			      .dstHeight = HIGH,
			      .WidthInBytes = WIDE,
			      .Height = HIGH,
			      .Depth = DEEP};
	OK(cuMemcpy3D_v2(&down));
	for (int z = 0, i = 0; z < DEEP; z++)
		for (int y = 0; y < HIGH; y++)
			for (int x = 0; x < WIDE; x++, i++) {
				bool inner = z % (DEEP - 1) && y % (HIGH - 1) && x % (WIDE - 1);
				EXPECT(to[i] == (inner ? from[i] : 0));
			}
	down.WidthInBytes = WIDE + 1;
	EXPECT_RESULT(cuMemcpy3D_v2(&down), CUDA_ERROR_INVALID_VALUE);
}

static void check_peers(int argc, char **argv)
{
	CUcontext first = check_context(), second;
	CUdeviceptr a = number_make(5), b;
	void *params[] = {&a, &(uint32_t){1}};
	int value;

	OK(cuCtxCreate_v2(&second, 0, 1));
	b = number_make(0);
	OK(cuMemcpyPeer(b, second, a, first, 8));
	EXPECT(number_at(b) == 5);
	OK(cuMemsetD32_v2(b, 9, 2));
	OK(cuMemcpyPeerAsync(a, first, b, second, 4, NULL));
	OK(cuCtxSynchronize());
	EXPECT(number_at(a) == 9 && number_at(a + 4) == 5);
	OK(cuMemcpy(a, b, 8));
	OK(cuMemcpyDtoDAsync_v2(a, b, 8, NULL));
	OK(cuCtxSynchronize());
	EXPECT(number_at(a + 4) == 9);
	OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
	EXPECT(value == 1);
	OK(cuCtxEnablePeerAccess(first, 0));
	EXPECT_RESULT(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	OK(cuLaunchKernel(check_kernel(ptx, "add"), 1, 1, 1, 2, 1, 1, 0, NULL, params, NULL));
	OK(cuCtxSynchronize());
	EXPECT(number_at(a) == 11);
	OK(cuCtxDisablePeerAccess(first));
	EXPECT_RESULT(cuCtxDisablePeerAccess(first), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

static void check_array_copies(int argc, char **argv)
{
	const CUDA_ARRAY_DESCRIPTOR descriptor = {
		.Width = 64, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
	CUdeviceptr p;
	CUarray a, b;
	char text[64] = {0};

	check_context();
	OK(cuArrayCreate_v2(&a, &descriptor));
	OK(cuArrayCreate_v2(&b, &descriptor));
	OK(cuMemAlloc_v2(&p, 64));
	OK(cuMemcpyHtoA_v2(a, 0, "0123456789abcdef", 16));
	OK(cuMemcpyAtoA_v2(b, 8, a, 0, 16));
	OK(cuMemcpyAtoD_v2(p, b, 8, 16));
	OK(cuMemcpyDtoA_v2(b, 0, p, 8));
	OK(cuMemcpyAtoH_v2(text, b, 0, 24));
	EXPECT(!strcmp(text, "012345670123456789abcdef"));
	OK(cuMemcpyHtoAAsync_v2(b, 0, "zz", 2, NULL));
	OK(cuMemcpyAtoHAsync_v2(text, b, 0, 8, NULL));
	OK(cuCtxSynchronize());
	EXPECT(!memcmp(text, "zz234567", 8));
	EXPECT_RESULT(cuMemcpyHtoA_v2(a, 60, "01234567", 8), CUDA_ERROR_INVALID_VALUE);
	OK(cuArrayDestroy(a));
	OK(cuArrayDestroy(b));
}

static void check_stream_memory(int argc, char **argv)
{
	CUdeviceptr p, q;
	CUstream writer, waiter;
	CUstreamBatchMemOpParams ops[2] = {0};

	check_context();
	p = number_make(0);
	q = number_make(0);
	OK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&waiter, CU_STREAM_NON_BLOCKING));
	OK(cuStreamWaitValue32_v2(waiter, p, 3, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuStreamWriteValue32_v2(waiter, q, 77, 0));
	usleep(20000);
	EXPECT_RESULT(cuStreamQuery(waiter), CUDA_ERROR_NOT_READY);
	OK(cuStreamWriteValue32_v2(writer, p, 2, 0));
	OK(cuStreamSynchronize(writer));
	EXPECT_RESULT(cuStreamQuery(waiter), CUDA_ERROR_NOT_READY);
	OK(cuStreamWriteValue32_v2(writer, p, 4, 0));
	OK(cuStreamSynchronize(waiter));
	EXPECT(number_at(q) == 77);
	ops[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	ops[0].waitValue.address = p;
	ops[0].waitValue.value64 = 1ull << 40;
	ops[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
	ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[1].writeValue.address = q;
	ops[1].writeValue.value = 78;
	OK(cuStreamBatchMemOp_v2(waiter, 2, ops, 0));
	OK(cuStreamWriteValue64_v2(writer, p, 1ull << 40, 0));
	OK(cuStreamSynchronize(waiter));
	EXPECT(number_at(q) == 78);
	EXPECT_RESULT(cuStreamWriteValue32_v2(writer, p + 1, 2, 0), CUDA_ERROR_INVALID_VALUE);
}

static void callback(CUstream stream, CUresult status, void *data)
{
	*(int *)data += status == CUDA_SUCCESS ? 1 : 100;
}

static void check_streams(int argc, char **argv)
{
	CUcontext ctx = check_context(), got;
	CUstream stream;
	unsigned int flags;
	int priority, called = 0;
	CUevent event;
	float ms;

	OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1));
	OK(cuStreamGetPriority(stream, &priority));
	EXPECT(priority == -1);
	OK(cuStreamGetFlags(stream, &flags));
	EXPECT(flags == CU_STREAM_NON_BLOCKING);
	OK(cuStreamGetCtx(stream, &got));
	EXPECT(got == ctx);
	OK(cuStreamAddCallback(stream, callback, &called, 0));
	OK(cuStreamSynchronize(stream));
	EXPECT(called == 1);
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	EXPECT_RESULT(cuEventElapsedTime(&ms, event, event), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT));
	OK(cuStreamWaitEvent(NULL, event, 0));
	OK(cuEventSynchronize(event));
	OK(cuEventDestroy_v2(event));
	OK(cuStreamDestroy_v2(stream));
	EXPECT(cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS);
}

static CUDA_KERNEL_NODE_PARAMS add_params(CUfunction add, void **params)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = add,
					 .gridDimX = 1,
					 .gridDimY = 1,
					 .gridDimZ = 1,
					 .blockDimX = 1,
					 .blockDimY = 1,
					 .blockDimZ = 1,
					 .kernelParams = params};
}

static void check_graph_changes(int argc, char **argv)
{
	CUcontext ctx = check_context();
	CUdeviceptr p = number_make(0);
	uint32_t value = 5, more = 6, got = 0;
	void *params[] = {&p, &value}, *changed[] = {&p, &more};
	CUDA_KERNEL_NODE_PARAMS add = add_params(check_kernel(ptx, "add"), params), read;
	CUDA_MEMSET_NODE_PARAMS set = {
		.dst = p, .value = 100, .elementSize = 4, .width = 1, .height = 1};
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = p,
			      .dstMemoryType = CU_MEMORYTYPE_HOST,
			      .dstHost = &got,
			      .WidthInBytes = 4,
			      .Height = 1,
			      .Depth = 1};
	CUgraphNode a, b, c, nodes[4], from[4], to[4];
	CUgraphExecUpdateResultInfo info;
	CUgraph graph, clone;
	CUgraphExec exec;
	size_t count = 4;
	unsigned int enabled;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemsetNode(&a, graph, NULL, 0, &set, ctx));
	OK(cuGraphAddKernelNode_v2(&b, graph, &a, 1, &add));
	OK(cuGraphAddMemcpyNode(&c, graph, &b, 1, &copy, ctx));
	OK(cuGraphGetEdges(graph, from, to, &count));
	EXPECT(count == 2);
	count = 4;
	OK(cuGraphNodeGetDependencies(c, nodes, &count));
	EXPECT(count == 1 && nodes[0] == b);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphUpload(exec, NULL));
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	EXPECT(got == 105);
	add.kernelParams = changed;
	OK(cuGraphExecKernelNodeSetParams_v2(exec, b, &add));
	set.value = 200;
	OK(cuGraphExecMemsetNodeSetParams(exec, a, &set, ctx));
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	EXPECT(got == 206);
	OK(cuGraphNodeSetEnabled(exec, b, 0));
	OK(cuGraphNodeGetEnabled(exec, b, &enabled));
	EXPECT(!enabled);
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	EXPECT(got == 200);
	/* The graph itself is as it was; the clone is changed, and updates what runs. */
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphNodeFindInClone(&nodes[0], b, clone));
	OK(cuGraphKernelNodeGetParams_v2(nodes[0], &read));
	EXPECT(read.func == add.func && *(uint32_t *)read.kernelParams[1] == 5);
	value = 50;
	add.kernelParams = params;
	OK(cuGraphKernelNodeSetParams_v2(nodes[0], &add));
	OK(cuGraphExecUpdate_v2(exec, clone, &info));
	EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	EXPECT(got == 150 || got == 100); /* whether an update enables is the driver's */
	OK(cuGraphDestroyNode(nodes[0]));
	EXPECT_RESULT(cuGraphExecUpdate_v2(exec, clone, &info),
		      CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	EXPECT(info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(clone));
	OK(cuGraphDestroy(graph));
}

static void count_up(void *data)
{
	*(int *)data += 1;
}

static void check_graph_nodes(int argc, char **argv)
{
	CUcontext ctx = check_context();
	CUdeviceptr p = number_make(1);
	CUstreamBatchMemOpParams op = {0};
	CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = ctx, .count = 1, .paramArray = &op};
	int called = 0, released = 0;
	CUDA_HOST_NODE_PARAMS host = {count_up, &called};
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
	CUgraphNode empty, record, wait, memop, call, generic;
	CUDA_GRAPH_INSTANTIATE_PARAMS how = {0};
	CUuserObject object;
	CUgraph graph, inner;
	CUgraphExec exec;
	CUevent event;
	CUgraphNodeType type;

	op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	op.writeValue.address = p;
	op.writeValue.value = 42;
	OK(cuEventCreate(&event, 0));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&inner, 0));
	OK(cuGraphAddHostNode(&call, inner, NULL, 0, &host));
	OK(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
	OK(cuGraphAddBatchMemOpNode(&memop, graph, &empty, 1, &batch));
	OK(cuGraphAddEventRecordNode(&record, graph, &memop, 1, event));
	OK(cuGraphAddEventWaitNode(&wait, graph, &record, 1, event));
	OK(cuGraphAddChildGraphNode(&call, graph, &wait, 1, inner));
	params.host = host;
	OK(cuGraphAddNode(&generic, graph, &call, 1, &params));
	OK(cuGraphNodeGetType(generic, &type));
	EXPECT(type == CU_GRAPH_NODE_TYPE_HOST);
	OK(cuUserObjectCreate(&object, &released, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphInstantiateWithParams(&exec, graph, &how));
	EXPECT(how.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
	OK(cuGraphLaunch(exec, NULL));
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	EXPECT(called == 4 && number_at(p) == 42);
	OK(cuEventQuery(event));
	OK(cuGraphDestroy(graph));
	EXPECT(released == 0);
	OK(cuGraphExecDestroy(exec));
	for (int i = 0; i < 100 && !released; i++)
		usleep(10000);
	EXPECT(released == 1);
}

static void check_capture(int argc, char **argv)
{
	CUdeviceptr p;
	CUstream stream, other;
	CUstreamCaptureStatus status;
	cuuint64_t id;
	CUgraph graph, captured;
	const CUgraphNode *after;
	CUgraphNode node;
	size_t count;
	CUgraphExec exec;
	CUevent fork, join;
	CUDA_HOST_NODE_PARAMS host;
	int called = 0;
	uint32_t one = 1;

	check_context();
	p = number_make(0);
	void *params[] = {&p, &one};
	CUfunction add = check_kernel(ptx, "add");
	host = (CUDA_HOST_NODE_PARAMS){count_up, &called};
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT_RESULT(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	OK(cuEventRecord(fork, stream));
	OK(cuStreamWaitEvent(other, fork, 0));
	OK(cuLaunchKernel(add, 1, 1, 1, 2, 1, 1, 0, other, params, NULL));
	OK(cuStreamIsCapturing(other, &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cuEventRecord(join, other));
	OK(cuStreamWaitEvent(stream, join, 0));
	OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &captured, &after, &count));
	EXPECT(count == 2);
	OK(cuGraphAddHostNode(&node, captured, after, count, &host));
	OK(cuStreamUpdateCaptureDependencies(stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	OK(cuLaunchKernel(add, 1, 1, 1, 4, 1, 1, 0, stream, params, NULL));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, NULL, &count));
	EXPECT(count == 4);
	EXPECT(number_at(p) == 0);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	EXPECT(number_at(p) == 7 && called == 1);
}

static void check_libraries(int argc, char **argv)
{
	CUlibrary library;
	CUkernel kernels[3], add;
	CUfunction f;
	CUmodule module;
	CUdeviceptr level, p;
	size_t bytes, offset;
	unsigned int count;
	const char *name;
	int value;

	check_context();
	p = number_make(0);
	void *params[] = {&p, &(uint32_t){3}};
	OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernelCount(&count, library));
	EXPECT(count == 2);
	OK(cuLibraryEnumerateKernels(kernels, 2, library));
	OK(cuLibraryGetKernel(&add, library, "add"));
	EXPECT(add == kernels[0] || add == kernels[1]);
	OK(cuKernelGetName(&name, add));
	EXPECT(!strcmp(name, "add"));
	OK(cuKernelGetFunction(&f, add));
	OK(cuFuncGetName(&name, f));
	EXPECT(!strcmp(name, "add"));
	OK(cuLibraryGetModule(&module, library));
	OK(cuLibraryGetGlobal(&level, &bytes, library, "level"));
	EXPECT(bytes == 4 && number_at(level) == 7);
	OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add, 0));
	EXPECT(value == 1024);
	OK(cuFuncGetParamInfo(f, 1, &offset, &bytes));
	EXPECT(offset == 8 && bytes == 4);
	EXPECT_RESULT(cuFuncGetParamInfo(f, 2, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
	OK(cuLaunchKernel((CUfunction)add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	EXPECT(number_at(p) == 3);
	EXPECT_RESULT(cuLibraryGetKernel(&add, library, "no"), CUDA_ERROR_NOT_FOUND);
	OK(cuLibraryUnload(library));
}

static void check_occupancy(int argc, char **argv)
{
	int blocks, grid, block;
	size_t bytes;
	CUfunction f;

	check_context();
	f = check_kernel(ptx, "nothing");
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0));
	EXPECT(blocks == 2);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, f, 32, 0, 0));
	EXPECT(blocks == 32);
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, 0, 0));
	EXPECT(block == 1024 && grid > 0);
	OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, f, 2, 128));
	EXPECT(bytes > 40000);
	EXPECT_RESULT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 100000, NULL, NULL, NULL),
		      CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 100000, NULL, NULL, NULL));
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 100000));
	EXPECT(blocks == 2);
	OK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"contexts", check_contexts},
		{"devices", check_devices},
		{"memsets", check_memsets},
		{"copies-3d", check_copies_3d},
		{"peers", check_peers},
		{"array-copies", check_array_copies},
		{"stream-memory", check_stream_memory},
		{"streams", check_streams},
		{"graph-changes", check_graph_changes},
		{"graph-nodes", check_graph_nodes},
		{"capture", check_capture},
		{"libraries", check_libraries},
		{"occupancy", check_occupancy},
	};

	return checks_main(argc, argv, checks, ARRAY_SIZE(checks));
}
