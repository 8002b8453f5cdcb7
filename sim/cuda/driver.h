/* Shared by every part of the simulated libcuda: the process's state, its devices, and how an
 * entry point begins.
 *
 * Locks, in this order: driver.lock (contexts, modules, events, graphs and their lists), then the
 * memory lock (memory.h), then a lane's own (work.h). None is held while waiting for the GPU or
 * while a program's callback runs. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cuda_abi.h"
#include "host/client.h"
#include "host/models.h"

#define DEVICES_MAX WIRE_GPUS_MAX

struct heap;

struct device {
	int ordinal;
	wire_device wire;
	const struct sim_model *model;
	const struct wire_gpu *gpu;
	CUuuid uuid;
	char name[96];
	uint32_t sm_count;     /* the MIG device's, where it is one */
	uint64_t memory_total; /* as CUDA reports it, bytes */
	bool is_mig;

	/* Under driver.lock. */
	CUcontext primary; /* NULL: not retained */
	unsigned int primary_flags;
	unsigned int primary_refs;
	CUmemoryPool default_pool, current_pool;
	struct heap *heap; /* made with the first context; lives as long as the process */
};

struct driver {
	pthread_mutex_t lock;
	struct client *client; /* NULL: not initialised */
	const struct wire_host *host;
	int device_count;
	struct device devices[DEVICES_MAX];
};

extern struct driver driver;

/* Every entry point begins so. The driver must be initialised, in this very process, and its host
 * alive. The thread must not run a function of the program's for a stream. An armed hang takes
 * effect here. */
CUresult api_begin(const char *name);
/* Around such a function: what the thread calls meanwhile answers CUDA_ERROR_NOT_PERMITTED, which
 * cuLaunchHostFunc's documentation allows and programs tell such threads by. */
void api_forbid(bool forbidden);
/* The same, and the calling thread must have a current context that is alive and has no sticky
 * error. */
CUresult api_begin_context(const char *name, CUcontext *ret_ctx);

/* The fault, if any, of an allocation on the device in the calling thread's API call; asked for
 * once a call, whichever part asks first. May sleep. */
CUresult api_allocation_fault(const struct device *device);

#define API_BEGIN()                                \
	do {                                       \
		CUresult r_ = api_begin(__func__); \
		if (r_ != CUDA_SUCCESS)            \
			return r_;                 \
	} while (0)

/* NOLINTBEGIN(bugprone-macro-parentheses): a name that is declared */
#define API_BEGIN_CONTEXT(ctx)                                   \
	CUcontext ctx;                                           \
	do {                                                     \
		CUresult r_ = api_begin_context(__func__, &ctx); \
		if (r_ != CUDA_SUCCESS)                          \
			return r_;                               \
	} while (0)
/* NOLINTEND(bugprone-macro-parentheses) */

/* NULL: no such ordinal. */
struct device *device_find(CUdevice ordinal);
/* Value of a device attribute; CUDA_ERROR_INVALID_VALUE for one that this driver does not know. */
CUresult device_attribute(const struct device *device, CUdevice_attribute attribute, int *ret);

/* The version of CUDA of the driver that is played, as cuDriverGetVersion gives it; before cuInit
 * too, and the newest where there is no host. */
int driver_played_version(void);

/* The CUresult for an error of the host's client. */
CUresult result_from_errno(int error);

/* Fills driver.devices as CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER want it. */
void devices_enumerate(void);
