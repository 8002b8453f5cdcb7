/* Device memory. A device's heap is one sparse memory file of the process. It has a window of
 * addresses (reserved, and not accessible to the CPU, as a device pointer should be). An alias of
 * it is mapped elsewhere, by which the driver itself reads and writes. Address and file offset
 * correspond, so a block needs no mapping of its own, and memory that nobody touched costs nothing.
 *
 * Blocks are whole numbers of 2 MiB and are booked with the host. Ranges are what programs know:
 * addresses, sizes, and where they lie for the driver. Look-ups are logarithmic. Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cuda_abi.h"
#include "cuda/driver.h"

#define BLOCK_SIZE (2u << 20)
/* Alignment of what small allocations get. */
#define SMALL_UNIT 512u

/* Device memory that the host has booked. */
struct block {
	struct device *device;
	uint64_t id;     /* the host's */
	uint64_t offset; /* in the heap */
	uint64_t size;
};

/* Reserves, and finds a place. CUDA_ERROR_OUT_OF_MEMORY where the device is full. */
CUresult block_alloc(struct device *device, enum wire_memory kind, uint64_t bytes,
		     struct block *ret);
/* Its pages go back at once. */
void block_free(struct block *block);
uint64_t block_address(const struct block *block);
void *block_host(const struct block *block);
/* Zeros in device memory, by the driver's alias of it; whole pages cost no memory: they are
 * given back. */
void memory_zero(void *host, size_t bytes);
/* The file behind the device's blocks; offsets are block.offset. The heap's own. */
int block_fd(const struct block *block);
/* Makes a block accessible to the CPU at its own address (managed memory), or no longer. */
CUresult block_expose(const struct block *block, bool expose);

enum range_kind {
	RANGE_LINEAR = 1,
	RANGE_POOL,
	RANGE_VMM,
	RANGE_MANAGED,
	RANGE_HOST,       /* allocated by the driver */
	RANGE_REGISTERED, /* the program's own, registered */
	RANGE_IPC,
	RANGE_MODULE,
	RANGE_ARRAY,
	RANGE_GRAPH, /* host is NULL until a launch puts memory there */
	RANGE_EXTERNAL,
};

struct range {
	uint64_t start, size;
	uint8_t *host; /* where `start` lies for the driver */
	enum range_kind kind;
	bool readable, writable; /* by the device */
	CUcontext ctx;           /* NULL: of no context (VMM) */
	struct device *device;
	uint64_t id;               /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
	unsigned int flags;        /* flags of host memory and managed memory */
	int preferred, prefetched; /* managed memory: devices, or CU_DEVICE_CPU, _INVALID */
	bool read_mostly;
	bool sync_memops;
	void *owner; /* the thing that made it: its block, slab, pool, ... */
	/* For a piece of a pool, which may end while its range is looked at: */
	CUmemoryPool pool;
	uint64_t mapping, mapping_size; /* the pool's memory around it */
};

/* Enters a copy of *range (id is filled in). False: no memory, or it overlaps another. */
bool range_add(const struct range *range);
/* Takes out the range that starts there, of this kind (0: any). False: there is none. */
bool range_remove(uint64_t start, enum range_kind kind, struct range *ret);
/* The range that holds the address. */
bool range_find(uint64_t address, struct range *ret);
/* Calls change(range, arg) on the range that holds the address, under the lock. */
bool range_change(uint64_t address, void (*change)(struct range *, void *), void *arg);
/* Takes out some range of the context; false when there are none left. */
bool range_take_of(CUcontext ctx, struct range *ret);
/* Whether [start, start + size) is wholly within ranges that lie side by side. */
bool range_covers(uint64_t start, uint64_t size);

/* Linear memory of a context: small pieces share blocks. `kind` is how it is booked and what the
 * range is; *ret_address is aligned to SMALL_UNIT. */
CUresult linear_alloc(CUcontext ctx, uint64_t bytes, enum wire_memory booked, enum range_kind kind,
		      uint64_t *ret_address);
/* The block that a range of these lies in. */
const struct block *linear_block(const struct range *range);
/* Gives back what a range that has been taken out stood for. */
void linear_free(const struct range *range);
