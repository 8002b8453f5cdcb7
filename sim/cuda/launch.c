/* Kernel launches: checks and parameters when they are called, the kernel itself when it runs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/macros.h"
#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/device_heap.h"
#include "cuda/function.h"
#include "cuda/handle.h"
#include "cuda/memory.h"
#include "cuda/module.h"
#include "cuda/stream.h"

/* The cost of a launch for the GPU besides its instructions. */
#define LAUNCH_NS 1500u
/* Instructions that an SM can begin in a clock, and clocks until a warp can begin its next one. */
#define ISSUE_PER_CLOCK 4.0
#define CLOCKS_PER_WARP 4.0
/* Bytes that a warp's access to memory is taken to move. */
#define ACCESS_BYTES 128.0
/* How far a kernel that polls memory is played ahead of the GPU's clock before the player waits. */
#define WATCH_AHEAD_NS 40000u

/* A kernel that is being played. Its time is the GPU's: where it last was in step with that, and
 * what the model takes for what it did since. */
struct running {
	struct lane *lane;
	CUcontext ctx;
	const struct op_kernel *kernel;
	const struct ptx_result *result;
	uint64_t at, sure_until; /* by the GPU's clock: in step; the end of its turn */
	uint64_t counted_ns;     /* the time of instructions until then */
	uint64_t slept_ns;       /* since then */
	uint64_t modelled_ns;    /* all that was handed in */
	uint64_t waited_ns;      /* the player's own time spent waiting for the GPU */
	bool reads_clock;
	bool in_step;  /* `at` and `sure_until` are known */
	bool launched; /* has handed something in */
};

static bool find_range(void *user, uint64_t address, struct ptx_range *ret)
{
	struct running *running = user;
	struct range range;

	if (!range_find(address, &range) || !range.readable)
		return false;
	if (range.device != running->ctx->device && range.kind != RANGE_VMM &&
	    range.kind != RANGE_HOST && range.kind != RANGE_REGISTERED &&
	    range.kind != RANGE_MANAGED && !(running->ctx->peers >> range.device->ordinal & 1))
		return false;
	*ret = (struct ptx_range){range.start, range.size, range.host, range.writable};
	return true;
}

static void print(void *user, const char *text, size_t length)
{
	fwrite(text, 1, length, stdout);
	fflush(stdout);
}

/* How long the GPU takes for its instructions: by its rate of instructions at this many warps, or
 * by its memory. */
static uint64_t model_ns(const struct device *device, const struct op_kernel *k,
			 const struct ptx_result *result)
{
	double blocks = (double)k->grid[0] * k->grid[1] * k->grid[2];
	double warps_per_block = ((double)k->block[0] * k->block[1] * k->block[2] + 31) / 32;
	double sms = MIN(blocks, device->sm_count);
	double warps =
		MIN(blocks * warps_per_block / sms, (double)device->model->max_threads_per_sm / 32);
	double rate = MIN(ISSUE_PER_CLOCK, warps / CLOCKS_PER_WARP);
	double clocks = (double)result->warp_instructions / (sms * rate);
	double issue = clocks * 1000.0 / device->model->clock_sm_mhz;
	double memory = (double)result->memory_instructions * ACCESS_BYTES * 1e9 /
			(double)device->model->bandwidth_memory;

	return (uint64_t)MAX(issue, memory);
}

/* Thousandths of the GPU that its blocks occupy. */
static uint16_t gpu_fill(const struct device *device, const struct op_kernel *k)
{
	uint64_t blocks = (uint64_t)k->grid[0] * k->grid[1] * k->grid[2];
	uint64_t threads = (uint64_t)k->block[0] * k->block[1] * k->block[2];
	uint64_t room = (uint64_t)device->sm_count * device->model->max_threads_per_sm;
	uint64_t fill = MAX(blocks * threads * 1000 / room,
			    MIN(blocks, device->sm_count) * 1000 / device->sm_count / 4);

	return (uint16_t)MIN(MAX(fill, 1), 1000);
}

/* Its instructions since it was in step. */
static uint64_t ahead_ns(const struct running *running)
{
	return running->slept_ns +
	       model_ns(lane_device(running->lane), running->kernel, running->result) -
	       running->counted_ns;
}

