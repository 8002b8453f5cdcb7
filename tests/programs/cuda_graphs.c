/* Graphs, made by hand and by capture; the memory that they allocate. */
#include <pthread.h>
#include <unistd.h>

#include "cuda_check.h"

static const char *const ptx = ".version 6.4\n.target sm_70\n.address_size 64\n" CHECK_PTX_DIGIT;

static CUfunction digit;
static CUdeviceptr number;

static void start(void)
{
	check_context();
	digit = check_kernel(ptx, "digit");
	OK(cuMemAlloc_v2(&number, 4));
	OK(cuMemsetD32_v2(number, 0, 1));
	OK(cuCtxSynchronize());
}

static uint32_t number_get(void)
{
	uint32_t value;

	OK(cuMemcpyDtoH_v2(&value, number, sizeof(value)));
	OK(cuMemsetD32_v2(number, 0, 1));
	OK(cuCtxSynchronize());
	return value;
}

static CUgraphNode digit_node(CUgraph graph, const CUgraphNode *after, size_t count, uint32_t value)
{
	void *params[] = {&number, &value};
	const CUDA_KERNEL_NODE_PARAMS p = {.func = digit,
					   .gridDimX = 1,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 1,
					   .blockDimY = 1,
					   .blockDimZ = 1,
					   .kernelParams = params};
	CUgraphNode node;

	OK(cuGraphAddKernelNode_v2(&node, graph, after, count, &p));
	return node;
}

