/* Linear memory in a slice, over the null driver, which refuses nothing itself. One check an
 * argument; prints nothing and exits 0 if it holds. Run by front_host with --limit 1 GiB, unless it
 * says otherwise. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "front_check.h"

/* The null driver's own: have the next calls that take or give memory fail. */
static void driver_fails(CUresult result)
{
	CUresult (*fail)(CUresult) =
		(CUresult(*)(CUresult))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuNullFail");

	fail(result);
}

static int check_view(void)
{
	size_t free_bytes, total;
	CUdeviceptr a;

	OK(cuDeviceTotalMem_v2(&total, 0));
	CHECK(total == LIMIT);
	OK(cuMemGetInfo_v2(&free_bytes, &total));
	CHECK(total == LIMIT && free_bytes == LIMIT);
	/* Drivers accept that (HAMi-core #234, #321, #333), and programs do it. */
	free_bytes = total = 0;
	OK(cuMemGetInfo_v2(&free_bytes, NULL));
	OK(cuMemGetInfo_v2(NULL, &total));
	OK(cuMemGetInfo_v2(NULL, NULL));
	CHECK(total == LIMIT && free_bytes == LIMIT);
	OK(cuMemAlloc_v2(&a, MIB(100)));
	CHECK(room() == LIMIT - MIB(100));
	OK(cuMemFree_v2(a));
	CHECK(room() == LIMIT);
	return 0;
}

/* To the last byte, and one granule more. */
static int check_exact(void)
{
	CUdeviceptr all, a, b;

	OK(cuMemAlloc_v2(&all, LIMIT));
	CHECK(room() == 0);
	REFUSED(cuMemAlloc_v2(&a, 1));
	OK(cuMemFree_v2(all));
	REFUSED(cuMemAlloc_v2(&a, LIMIT + 1));
	REFUSED(cuMemAlloc_v2(&a, SIZE_MAX));
	REFUSED(cuMemAlloc_v2(&a, (size_t)1 << 63));
	CHECK(room() == LIMIT);
	OK(cuMemAlloc_v2(&a, LIMIT - BLOCK));
	OK(cuMemAlloc_v2(&b, BLOCK));
	CHECK(room() == 0);
	OK(cuMemFree_v2(a));
	OK(cuMemFree_v2(b));
	CHECK(room() == LIMIT);
	return 0;
}

/* Small ones share blocks, which are held as long as any in them lives. */
static int check_small(void)
{
	enum { A_BLOCK = 4096, COUNT = A_BLOCK * 3 };
	static CUdeviceptr small[COUNT];

	for (int i = 0; i < COUNT; i++)
		OK(cuMemAlloc_v2(&small[i], 512));
	CHECK(room() == LIMIT - 3 * BLOCK);
	for (int i = 0; i < COUNT; i += 2)
		OK(cuMemFree_v2(small[i]));
	CHECK(room() == LIMIT - 3 * BLOCK);
	for (int i = 1; i < A_BLOCK; i += 2)
		OK(cuMemFree_v2(small[i]));
	CHECK(room() == LIMIT - 2 * BLOCK);
	for (int i = A_BLOCK + 1; i < COUNT; i += 2)
		OK(cuMemFree_v2(small[i]));
	CHECK(room() == LIMIT);
	return 0;
}

/* A small one that should have fitted into a block gets another, and there is no room for that.
 * (The null driver never uses an address again.) */
static int check_small_misfit(void)
{
	CUdeviceptr first, second, rest, third;

	OK(cuMemAlloc_v2(&first, 512));
	OK(cuMemAlloc_v2(&second, MIB(1)));
	OK(cuMemFree_v2(second));
	OK(cuMemAlloc_v2(&rest, LIMIT - BLOCK));
	REFUSED(cuMemAlloc_v2(&third, MIB(1)));
	CHECK(room() == 0);
	OK(cuMemFree_v2(rest));
	OK(cuMemAlloc_v2(&third, MIB(1)));
	CHECK(room() == LIMIT - 2 * BLOCK);
	OK(cuMemFree_v2(first));
	OK(cuMemFree_v2(third));
	CHECK(room() == LIMIT);
	return 0;
}

