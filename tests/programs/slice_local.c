/* Kernels that need local memory: slice_local WAY BYTES. One that has so many bytes of it a thread
 * is launched in that way; without a way, lists them. Prints, as JSON, the result of the call that
 * needs the memory, and what the driver says is free: at first, after it, and when it was launched
 * once more. A plain kernel runs in any case. */
#include <pthread.h>

#include "cuda_check.h"

#define NEEDS                                                             \
	".visible .entry needs(.param .u64 p, .param .u32 at)\n{\n"       \
	".local .align 8 .b8 depot[%u];\n"                                \
	".reg .b64 %%rd<6>; .reg .b32 %%r<4>;\n"                          \
	"ld.param.u64 %%rd1, [p]; ld.param.u32 %%r1, [at];\n"             \
	"cvt.u64.u32 %%rd2, %%r1; mov.u64 %%rd3, depot;\n"                \
	"add.u64 %%rd4, %%rd3, %%rd2; st.local.u8 [%%rd4], %%r1;\n"       \
	"ld.local.u8 %%r2, [%%rd4]; st.global.u32 [%%rd1], %%r2;\nret;\n" \
	"}\n"
#define PLAIN                                                  \
	".visible .entry plain(.param .u64 p, .param .u32 at)" \
	"\n{\nret;\n}\n"
#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

struct test {
	unsigned bytes;
	char ptx[2048];
	CUcontext context;
	CUmodule module;
	CUfunction needs, plain;
	CUdeviceptr word;
	uint32_t at;
	void *params[2];
	CUstream stream;
};

static CUDA_KERNEL_NODE_PARAMS node_of(struct test *t, CUfunction f)
{
	return (CUDA_KERNEL_NODE_PARAMS){f, 1, 1, 1, 1, 1, 1, 0, t->params, NULL, NULL, NULL};
}

static CUDA_KERNEL_NODE_PARAMS_v1 old_node_of(struct test *t, CUfunction f)
{
	return (CUDA_KERNEL_NODE_PARAMS_v1){f, 1, 1, 1, 1, 1, 1, 0, t->params, NULL};
}

static CUresult launch(struct test *t, CUfunction f)
{
	return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, t->stream, t->params, NULL);
}

/* ---- launches ---- */

static CUresult by_kernel(struct test *t)
{
	return launch(t, t->needs);
}

static CUresult by_kernel_ptsz(struct test *t)
{
	return cuLaunchKernel_ptsz(t->needs, 1, 1, 1, 1, 1, 1, 0, NULL, t->params, NULL);
}

static CUresult by_null_stream(struct test *t)
{
	return cuLaunchKernel(t->needs, 1, 1, 1, 1, 1, 1, 0, NULL, t->params, NULL);
}

static CUresult by_ex(struct test *t)
{
	const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, t->stream, NULL, 0};

	return cuLaunchKernelEx(&config, t->needs, t->params, NULL);
}

static CUresult by_ex_ptsz(struct test *t)
{
	const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, t->stream, NULL, 0};

	return cuLaunchKernelEx_ptsz(&config, t->needs, t->params, NULL);
}

static CUresult by_cooperative(struct test *t)
{
	return cuLaunchCooperativeKernel(t->needs, 1, 1, 1, 1, 1, 1, 0, t->stream, t->params);
}

static CUresult by_cooperative_ptsz(struct test *t)
{
	return cuLaunchCooperativeKernel_ptsz(t->needs, 1, 1, 1, 1, 1, 1, 0, t->stream, t->params);
}

static CUresult by_multi_device(struct test *t)
{
	CUDA_LAUNCH_PARAMS p = {t->needs, 1, 1, 1, 1, 1, 1, 0, t->stream, t->params};

	return cuLaunchCooperativeKernelMultiDevice(&p, 1, 0);
}

static void old_params(struct test *t)
{
	OK(cuFuncSetBlockShape(t->needs, 1, 1, 1));
	OK(cuParamSetSize(t->needs, 12));
	OK(cuParamSetv(t->needs, 0, &t->word, 8));
	OK(cuParamSeti(t->needs, 8, t->at));
}

static CUresult by_launch(struct test *t)
{
	old_params(t);
	return cuLaunch(t->needs);
}

static CUresult by_launch_grid(struct test *t)
{
	old_params(t);
	return cuLaunchGrid(t->needs, 1, 1);
}

