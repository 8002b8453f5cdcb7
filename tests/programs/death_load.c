/* Processes of one slice that take and give memory in every way (from pools if told so),
 * killed at random.
 *
 *   death_load KILLS SEED [pools]
 *
 * After each kill the others must go on: every one of them must soon have taken or given again.
 * Then the killed one is replaced. At the end all are killed. Tells how far it is where stderr is a
 * terminal. Exit 0 if nobody ever waited or was refused in another way than for want of memory.
 * Prints the number of operations, and the longest that a survivor took for one and a new process
 * for its start, in ms. */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "fork_bound.h"
#include "slice_families.h"

#define WORKERS 6
#define HELD 8
/* The patience with a survivor on a busy machine, in ms; a new one asks the daemon and makes a
 * context. However long that is, it shows a process that waits for the dead. Every other victim is
 * stopped first, which nobody notices. So a process that waits for it waits for ever. */
#define PATIENCE_MS 10000
#define START_PATIENCE_MS 30000

static const char *const families[] = {"linear", "pitch", "managed", "vmm",
				       "mapped", "array", "async",   "pool"};
#define POOL_FAMILIES 2 /* of them, the last ones */
static size_t family_count = ARRAY_SIZE(families) - POOL_FAMILIES;

static struct shared {
	atomic_ulong operations[WORKERS];
	atomic_bool started[WORKERS];
} * shared;

struct holding {
	const struct slice_family *family;
	union slice_piece piece;
	size_t bytes;
};

static void pause_us(unsigned us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
}

static void worker_fails(const char *what, const char *family, CUresult result)
{
	fprintf(stderr, "%s of %s: %d\n", what, family, (int)result);
	_exit(3);
}

/* Takes where it holds nothing, else gives. */
static void operate(struct holding *h, unsigned *seed)
{
	CUresult result;

	if (h->family) {
		result = h->family->give(&h->piece, h->bytes);
		if (result != CUDA_SUCCESS)
			worker_fails("give", h->family->name, result);
		h->family = NULL;
		return;
	}
	const struct slice_family *family =
		slice_family_find(families[(unsigned)rand_r(seed) % family_count]);
	h->bytes = (size_t)MIB(2) * (1 + (unsigned)rand_r(seed) % 40);
	result = family->take(&h->piece, h->bytes);
	if (result == CUDA_SUCCESS)
		h->family = family;
	else if (result != CUDA_ERROR_OUT_OF_MEMORY)
		worker_fails("take", family->name, result);
}

static void work(size_t me, unsigned seed)
{
	struct holding held[HELD] = {0};
	CUcontext context;
	CUresult result;

	/* Others may have filled the slice meanwhile; being refused is getting on, too. */
	do {
		result = cuInit(0) ? CUDA_ERROR_NOT_INITIALIZED
				   : cuDevicePrimaryCtxRetain(&context, 0);
		atomic_fetch_add(&shared->operations[me], 1);
	} while (result == CUDA_ERROR_OUT_OF_MEMORY);
	if (result != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS)
		worker_fails("start", "contexts", result);
	atomic_store(&shared->started[me], true);
	for (;;) {
		operate(&held[(unsigned)rand_r(&seed) % HELD], &seed);
		atomic_fetch_add(&shared->operations[me], 1);
	}
}

static pid_t worker_start(size_t me)
{
	unsigned seed = (unsigned)rand();
	atomic_store(&shared->started[me], false);
	pid_t pid = fork_bound();

	if (pid == 0)
		work(me, seed);
	return pid;
}

static struct {
	long operation, start;
} longest_ms;

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* For whoever reads of a failure. */
static void tell_of(pid_t pid)
{
	static const char *const files[] = {"wchan", "syscall", "schedstat", "stat"};
	char path[64], text[512];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i]);
		FILE *f = fopen(path, "re");
		size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

		text[n] = '\0';
		fprintf(stderr, "%s: %s\n", path, text);
		if (f)
			fclose(f);
	}
}

/* True where the worker soon gets on, counted from `before` operations. */
static bool gets_on(size_t worker, pid_t pid, unsigned long before)
{
	bool started = atomic_load(&shared->started[worker]);
	long begun = now_ms(), took = 0;

	while (atomic_load(&shared->operations[worker]) == before) {
		took = now_ms() - begun;
		if (took > (started ? PATIENCE_MS : START_PATIENCE_MS)) {
			tell_of(pid);
			return false;
		}
		pause_us(50);
	}
	if (started)
		longest_ms.operation = MAX(longest_ms.operation, took);
	else
		longest_ms.start = MAX(longest_ms.start, took);
	return true;
}

static bool others_get_on(const pid_t *pids, size_t victim)
{
	unsigned long before[WORKERS];

	for (size_t i = 0; i < WORKERS; i++)
		before[i] = atomic_load(&shared->operations[i]);
	for (size_t i = 0; i < WORKERS; i++)
		if (i != victim && !gets_on(i, pids[i], before[i])) {
			fprintf(stderr, "process %d waits for the dead\n", (int)pids[i]);
			return false;
		}
	return true;
}

/* Kills one, which may have been stopped first, and sees the others go on. */
static bool kill_one(const pid_t *pids, size_t victim, bool stopped)
{
	int status;

	if (stopped) {
		kill(pids[victim], SIGSTOP);
		if (waitpid(pids[victim], &status, WUNTRACED) < 0 || !WIFSTOPPED(status) ||
		    !others_get_on(pids, victim))
			return false;
	}
	kill(pids[victim], SIGKILL);
	if (waitpid(pids[victim], &status, 0) < 0 || !WIFSIGNALED(status))
		return false;
	return others_get_on(pids, victim);
}

int main(int argc, char **argv)
{
	long kills = argc >= 3 ? strtol(argv[1], NULL, 10) : -1;
	pid_t pids[WORKERS];
	unsigned long total = 0;

	if (kills < 0)
		return 2;
	if (argc > 3)
		family_count = ARRAY_SIZE(families);
	srand((unsigned)strtoul(argv[2], NULL, 10));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 2;
	for (size_t i = 0; i < WORKERS; i++) {
		pids[i] = worker_start(i);
		/* One after the other, as contexts take long on some drivers. */
		if (!gets_on(i, pids[i], 0))
			return 1;
	}
	for (long i = 0; i < kills; i++) {
		size_t victim = (unsigned)rand() % WORKERS;

		if (isatty(STDERR_FILENO))
			fprintf(stderr, "\r%ld of %ld killed", i, kills);
		pause_us((unsigned)rand() % 5000);
		if (!kill_one(pids, victim, i % 2))
			return 1;
		pids[victim] = worker_start(victim);
	}
	for (size_t i = 0; i < WORKERS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		total += atomic_load(&shared->operations[i]);
	}
	printf("%lu %ld %ld\n", total, longest_ms.operation, longest_ms.start);
	return 0;
}
