#include "host/meter.h"

#include "base/macros.h"

static void meter_turn(struct meter *m, uint64_t slot)
{
	uint64_t fresh = MIN(slot - m->slot, METER_BUCKETS + 1);

	for (uint64_t i = 0; i < fresh; i++)
		m->bucket_ns[(slot - i) % (METER_BUCKETS + 1)] = 0;
	m->slot = slot;
}

void meter_add(struct meter *m, uint64_t from, uint64_t to)
{
	uint64_t horizon = (METER_BUCKETS + 1) * (uint64_t)METER_BUCKET_NS;

	if (to - from > horizon)
		from = to - horizon;
	while (from < to) {
		uint64_t slot = from / METER_BUCKET_NS;
		uint64_t end = MIN(to, (slot + 1) * METER_BUCKET_NS);

		if (slot > m->slot)
			meter_turn(m, slot);
		m->bucket_ns[slot % (METER_BUCKETS + 1)] += (uint32_t)(end - from);
		from = end;
	}
}

uint32_t meter_permille(const struct meter *m, uint64_t now)
{
	uint64_t current = now / METER_BUCKET_NS, sum = 0;

	for (uint64_t i = 1; i <= METER_BUCKETS && i <= current; i++) {
		uint64_t slot = current - i;
		if (slot <= m->slot && m->slot - slot <= METER_BUCKETS)
			sum += m->bucket_ns[slot % (METER_BUCKETS + 1)];
	}
	return (uint32_t)(sum * 1000 / (METER_BUCKETS * (uint64_t)METER_BUCKET_NS));
}
