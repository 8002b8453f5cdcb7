/* A random program, the same for the same seed, whose results don't depend on timing:
 *
 *   gate_stress SEED [THREADS [STEPS]]
 *
 * Each thread has some streams of every kind (made with and without NON_BLOCKING, its own default
 * stream, the NULL stream that all share). Each stream has a number that kernels in it compute on.
 * Streams are joined by events, and wait for words that other streams, or the thread, write later.
 * Prints a checksum of all numbers. Run beside a gate that opens and closes at random, it has to
 * print the same, and to end. */
#include <pthread.h>
#include <stdatomic.h>

#include "cuda_check.h"

#define THREADS_MOST 16
#define STREAMS 5

enum kind {
	FREE_ONE, /* two that the NULL stream doesn't know */
	FREE_OTHER,
	BLOCKING,
	PER_THREAD,
	LEGACY,
};

struct lane {
	CUstream stream;
	CUdeviceptr number, scratch;
	uint32_t host; /* computed on by host functions */
};

struct thread {
	pthread_t id;
	unsigned int seed;
	long steps;
	struct lane lanes[STREAMS];
	_Atomic uint32_t *words; /* pinned; [0]: written by streams, [1]: by the thread */
	uint32_t word_values[2];
};

static const char *const ptx =
	".version 6.4\n.target sm_70\n.address_size 64\n" CHECK_PTX_DIGIT
	/* *p = *p * 31 + *q */
	".visible .entry mix(.param .u64 p, .param .u64 q)\n{\n"
	".reg .b64 %rd<3>; .reg .b32 %r<4>;\n"
	"ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; ld.global.u32 %r1, [%rd2];\n"
	"ld.global.u32 %r2, [%rd1]; mad.lo.u32 %r3, %r2, 31, %r1;\n"
	"st.global.u32 [%rd1], %r3;\nret;\n}\n";

static CUcontext context;
static CUfunction digit, mix;

static uint32_t pick(struct thread *t, uint32_t below)
{
	return (uint32_t)rand_r(&t->seed) % below;
}

