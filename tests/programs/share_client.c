/* A workload of a given shape, for the tests and benchmarks of shares of GPU time.
 *
 *   share_client [--kernel-us N[,N...]] [--sync-every N] [--duty PERCENT] [--period-ms N]
 *                [--graph N] [--streams N] [--seconds S] [--spin] [--times FILE] [--gpus N]
 *                [--blocks N] [--work N]
 *
 * Launches kernels of these lengths one after the other (1000), on the streams in turn (1), as
 * graphs of N kernels (0: singly), on each of the GPUs in turn (1), as grids of N blocks (1), which
 * others than carve may go by; waits for them after every N (8; 0: never before the end). --work:
 * instead of sleeping a kernel makes N steps for each us, so that it takes longer when others have
 * the GPU meanwhile. With a duty below 100 it works in bursts: so much of each period (50 ms), and
 * then waits. Says "up" once it works, and at the end, after S seconds or SIGTERM, one line of
 * JSON. It has how many kernels there were and the sum of their times by their own stored clocks.
 * For bursts it has the longest and the middle time from the first launch to the end of the last
 * kernel. --times writes {start, end} of the last kernels, one a line, in ns of the GPU's clock. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <time.h>

#include "cuda_check.h"
#include "share_kernel.h"

#define SLOTS 1048576u
#define STREAMS_MAX 64u
#define LENGTHS_MAX 16u
#define GPUS_MAX 8u
#define BURSTS_MAX 65536u
/* A driver lets so many launches queue up, and then blocks. The simulated one does not: with
 * events, that the program would not need otherwise. */
#define QUEUE_MAX 1024u
#define QUEUE_EVENTS 4u

struct gpu {
	CUcontext context;
	CUfunction function;
	CUdeviceptr ring, count;
	CUstream stream[STREAMS_MAX];
	CUgraphExec graph[LENGTHS_MAX];
	CUevent event[QUEUE_EVENTS];
};

static struct {
	unsigned kernel_us[LENGTHS_MAX], lengths;
	unsigned sync_every, duty, period_ms, graph, streams, gpus, spin, blocks, work;
	double seconds;
	const char *times;
} options = {.kernel_us = {1000},
	     .lengths = 1,
	     .sync_every = 8,
	     .duty = 100,
	     .period_ms = 50,
	     .streams = 1,
	     .gpus = 1,
	     .blocks = 1,
	     .seconds = 1e9};

static struct gpu gpus[GPUS_MAX];
static uint64_t launched, bursts[BURSTS_MAX], burst_count;
static volatile sig_atomic_t stopped;

static void on_term(int number)
{
	stopped = 1;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- options ----------------------------------------------------------------------------- */

static void lengths_read(char *text)
{
	options.lengths = 0;
	for (char *part = strtok(text, ","); part && options.lengths < LENGTHS_MAX;
	     part = strtok(NULL, ","))
		options.kernel_us[options.lengths++] = (unsigned)atoi(part);
	EXPECT(options.lengths > 0);
}

static void options_read(int argc, char **argv)
{
	static const struct option table[] = {{"kernel-us", required_argument, NULL, 'k'},
					      {"sync-every", required_argument, NULL, 'y'},
					      {"duty", required_argument, NULL, 'd'},
					      {"period-ms", required_argument, NULL, 'p'},
					      {"graph", required_argument, NULL, 'g'},
					      {"streams", required_argument, NULL, 's'},
					      {"seconds", required_argument, NULL, 't'},
					      {"gpus", required_argument, NULL, 'n'},
					      {"times", required_argument, NULL, 'f'},
					      {"spin", no_argument, NULL, 'i'},
					      {"blocks", required_argument, NULL, 'b'},
					      {"work", required_argument, NULL, 'w'},
					      {0}};
	int option;

	while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
		unsigned number = optarg ? (unsigned)atoi(optarg) : 0;

		switch (option) {
		case 'k':
			lengths_read(optarg);
			break;
		case 'y':
			options.sync_every = number;
			break;
		case 'd':
			options.duty = number;
			break;
		case 'p':
			options.period_ms = number;
			break;
		case 'g':
			options.graph = number;
			break;
		case 's':
			options.streams = number;
			break;
		case 't':
			options.seconds = atof(optarg);
			break;
		case 'n':
			options.gpus = number;
			break;
		case 'f':
			options.times = optarg;
			break;
		case 'b':
			options.blocks = number;
			break;
		case 'w':
			options.work = number;
			break;
		case 'i':
			options.spin = 1;
			break;
		default:
			exit(2);
		}
	}
	EXPECT(options.streams >= 1 && options.streams <= STREAMS_MAX);
	EXPECT(options.gpus >= 1 && options.gpus <= GPUS_MAX && options.blocks >= 1);
	EXPECT(options.duty >= 1 && options.duty <= 100 && options.period_ms >= 1);
}

/* ---- the GPUs ---------------------------------------------------------------------------- */

static void kernel_launch(struct gpu *gpu, unsigned length, CUstream stream)
{
	uint32_t ns = options.kernel_us[length] * 1000u, slots = SLOTS, spin = options.spin;
	uint32_t naps = (ns + SHARE_NAP_MAX_NS - 1) / SHARE_NAP_MAX_NS;
	uint32_t nap_ns = naps ? ns / naps : 0;
	if (options.work) {
		spin = 2;
		naps = options.kernel_us[length];
		nap_ns = options.work;
	}
	void *arguments[] = {&gpu->ring, &gpu->count, &slots, &naps, &nap_ns, &spin};

	OK(cuLaunchKernel(gpu->function, options.blocks, 1, 1, 1, 1, 1, 0, stream, arguments,
			  NULL));
}

