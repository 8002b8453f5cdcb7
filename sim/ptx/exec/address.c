/* Generic addresses of one thread, and the cache of the caller's ranges. */
#include "base/macros.h"
#include "ptx/exec/exec.h"

struct ptx_range *launch_range(struct launch *launch, uint64_t address)
{
	const struct ptx_launch *given = launch->given;
	struct ptx_range *range, found;

	for (unsigned i = 0; i < launch->range_count; i++) {
		range = &launch->ranges[i];
		if (address - range->start < range->size) {
			launch->range = range;
			return range;
		}
	}
	if (!given->callbacks->find_range ||
	    !given->callbacks->find_range(given->user, address, &found) ||
	    address - found.start >= found.size)
		return NULL;
	if (launch->range_count < RANGE_CACHE)
		launch->range_count++;
	range = &launch->ranges[launch->range_next];
	launch->range_next = (launch->range_next + 1) % RANGE_CACHE;
	*range = found;
	launch->range = range;
	return range;
}

static unsigned char *resolve_window(struct warp *warp, uint64_t window, uint64_t offset,
				     size_t size, bool write, unsigned lane)
{
	struct launch *launch = warp->launch;
	unsigned char *bytes;
	uint64_t limit;

	if (window == PTX_WINDOW_SHARED) {
		bytes = warp->block->shared;
		limit = launch->shared_bytes;
	} else if (window == PTX_WINDOW_LOCAL) {
		bytes = warp->local + (size_t)lane * launch->local_bytes;
		limit = launch->local_bytes;
	} else if (window == PTX_WINDOW_PARAM && !write) {
		bytes = launch->params;
		limit = launch->param_bytes;
	} else if (window == PTX_WINDOW_GRID && launch->given->cooperative) {
		bytes = (unsigned char *)launch->workspace;
		limit = sizeof(launch->workspace);
	} else {
		return NULL;
	}
	return offset <= limit && size <= limit - offset ? bytes + offset : NULL;
}

unsigned char *warp_resolve(struct warp *warp, uint64_t address, size_t size, bool write,
			    unsigned lane)
{
	struct ptx_range *range;
	unsigned char *at;
	uint64_t offset;

	if (address & (size - 1)) {
		warp_fault(warp, PTX_FAULT_MISALIGNED_ADDRESS, address, lane);
		return NULL;
	}
	if (address >= PTX_WINDOW_SHARED) {
		at = resolve_window(warp, address & ~(PTX_WINDOW_SIZE - 1),
				    address & (PTX_WINDOW_SIZE - 1), size, write, lane);
		if (!at)
			warp_fault(warp, PTX_FAULT_ILLEGAL_ADDRESS, address, lane);
		return at;
	}
	launch_meet_when_due(warp->launch);
	range = launch_range(warp->launch, address);
	offset = range ? address - range->start : 0;
	if (!range || size > range->size - offset) {
		warp_fault(warp, PTX_FAULT_ILLEGAL_ADDRESS, address, lane);
		return NULL;
	}
	if (write && !range->writable) {
		warp_fault(warp, PTX_FAULT_READ_ONLY, address, lane);
		return NULL;
	}
	return (unsigned char *)range->host + offset;
}
