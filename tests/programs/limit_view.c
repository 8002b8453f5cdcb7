/* Looks at the slice without a pause while processes of it take and give memory in every way.
 *
 *   limit_view SECONDS PROCESSES
 *
 * In every look, by cuMemGetInfo and by NVML's two versions: the total is the same, nothing is
 * negative, and free + used = total. Exit 0 if it was so in every look. Prints how many there were,
 * and how many different amounts were seen. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/nvml_abi.h"
#include "fork_bound.h"
#include "slice_families.h"

#define HELD 8
/* For so long it is waited for the others to begin. */
#define BEGIN_SECONDS 30

static const char *const families[] = {"linear", "pitch", "managed", "async",
				       "pool",   "vmm",   "mapped",  "array"};

static bool begin(void)
{
	CUcontext context;

	return cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
	       cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

static void churn(unsigned seed)
{
	struct {
		const struct slice_family *family;
		union slice_piece piece;
		size_t bytes;
	} held[HELD] = {0};

	if (!begin())
		_exit(1);
	for (;;) {
		unsigned i = (unsigned)rand_r(&seed) % HELD;

		if (held[i].family) {
			held[i].family->give(&held[i].piece, held[i].bytes);
			held[i].family = NULL;
			continue;
		}
		const struct slice_family *family =
			slice_family_find(families[(unsigned)rand_r(&seed) % ARRAY_SIZE(families)]);
		held[i].bytes = (size_t)MIB(2) * (1 + (unsigned)rand_r(&seed) % 64);
		if (family->take(&held[i].piece, held[i].bytes) == CUDA_SUCCESS)
			held[i].family = family;
	}
}

static struct {
	nvmlReturn_t (*init)(void);
	nvmlReturn_t (*device)(unsigned int index, nvmlDevice_t *device);
	nvmlReturn_t (*device_named)(const char *uuid, nvmlDevice_t *device);
	nvmlReturn_t (*memory)(nvmlDevice_t device, nvmlMemory_t *memory);
	nvmlReturn_t (*memory_v2)(nvmlDevice_t device, nvmlMemory_v2_t *memory);
} nvml;

/* NVML's handle of the GPU that is CUDA's first, which outside of a slice need not be NVML's. A
 * part of a GPU has another kind of name, and is alone. */
static bool nvml_find(nvmlDevice_t *device)
{
	char name[48] = "GPU-";
	CUuuid uuid;

	if (cuDeviceGetUuid_v2(&uuid, 0) != CUDA_SUCCESS)
		return false;
	for (int i = 0, at = 4; i < 16; i++)
		at += snprintf(name + at, sizeof(name) - (size_t)at,
			       i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
			       (unsigned char)uuid.bytes[i]);
	return nvml.device_named(name, device) == NVML_SUCCESS ||
	       nvml.device(0, device) == NVML_SUCCESS;
}

static bool nvml_open(nvmlDevice_t *device)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

	if (!library)
		return false;
	*(void **)&nvml.init = dlsym(library, "nvmlInit_v2");
	*(void **)&nvml.device = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&nvml.device_named = dlsym(library, "nvmlDeviceGetHandleByUUID");
	*(void **)&nvml.memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
	*(void **)&nvml.memory_v2 = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
	return nvml.init && nvml.device && nvml.device_named && nvml.memory && nvml.memory_v2 &&
	       nvml.init() == NVML_SUCCESS && nvml_find(device);
}

static bool adds_up(const char *what, uint64_t total, uint64_t free_bytes, uint64_t used,
		    uint64_t expected)
{
	if (total == expected && free_bytes <= total && used <= total && free_bytes + used == total)
		return true;
	fprintf(stderr, "%s: total %lu, free %lu, used %lu\n", what, total, free_bytes, used);
	return false;
}

static bool look(nvmlDevice_t device, size_t slice, uint64_t *ret_free)
{
	size_t free_bytes, total;
	nvmlMemory_t memory;
	nvmlMemory_v2_t memory2 = {.version = NVML_MEMORY_V2};

	if (cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS ||
	    nvml.memory(device, &memory) != NVML_SUCCESS ||
	    nvml.memory_v2(device, &memory2) != NVML_SUCCESS)
		return false;
	*ret_free = free_bytes;
	return adds_up("cuMemGetInfo", total, free_bytes, total - free_bytes, slice) &&
	       adds_up("NVML", memory.total, memory.free, memory.used, slice) &&
	       adds_up("NVML, version 2", memory2.total, memory2.free,
		       memory2.used + memory2.reserved, slice);
}

int main(int argc, char **argv)
{
	long seconds = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
	long processes = argc == 3 ? strtol(argv[2], NULL, 10) : 0, looks = 0, changes = 0;
	nvmlDevice_t device;
	size_t slice;
	uint64_t free_bytes, before = 0;

	for (long i = 0; i < processes; i++)
		if (fork_bound() == 0)
			churn((unsigned)i + 1);
	if (!begin() || !nvml_open(&device) || cuDeviceTotalMem_v2(&slice, 0) != CUDA_SUCCESS)
		return 2;
	/* They are at it when what is free changes. */
	time_t start = time(NULL), end = start + seconds;
	while (time(NULL) < (changes < 2 && seconds ? start + BEGIN_SECONDS : end)) {
		if (!look(device, slice, &free_bytes))
			return 1;
		looks++;
		if (free_bytes != before && ++changes == 2)
			end = time(NULL) + seconds;
		before = free_bytes;
		if (looks % 100000 == 0 && isatty(STDERR_FILENO))
			fprintf(stderr, "\r%ld looks", looks);
	}
	printf("%ld %ld\n", looks, changes);
	return 0;
}