static CUresult by_launch_grid_async(struct test *t)
{
	old_params(t);
	return cuLaunchGridAsync(t->needs, 1, 1, t->stream);
}

/* ---- ways to a function ---- */

static CUlibrary library_of(struct test *t)
{
	static CUlibrary library;

	if (!library)
		OK(cuLibraryLoadData(&library, t->ptx, NULL, NULL, 0, NULL, NULL, 0));
	return library;
}

static CUkernel kernel_of(struct test *t)
{
	CUkernel kernel;

	OK(cuLibraryGetKernel(&kernel, library_of(t), "needs"));
	return kernel;
}

static CUresult by_library_kernel(struct test *t)
{
	return launch(t, (CUfunction)kernel_of(t));
}

static CUresult by_kernel_function(struct test *t)
{
	CUfunction f;

	OK(cuKernelGetFunction(&f, kernel_of(t)));
	return launch(t, f);
}

static CUresult by_library_module(struct test *t)
{
	CUmodule module;
	CUfunction f;

	OK(cuLibraryGetModule(&module, library_of(t)));
	OK(cuModuleGetFunction(&f, module, "needs"));
	return launch(t, f);
}

static CUresult by_enumerated_kernel(struct test *t)
{
	CUkernel kernels[2];
	const char *name;

	OK(cuLibraryEnumerateKernels(kernels, 2, library_of(t)));
	OK(cuKernelGetName(&name, kernels[0]));
	return launch(t, (CUfunction)kernels[strcmp(name, "needs") != 0]);
}

static CUresult by_enumerated_function(struct test *t)
{
	CUfunction functions[2];
	const char *name;
	CUmodule module;

	OK(cuModuleLoadData(&module, t->ptx));
	OK(cuModuleEnumerateFunctions(functions, 2, module));
	OK(cuFuncGetName(&name, functions[0]));
	return launch(t, functions[strcmp(name, "needs") != 0]);
}

/* Its handle may be that of one before it, which needed nothing. */
static CUresult by_reloaded_module(struct test *t)
{
	char plain[sizeof(t->ptx)];
	CUmodule module;
	CUfunction f;

	snprintf(plain, sizeof(plain), HEAD NEEDS PLAIN, 8u);
	OK(cuModuleLoadData(&module, plain));
	OK(cuModuleGetFunction(&f, module, "needs"));
	OK(launch(t, f));
	OK(cuCtxSynchronize());
	OK(cuModuleUnload(module));
	OK(cuModuleLoadData(&module, t->ptx));
	OK(cuModuleGetFunction(&f, module, "needs"));
	return launch(t, f);
}

/* ---- graphs ---- */

static CUgraph captured(struct test *t, CUfunction f)
{
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(t->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(launch(t, f));
	OK(cuStreamEndCapture(t->stream, &graph));
	return graph;
}

static CUgraph with_node(struct test *t, CUfunction f, CUgraphNode *ret)
{
	const CUDA_KERNEL_NODE_PARAMS p = node_of(t, f);
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode_v2(ret, graph, NULL, 0, &p));
	return graph;
}

/* A driver may take the memory when it is made, or when it is launched. */
static CUresult run(struct test *t, CUgraph graph)
{
	CUgraphExec exec;
	CUresult result = cuGraphInstantiateWithFlags(&exec, graph, 0);

	return result == CUDA_SUCCESS ? cuGraphLaunch(exec, t->stream) : result;
}

static CUgraphExec plain_exec(struct test *t, CUgraphNode *ret)
{
	CUgraph graph = with_node(t, t->plain, ret);
	CUgraphExec exec;

	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphLaunch(exec, t->stream));
	return exec;
}

static CUresult by_capture(struct test *t)
{
	return run(t, captured(t, t->needs));
}

static CUresult by_captured_library_kernel(struct test *t)
{
	return run(t, captured(t, (CUfunction)kernel_of(t)));
}

static CUresult by_graph_ptsz(struct test *t)
{
	CUgraphExec exec;
	CUgraph graph = captured(t, t->needs);
	CUresult result = cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0);

	return result == CUDA_SUCCESS ? cuGraphLaunch_ptsz(exec, t->stream) : result;
}