/* Hands in what it did, the launch itself included. */
static void hand_in(struct running *running, bool goes_on, uint32_t lag_ns)
{
	const struct device *device = lane_device(running->lane);
	uint64_t ahead = ahead_ns(running);
	uint64_t ns = running->launched ? ahead : LAUNCH_NS + ahead;

	if (goes_on)
		lane_sequence_begin(running->lane);
	lane_submit(running->lane, (struct wire_item){
					   .engine = WIRE_ENGINE_COMPUTE,
					   .flags = running->launched ? 0 : WIRE_ITEM_LAUNCH,
					   .ns = ns,
					   .lag_ns = lag_ns,
					   .fill = gpu_fill(device, running->kernel),
				   });
	if (goes_on)
		lane_sequence_end(running->lane);
	running->counted_ns += ahead - running->slept_ns;
	running->slept_ns = 0;
	running->modelled_ns += ns;
	running->launched = true;
}

/* Waits until the GPU has got there. */
static void get_in_step(struct running *running)
{
	uint64_t before = client_now();

	hand_in(running, true, 0);
	running->at = lane_wait_done(running->lane, &running->sure_until);
	running->in_step = true;
	running->waited_ns += client_now() - before;
}

static bool is_sure(const struct running *running)
{
	uint64_t ahead = ahead_ns(running);

	return running->at + ahead <= running->sure_until;
}

/* A time within its turns on the GPU. */
static uint64_t now(void *user)
{
	struct running *running = user;

	if (!running->reads_clock)
		return 0;
	if (!running->in_step || (!is_sure(running) && !lane_is_aborting(running->lane)))
		get_in_step(running);
	return running->at + ahead_ns(running) + client_host(driver.client)->realtime_offset;
}

static uint64_t elapsed_ns(void *user)
{
	const struct running *running = user;

	return running->modelled_ns + ahead_ns(running);
}

/* Sleeping is time on the GPU like any other, so a share of the GPU stretches it. */
static void pause_ns(void *user, uint64_t ns, bool watching)
{
	struct running *running = user;

	running->slept_ns += ns;
	if (watching && ahead_ns(running) > WATCH_AHEAD_NS)
		get_in_step(running);
}

static void meet(void *user)
{
	if (((const struct running *)user)->slept_ns)
		get_in_step(user);
}

static int checkpoint(void *user, uint64_t warp_instructions)
{
	struct running *running = user;

	lane_hand_in(running->lane);
	return lane_is_aborting(running->lane);
}

static uint64_t heap_alloc(void *user, uint64_t size)
{
	return device_heap_alloc(((struct running *)user)->ctx, size);
}

static void heap_free(void *user, uint64_t address)
{
	device_heap_free(((struct running *)user)->ctx, address);
}

static const struct ptx_callbacks callbacks = {
	.find_range = find_range,
	.print = print,
	.now = now,
	.elapsed = elapsed_ns,
	.pause = pause_ns,
	.meet = meet,
	.checkpoint = checkpoint,
	.heap_alloc = heap_alloc,
	.heap_free = heap_free,
};

static CUresult result_of_fault(enum ptx_fault_kind fault)
{
	switch (fault) {
	case PTX_FAULT_MISALIGNED_ADDRESS:
		return CUDA_ERROR_MISALIGNED_ADDRESS;
	case PTX_FAULT_STACK:
		return CUDA_ERROR_HARDWARE_STACK_ERROR;
	case PTX_FAULT_ASSERT:
		return CUDA_ERROR_ASSERT;
	case PTX_FAULT_ILLEGAL_CALL:
		return CUDA_ERROR_INVALID_PC;
	case PTX_FAULT_DEADLOCK:
		return CUDA_ERROR_LAUNCH_TIMEOUT;
	case PTX_FAULT_TRAP:
		return CUDA_ERROR_LAUNCH_FAILED;
	default:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	}
}

/* Where the one before it ended, if that is known. */
static void clock_take_over(struct running *running)
{
	const struct lane_clock *clock = lane_clock(running->lane);

	running->in_step = clock->known;
	running->at = clock->at + LAUNCH_NS;
	running->sure_until = clock->sure_until;
}