static int check_family(void)
{
	CUdeviceptr ptr;
	CUdeviceptr_v1 narrow;
	size_t pitch;

	OK(cuMemAllocPitch_v2(&ptr, &pitch, 1000, 4096, 4));
	CHECK(pitch == 1024 && room() == LIMIT - MIB(4));
	OK(cuMemFree_v2(ptr));
	REFUSED(cuMemAllocPitch_v2(&ptr, &pitch, 1 << 20, 1 << 20, 4));
	REFUSED(cuMemAllocPitch_v2(&ptr, &pitch, SIZE_MAX, 2, 4));
	OK(cuMemAllocManaged(&ptr, MIB(64), CU_MEM_ATTACH_GLOBAL));
	CHECK(room() == LIMIT - MIB(64));
	OK(cuMemFree_v2(ptr));
	OK(cuMemAlloc(&narrow, (unsigned int)MIB(6)));
	CHECK(room() == LIMIT - MIB(6));
	OK(cuMemFree(narrow));
	CHECK(room() == LIMIT);
	return 0;
}

/* Memory that the driver refuses is not charged; memory that it does not free stays charged. */
static int check_rollback(void)
{
	CUdeviceptr a, b;

	OK(cuMemAlloc_v2(&a, MIB(10)));
	driver_fails(CUDA_ERROR_OUT_OF_MEMORY);
	REFUSED(cuMemAlloc_v2(&b, MIB(10)));
	CHECK(room() == LIMIT - MIB(10));
	driver_fails(CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(cuMemFree_v2(a) == CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(room() == LIMIT - MIB(10));
	driver_fails(CUDA_SUCCESS);
	OK(cuMemFree_v2(a));
	CHECK(room() == LIMIT);
	/* Not one of ours: the driver's business, and nobody's credit. */
	OK(cuMemFree_v2(0x1234000));
	OK(cuMemFree_v2(a));
	CHECK(room() == LIMIT);
	return 0;
}

/* --context 100 MiB, --settled 20 MiB */
static int check_context(void)
{
	CUcontext second, primary;
	CUdeviceptr a;

	CHECK(room() == LIMIT - MIB(120));
	OK(cuCtxCreate_v2(&second, 0, 0));
	CHECK(room() == LIMIT - MIB(120));
	OK(cuMemAlloc_v2(&a, MIB(48)));
	for (int i = 0; i < 5000; i++)
		OK(cuMemAlloc_v2(&a, 257));
	CHECK(room() == LIMIT - MIB(172));
	OK(cuCtxDestroy_v2(second));
	/* Its memory went with it. */
	CHECK(cuCtxGetCurrent(&second) == CUDA_SUCCESS && !second);
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuCtxSetCurrent(primary));
	CHECK(room() == LIMIT - MIB(120));
	OK(cuMemAlloc_v2(&a, MIB(48)));
	OK(cuMemAlloc_v2(&a, 1));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	CHECK(room() == LIMIT - MIB(170));
	OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK(room() == LIMIT - MIB(20));
	driver_fails(CUDA_ERROR_OUT_OF_MEMORY);
	REFUSED(cuDevicePrimaryCtxRetain(&primary, 0));
	CHECK(room() == LIMIT - MIB(20));
	return 0;
}

/* --answer leave: nobody is there to settle with; the limit holds, and waiting for somebody is done
 * once. */
static int check_alone(void)
{
	CUcontext context;
	CUdeviceptr ptr;
	time_t begin = time(NULL);

	for (int i = 0; i < 50; i++) {
		OK(cuCtxCreate_v2(&context, 0, 0));
		OK(cuCtxDestroy_v2(context));
	}
	CHECK(time(NULL) - begin < 60); /* a wait each time would take minutes */
	OK(cuCtxCreate_v2(&context, 0, 0));
	OK(cuMemAlloc_v2(&ptr, LIMIT));
	REFUSED(cuMemAlloc_v2(&ptr, 1));
	return 0;
}

/* --answer shrink: the slice is smaller than what is held in it. */
static int check_over(void)
{
	size_t free_bytes = 1, total = 0;
	CUcontext context, first;
	CUdeviceptr a, b, c;

	OK(cuMemAlloc_v2(&a, MIB(400)));
	OK(cuMemAlloc_v2(&b, MIB(400)));
	OK(cuCtxGetCurrent(&first));
	REFUSED(cuCtxCreate_v2(&context, 0, 0));
	OK(cuCtxSetCurrent(first));
	OK(cuMemGetInfo_v2(&free_bytes, &total));
	CHECK(free_bytes == 0 && total == MIB(512));
	OK(cuDeviceTotalMem_v2(&total, 0));
	CHECK(total == MIB(512));
	REFUSED(cuMemAlloc_v2(&c, 1));
	REFUSED(cuMemAllocAsync(&c, 1, NULL));
	OK(cuMemFree_v2(a));
	CHECK(room() == MIB(112));
	OK(cuMemAlloc_v2(&c, MIB(112)));
	CHECK(room() == 0);
	return 0;
}

/* --context more than the slice */
static int check_context_too_big(void)
{
	CUcontext context;

	OK(cuInit(0));
	REFUSED(cuCtxCreate_v2(&context, 0, 0));
	REFUSED(cuDevicePrimaryCtxRetain(&context, 0));
	return 0;
}

static void *churn(void *unused)
{
	CUcontext context;

	for (int i = 0; i < 2000 && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS; i += 500)
		for (int k = 0; k < 500; k++) {
			CUdeviceptr ptr;

			if (cuMemAlloc_v2(&ptr, MIB(2) + (size_t)k * 7777) == CUDA_SUCCESS)
				cuMemFree_v2(ptr);
			if (cuMemAlloc_v2(&ptr, (size_t)k * 777 + 1) == CUDA_SUCCESS)
				cuMemFree_v2(ptr);
		}
	return NULL;
}

static int check_threads(void)
{
	pthread_t threads[8];

	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	CHECK(room() == LIMIT);
	return 0;
}

/* A child of fork has a slot of its own, and its parent's memory is not its own to give back. */
static int check_fork(void)
{
	CUdeviceptr mine, ptr;
	int status;

	OK(cuMemAlloc_v2(&mine, MIB(100)));
	pid_t child = fork();
	if (child == 0) {
		cuMemFree_v2(mine);
		_exit(cuMemAlloc_v2(&ptr, MIB(200)) != CUDA_SUCCESS || room() != LIMIT - MIB(300));
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* The host notices the child's end in its own time. */
	for (int i = 0; i < 500 && room() != LIMIT - MIB(100); i++)
		usleep(10000);
	CHECK(room() == LIMIT - MIB(100));
	OK(cuMemFree_v2(mine));
	return 0;
}

/* Killed in the middle of everything, many times; the slice is whole afterwards. Half of them are
 * killed as they come, perhaps before they have anything; the others when they had memory. */
static int check_killed(void)
{
	for (int i = 0; i < 50; i++) {
		int had[2];
		CHECK(pipe(had) == 0);
		pid_t child = fork();

		if (child == 0) {
			churn(NULL);
			if (write(had[1], "", 1) != 1)
				_exit(1);
			for (;;)
				churn(NULL);
		}
		CHECK(child > 0);
		close(had[1]);
		if (i % 2) {
			char byte;
			CHECK(read(had[0], &byte, 1) == 1);
		}
		usleep(500 + (useconds_t)(i * 137) % 3000);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		close(had[0]);
	}
	for (int i = 0; i < 500 && room() != LIMIT; i++)
		usleep(10000);
	CHECK(room() == LIMIT);
	return 0;
}

/* Without a session: no device, and no memory, whatever is asked. */
static int check_closed(void)
{
	CUcontext context;
	CUdeviceptr ptr;
	size_t total;

	CHECK(cuInit(0) == CUDA_ERROR_NO_DEVICE);
	REFUSED(cuCtxCreate_v2(&context, 0, 0));
	REFUSED(cuDevicePrimaryCtxRetain(&context, 0));
	REFUSED(cuMemAlloc_v2(&ptr, 1));
	OK(cuDeviceTotalMem_v2(&total, 0));
	CHECK(total == 0);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"view", check_view, 0},       {"exact", check_exact, 0},
		{"small", check_small, 0},     {"small-misfit", check_small_misfit, 0},
		{"family", check_family, 0},   {"rollback", check_rollback, 0},
		{"context", check_context, 0}, {"alone", check_alone, 0},
		{"over", check_over, 0},       {"context-too-big", check_context_too_big, 1},
		{"threads", check_threads, 0}, {"fork", check_fork, 0},
		{"killed", check_killed, 0},   {"closed", check_closed, 1},
	};

	return check_run(checks, ARRAY_SIZE(checks), argc, argv);
}
