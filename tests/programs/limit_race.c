/* Processes of one slice that race for its last bytes, round after round.
 *
 *   limit_race FAMILY STEP PROCESSES ROUNDS
 *
 * In each round the room is shared out into as many equal pieces as there are processes. All take
 * theirs at the same moment, and every one must get it. They give them back, and take STEP by STEP
 * until each was refused: together they must get the room to the last STEP. When all is given back
 * the room must be what it was. Exit 0 if it was so in every round; prints the bytes raced for. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork_bound.h"
#include "slice_families.h"

#define PROCESSES_MAX 64
#define PIECES_MAX 8192

static struct shared {
	pthread_barrier_t barrier;
	size_t room;
	atomic_size_t taken;
} * shared;

/* Nobody waits at the barrier for one that failed: the parent ends them all. */
static void expect(int holds, const char *what, long long a, long long b)
{
	if (holds)
		return;
	fprintf(stderr, "%s: %lld, %lld\n", what, a, b);
	_exit(1);
}

static size_t room(void)
{
	size_t free_bytes = 0, total;

	cuMemGetInfo_v2(&free_bytes, &total);
	return free_bytes;
}

static void meet(void)
{
	pthread_barrier_wait(&shared->barrier);
}

/* All at once, and just so much that all fit. */
static void take_shares(const struct slice_family *family, size_t share)
{
	union slice_piece piece;

	meet();
	CUresult result = family->take(&piece, share);
	expect(result == CUDA_SUCCESS, "refused while there was room", (int)result,
	       (long long)share);
	meet();
	expect(family->give(&piece, share) == CUDA_SUCCESS, "not given", 0, 0);
}

/* Until refused; the number of pieces. */
static size_t take_all(const struct slice_family *family, union slice_piece *pieces, size_t step)
{
	CUresult result = CUDA_SUCCESS;
	size_t count = 0;

	while (count < PIECES_MAX &&
	       (result = family->take(&pieces[count], step)) == CUDA_SUCCESS) {
		count++;
		atomic_fetch_add(&shared->taken, step);
	}
	expect(result == CUDA_ERROR_OUT_OF_MEMORY, "refused with another error", (int)result, 0);
	meet();
	return count;
}

static void race(const struct slice_family *family, size_t step, size_t me, size_t processes)
{
	static union slice_piece pieces[PIECES_MAX];

	meet(); /* the contexts of the first round are all made */
	if (me == 0) {
		shared->room = room();
		atomic_store(&shared->taken, 0);
	}
	meet();
	take_shares(family, shared->room / processes / step * step);
	meet();
	size_t count = take_all(family, pieces, step);
	size_t taken = atomic_load(&shared->taken);
	expect(taken == shared->room / step * step, "room, and taken of it",
	       (long long)shared->room, (long long)taken);
	meet();
	while (count)
		expect(family->give(&pieces[--count], step) == CUDA_SUCCESS, "not given", 0, 0);
	meet();
	size_t after = room();
	expect(after == shared->room, "room before and after", (long long)shared->room,
	       (long long)after);
	meet(); /* nobody's context goes before all have looked */
}

static void racer(char **argv, size_t me, size_t processes)
{
	const struct slice_family *family = slice_family_find(argv[1]);
	size_t step = strtoull(argv[2], NULL, 10);
	long rounds = strtol(argv[4], NULL, 10);
	CUcontext context;

	expect(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
		       cuCtxSetCurrent(context) == CUDA_SUCCESS,
	       "no context", 0, 0);
	for (long i = 0; i < rounds; i++)
		race(family, step, me, processes);
	_exit(0);
}

int main(int argc, char **argv)
{
	size_t processes = argc == 5 ? strtoull(argv[3], NULL, 10) : 0;
	pthread_barrierattr_t attributes;
	int status = 0;

	if (!processes || processes > PROCESSES_MAX)
		return 2;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 2;
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &attributes, (unsigned)processes);
	for (size_t i = 0; i < processes; i++)
		if (fork_bound() == 0)
			racer(argv, i, processes);
	/* The others end with this one. */
	for (size_t i = 0; i < processes; i++)
		if (wait(&status) < 0 || status)
			return 1;
	printf("%zu\n", shared->room);
	return 0;
}
