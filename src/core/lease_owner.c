/* Matters of all clients of an owner together. */
#include "base/macros.h"
#include "core/lease_table.h"

static bool counts(const struct lease_client *c, uint64_t owner)
{
	return c->owner != owner && lease_active(c);
}

static uint32_t others_on(const struct lease_gpu *g, uint64_t owner)
{
	uint64_t sum = 0;
	bool pool = false;

	for (uint32_t i = 0; i < g->count; i++) {
		const struct lease_client *c = g->seats[i]->client;

		if (!counts(c, owner))
			continue;
		sum += c->fraction;
		pool |= !c->fraction;
	}
	return (uint32_t)MIN(sum + (pool ? LEASE_FLOOR_PPM : 0), LEASE_PPM);
}

uint32_t lease_others(const struct lease_table *t, uint64_t gpus, uint64_t owner)
{
	uint32_t most = 0;

	for (uint64_t left = gpus & t->sliced; left; left &= left - 1)
		most = MAX(most, others_on(&t->gpu[__builtin_ctzll(left)], owner));
	return most;
}
