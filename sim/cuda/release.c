/* Where each kind of range ends. */
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda/foreign.h"
#include "cuda/memory.h"
#include "cuda/parts.h"
#include "cuda/pool.h"

void memory_release(const struct range *range)
{
	switch (range->kind) {
	case RANGE_LINEAR:
	case RANGE_MODULE:
	case RANGE_ARRAY:
		linear_free(range);
		break;
	case RANGE_MANAGED:
		block_expose(range->owner, false);
		block_free(range->owner);
		free(range->owner);
		break;
	case RANGE_HOST:
		munmap(range->host, range->size);
		break;
	case RANGE_POOL:
		pool_piece_free(range->owner);
		break;
	case RANGE_IPC:
	case RANGE_EXTERNAL:
		foreign_unmap(range->owner);
		free(range->owner);
		break;
	case RANGE_GRAPH:      /* the graph's */
	case RANGE_VMM:        /* cuMemUnmap's business */
	case RANGE_REGISTERED: /* the program's own */
		break;
	}
}
