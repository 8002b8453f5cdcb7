/* The cost of a decision of the lease policy: one line a case on stdout, "NAME CLIENTS NS".
 * Decisions are grants and extensions; what a lease's end tells the policy is counted in.
 *
 *   lease_decide [CLIENTS...] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/macros.h"
#include "core/lease.h"

#define DECISIONS 200000u

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct world {
	struct lease_table *table;
	uint64_t now, next, decisions;
	uint64_t *open, count;
};

static void actions(struct world *w)
{
	for (;;) {
		struct lease_action a = lease_next(w->table, w->now, &w->next);

		if (a.kind == LEASE_NONE)
			return;
		w->decisions++;
		if (a.kind == LEASE_GRANT)
			lease_opened(w->table, a.id, w->now);
		else if (a.kind == LEASE_REVOKE)
			lease_closed(w->table, a.id, w->now + 100000);
	}
}

/* All clients want all the time; every eighth is a gang over two GPUs where there are several. */
static struct world world_new(enum compute_mode mode, uint32_t gpus, uint32_t clients)
{
	struct world w = {.table = lease_table_new()};
	struct lease_setting setting = {mode, 5000000, LEASE_GRANULARITY_DEFAULT};
	uint32_t share = LEASE_PPM / (clients * 9 / 8 / gpus + 2);

	if (!w.table)
		exit(1);
	for (uint32_t i = 0; i < gpus; i++)
		lease_set(w.table, i, &setting, 0);
	for (uint32_t i = 0; i < clients; i++) {
		uint64_t mask = 1ull << i % gpus;

		if (gpus > 1 && i % 8 == 0)
			mask |= 1ull << (i + 1) % gpus;
		if (lease_client_add(w.table, i, i % 16, mask, i % 4 ? share : 0, 0) < 0)
			exit(1);
		lease_wants(w.table, i, true, 0);
	}
	return w;
}

static void measure(const char *name, enum compute_mode mode, uint32_t gpus, uint32_t clients)
{
	struct world w = world_new(mode, gpus, clients);
	uint64_t began = clock_ns();

	while (w.decisions < DECISIONS) {
		actions(&w);
		if (w.next == UINT64_MAX)
			exit(2);
		w.now = MAX(w.now + 100000, w.next);
	}
	printf("%s %" PRIu32 " %.0f\n", name, clients,
	       (double)(clock_ns() - began) / (double)w.decisions);
	lease_table_free(w.table);
}

static void measure_all(uint32_t clients)
{
	measure("strict-1-gpu", COMPUTE_STRICT, 1, clients);
	measure("fair-1-gpu", COMPUTE_FAIR, 1, clients);
	measure("fair-64-gpus-gangs", COMPUTE_FAIR, 64, clients);
}

int main(int argc, char **argv)
{
	static const uint32_t counts[] = {8, 64, 512};

	for (int i = 1; i < argc; i++)
		measure_all((uint32_t)strtoul(argv[i], NULL, 10));
	for (size_t i = 0; argc < 2 && i < ARRAY_SIZE(counts); i++)
		measure_all(counts[i]);
	return 0;
}
