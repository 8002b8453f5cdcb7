/* More streams than the front keeps records of, and threads that make, use and destroy others all
 * the time: stream_churn SECONDS. Prints how many streams came and went. */
#include <pthread.h>
#include <stdatomic.h>

#include "cuda_check.h"

#define KEPT 140
#define THREADS 4
#define BYTES MIB(1)

static CUcontext context;
static CUdeviceptr memory;
static double until;
static _Atomic unsigned long streams;

/* Half of the threads leave their streams with work in them. */
static void *churn(void *waits)
{
	OK(cuCtxSetCurrent(context));
	while (check_seconds() < until) {
		CUstream stream;

		OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		OK(cuMemsetD8Async(memory, 1, BYTES, stream));
		OK(cuMemsetD8Async(memory, 2, BYTES, stream));
		if (waits)
			OK(cuStreamSynchronize(stream));
		OK(cuStreamDestroy_v2(stream));
		if (++streams % 16 == 0)
			OK(cuCtxSynchronize());
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	CUstream kept;

	context = check_context();
	OK(cuMemAlloc_v2(&memory, BYTES));
	for (int i = 0; i < KEPT; i++) {
		OK(cuStreamCreate(&kept, CU_STREAM_NON_BLOCKING));
		OK(cuMemsetD8Async(memory, 0, BYTES, kept));
	}
	OK(cuCtxSynchronize());
	until = check_seconds() + (argc > 1 ? atof(argv[1]) : 1);
	for (size_t i = 0; i < THREADS; i++)
		EXPECT(pthread_create(&threads[i], NULL, churn, i % 2 ? &context : NULL) == 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%lu\n", streams);
	return 0;
}
