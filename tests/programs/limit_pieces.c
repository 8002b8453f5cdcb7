/* Processes of one slice whose pools have room in pieces only.
 *
 *   limit_pieces PROCESSES THREADS ROUNDS
 *
 * In each round all threads of all processes take PIECE by PIECE from the default pool and from one
 * of their own until the slice is full, free every other piece, and take as many again. Where each
 * process has one thread, nothing that its pools keep is wholly free then. So every one of those
 * must be granted, from the gaps. A single process must not get a piece that is larger than any
 * gap. Then they take and free pieces of random sizes, and give all back. Exit 0 if it was so; how
 * much was held in the meantime is for the reader of the driver's books. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "fork_bound.h"
#include "slice_families.h"

#define PIECE MIB(8)
#define PIECES_MAX 2048
#define THREADS_MAX 16
#define CHURNS 60

static pthread_barrier_t *barrier;
static CUcontext context;
static CUmemoryPool pool;
static size_t processes, threads;
static long rounds;

static void expect(int holds, const char *what, long long a, long long b)
{
	if (holds)
		return;
	fprintf(stderr, "%s: %lld, %lld\n", what, a, b);
	_exit(1);
}

static void meet(void)
{
	pthread_barrier_wait(barrier);
}

static CUresult take(CUdeviceptr *ptr, size_t bytes, size_t which)
{
	CUresult result = which % 2 ? cuMemAllocAsync(ptr, bytes, NULL)
				    : cuMemAllocFromPoolAsync(ptr, bytes, pool, NULL);

	expect(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY, "another error",
	       (long long)result, (long long)bytes);
	return result;
}

/* Four pieces fill what a pool grows by: those from one pool come in turns of four. */
static size_t pool_of(size_t i)
{
	return i / 4;
}

static size_t fill(CUdeviceptr *pieces)
{
	size_t count = 0;

	while (count < PIECES_MAX && take(&pieces[count], PIECE, pool_of(count)) == CUDA_SUCCESS)
		count++;
	return count;
}

static void free_odd(CUdeviceptr *pieces, size_t count)
{
	for (size_t i = 1; i < count; i += 2)
		expect(cuMemFreeAsync(pieces[i], NULL) == CUDA_SUCCESS, "not freed", (long long)i,
		       0);
	expect(cuCtxSynchronize() == CUDA_SUCCESS, "not synchronised", 0, 0);
}

static void take_odd(CUdeviceptr *pieces, size_t count)
{
	for (size_t i = 1; i < count; i += 2) {
		CUresult result = take(&pieces[i], PIECE, pool_of(i));

		expect(threads > 1 || result == CUDA_SUCCESS, "refused while a pool had room",
		       (long long)i, (long long)count);
		if (result != CUDA_SUCCESS)
			pieces[i] = 0;
	}
}

static void give(CUdeviceptr *piece)
{
	if (*piece)
		expect(cuMemFreeAsync(*piece, NULL) == CUDA_SUCCESS, "not freed", 0, 0);
	*piece = 0;
}

static void churn(CUdeviceptr *pieces, size_t count, unsigned *seed)
{
	for (int i = 0; i < CHURNS; i++) {
		size_t at = (unsigned)rand_r(seed) % count;

		give(&pieces[at]);
		if (take(&pieces[at], 1 + (unsigned)rand_r(seed) % MIB(40), at) != CUDA_SUCCESS)
			pieces[at] = 0;
		if (i % 8 == 0)
			cuCtxSynchronize();
	}
}

static void *racer(void *arg)
{
	CUdeviceptr pieces[PIECES_MAX] = {0}, large;
	unsigned seed = (unsigned)(uintptr_t)arg;

	expect(cuCtxSetCurrent(context) == CUDA_SUCCESS, "no context", 0, 0);
	for (long i = 0; i < rounds; i++) {
		meet();
		size_t count = fill(pieces);
		meet();
		free_odd(pieces, count);
		meet();
		if (threads == 1 && processes == 1)
			expect(take(&large, PIECE + 1, 0) == CUDA_ERROR_OUT_OF_MEMORY,
			       "granted without room", (long long)count, 0);
		take_odd(pieces, count);
		meet();
		if (count)
			churn(pieces, count, &seed);
		meet();
		for (size_t k = 0; k < count; k++)
			give(&pieces[k]);
		expect(cuCtxSynchronize() == CUDA_SUCCESS, "not synchronised", 0, 0);
	}
	return NULL;
}

static void process(size_t me)
{
	const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	pthread_t ids[THREADS_MAX];

	expect(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
		       cuCtxSetCurrent(context) == CUDA_SUCCESS &&
		       cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS,
	       "no context", 0, 0);
	for (size_t i = 0; i < threads; i++)
		expect(pthread_create(&ids[i], NULL, racer, (void *)(me * threads + i + 1)) == 0,
		       "no thread", 0, 0);
	for (size_t i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	_exit(0);
}

int main(int argc, char **argv)
{
	pthread_barrierattr_t attributes;
	int status = 0;

	processes = argc == 4 ? strtoull(argv[1], NULL, 10) : 0;
	threads = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
	rounds = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
	if (!processes || !threads || threads > THREADS_MAX)
		return 2;
	barrier = mmap(NULL, sizeof(*barrier), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (barrier == MAP_FAILED)
		return 2;
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(barrier, &attributes, (unsigned)(processes * threads));
	for (size_t i = 0; i < processes; i++)
		if (fork_bound() == 0)
			process(i);
	/* The others end with this one. */
	for (size_t i = 0; i < processes; i++)
		if (wait(&status) < 0 || status) {
			fprintf(stderr, "a process ended with status %#x\n", (unsigned)status);
			return 1;
		}
	return 0;
}