static CUresult by_upload(struct test *t)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
						.hUploadStream = t->stream};
	CUgraphExec exec;

	return cuGraphInstantiateWithParams(&exec, captured(t, t->needs), &params);
}

static CUresult by_upload_alone(struct test *t)
{
	CUgraphExec exec;
	CUresult result = cuGraphInstantiateWithFlags(&exec, captured(t, t->needs), 0);

	return result == CUDA_SUCCESS ? cuGraphUpload(exec, t->stream) : result;
}

static CUresult by_node(struct test *t)
{
	CUgraphNode node;

	return run(t, with_node(t, t->needs, &node));
}

static CUresult by_old_node(struct test *t)
{
	const CUDA_KERNEL_NODE_PARAMS_v1 p = old_node_of(t, t->needs);
	CUgraphNode node;
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
	return run(t, graph);
}

static CUresult by_child(struct test *t)
{
	CUgraphNode node, child;
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddChildGraphNode(&child, graph, NULL, 0, with_node(t, t->needs, &node)));
	return run(t, graph);
}

static CUresult by_update(struct test *t)
{
	CUgraphNode node, needs;
	CUgraphExec exec = plain_exec(t, &node);
	CUgraphExecUpdateResultInfo info;
	CUresult result = cuGraphExecUpdate_v2(exec, with_node(t, t->needs, &needs), &info);

	return result == CUDA_SUCCESS ? cuGraphLaunch(exec, t->stream) : result;
}

static CUresult by_old_update(struct test *t)
{
	CUgraphNode node, needs, differs;
	CUgraphExec exec = plain_exec(t, &node);
	CUgraphExecUpdateResult update;
	CUresult result =
		cuGraphExecUpdate(exec, with_node(t, t->needs, &needs), &differs, &update);

	return result == CUDA_SUCCESS ? cuGraphLaunch(exec, t->stream) : result;
}

static CUresult by_exec_params(struct test *t)
{
	const CUDA_KERNEL_NODE_PARAMS p = node_of(t, t->needs);
	CUgraphNode node;
	CUgraphExec exec = plain_exec(t, &node);
	CUresult result = cuGraphExecKernelNodeSetParams_v2(exec, node, &p);

	return result == CUDA_SUCCESS ? cuGraphLaunch(exec, t->stream) : result;
}

static CUresult by_old_exec_params(struct test *t)
{
	const CUDA_KERNEL_NODE_PARAMS_v1 p = old_node_of(t, t->needs);
	CUgraphNode node;
	CUgraphExec exec = plain_exec(t, &node);
	CUresult result = cuGraphExecKernelNodeSetParams(exec, node, &p);

	return result == CUDA_SUCCESS ? cuGraphLaunch(exec, t->stream) : result;
}

static CUresult by_exec_child(struct test *t)
{
	CUgraphNode node, child;
	CUgraph graph;
	CUgraphExec exec;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddChildGraphNode(&child, graph, NULL, 0, with_node(t, t->plain, &node)));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CUresult result =
		cuGraphExecChildGraphNodeSetParams(exec, child, with_node(t, t->needs, &node));
	return result == CUDA_SUCCESS ? cuGraphLaunch(exec, t->stream) : result;
}