static void digit_launch(CUstream stream, uint32_t value)
{
	void *params[] = {&number, &value};

	OK(cuLaunchKernel(digit, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void launch(CUgraphExec exec)
{
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
}

static void host_set(void *data)
{
	*(int *)data += 1;
}

static void check_by_hand(int argc, char **argv)
{
	CUgraph graph;
	CUgraphNode a, b, c, memset_node, host, nodes[10];
	CUgraphExec exec;
	CUgraphNodeType type;
	int called = 0;
	size_t count = 10;

	start();
	OK(cuGraphCreate(&graph, 0));
	/* The order of creation is not that of running. */
	a = digit_node(graph, NULL, 0, 3);
	b = digit_node(graph, NULL, 0, 2);
	c = digit_node(graph, &b, 1, 1);
	OK(cuGraphAddDependencies(graph, &c, &a, 1));
	const CUDA_MEMSET_NODE_PARAMS set = {number, 0, 7, 4, 1, 1};
	OK(cuGraphAddMemsetNode(&memset_node, graph, NULL, 0, &set, NULL));
	OK(cuGraphAddDependencies(graph, &memset_node, &b, 1));
	const CUDA_HOST_NODE_PARAMS host_params = {host_set, &called};
	OK(cuGraphAddHostNode(&host, graph, &a, 1, &host_params));
	OK(cuGraphGetNodes(graph, NULL, &count));
	EXPECT(count == 5);
	OK(cuGraphGetRootNodes(graph, nodes, &count));
	EXPECT(count == 1 && nodes[0] == memset_node);
	OK(cuGraphNodeGetType(host, &type));
	EXPECT(type == CU_GRAPH_NODE_TYPE_HOST);
	count = 10;
	OK(cuGraphNodeGetDependentNodes(b, nodes, &count));
	EXPECT(count == 1 && nodes[0] == c);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	launch(exec);
	EXPECT(number_get() == 7213 && called == 1);
	launch(exec);
	EXPECT(number_get() == 7213 && called == 2);
	/* A cycle cannot run. */
	OK(cuGraphAddDependencies(graph, &a, &b, 1));
	CUgraphExec none;
	EXPECT_RESULT(cuGraphInstantiateWithFlags(&none, graph, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphRemoveDependencies(graph, &a, &b, 1));
	/* Executable graphs do not need what they were made of. */
	OK(cuGraphDestroy(graph));
	EXPECT_RESULT(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
	launch(exec);
	EXPECT(number_get() == 7213);
	OK(cuGraphExecDestroy(exec));
	EXPECT_RESULT(cuGraphLaunch(exec, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void check_update(int argc, char **argv)
{
	CUgraph graph, other, clone;
	CUgraphNode a, b, found;
	CUgraphExec exec;
	CUgraphExecUpdateResultInfo info;
	CUDA_KERNEL_NODE_PARAMS p;
	unsigned int enabled;

	start();
	OK(cuGraphCreate(&graph, 0));
	a = digit_node(graph, NULL, 0, 1);
	b = digit_node(graph, &a, 1, 2);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphKernelNodeGetParams_v2(b, &p));
	EXPECT(p.func == digit && *(uint32_t *)p.kernelParams[1] == 2);
	uint32_t value = 5;
	void *params[] = {&number, &value};
	p.kernelParams = params;
	OK(cuGraphExecKernelNodeSetParams_v2(exec, b, &p));
	launch(exec);
	EXPECT(number_get() == 15);
	OK(cuGraphNodeSetEnabled(exec, a, 0));
	OK(cuGraphNodeGetEnabled(exec, a, &enabled));
	EXPECT(!enabled);
	launch(exec);
	EXPECT(number_get() == 5);
	OK(cuGraphNodeSetEnabled(exec, a, 1));
	/* From another graph of the same shape. */
	OK(cuGraphCreate(&other, 0));
	a = digit_node(other, NULL, 0, 8);
	digit_node(other, &a, 1, 9);
	OK(cuGraphExecUpdate_v2(exec, other, &info));
	EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	launch(exec);
	EXPECT(number_get() == 89);
	digit_node(other, &a, 1, 9);
	EXPECT_RESULT(cuGraphExecUpdate_v2(exec, other, &info),
		      CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphNodeFindInClone(&found, b, clone));
	EXPECT(found != b);
	/* A graph within a graph. */
	CUgraph outer;
	CUgraphNode child;
	OK(cuGraphCreate(&outer, 0));
	a = digit_node(outer, NULL, 0, 4);
	OK(cuGraphAddChildGraphNode(&child, outer, &a, 1, clone));
	digit_node(outer, &child, 1, 6);
	OK(cuGraphDestroy(clone));
	CUgraphExec nested;
	OK(cuGraphInstantiateWithFlags(&nested, outer, 0));
	launch(nested);
	EXPECT(number_get() == 4126);
}

static void check_capture(int argc, char **argv)
{
	CUgraph graph;
	CUgraphExec exec;
	CUgraphNode nodes[10];
	CUstream a, b;
	CUevent fork, join;
	CUstreamCaptureStatus status;
	size_t count = 10;

	start();
	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT_RESULT(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL),
		      CUDA_ERROR_ILLEGAL_STATE);
	digit_launch(a, 1);
	OK(cuEventRecord(fork, a));
	EXPECT_RESULT(cuEventQuery(fork), CUDA_ERROR_CAPTURED_EVENT);
	OK(cuStreamWaitEvent(b, fork, 0));
	OK(cuStreamIsCapturing(b, &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	digit_launch(b, 2);
	OK(cuEventRecord(join, b));
	OK(cuStreamWaitEvent(a, join, 0));
	digit_launch(a, 3);
	OK(cuStreamEndCapture(a, &graph));
	OK(cuStreamIsCapturing(b, &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
	/* Nothing has run. */
	EXPECT(number_get() == 0);
	OK(cuGraphGetNodes(graph, nodes, &count));
	EXPECT(count == 3);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	launch(exec);
	EXPECT(number_get() == 123);
	/* A graph that is launched into a capture is a part of it. */
	CUgraph outer;
	OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	digit_launch(a, 4);
	OK(cuGraphLaunch(exec, a));
	OK(cuStreamEndCapture(a, &outer));
	OK(cuGraphInstantiateWithFlags(&exec, outer, 0));
	launch(exec);
	EXPECT(number_get() == 4123);
}

static void check_capture_errors(int argc, char **argv)
{
	CUgraph graph;
	CUstream a, b, blocking;
	CUevent event, outside;
	CUdeviceptr p;

	start();
	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
	EXPECT_RESULT(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
		      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EXPECT_RESULT(cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
	/* Waiting for a capturing stream spoils the capture. */
	OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	digit_launch(a, 1);
	EXPECT_RESULT(cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EXPECT_RESULT(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	EXPECT(!graph);
	/* A stream that was drawn in and not joined again. */
	OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(event, a));
	OK(cuStreamWaitEvent(b, event, 0));
	digit_launch(b, 1);
	EXPECT_RESULT(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	EXPECT_RESULT(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	/* A stream may go before the capture that drew it in ends: what it did is still to be
	 * joined. */
	for (int joined = 0; joined < 2; joined++) {
		CUstream passing;

		OK(cuStreamCreate(&passing, CU_STREAM_NON_BLOCKING));
		OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuEventRecord(event, a));
		OK(cuStreamWaitEvent(passing, event, 0));
		digit_launch(passing, 1);
		OK(cuEventRecord(event, passing));
		if (joined)
			OK(cuStreamWaitEvent(a, event, 0));
		OK(cuStreamDestroy_v2(passing));
		EXPECT_RESULT(cuStreamEndCapture(a, &graph),
			      joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	}
	/* An event from outside. */
	OK(cuEventRecord(outside, b));
	OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_RESULT(cuStreamWaitEvent(a, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	EXPECT_RESULT(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	/* Calls that captures do not know, by mode. */
	OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAlloc_v2(&p, 100));
	/* A node frees what a node has allocated, nothing else. */
	EXPECT_RESULT(cuMemFreeAsync(p, a), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamEndCapture(a, &graph));
	OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	EXPECT_RESULT(cuMemAlloc_v2(&p, 100), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EXPECT_RESULT(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	/* The NULL stream would wait for a capturing one. */
	OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_RESULT(cuMemsetD8Async(p, 0, 1, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	EXPECT_RESULT(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	digit_launch(a, 7);
	OK(cuCtxSynchronize());
	EXPECT(number_get() == 7);
}

static uint64_t graph_memory(CUgraphMem_attribute attribute)
{
	cuuint64_t value;

	OK(cuDeviceGetGraphMemAttribute(0, attribute, &value));
	return value;
}

static void check_memory(int argc, char **argv)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = MIB(9)};
	CUgraph graph;
	CUgraphNode a, set, release;
	CUgraphExec exec;

	start();
	size_t before = check_free_bytes();
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemAllocNode(&a, graph, NULL, 0, &alloc));
	EXPECT(alloc.dptr && check_free_bytes() == before);
	const CUDA_MEMSET_NODE_PARAMS p = {alloc.dptr, 0, 1, 1, MIB(9), 1};
	OK(cuGraphAddMemsetNode(&set, graph, &a, 1, &p, NULL));
	OK(cuGraphAddMemFreeNode(&release, graph, &set, 1, alloc.dptr));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	launch(exec);
	/* It comes with the launch, and stays the graph's until it is trimmed. */
	EXPECT(before - check_free_bytes() == MIB(10));
	EXPECT(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == MIB(10));
	EXPECT(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
	EXPECT(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == MIB(9));
	OK(cuDeviceGraphMemTrim(0));
	EXPECT(check_free_bytes() == before);
	launch(exec);
	EXPECT(before - check_free_bytes() == MIB(10));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	EXPECT(check_free_bytes() == before);
	/* More than there is: the launch fails, not the context. */
	alloc.bytesize = before + MIB(2);
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddMemAllocNode(&a, graph, NULL, 0, &alloc));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	EXPECT_RESULT(cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuCtxSynchronize());
}

static void check_memory_captured(int argc, char **argv)
{
	CUgraph graph;
	CUgraphExec exec;
	CUstream stream;
	CUdeviceptr p;
	uint32_t value = 0;

	start();
	size_t before = check_free_bytes();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemAllocAsync(&p, MIB(2), stream));
	OK(cuMemsetD32Async(p, 42, 100, stream));
	OK(cuStreamEndCapture(stream, &graph));
	EXPECT(check_free_bytes() == before);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuMemcpyDtoHAsync_v2(&value, p + 396, 4, stream));
	OK(cuStreamSynchronize(stream));
	EXPECT(value == 42);
	/* The program is to free it before the next launch. */
	EXPECT_RESULT(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuGraphLaunch(exec, stream));
	OK(cuMemFree_v2(p));
	EXPECT_RESULT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	OK(cuDeviceGraphMemTrim(0));
	EXPECT(check_free_bytes() == before);
	/* Memory that a graph has allocated outlives it. */
	OK(cuGraphLaunch(exec, stream));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuMemcpyDtoHAsync_v2(&value, p + 396, 4, stream));
	OK(cuStreamSynchronize(stream));
	EXPECT(value == 42 && before - check_free_bytes() == MIB(2));
	OK(cuMemFree_v2(p));
	OK(cuDeviceGraphMemTrim(0));
	EXPECT(check_free_bytes() == before);
}

static void *launch_and_destroy(void *context)
{
	OK(cuCtxSetCurrent(context));
	for (int i = 0; i < 200; i++) {
		CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
			.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
			.bytesize = MIB(2)};
		CUgraph graph;
		CUgraphNode a, release;
		CUgraphExec exec;

		OK(cuGraphCreate(&graph, 0));
		OK(cuGraphAddMemAllocNode(&a, graph, NULL, 0, &alloc));
		OK(cuGraphAddMemFreeNode(&release, graph, &a, 1, alloc.dptr));
		OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		OK(cuGraphLaunch(exec, NULL));
		OK(cuGraphExecDestroy(exec));
		OK(cuGraphDestroy(graph));
	}
	return NULL;
}

/* Graphs go while they run. */
static void check_memory_in_flight(int argc, char **argv)
{
	CUcontext context = check_context();
	pthread_t threads[4];

	size_t before = check_free_bytes();
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		EXPECT(pthread_create(&threads[i], NULL, launch_and_destroy, context) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		EXPECT(pthread_join(threads[i], NULL) == 0);
	OK(cuCtxSynchronize());
	OK(cuDeviceGraphMemTrim(0));
	EXPECT(check_free_bytes() == before);
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"by-hand", check_by_hand},
		{"update", check_update},
		{"capture", check_capture},
		{"capture-errors", check_capture_errors},
		{"memory", check_memory},
		{"memory-captured", check_memory_captured},
		{"memory-in-flight", check_memory_in_flight},
	};

	return checks_main(argc, argv, checks, ARRAY_SIZE(checks));
}