CUresult op_kernel_run(struct lane *lane, struct op_kernel *k)
{
	/* A graph does not keep its kernels' modules alive. */
	if (!handle_is(k->function, HANDLE_FUNCTION))
		return CUDA_ERROR_INVALID_HANDLE;
	struct device *device = lane_device(lane);
	CUmodule module = k->function->module;
	struct ptx_result result = {0};
	struct running running = {.lane = lane,
				  .ctx = lane_context(lane),
				  .kernel = k,
				  .result = &result,
				  .reads_clock = module->reads_clock};
	struct ptx_launch launch = {
		.module = module->ptx,
		.kernel = k->function->index,
		.grid = {k->grid[0], k->grid[1], k->grid[2]},
		.block = {k->block[0], k->block[1], k->block[2]},
		.shared_bytes = k->shared_bytes,
		.params = k->params,
		.param_bytes = k->param_bytes,
		.stack_bytes = (uint32_t)running.ctx->limits[CU_LIMIT_STACK_SIZE],
		.cooperative = k->cooperative,
		.resident_blocks = k->cooperative ? k->grid[0] * k->grid[1] * k->grid[2] : 0,
		.sm_count = device->sm_count,
		.clock_khz = device->model->clock_sm_mhz * 1000,
		.spare = lane_spare(lane),
		.callbacks = &callbacks,
		.user = &running,
	};

	lane_expect(lane);
	clock_take_over(&running);
	uint64_t start = client_now();
	int status = ptx_launch_run(&launch, &result);
	uint64_t took = client_now() - start - running.waited_ns;
	uint64_t ns = running.modelled_ns + ahead_ns(&running);
	hand_in(&running, false, (uint32_t)MIN(took > ns ? took - ns : 0, UINT32_MAX));
	if (status == 0 || lane_is_aborting(lane))
		return CUDA_SUCCESS;
	return result.fault ? result_of_fault(result.fault) : CUDA_ERROR_LAUNCH_FAILED;
}

/* Lays the parameters out as the kernel wants them. */
static CUresult params_pack(const struct ptx_kernel_info *info, void **params, void **extra,
			    struct op_kernel *k)
{
	const void *buffer = NULL;
	size_t size = 0;

