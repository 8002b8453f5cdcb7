/* Work that threads leave in their own default streams, which nobody else can look at:
 *
 *   own_stream HOW ROUNDS
 *
 * 8 threads leave 10 kernels of 0.1 ms each there. HOW:
 *   ended    they end, and the context is waited for
 *   asleep   they sleep, and the context is waited for
 *   left     they sleep, and nobody waits for what they left
 * Says "up", and waits for a line. Then the main thread does ROUNDS times 8 kernels in a stream of
 * its own, waits for them, and says how many seconds that took.
 *
 *   own_stream varies ROUNDS
 *
 * A thread hands 20 kernels of 1 us and one of 0.1 s into its own, again and again, without waiting
 * for the long one; for ROUNDS times 0.1 s.
 *
 *   own_stream burst ROUNDS
 *
 * ROUNDS threads do all of it and end, one after the other, once with an event at the end of what
 * each left, once without. */
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "cuda_check.h"
#include "share_kernel.h"

#define THREADS 8u
#define LEFT 10u
#define KERNELS 8u
#define KERNEL_US 100u
#define SLOTS 64u

static struct {
	bool stays, records;
	CUcontext context;
	CUfunction timed;
	CUdeviceptr ring, slot;
	CUevent event;
	pthread_barrier_t handed;
} it;

static void timed_launch(CUstream stream, uint32_t us)
{
	uint32_t naps = (us * 1000 + SHARE_NAP_MAX_NS - 1) / SHARE_NAP_MAX_NS;
	uint32_t slots = SLOTS, nap = us * 1000 / naps, spin = 0;
	void *params[] = {&it.ring, &it.slot, &slots, &naps, &nap, &spin};

	OK(cuLaunchKernel(it.timed, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void launch(CUstream stream)
{
	timed_launch(stream, KERNEL_US);
}

static void *vary(void *unused)
{
	OK(cuCtxSetCurrent(it.context));
	for (;;) {
		for (int i = 0; i < 20; i++) {
			timed_launch(CU_STREAM_PER_THREAD, 1);
			OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
		}
		timed_launch(CU_STREAM_PER_THREAD, 100000);
		usleep(100000);
	}
	return NULL;
}

static void *leave(void *unused)
{
	OK(cuCtxSetCurrent(it.context));
	for (unsigned i = 0; i < LEFT; i++)
		launch(CU_STREAM_PER_THREAD);
	if (it.records)
		OK(cuEventRecord(it.event, CU_STREAM_PER_THREAD));
	pthread_barrier_wait(&it.handed);
	while (it.stays)
		pause();
	return NULL;
}

/* Begins that many threads, which have handed their work in when this returns. */
static void threads_begin(pthread_t *threads, unsigned count)
{
	EXPECT(pthread_barrier_init(&it.handed, NULL, count + 1) == 0);
	for (unsigned i = 0; i < count; i++)
		EXPECT(pthread_create(&threads[i], NULL, leave, NULL) == 0);
	pthread_barrier_wait(&it.handed);
	for (unsigned i = 0; !it.stays && i < count; i++)
		pthread_join(threads[i], NULL);
}

static void work(unsigned rounds)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned k = 0; k < KERNELS; k++)
			launch(stream);
		OK(cuStreamSynchronize(stream));
	}
}

static void burst(unsigned rounds)
{
	pthread_t thread;

	for (unsigned i = 0; i < 2 * rounds; i++) {
		it.records = i % 2;
		threads_begin(&thread, 1);
		if (it.records)
			OK(cuEventSynchronize(it.event));
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[1] : "";
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	pthread_t threads[THREADS];
	char line[16];

	EXPECT(argc > 2);
	it.context = check_context();
	it.timed = check_kernel(share_kernel_ptx, SHARE_KERNEL_NAME);
	OK(cuMemAlloc_v2(&it.ring, SLOTS * 16));
	OK(cuMemAlloc_v2(&it.slot, 8));
	OK(cuMemsetD8_v2(it.slot, 0, 8));
	OK(cuEventCreate(&it.event, 0));
	work(1);
	it.stays = strcmp(how, "asleep") == 0 || strcmp(how, "left") == 0;
	if (strcmp(how, "varies") == 0)
		EXPECT(pthread_create(threads, NULL, vary, NULL) == 0);
	else if (strcmp(how, "burst") != 0)
		threads_begin(threads, THREADS);
	if (strcmp(how, "ended") == 0 || strcmp(how, "asleep") == 0)
		OK(cuCtxSynchronize());
	printf("up\n");
	fflush(stdout);
	EXPECT(fgets(line, sizeof(line), stdin));
	double begin = check_seconds();
	if (strcmp(how, "burst") == 0)
		burst(rounds);
	else if (strcmp(how, "varies") == 0)
		usleep(rounds * 100000);
	else
		work(rounds);
	printf("%.3f\n", check_seconds() - begin);
	fflush(stdout);
	_exit(0);
}
