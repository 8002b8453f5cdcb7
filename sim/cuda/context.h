/* Contexts: what they own, which is current. Handles are valid between creation and destruction;
 * context_is_alive() tells. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "base/cuda_abi.h"
#include "cuda/driver.h"

struct slab;
struct device_heap;

#define CONTEXT_LIMITS (CU_LIMIT_PERSISTING_L2_CACHE_SIZE + 1)

struct CUctx_st {
	struct device *device;
	unsigned long long id;
	unsigned int flags;
	unsigned int api_version;
	unsigned int attached; /* cuCtxAttach */
	bool is_primary;
	uint64_t cost_id;  /* the host's booking of what the context itself takes */
	_Atomic int error; /* CUresult that sticks until the context is destroyed */
	size_t limits[CONTEXT_LIMITS];
	/* The memory that limits and kernels have made it book beyond its cost, under driver.lock.
	 */
	struct context_booking {
		uint64_t id, bytes;
	} local, heap, fifo;
	_Atomic uint64_t local_per_thread;
	CUfunc_cache cache_config;
	CUsharedconfig shared_config;
	uint64_t ecc_errors; /* the GPU's count when it was made */
	uint64_t peers;      /* devices whose memory it may use, by ordinal */

	struct slab *slabs; /* linear.c's, under its lock */
	struct device_heap *device_heap;
	/* Under driver.lock. */
	CUstream legacy;  /* the NULL stream */
	CUstream streams; /* all but the legacy one */
	CUevent events;
	CUmodule modules;
};

/* The calling thread's current context, alive or not; NULL: none. */
CUcontext context_current(void);
bool context_is_alive(CUcontext ctx);
CUresult context_error(CUcontext ctx);
/* The fate of its GPU since: lost, alone or with its host, or memory errors, which stick.
 */
CUresult context_health(CUcontext ctx);
/* The first one sticks. */
void context_set_error(CUcontext ctx, CUresult error);
/* Waits for all work of the context, and gives its sticky error. */
CUresult context_synchronize(CUcontext ctx);

/* Books local memory for so many bytes a thread, for all threads that the GPU holds at once; what
 * was booked before stays booked. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult context_book_local(CUcontext ctx, uint64_t bytes_per_thread);
/* Books device memory for the kernels' malloc, and for their printf. */
CUresult context_book_heap(CUcontext ctx, uint64_t bytes);
CUresult context_book_fifo(CUcontext ctx, uint64_t bytes);

struct device *context_device(CUcontext ctx);
struct slab **context_slabs(CUcontext ctx);
