/* A process that takes and gives device memory as its input says, one line a command, and answers
 * each with one line: the driver's result, or what was asked.
 *
 *   take FAMILY BYTES    give (the newest)    room (free and total bytes)    forget (all, ungiven)
 *   device N (its primary context)    context (another)    destroy (the newest)    reset N
 *   threads N FAMILY BYTES (each takes and gives that 50 times)    fork (a child that sleeps)
 *   exec (itself, anew)    graph BYTES (allocates and frees them)    launch (that)    trim (graphs)
 *   upload (that)    uploaded BYTES (a graph that is uploaded when it is instantiated)
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "slice_families.h"

#define PIECES_MAX 4096
#define CONTEXTS_MAX 16
#define THREADS_MAX 64
#define THREAD_ROUNDS 50

static struct {
	const struct slice_family *family;
	size_t bytes;
	union slice_piece piece;
} held[PIECES_MAX];
static size_t held_count;

static CUcontext contexts[CONTEXTS_MAX];
static size_t context_count;

static CUresult take(const char *family, size_t bytes)
{
	if (held_count == PIECES_MAX)
		exit(3);
	held[held_count].family = slice_family_find(family);
	held[held_count].bytes = bytes;
	CUresult result = held[held_count].family->take(&held[held_count].piece, bytes);
	held_count += result == CUDA_SUCCESS;
	return result;
}

static CUresult give(void)
{
	if (!held_count)
		exit(3);
	held_count--;
	return held[held_count].family->give(&held[held_count].piece, held[held_count].bytes);
}

static CUresult device_use(int device)
{
	CUcontext context;
	CUresult result = cuInit(0);

	if (result == CUDA_SUCCESS)
		result = cuDevicePrimaryCtxRetain(&context, device);
	return result ? result : cuCtxSetCurrent(context);
}

static CUresult context_add(void)
{
	if (context_count == CONTEXTS_MAX)
		exit(3);
	CUresult result = cuCtxCreate_v2(&contexts[context_count], 0, 0);
	context_count += result == CUDA_SUCCESS;
	return result;
}

struct thread {
	pthread_t id;
	const struct slice_family *family;
	size_t bytes;
	CUcontext context;
	CUresult result;
};

static void *thread_run(void *arg)
{
	struct thread *t = arg;
	union slice_piece piece;

	t->result = cuCtxSetCurrent(t->context);
	for (int i = 0; i < THREAD_ROUNDS && t->result == CUDA_SUCCESS; i++) {
		t->result = t->family->take(&piece, t->bytes);
		if (t->result == CUDA_SUCCESS)
			t->result = t->family->give(&piece, t->bytes);
	}
	return NULL;
}

/* The first result that isn't success. */
static CUresult threads_run(size_t count, const char *family, size_t bytes)
{
	static struct thread threads[THREADS_MAX];
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < MIN(count, THREADS_MAX); i++) {
		threads[i].family = slice_family_find(family);
		threads[i].bytes = bytes;
		cuCtxGetCurrent(&threads[i].context);
		if (pthread_create(&threads[i].id, NULL, thread_run, &threads[i]))
			exit(3);
	}
	for (size_t i = 0; i < MIN(count, THREADS_MAX); i++) {
		pthread_join(threads[i].id, NULL);
		if (result == CUDA_SUCCESS)
			result = threads[i].result;
	}
	return result;
}

static CUgraphExec exec;

/* A graph that allocates and frees. */
static CUresult graph_make(size_t bytes, bool upload)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = bytes,
	};
	CUDA_GRAPH_INSTANTIATE_PARAMS uploading = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
	CUgraphNode nodes[2];
	CUgraph graph;
	CUresult result = cuGraphCreate(&graph, 0);

	if (result == CUDA_SUCCESS)
		result = cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &params);
	if (result == CUDA_SUCCESS)
		result = cuGraphAddMemFreeNode(&nodes[1], graph, nodes, 1, params.dptr);
	if (result == CUDA_SUCCESS)
		result = upload ? cuGraphInstantiateWithParams(&exec, graph, &uploading)
				: cuGraphInstantiateWithFlags(&exec, graph, 0);
	return result;
}

static CUresult graph_launch(void)
{
	CUresult result = cuGraphLaunch(exec, NULL);

	return result ? result : cuCtxSynchronize();
}

static void say_room(void)
{
	size_t free_bytes = 0, total = 0;

	cuMemGetInfo_v2(&free_bytes, &total);
	printf("%zu %zu\n", free_bytes, total);
}

static void fork_sleeper(void)
{
	pid_t child = fork();

	if (child == 0) {
		/* Not the pipes, whose end others wait for. */
		for (int fd = 0; fd < 3; fd++)
			close(fd);
		for (;;)
			pause();
	}
	printf("%d\n", (int)child);
}

static void obey(char **argv, char *line)
{
	char word[16] = "", family[16] = "";
	size_t number = 0, bytes = 0;
	CUresult result;

	if (sscanf(line, "take %15s %zu", family, &bytes) == 2) {
		result = take(family, bytes);
	} else if (sscanf(line, "threads %zu %15s %zu", &number, family, &bytes) == 3) {
		result = threads_run(number, family, bytes);
	} else if (sscanf(line, "device %zu", &number) == 1) {
		result = device_use((int)number);
	} else if (sscanf(line, "reset %zu", &number) == 1) {
		result = cuDevicePrimaryCtxReset_v2((CUdevice)number);
	} else if (sscanf(line, "%15s", word) == 1 && strcmp(word, "give") == 0) {
		result = give();
	} else if (sscanf(line, "graph %zu", &bytes) == 1) {
		result = graph_make(bytes, false);
	} else if (sscanf(line, "uploaded %zu", &bytes) == 1) {
		result = graph_make(bytes, true);
	} else if (strcmp(word, "upload") == 0) {
		result = cuGraphUpload(exec, NULL);
	} else if (strcmp(word, "launch") == 0) {
		result = graph_launch();
	} else if (strcmp(word, "trim") == 0) {
		result = cuDeviceGraphMemTrim(0);
	} else if (strcmp(word, "context") == 0) {
		result = context_add();
	} else if (strcmp(word, "destroy") == 0 && context_count) {
		result = cuCtxDestroy_v2(contexts[--context_count]);
	} else if (strcmp(word, "forget") == 0) {
		held_count = 0;
		result = CUDA_SUCCESS;
	} else if (strcmp(word, "room") == 0) {
		say_room();
		return;
	} else if (strcmp(word, "fork") == 0) {
		fork_sleeper();
		return;
	} else if (strcmp(word, "exec") == 0) {
		execv("/proc/self/exe", argv);
		exit(3);
	} else {
		exit(2);
	}
	printf("%d\n", (int)result);
}

int main(int argc, char **argv)
{
	char line[128];

	/* Bytes that were written to us stay in the pipe for who we become by exec. */
	setvbuf(stdin, NULL, _IONBF, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("%d\n", (int)getpid());
	while (fgets(line, sizeof(line), stdin))
		obey(argv, line);
	return 0;
}