static CUgraphExec graph_make(struct gpu *gpu, unsigned length)
{
	CUgraph graph;
	CUgraphExec exec;

	OK(cuStreamBeginCapture_v2(gpu->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (unsigned i = 0; i < options.graph; i++)
		kernel_launch(gpu, length, gpu->stream[0]);
	OK(cuStreamEndCapture(gpu->stream[0], &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

static void gpu_open(struct gpu *gpu, int ordinal)
{
	CUmodule module;

	OK(cuCtxCreate_v2(&gpu->context, 0, ordinal));
	OK(cuModuleLoadData(&module, share_kernel_ptx));
	OK(cuModuleGetFunction(&gpu->function, module, SHARE_KERNEL_NAME));
	OK(cuMemAlloc_v2(&gpu->ring, SLOTS * 16));
	OK(cuMemAlloc_v2(&gpu->count, 8));
	OK(cuMemsetD8_v2(gpu->ring, 0, SLOTS * 16));
	OK(cuMemsetD8_v2(gpu->count, 0, 8));
	for (unsigned i = 0; i < options.streams; i++)
		OK(cuStreamCreate(&gpu->stream[i], CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < QUEUE_EVENTS; i++)
		OK(cuEventCreate(&gpu->event[i], CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; options.graph && i < options.lengths; i++)
		gpu->graph[i] = graph_make(gpu, i);
	OK(cuCtxSynchronize());
}

static void gpus_wait(void)
{
	for (unsigned i = 0; i < options.gpus; i++) {
		OK(cuCtxSetCurrent(gpus[i].context));
		OK(cuCtxSynchronize());
	}
}

static void queue_bound(struct gpu *gpu, uint64_t number, CUstream stream)
{
	uint64_t part = number / (QUEUE_MAX / QUEUE_EVENTS);

	if (number % (QUEUE_MAX / QUEUE_EVENTS))
		return;
	OK(cuEventSynchronize(gpu->event[part % QUEUE_EVENTS]));
	OK(cuEventRecord(gpu->event[part % QUEUE_EVENTS], stream));
}

/* The next piece of work; returns its length in us. */
static unsigned step(void)
{
	uint64_t number = launched++;
	unsigned length = (unsigned)(number % options.lengths);
	struct gpu *gpu = &gpus[number % options.gpus];
	CUstream stream = gpu->stream[number / options.gpus % options.streams];

	if (options.gpus > 1)
		OK(cuCtxSetCurrent(gpu->context));
	if (options.graph)
		OK(cuGraphLaunch(gpu->graph[length], stream));
	else
		kernel_launch(gpu, length, stream);
	if (!options.sync_every)
		queue_bound(gpu, number, stream);
	if (options.sync_every && launched % options.sync_every == 0)
		gpus_wait();
	return options.kernel_us[length] * (options.graph ? options.graph : 1);
}

static void sleep_until(uint64_t at)
{
	struct timespec when = {.tv_sec = (time_t)(at / 1000000000),
				.tv_nsec = (long)(at % 1000000000)};

	while (!stopped && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

/* So much work as the duty says, to its end; then nothing until the period is over. */
static void burst(void)
{
	uint64_t begin = now_ns(), period = options.period_ms * 1000000ull, us = 0;

	while (us * 1000 < period * options.duty / 100)
		us += step();
	gpus_wait();
	bursts[burst_count++ % BURSTS_MAX] = now_ns() - begin;
	sleep_until(begin + period);
}

/* ---- the end ----------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t times_sum(struct gpu *gpu, FILE *file, uint64_t *ret_kernels)
{
	static uint64_t ring[SLOTS][2];
	uint64_t count, sum = 0;

	OK(cuCtxSetCurrent(gpu->context));
	OK(cuMemcpyDtoH_v2(&count, gpu->count, sizeof(count)));
	OK(cuMemcpyDtoH_v2(ring, gpu->ring, sizeof(ring)));
	*ret_kernels += count;
	for (uint64_t i = 0; i < MIN(count, SLOTS); i++) {
		sum += ring[i][1] - ring[i][0];
		if (file)
			fprintf(file, "%llu %llu\n", (unsigned long long)ring[i][0],
				(unsigned long long)ring[i][1]);
	}
	return sum;
}

static void report(void)
{
	uint64_t kernels = 0, sum = 0, count = MIN(burst_count, BURSTS_MAX);
	FILE *file = options.times ? fopen(options.times, "w") : NULL;

	EXPECT(!options.times || file);
	for (unsigned i = 0; i < options.gpus; i++)
		sum += times_sum(&gpus[i], file, &kernels);
	if (file)
		fclose(file);
	qsort(bursts, count, sizeof(bursts[0]), by_size);
	printf("{\"kernels\": %llu, \"launches\": %llu, \"stored_ns\": %llu, \"bursts\": %llu, "
	       "\"burst_p50_ns\": %llu, \"burst_p99_ns\": %llu, \"burst_max_ns\": %llu}\n",
	       (unsigned long long)kernels, (unsigned long long)launched, (unsigned long long)sum,
	       (unsigned long long)burst_count,
	       count ? (unsigned long long)bursts[count / 2] : 0ull,
	       count ? (unsigned long long)bursts[count - 1 - count / 100] : 0ull,
	       count ? (unsigned long long)bursts[count - 1] : 0ull);
}

int main(int argc, char **argv)
{
	options_read(argc, argv);
	signal(SIGTERM, on_term);
	OK(cuInit(0));
	for (unsigned i = 0; i < options.gpus; i++)
		gpu_open(&gpus[i], (int)i);
	puts("up");
	fflush(stdout);
	uint64_t end = now_ns() + (uint64_t)(options.seconds * 1e9);
	while (!stopped && now_ns() < end) {
		if (options.duty < 100)
			burst();
		else
			(void)step();
	}
	gpus_wait();
	report();
	return 0;
}