static void digit_launch(const struct lane *lane, CUstream stream, uint32_t value)
{
	CUdeviceptr number = lane->number;
	void *params[] = {&number, &value};

	OK(cuLaunchKernel(digit, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void mix_launch(CUstream stream, CUdeviceptr to, CUdeviceptr from)
{
	void *params[] = {&to, &from};

	OK(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void step_burst(struct thread *t, struct lane *lane)
{
	for (uint32_t i = pick(t, 40) + 1; i; i--)
		digit_launch(lane, lane->stream, pick(t, 10));
}

static void depend(CUstream before, CUstream after)
{
	CUevent event;

	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventRecord(event, before));
	OK(cuStreamWaitEvent(after, event, 0));
	OK(cuEventDestroy_v2(event));
}

static void step_join(struct thread *t, struct lane *lane)
{
	struct lane *other = &t->lanes[pick(t, STREAMS)];

	if (other == lane)
		return;
	depend(other->stream, lane->stream);
	mix_launch(lane->stream, lane->number, other->number);
	depend(lane->stream, other->stream);
}

static void step_fill(struct thread *t, struct lane *lane)
{
	OK(cuMemsetD32Async(lane->scratch, pick(t, 1000), 8, lane->stream));
	OK(cuMemcpyDtoDAsync_v2(lane->scratch + 32, lane->scratch, 32, lane->stream));
	mix_launch(lane->stream, lane->number, lane->scratch + 48);
}

static void step_graph(struct thread *t, struct lane *lane)
{
	CUstream capture = t->lanes[FREE_ONE].stream;
	CUgraphExec exec;
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(capture, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (uint32_t i = pick(t, 8) + 1; i; i--)
		digit_launch(lane, capture, pick(t, 10));
	OK(cuStreamEndCapture(capture, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (uint32_t i = pick(t, 3) + 1; i; i--)
		OK(cuGraphLaunch(exec, lane->stream));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
}

static void host_add(void *data)
{
	struct lane *lane = data;

	lane->host = lane->host * 7 + 1;
}

static void step_host(struct thread *t, struct lane *lane)
{
	OK(cuLaunchHostFunc(lane->stream, host_add, lane));
	step_burst(t, lane);
}

/* A stream waits for what another one writes, and that is handed in later. */
static void step_word(struct thread *t, struct lane *unused)
{
	struct lane *waiter = &t->lanes[pick(t, 2) ? FREE_ONE : BLOCKING];
	struct lane *writer = &t->lanes[FREE_OTHER];
	CUdeviceptr word = (uintptr_t)&t->words[0];
	uint32_t value = ++t->word_values[0];

	OK(cuStreamWaitValue32_v2(waiter->stream, word, value, CU_STREAM_WAIT_VALUE_GEQ));
	step_burst(t, waiter);
	step_burst(t, writer);
	OK(cuStreamWriteValue32_v2(writer->stream, word, value, 0));
	step_burst(t, waiter);
}

/* A stream waits for the thread, which first waits for another stream. */
static void step_word_host(struct thread *t, struct lane *unused)
{
	struct lane *waiter = &t->lanes[FREE_ONE], *other = &t->lanes[FREE_OTHER];
	CUdeviceptr word = (uintptr_t)&t->words[1];
	uint32_t value = ++t->word_values[1];

	OK(cuStreamWaitValue32_v2(waiter->stream, word, value, CU_STREAM_WAIT_VALUE_GEQ));
	step_burst(t, waiter);
	step_burst(t, other);
	OK(cuStreamSynchronize(other->stream));
	atomic_store(&t->words[1], value);
}

static void step_wait(struct thread *t, struct lane *lane)
{
	OK(cuStreamSynchronize(lane->stream));
}

static void step_read(struct thread *t, struct lane *lane)
{
	uint32_t value;

	OK(cuMemcpyDtoHAsync_v2(&value, lane->number, sizeof(value), lane->stream));
	OK(cuStreamSynchronize(lane->stream));
	OK(cuMemcpyHtoDAsync_v2(lane->scratch, &value, sizeof(value), lane->stream));
	mix_launch(lane->stream, lane->number, lane->scratch);
	OK(cuStreamSynchronize(lane->stream));
}

/* A stream is destroyed with work in it; another one goes on behind that. */
static void step_renew(struct thread *t, struct lane *unused)
{
	struct lane *lane = &t->lanes[FREE_OTHER];
	CUstream before = lane->stream;

	step_burst(t, lane);
	OK(cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING));
	depend(before, lane->stream);
	OK(cuStreamDestroy_v2(before));
}

static void step_memory(struct thread *t, struct lane *lane)
{
	CUdeviceptr ptr;

	OK(cuMemAlloc_v2(&ptr, 4096));
	OK(cuMemsetD8_v2(ptr, 1, 4096));
	OK(cuMemFree_v2(ptr));
}

static void lane_make(struct lane *lane, enum kind kind)
{
	switch (kind) {
	case PER_THREAD:
		lane->stream = CU_STREAM_PER_THREAD;
		break;
	case LEGACY:
		lane->stream = NULL;
		break;
	default:
		OK(cuStreamCreate(&lane->stream,
				  kind == BLOCKING ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
	}
	OK(cuMemAlloc_v2(&lane->number, 4));
	OK(cuMemAlloc_v2(&lane->scratch, 64));
	OK(cuMemsetD32_v2(lane->number, 1, 1));
}

static void *run(void *data)
{
	static void (*const steps[])(struct thread *, struct lane *) = {
		step_burst, step_burst,     step_join, step_join, step_fill,  step_graph, step_host,
		step_word,  step_word_host, step_wait, step_read, step_renew, step_memory};
	struct thread *t = data;
	void *words;

	OK(cuCtxSetCurrent(context));
	OK(cuMemHostAlloc(&words, 64, CU_MEMHOSTALLOC_PORTABLE));
	memset(words, 0, 64);
	t->words = words;
	for (int i = 0; i < STREAMS; i++)
		lane_make(&t->lanes[i], (enum kind)i);
	OK(cuStreamSynchronize(NULL));
	for (long i = 0; i < t->steps; i++)
		steps[pick(t, ARRAY_SIZE(steps))](t, &t->lanes[pick(t, STREAMS)]);
	for (int i = 0; i < STREAMS; i++)
		OK(cuStreamSynchronize(t->lanes[i].stream));
	return NULL;
}

static uint64_t checksum(const struct thread *threads, long count)
{
	uint64_t sum = 0;

	for (long i = 0; i < count; i++)
		for (int k = 0; k < STREAMS; k++) {
			uint32_t value;

			OK(cuMemcpyDtoH_v2(&value, threads[i].lanes[k].number, sizeof(value)));
			sum = sum * 1000003 + value;
			sum = sum * 1000003 + threads[i].lanes[k].host;
		}
	return sum;
}

int main(int argc, char **argv)
{
	static struct thread threads[THREADS_MOST];
	unsigned int seed = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 10) : 1;
	long count = argc > 2 ? strtol(argv[2], NULL, 10) : 2;
	long steps = argc > 3 ? strtol(argv[3], NULL, 10) : 100;
	CUmodule module;

	if (count < 1 || count > THREADS_MOST)
		return 2;
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, 0));
	OK(cuModuleLoadData(&module, ptx));
	OK(cuModuleGetFunction(&digit, module, "digit"));
	OK(cuModuleGetFunction(&mix, module, "mix"));
	for (long i = 0; i < count; i++) {
		threads[i].seed = seed * 100 + (unsigned int)i;
		threads[i].steps = steps;
		if (pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0)
			return 2;
	}
	for (long i = 0; i < count; i++)
		pthread_join(threads[i].id, NULL);
	printf("%016llx\n", (unsigned long long)checksum(threads, count));
	return 0;
}
