/* Captures in a stream that has work outstanding, one after the other, beside another thread's work
 * in a stream of its own: capture_beside SECONDS MODE (relaxed, thread, global). Each graph has to
 * be of what was captured and nothing else. Prints how many captures there were. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "cuda_check.h"

#define BYTES 4096u
#define OUTSTANDING 3u
#define CAPTURED 2u
/* The GPU is to have work, not more and more of it. */
#define BETWEEN_PAUSES 64u
#define PAUSE_US 1000u

static CUcontext context;
static _Atomic bool over;

static void fill(CUdeviceptr memory, CUstream stream)
{
	OK(cuMemsetD8Async(memory, 1, BYTES, stream));
}

static void *work_beside(void *arg)
{
	CUdeviceptr memory = *(const CUdeviceptr *)arg;
	CUstream stream;

	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 1; !atomic_load(&over); i++) {
		fill(memory, stream);
		/* Waiting for a stream is not allowed beside a global capture. */
		if (i % BETWEEN_PAUSES == 0)
			usleep(PAUSE_US);
	}
	return NULL;
}

static void capture(CUdeviceptr memory, CUstream stream, CUstreamCaptureMode mode)
{
	CUgraph graph;
	size_t nodes;

	for (unsigned i = 0; i < OUTSTANDING; i++)
		fill(memory, stream);
	OK(cuStreamBeginCapture_v2(stream, mode));
	for (unsigned i = 0; i < CAPTURED; i++)
		fill(memory, stream);
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, NULL, &nodes));
	EXPECT(nodes == CAPTURED);
	OK(cuGraphDestroy(graph));
}

static CUstreamCaptureMode mode_named(const char *name)
{
	if (!strcmp(name, "relaxed"))
		return CU_STREAM_CAPTURE_MODE_RELAXED;
	return strcmp(name, "thread") ? CU_STREAM_CAPTURE_MODE_GLOBAL
				      : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
}

int main(int argc, char **argv)
{
	CUdeviceptr memory[2];
	unsigned long count = 0;
	pthread_t thread;
	CUstream stream;

	if (argc != 3)
		return 2;
	context = check_context();
	for (unsigned i = 0; i < ARRAY_SIZE(memory); i++)
		OK(cuMemAlloc_v2(&memory[i], BYTES));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	EXPECT(pthread_create(&thread, NULL, work_beside, &memory[0]) == 0);
	double end = check_seconds() + strtod(argv[1], NULL);
	while (check_seconds() < end) {
		capture(memory[1], stream, mode_named(argv[2]));
		if (++count % (BETWEEN_PAUSES / OUTSTANDING) == 0)
			OK(cuStreamSynchronize(stream));
	}
	atomic_store(&over, true);
	EXPECT(pthread_join(thread, NULL) == 0);
	printf("%lu\n", count);
	return 0;
}