	k->param_bytes = info->param_bytes;
	k->params = calloc(1, info->param_bytes + 1);
	if (!k->params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (params) {
		for (uint32_t i = 0; i < info->param_count; i++)
			memcpy((char *)k->params + info->params[i].offset, params[i],
			       info->params[i].size);
		return extra ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	}
	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (!info->param_bytes)
		return CUDA_SUCCESS;
	if (size < info->param_bytes || !buffer)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(k->params, buffer, info->param_bytes);
	return CUDA_SUCCESS;
}

static CUresult shape_check(const struct device *device, const struct CUfunc_st *f,
			    const struct op_kernel *k)
{
	const struct ptx_kernel_info *info = f->info;
	uint64_t threads = (uint64_t)k->block[0] * k->block[1] * k->block[2];
	const uint32_t *want = info->reqntid;

	if (!k->grid[0] || !k->grid[1] || !k->grid[2] || !threads)
		return CUDA_ERROR_INVALID_VALUE;
	if (k->grid[0] > INT32_MAX || k->grid[1] > 65535 || k->grid[2] > 65535)
		return CUDA_ERROR_INVALID_VALUE;
	if (k->block[0] > 1024 || k->block[1] > 1024 || k->block[2] > 64 || threads > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (threads > info->max_threads)
		return CUDA_ERROR_INVALID_VALUE;
	if (want[0] && (k->block[0] != want[0] || k->block[1] != want[1] || k->block[2] != want[2]))
		return CUDA_ERROR_INVALID_VALUE;
	if (info->shared_bytes + k->shared_bytes >
	    (f->dynamic_shared_max ? device->model->shared_per_block_optin : 49152))
		return CUDA_ERROR_INVALID_VALUE;
	if (f->dynamic_shared_max && k->shared_bytes > (uint32_t)f->dynamic_shared_max &&
	    k->shared_bytes + info->shared_bytes > 49152)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t registers = ALIGN_UP((uint64_t)info->registers, 8) * ALIGN_UP(threads, 32);
	return registers > 65536 ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

CUresult kernel_prepare(CUcontext ctx, const CUDA_KERNEL_NODE_PARAMS *p, bool cooperative,
			struct op *ret)
{
	CUfunction f = function_resolve(ctx, p->func ? p->func : (CUfunction)p->kern);
	struct op_kernel k = {
		.function = f,
		.grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
		.block = {p->blockDimX, p->blockDimY, p->blockDimZ},
		.shared_bytes = p->sharedMemBytes,
		.cooperative = cooperative,
	};

	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = shape_check(ctx->device, f, &k);
	if (result == CUDA_SUCCESS)
		result = params_pack(f->info, p->kernelParams, p->extra, &k);
	if (result != CUDA_SUCCESS) {
		free(k.params);
		return result;
	}
	*ret = (struct op){.kind = OP_KERNEL, .kernel = k};
	return CUDA_SUCCESS;
}

/* All blocks of a cooperative launch must be on the GPU at once. */
static CUresult cooperative_check(const struct device *device, const struct op_kernel *k)
{
	uint64_t blocks = (uint64_t)k->grid[0] * k->grid[1] * k->grid[2];
	int per_sm =
		occupancy_blocks(device, k->function,
				 (int)(k->block[0] * k->block[1] * k->block[2]), k->shared_bytes);

	return blocks > (uint64_t)per_sm * device->sm_count
		       ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
		       : CUDA_SUCCESS;
}

CUresult kernel_book_local(const struct op_kernel *k)
{
	return context_book_local(k->function->module->ctx, k->function->info->local_bytes);
}

static CUresult launch(const char *call, const CUDA_KERNEL_NODE_PARAMS *p, CUstream handle,
		       bool cooperative)
{
	CUstream stream;
	CUcontext ctx;
	struct op op;
	int error = 0;
	CUresult result = api_begin_context(call, &ctx);

	if (result == CUDA_SUCCESS)
		result = stream_resolve(ctx, handle, &stream);
	if (result == CUDA_SUCCESS && stream->ctx != ctx)
		result = CUDA_ERROR_INVALID_HANDLE;
	/* The result is the op's, and then the stream's. */
	if (result == CUDA_SUCCESS)
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		result = kernel_prepare(ctx, p, cooperative, &op);
	if (result != CUDA_SUCCESS)
		return result;
	if (!capture_is_on(stream))
		result = kernel_book_local(&op.kernel);
	if (result == CUDA_SUCCESS && cooperative)
		result = cooperative_check(ctx->device, &op.kernel);
	if (client_fault(driver.client, WIRE_FAULT_LAUNCH, ctx->device->wire, call, &error)) {
		context_set_error(ctx, error ? (CUresult)error : CUDA_ERROR_LAUNCH_FAILED);
		result = context_error(ctx);
	}
	if (result != CUDA_SUCCESS) {
		op_release(&op);
		return result;
	}
	return stream_submit(stream, &op);
}

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			unsigned int block_x, unsigned int block_y, unsigned int block_z,
			unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
	const CUDA_KERNEL_NODE_PARAMS p = {f,       grid_x,       grid_y, grid_z, block_x, block_y,
					   block_z, shared_bytes, params, extra,  NULL,    NULL};

	return launch(__func__, &p, stream, false);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y,
				   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
				   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
				   void **params)
{
	const CUDA_KERNEL_NODE_PARAMS p = {f,       grid_x,       grid_y, grid_z, block_x, block_y,
					   block_z, shared_bytes, params, NULL,   NULL,    NULL};

	return launch(__func__, &p, stream, true);
}

/* Each on a device and a stream of its own. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
					      unsigned int flags)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t devices = 0;

	API_BEGIN_CONTEXT(ctx);
	if (!list || !count || flags >> 2)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		if (!handle_is(list[i].hStream, HANDLE_STREAM))
			return CUDA_ERROR_INVALID_HANDLE;
		uint64_t device = 1ull << list[i].hStream->ctx->device->ordinal;
		if (devices & device)
			return CUDA_ERROR_INVALID_DEVICE;
		devices |= device;
	}
	for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
		const CUDA_LAUNCH_PARAMS *p = &list[i];
		CUcontext popped;

		result = cuCtxPushCurrent_v2(p->hStream->ctx);
		if (result != CUDA_SUCCESS)
			break;
		result = cuLaunchCooperativeKernel(
			p->function, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX,
			p->blockDimY, p->blockDimZ, p->sharedMemBytes, p->hStream, p->kernelParams);
		cuCtxPopCurrent_v2(&popped);
	}
	return result;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	bool cooperative = false;

	if (!config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
			cooperative = config->attrs[i].value.cooperative != 0;
	const CUDA_KERNEL_NODE_PARAMS p = {f,
					   config->gridDimX,
					   config->gridDimY,
					   config->gridDimZ,
					   config->blockDimX,
					   config->blockDimY,
					   config->blockDimZ,
					   config->sharedMemBytes,
					   params,
					   extra,
					   NULL,
					   NULL};
	return launch(__func__, &p, config->hStream, cooperative);
}
