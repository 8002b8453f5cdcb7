/* Memory pools: they reserve segments of whole blocks, and give pieces of them in the order of
 * streams. A piece that is freed on a stream can be given again on that stream at once, elsewhere
 * when the stream has got there. */
#pragma once

#include "cuda/memory.h"

struct piece;

/* Gives the piece behind a range that has been taken out back to its pool. */
void pool_piece_free(struct piece *piece);
struct device *pool_device(CUmemoryPool pool);
/* On a lane's thread: what cuMemFreeAsync asked for with this ticket. */
void memory_free_in_order(uint64_t address, uint64_t ticket);
/* After a synchronization: unused memory beyond the release threshold goes back to the device. */
void pools_settle(struct device *device);
/* The device's primary context has ended, and with it what its pools still hold unused. */
void pools_empty(struct device *device);
