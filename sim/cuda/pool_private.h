/* Shared by the files of pools. */
#pragma once

#include <pthread.h>

#include "cuda/foreign.h"
#include "cuda/gap.h"
#include "cuda/memory.h"

struct segment {
	struct segment *next;
	struct block block;
	struct gap *gaps;
};

struct piece {
	CUmemoryPool pool;
	struct segment *segment; /* NULL: imported */
	struct foreign foreign;
	uint64_t offset, size;
	/* To be freed when a stream gets there: */
	bool is_pending;
	unsigned long long stream_id;
	uint64_t ticket; /* a freeing that was overtaken has an older one */
	struct piece *next_pending;
};

/* All under pool_lock. */
struct CUmemPoolHandle_st {
	CUmemoryPool next;
	struct device *device;
	CUmemPoolProps props;
	struct segment *segments;
	struct piece *pending;
	size_t pieces;
	bool is_default, is_destroyed, is_imported;
	int reuse[3]; /* the three CU_MEMPOOL_ATTR_REUSE_* */
	uint64_t threshold;
	uint64_t reserved, reserved_high, used, used_high;
	uint64_t peers; /* devices that may use it, by ordinal */
};

/* Lock order: driver.lock, pool_lock, the heap's. */
extern pthread_mutex_t pool_lock;

/* NULL: no memory. */
CUmemoryPool pool_create(struct device *device, const CUmemPoolProps *props);
void pool_destroy(CUmemoryPool pool);
CUmemoryPool pool_default(struct device *device);
CUmemoryPool pool_current(struct device *device);
/* Enters the piece's range; frees the piece where that fails. */
CUresult pool_range_add(struct piece *piece, uint64_t address, uint8_t *host, uint64_t size);
