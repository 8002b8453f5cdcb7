#include "proto/mark.h"

#include <string.h>

#include "base/fnv.h"

static uint64_t hash(const void *data, size_t size)
{
	uint64_t h = fnv_add(FNV_BASIS, data, size);

	return h ^ h >> 32;
}

static uint32_t low(uint64_t value, unsigned bits)
{
	return (uint32_t)(value & ((1ull << bits) - 1));
}

uint32_t mark_session(const char *id)
{
	return low(hash(id, strnlen(id, LEDGER_SESSION_SIZE)), MARK_SESSION_BITS);
}

uint32_t mark_life(uint64_t start_time)
{
	return low(hash(&start_time, sizeof(start_time)), MARK_LIFE_BITS);
}

uint64_t mark_start(const struct mark *mark)
{
	uint64_t start = low(mark->session, MARK_SESSION_BITS);

	start = start << MARK_SLOT_BITS | low(mark->slot, MARK_SLOT_BITS);
	start = start << MARK_LIFE_BITS | low(mark->life, MARK_LIFE_BITS);
	start = start << MARK_GPU_BITS | low(mark->gpu, MARK_GPU_BITS);
	return start << MARK_NUMBER_BITS | low(mark->number, MARK_NUMBER_BITS);
}

struct mark mark_of(uint64_t start)
{
	struct mark mark;

	mark.number = low(start, MARK_NUMBER_BITS);
	start >>= MARK_NUMBER_BITS;
	mark.gpu = low(start, MARK_GPU_BITS);
	start >>= MARK_GPU_BITS;
	mark.life = low(start, MARK_LIFE_BITS);
	start >>= MARK_LIFE_BITS;
	mark.slot = low(start, MARK_SLOT_BITS);
	start >>= MARK_SLOT_BITS;
	mark.session = (uint32_t)(start < 1ull << MARK_SESSION_BITS ? start : UINT32_MAX);
	return mark;
}
