/* Work that waits for work which is handed in later, again and again:
 *
 *   wait_later HOW ROUNDS COUNT KERNEL_US [THINK_US]
 *
 * A round hands in what waits, then COUNT kernels of that length, and last what is waited for, and
 * waits for its end. HOW:
 *   spin      a kernel looks at a word that a kernel behind the others, in another stream, writes
 *   thread    the same, and another thread hands the others in
 *   value     a stream waits for the word with COUNT kernels behind it; as many run in another one
 *   callback  a host function waits until another thread's kernels are done; COUNT more behind it
 *   lock      host functions between the kernels take a lock, under which all is handed in
 *   long      nothing waits: a kernel of COUNT * KERNEL_US in a stream, and another thread that
 *             hands a short one into another, which waits at the gate meanwhile
 *
 * THINK_US: what a thread does between two kernels that it hands in. Says "up" first, then the
 * seconds of each round. */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <unistd.h>

#include "cuda_check.h"
#include "share_kernel.h"

#define SLOTS 64u
#define SPIN_NAP_NS 20000u

static const char spin_ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry wait(.param .u64 word, .param .u32 value, .param .u32 nap)\n{\n"
	".reg .u32 %r<4>; .reg .u64 %d<2>; .reg .pred %p<2>;\n"
	"ld.param.u64 %d1, [word]; ld.param.u32 %r1, [value]; ld.param.u32 %r2, [nap];\n"
	"AGAIN: ld.volatile.global.u32 %r3, [%d1];\n"
	"setp.ge.u32 %p1, %r3, %r1;\n"
	"@%p1 bra DONE;\n"
	"nanosleep.u32 %r2;\n"
	"bra AGAIN;\n"
	"DONE: ret;\n}\n"
	".visible .entry set(.param .u64 word, .param .u32 value)\n{\n"
	".reg .u32 %r<2>; .reg .u64 %d<2>;\n"
	"ld.param.u64 %d1, [word]; ld.param.u32 %r1, [value];\n"
	"st.volatile.global.u32 [%d1], %r1;\nret;\n}\n";

static struct {
	const char *how;
	unsigned rounds, count, us, think_us;
	CUcontext context;
	CUstream waits, works;
	CUfunction wait, set, timed;
	CUdeviceptr word, ring, slot;
	sem_t begin, end, called;
	pthread_mutex_t lock;
	unsigned locked; /* under the lock: host functions that had it */
} it = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is(const char *how)
{
	return strcmp(it.how, how) == 0;
}

static void timed_launch(CUstream stream, unsigned us)
{
	uint32_t ns = us * 1000u, slots = SLOTS, spin = 0;
	uint32_t naps = (ns + SHARE_NAP_MAX_NS - 1) / SHARE_NAP_MAX_NS;
	uint32_t nap = naps ? ns / naps : 0;
	void *params[] = {&it.ring, &it.slot, &slots, &naps, &nap, &spin};

	OK(cuLaunchKernel(it.timed, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void word_launch(CUfunction function, CUstream stream, uint32_t value)
{
	uint32_t nap = SPIN_NAP_NS;
	void *params[] = {&it.word, &value, &nap};

	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void many(CUstream stream)
{
	for (unsigned i = 0; i < it.count; i++) {
		timed_launch(stream, it.us);
		if (it.think_us)
			usleep(it.think_us);
	}
}

static void called(void *unused)
{
	while (sem_wait(&it.called) < 0)
		;
}

static void locked(void *unused)
{
	pthread_mutex_lock(&it.lock);
	it.locked++;
	pthread_mutex_unlock(&it.lock);
}

static void locked_in_stream(CUstream stream, CUresult status, void *value)
{
	EXPECT(stream == it.waits && status == CUDA_SUCCESS && value == &it);
	locked(value);
}

static void under_lock(void)
{
	unsigned before = it.locked;

	for (unsigned i = 0; i < it.count; i++) {
		pthread_mutex_lock(&it.lock);
		if (i % 2)
			OK(cuStreamAddCallback(it.waits, locked_in_stream, &it, 0));
		else
			OK(cuLaunchHostFunc(it.waits, locked, NULL));
		pthread_mutex_unlock(&it.lock);
		pthread_mutex_lock(&it.lock);
		timed_launch(it.waits, it.us);
		pthread_mutex_unlock(&it.lock);
	}
	OK(cuStreamSynchronize(it.waits));
	EXPECT(it.locked == before + it.count);
}

/* The other thread's work in a round. */
static void others_part(uint32_t round)
{
	if (is("long")) {
		timed_launch(it.works, 10);
		OK(cuStreamSynchronize(it.works));
		return;
	}
	many(it.works);
	if (is("callback")) {
		OK(cuStreamSynchronize(it.works));
		sem_post(&it.called);
	} else {
		word_launch(it.set, it.works, round);
	}
}

static void *other(void *unused)
{
	OK(cuCtxSetCurrent(it.context));
	for (uint32_t round = 1; round <= it.rounds; round++) {
		while (sem_wait(&it.begin) < 0)
			;
		others_part(round);
		sem_post(&it.end);
	}
	return NULL;
}

static void round_begin(uint32_t round)
{
	if (is("value")) {
		OK(cuStreamWaitValue32_v2(it.waits, it.word, round, CU_STREAM_WAIT_VALUE_GEQ));
		many(it.waits);
	} else if (is("callback")) {
		OK(cuLaunchHostFunc(it.waits, called, NULL));
		many(it.waits);
	} else if (is("long")) {
		timed_launch(it.waits, it.count * it.us);
	} else {
		word_launch(it.wait, it.waits, round);
	}
}

static bool with_thread(void)
{
	return is("thread") || is("callback") || is("long");
}

static void round_play(uint32_t round)
{
	if (is("lock")) {
		under_lock();
		return;
	}
	if (with_thread() && !is("long"))
		sem_post(&it.begin);
	round_begin(round);
	if (is("long")) {
		/* Late enough that the turn may be over. */
		usleep(it.think_us);
		sem_post(&it.begin);
	}
	if (with_thread())
		while (sem_wait(&it.end) < 0)
			;
	else
		others_part(round);
	OK(cuStreamSynchronize(it.waits));
	OK(cuStreamSynchronize(it.works));
}

static void prepare(void)
{
	it.context = check_context();
	it.wait = check_kernel(spin_ptx, "wait");
	it.set = check_kernel(spin_ptx, "set");
	it.timed = check_kernel(share_kernel_ptx, SHARE_KERNEL_NAME);
	OK(cuMemAlloc_v2(&it.word, sizeof(uint32_t)));
	OK(cuMemAlloc_v2(&it.ring, (size_t)SLOTS * 16));
	OK(cuMemAlloc_v2(&it.slot, 8));
	OK(cuMemsetD32_v2(it.word, 0, 1));
	OK(cuMemsetD8_v2(it.slot, 0, 8));
	OK(cuStreamCreate(&it.waits, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&it.works, CU_STREAM_NON_BLOCKING));
	sem_init(&it.begin, 0, 0);
	sem_init(&it.end, 0, 0);
	sem_init(&it.called, 0, 0);
	/* How long they take is known when it matters. */
	for (unsigned i = 0; i < 4; i++) {
		timed_launch(it.works, it.us);
		OK(cuStreamSynchronize(it.works));
	}
}

int main(int argc, char **argv)
{
	double before;
	pthread_t thread;

	if (argc < 5)
		return 2;
	it.how = argv[1];
	it.rounds = (unsigned)strtoul(argv[2], NULL, 10);
	it.count = (unsigned)strtoul(argv[3], NULL, 10);
	it.us = (unsigned)strtoul(argv[4], NULL, 10);
	it.think_us = argc > 5 ? (unsigned)strtoul(argv[5], NULL, 10) : 0;
	prepare();
	puts("up");
	fflush(stdout);
	if (with_thread())
		EXPECT(pthread_create(&thread, NULL, other, NULL) == 0);
	before = check_seconds();
	for (uint32_t round = 1; round <= it.rounds; round++) {
		round_play(round);
		double now = check_seconds();
		printf("%.3f\n", now - before);
		fflush(stdout);
		before = now;
	}
	return 0;
}