static CUresult by_captured_graph(struct test *t)
{
	CUgraphExec exec;
	CUgraph graph;
	CUresult result = cuGraphInstantiateWithFlags(&exec, captured(t, t->needs), 0);

	if (result != CUDA_SUCCESS)
		return result;
	OK(cuStreamBeginCapture_v2(t->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	result = cuGraphLaunch(exec, t->stream);
	OK(cuStreamEndCapture(t->stream, &graph));
	return result == CUDA_SUCCESS ? run(t, graph) : result;
}

/* ---- more than one ---- */

static CUresult by_second_context(struct test *t)
{
	CUcontext second;
	CUmodule module;
	CUfunction f;

	OK(cuCtxCreate_v2(&second, 0, 0));
	OK(cuModuleLoadData(&module, t->ptx));
	OK(cuModuleGetFunction(&f, module, "needs"));
	CUresult result = cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, t->params, NULL);
	OK(cuCtxSynchronize());
	OK(cuCtxSetCurrent(t->context));
	return result;
}

/* Memory that is raised for its sake is there already. */
static CUresult by_limit(struct test *t)
{
	CUresult result = cuCtxSetLimit(CU_LIMIT_STACK_SIZE, t->bytes);

	return result == CUDA_SUCCESS ? launch(t, t->needs) : result;
}

static struct test *both;
static CUresult of_thread(void)
{
	OK(cuCtxSetCurrent(both->context));
	return launch(both, both->needs);
}

static void *thread(void *arg)
{
	*(CUresult *)arg = of_thread();
	return NULL;
}

static CUresult by_threads(struct test *t)
{
	CUresult results[8];
	pthread_t threads[8];

	both = t;
	for (unsigned i = 0; i < 8; i++)
		EXPECT(pthread_create(&threads[i], NULL, thread, &results[i]) == 0);
	for (unsigned i = 0; i < 8; i++)
		EXPECT(pthread_join(threads[i], NULL) == 0);
	for (unsigned i = 1; i < 8; i++)
		EXPECT(results[i] == results[0]);
	return results[0];
}

static const struct way {
	const char *name;
	CUresult (*launch)(struct test *t);
} ways[] = {
	{"kernel", by_kernel},
	{"kernel-ptsz", by_kernel_ptsz},
	{"null-stream", by_null_stream},
	{"ex", by_ex},
	{"ex-ptsz", by_ex_ptsz},
	{"cooperative", by_cooperative},
	{"cooperative-ptsz", by_cooperative_ptsz},
	{"multi-device", by_multi_device},
	{"launch", by_launch},
	{"launch-grid", by_launch_grid},
	{"launch-grid-async", by_launch_grid_async},
	{"library-kernel", by_library_kernel},
	{"kernel-function", by_kernel_function},
	{"library-module", by_library_module},
	{"enumerated-kernel", by_enumerated_kernel},
	{"enumerated-function", by_enumerated_function},
	{"reloaded-module", by_reloaded_module},
	{"capture", by_capture},
	{"captured-library-kernel", by_captured_library_kernel},
	{"graph-ptsz", by_graph_ptsz},
	{"upload", by_upload},
	{"upload-alone", by_upload_alone},
	{"node", by_node},
	{"old-node", by_old_node},
	{"child", by_child},
	{"update", by_update},
	{"old-update", by_old_update},
	{"exec-params", by_exec_params},
	{"old-exec-params", by_old_exec_params},
	{"exec-child", by_exec_child},
	{"captured-graph", by_captured_graph},
	{"second-context", by_second_context},
	{"limit", by_limit},
	{"threads", by_threads},
};

/* Those that get the function by themselves. */
static void begin(struct test *t, const char *way)
{
	t->context = check_context();
	snprintf(t->ptx, sizeof(t->ptx), HEAD NEEDS PLAIN, t->bytes);
	OK(cuModuleLoadData(&t->module, t->ptx));
	OK(cuModuleGetFunction(&t->plain, t->module, "plain"));
	if (!strstr(way, "library") && !strstr(way, "enumerated") && !strstr(way, "reloaded") &&
	    strcmp(way, "kernel-function") != 0 && strcmp(way, "second-context") != 0)
		OK(cuModuleGetFunction(&t->needs, t->module, "needs"));
	OK(cuMemAlloc_v2(&t->word, 4096));
	OK(cuStreamCreate(&t->stream, CU_STREAM_NON_BLOCKING));
	t->params[0] = &t->word;
	t->params[1] = &t->at;
}

int main(int argc, char **argv)
{
	static struct test t;
	const struct way *way = ways;

	if (argc == 1) {
		for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
			puts(ways[i].name);
		return 0;
	}
	while (way < ways + ARRAY_SIZE(ways) && strcmp(way->name, argv[1]) != 0)
		way++;
	t.bytes = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	if (way == ways + ARRAY_SIZE(ways) || !t.bytes)
		return 2;
	begin(&t, way->name);
	size_t before = check_free_bytes();
	CUresult result = way->launch(&t);
	OK(cuCtxSynchronize());
	size_t after = check_free_bytes();
	CUresult again = t.needs ? launch(&t, t.needs) : result;
	OK(launch(&t, t.plain));
	OK(cuCtxSynchronize());
	printf("{\"result\": %d, \"again\": %d, \"before\": %zu, \"after\": %zu, \"end\": %zu}\n",
	       (int)result, (int)again, before, after, check_free_bytes());
	return 0;
}
