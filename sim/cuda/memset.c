/* The forms of cuMemset. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

#define SET_LATENCY_NS 1500u

static void fill(uint8_t *to, uint32_t value, uint32_t element, size_t bytes)
{
	if (element == 1) {
		memset(to, (int)(value & 0xff), bytes);
	} else if (element == 2) {
		for (size_t i = 0; i < bytes / 2; i++)
			((uint16_t *)to)[i] = (uint16_t)value;
	} else {
		for (size_t i = 0; i < bytes / 4; i++)
			((uint32_t *)to)[i] = value;
	}
}

/* Less than this is written: a system call would cost more than it saves. */
#define ZEROES_BY_HOLE KIB(64)

void memory_zero(void *host, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uint8_t *to = host, *last = to + bytes;
	uint8_t *first = (uint8_t *)ALIGN_UP((uintptr_t)to, page);
	uint8_t *end = (uint8_t *)((uintptr_t)last / page * page);

	if (bytes >= ZEROES_BY_HOLE && madvise(first, (size_t)(end - first), MADV_REMOVE) == 0) {
		memset(to, 0, (size_t)(first - to));
		memset(end, 0, (size_t)(last - end));
		return;
	}
	memset(to, 0, bytes);
}

static void set_bytes(const struct range *range, uint8_t *to, const struct op_set *set,
		      size_t bytes)
{
	if (!set->value && range->kind != RANGE_HOST && range->kind != RANGE_REGISTERED)
		memory_zero(to, bytes);
	else
		fill(to, set->value, set->element, bytes);
}

CUresult op_set_run(struct lane *lane, struct op_set *set)
{
	const struct sim_model *model = lane_device(lane)->model;
	uint64_t bytes = set->width * set->element;
	double moved = (double)(bytes * set->height) * 1e9;
	uint64_t ns = SET_LATENCY_NS + (uint64_t)(moved / (double)model->bandwidth_memory);
	bool takes_long = bytes * set->height > PLAYED_AT_ONCE;

	if (takes_long)
		lane_sequence_begin(lane);
	lane_submit(lane, (struct wire_item){.engine = WIRE_ENGINE_COMPUTE, .ns = ns});
	if (takes_long)
		lane_sequence_end(lane);
	for (size_t y = 0; y < set->height; y++) {
		uint64_t at = set->address + y * set->pitch, end = at + bytes;
		struct range range;

		while (at < end) {
			if (!range_find(at, &range) || !range.host)
				return CUDA_ERROR_ILLEGAL_ADDRESS;
			size_t n = MIN(end, range.start + range.size) - at;
			set_bytes(&range, range.host + (at - range.start), set, n);
			at += n;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult set_start(CUstream handle, struct op_set set)
{
	CUstream stream;
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (!set.width || !set.height)
		return CUDA_SUCCESS;
	size_t row = set.width * set.element;
	if (set.address % set.element || (set.height > 1 && set.pitch < row))
		return CUDA_ERROR_INVALID_VALUE;
	if (!range_covers(set.address, (set.height - 1) * set.pitch + row) ||
	    !range_find(set.address, &range) || !(range.writable || range.kind == RANGE_GRAPH))
		return CUDA_ERROR_INVALID_VALUE;
	struct op op = {.kind = OP_SET, .set = set};
	return stream_submit(stream, &op);
}

#define SET_1D(suffix, type, bytes)                                                            \
	CUresult cuMemsetD##suffix##_v2(CUdeviceptr address, type value, size_t count)         \
	{                                                                                      \
		return set_start(NULL, (struct op_set){address, 0, value, bytes, count, 1});   \
	}                                                                                      \
	CUresult cuMemsetD##suffix##Async(CUdeviceptr address, type value, size_t count,       \
					  CUstream stream)                                     \
	{                                                                                      \
		return set_start(stream, (struct op_set){address, 0, value, bytes, count, 1}); \
	}
#define SET_2D(suffix, type, bytes)                                                             \
	CUresult cuMemsetD2D##suffix##_v2(CUdeviceptr address, size_t pitch, type value,        \
					  size_t width, size_t height)                          \
	{                                                                                       \
		return set_start(NULL,                                                          \
				 (struct op_set){address, pitch, value, bytes, width, height}); \
	}                                                                                       \
	CUresult cuMemsetD2D##suffix##Async(CUdeviceptr address, size_t pitch, type value,      \
					    size_t width, size_t height, CUstream stream)       \
	{                                                                                       \
		return set_start(stream,                                                        \
				 (struct op_set){address, pitch, value, bytes, width, height}); \
	}

SET_1D(8, unsigned char, 1)
SET_1D(16, unsigned short, 2)
SET_1D(32, unsigned int, 4)
SET_2D(8, unsigned char, 1)
SET_2D(16, unsigned short, 2)
SET_2D(32, unsigned int, 4)
