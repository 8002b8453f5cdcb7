/* One process asks for most of the room. Another makes small things, which share a block or two.
 *
 *   limit_beside KIND WHO FAMILY TRIALS
 *
 * KIND: array-4, array-64, mipmap-4 (KiB each) or linear-1. WHO makes them: a thread, a process, or
 * one that is paused: it is stopped for a while as the room is asked for, as if a busy machine had
 * no processor for it. Nothing is given back meanwhile, and there is room for all: neither may ever
 * be refused. Exit 0 if none was; else says what, when. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_check.h"
#include "fork_bound.h"
#include "slice_families.h"

#define BLOCK ((size_t)2 << 20)
#define ROOM ((size_t)24 << 20)
#define ASKED ((size_t)18 << 20)
/* They fill no more than two blocks; a third is reserved meanwhile. */
#define SMALL_MOST 400
#define SMALL_BYTES ((size_t)3500 << 10)

enum { WAIT, MAKE, STOP, GIVE };

static struct shared {
	atomic_int stage, trial; /* what the maker is to do, and in which trial */
	atomic_int made, done;   /* of that trial */
	atomic_int refused;
	atomic_bool ready;
} * shared;

static const char *kind;
static size_t kib;
static int trials;
/* The process to be paused; 0: none is. */
static pid_t paused;
#define PAUSE_US 1300000

union small {
	CUarray array;
	CUmipmappedArray mipmap;
	CUdeviceptr linear;
};

static CUresult make(union small *s)
{
	CUDA_ARRAY_DESCRIPTOR flat = {.Width = kib * 1024 / 4 / 8,
				      .Height = 8,
				      .Format = CU_AD_FORMAT_FLOAT,
				      .NumChannels = 1};
	CUDA_ARRAY3D_DESCRIPTOR deep = {
		.Width = flat.Width, .Height = 8, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};

	if (*kind == 'a')
		return cuArrayCreate_v2(&s->array, &flat);
	if (*kind == 'm')
		return cuMipmappedArrayCreate(&s->mipmap, &deep, 2);
	return cuMemAlloc_v2(&s->linear, kib * 1024);
}

static void give(const union small *s)
{
	if (*kind == 'a')
		OK(cuArrayDestroy(s->array));
	else if (*kind == 'm')
		OK(cuMipmappedArrayDestroy(s->mipmap));
	else
		OK(cuMemFree_v2(s->linear));
}

static void wait_for(int stage, int trial)
{
	while (atomic_load(&shared->trial) != trial || atomic_load(&shared->stage) < stage)
		usleep(20);
}

static void maker(void)
{
	static union small small[SMALL_MOST];

	atomic_store(&shared->ready, true);
	for (int trial = 1; trial <= trials; trial++) {
		int made = 0;

		wait_for(MAKE, trial);
		while (made < SMALL_MOST && (size_t)made < SMALL_BYTES / 1024 / kib &&
		       atomic_load(&shared->stage) == MAKE) {
			CUresult result = make(&small[made]);

			if (result != CUDA_SUCCESS) {
				atomic_store(&shared->refused, (int)result);
				break;
			}
			atomic_store(&shared->made, ++made);
		}
		wait_for(STOP, trial);
		atomic_store(&shared->done, STOP);
		wait_for(GIVE, trial);
		for (int i = 0; i < made; i++)
			give(&small[i]);
		atomic_store(&shared->done, GIVE);
	}
}

static void reach(int stage)
{
	atomic_store(&shared->stage, stage);
	while (atomic_load(&shared->done) < stage)
		usleep(20);
}

static void *pause_maker(void *context)
{
	usleep((useconds_t)(rand() % 3000));
	EXPECT(kill(paused, SIGSTOP) == 0);
	usleep(PAUSE_US);
	EXPECT(kill(paused, SIGCONT) == 0);
	return NULL;
}

static CUresult take_beside(const struct slice_family *family, union slice_piece *piece)
{
	pthread_t thread;

	if (!paused)
		return family->take(piece, ASKED);
	EXPECT(pthread_create(&thread, NULL, pause_maker, NULL) == 0);
	CUresult result = family->take(piece, ASKED);
	EXPECT(pthread_join(thread, NULL) == 0);
	return result;
}

/* Whether nothing was refused. */
static int trial_ends_well(const struct slice_family *family, int trial)
{
	union slice_piece piece;
	CUdeviceptr filling;
	size_t room = check_free_bytes();

	OK(cuMemAlloc_v2(&filling, (room - ROOM) / BLOCK * BLOCK));
	atomic_store(&shared->made, 0);
	atomic_store(&shared->done, WAIT);
	atomic_store(&shared->stage, MAKE);
	atomic_store(&shared->trial, trial);
	usleep((useconds_t)(rand() % 600));
	int before = atomic_load(&shared->made);
	CUresult result = take_beside(family, &piece);
	int after = atomic_load(&shared->made);
	reach(STOP);
	int well = result == CUDA_SUCCESS && !atomic_load(&shared->refused);
	if (!well)
		fprintf(stderr,
			"trial %d: %d beside small ones %d to %d; a small one: %d; free %zu\n",
			trial, (int)result, before, after, atomic_load(&shared->refused),
			check_free_bytes());
	if (result == CUDA_SUCCESS)
		EXPECT(family->give(&piece, ASKED) == CUDA_SUCCESS);
	reach(GIVE);
	OK(cuMemFree_v2(filling));
	return well;
}

static void *maker_thread(void *context)
{
	OK(cuCtxSetCurrent(context));
	maker();
	return NULL;
}

int main(int argc, char **argv)
{
	const struct slice_family *family = argc == 5 ? slice_family_find(argv[3]) : NULL;
	int well = 1;
	pthread_t thread;

	trials = family ? atoi(argv[4]) : 0;
	if (!family || trials < 1)
		return 2;
	kind = argv[1];
	kib = strtoul(strchr(kind, '-') + 1, NULL, 10);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	EXPECT(shared != MAP_FAILED);
	int is_thread = strcmp(argv[2], "thread") == 0;
	pid_t child = is_thread ? 0 : fork_bound();
	if (!is_thread && child == 0) {
		check_context();
		maker();
		_exit(0);
	}
	paused = strcmp(argv[2], "paused") == 0 ? child : 0;
	CUcontext context = check_context();
	if (is_thread) {
		EXPECT(pthread_create(&thread, NULL, maker_thread, context) == 0);
	}
	while (!atomic_load(&shared->ready) && (is_thread || waitpid(child, NULL, WNOHANG) == 0))
		usleep(1000);
	for (int trial = 1; trial <= trials && well; trial++)
		well = trial_ends_well(family, trial);
	if (!well && child > 0)
		kill(child, SIGKILL);
	return !well;
}
