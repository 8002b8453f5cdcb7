/* Stream memory operations: a stream writes a word, or waits for one. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

/* How often a stream looks at the word that it waits for: first often, later seldom. */
#define LOOK_NS_MIN 20000u
#define LOOK_NS_MAX 1000000u

static uint64_t word_load(const uint8_t *at, bool wide)
{
	return wide ? atomic_load((const _Atomic uint64_t *)at)
		    : atomic_load((const _Atomic uint32_t *)at);
}

static bool met(uint64_t word, uint64_t value, bool wide, unsigned int flags)
{
	switch (flags & 0x3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return wide ? (int64_t)(word - value) >= 0 : (int32_t)(word - value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return word == value;
	case CU_STREAM_WAIT_VALUE_AND:
		return (word & value) != 0;
	default:
		return wide ? ~(word | value) != 0 : (uint32_t) ~(word | value) != 0;
	}
}

static void word_wait(struct lane *lane, const uint8_t *at, uint64_t value, bool wide,
		      unsigned int flags)
{
	uint64_t ns = LOOK_NS_MIN;

	while (!met(word_load(at, wide), value, wide, flags) && !lane_is_aborting(lane)) {
		const struct timespec t = {.tv_nsec = (long)ns};

		nanosleep(&t, NULL);
		ns = MIN(ns * 2, LOOK_NS_MAX);
	}
}

static CUresult memop_run(struct lane *lane, const CUstreamBatchMemOpParams *p)
{
	bool wide = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
		    p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
	struct range range;

	if (p->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES ||
	    p->operation == CU_STREAM_MEM_OP_BARRIER)
		return CUDA_SUCCESS;
	if (!range_find(p->waitValue.address, &range) || !range.host)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	uint8_t *at = range.host + (p->waitValue.address - range.start);
	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		word_wait(lane, at, wide ? p->waitValue.value64 : p->waitValue.value, wide,
			  p->waitValue.flags);
		break;
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		atomic_store((_Atomic uint32_t *)at, p->writeValue.value);
		break;
	default:
		atomic_store((_Atomic uint64_t *)at, p->writeValue.value64);
	}
	return CUDA_SUCCESS;
}

bool op_memops_only_write(const struct op_memops *memops)
{
	for (unsigned int i = 0; i < memops->count; i++)
		if (memops->list[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
		    memops->list[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
			return false;
	return true;
}

CUresult op_memops_run(struct lane *lane, struct op_memops *memops)
{
	CUresult result = CUDA_SUCCESS;

	for (unsigned int i = 0; i < memops->count && result == CUDA_SUCCESS; i++)
		result = memop_run(lane, &memops->list[i]);
	return result;
}

static CUresult memop_check(const CUstreamBatchMemOpParams *p)
{
	size_t size = 4;

	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		size = 8;
		break;
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		break;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_ERROR_NOT_SUPPORTED;
	case CU_STREAM_MEM_OP_BARRIER:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (p->waitValue.address % size || !range_covers(p->waitValue.address, size))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned int count,
			       CUstreamBatchMemOpParams *params, unsigned int flags)
{
	CUstream stream;

	API_BEGIN_CONTEXT(ctx);
	if (!params || count > 256 || flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = stream_resolve(ctx, handle, &stream);
	for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = memop_check(&params[i]);
	if (result != CUDA_SUCCESS)
		return result;
	struct op op = {.kind = OP_MEMOPS, .memops = {.count = count}};
	op.memops.list = calloc(count + 1, sizeof(*params));
	if (!op.memops.list)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(op.memops.list, params, count * sizeof(*params));
	return stream_submit(stream, &op);
}

/* Waiting and writing have the same layout of parameters. */
static CUresult memop_one(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address,
			  cuuint64_t value, unsigned int flags)
{
	CUstreamBatchMemOpParams p = {0};

	p.operation = operation;
	p.waitValue.address = address;
	p.waitValue.value64 = value;
	p.waitValue.flags = flags;
	return cuStreamBatchMemOp_v2(stream, 1, &p, 0);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
				unsigned int flags)
{
	return memop_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
				unsigned int flags)
{
	return memop_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
				 unsigned int flags)
{
	return memop_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
				 unsigned int flags)
{
	return memop_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
