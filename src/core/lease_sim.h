/* Imagined clients under the lease policy of lease.h, with imagined time: what a setting would
 * give. For `carve timeslicing simulate` and tests. Deterministic for a seed. Times are ns from 0.
 */
#pragma once

#include "core/lease.h"

struct lease_sim_client {
	uint64_t owner; /* as lease_client_add() takes it */
	uint64_t gpus;  /* bit mask */
	uint32_t fraction_ppm;
	uint64_t work_ns;   /* GPU time of one burst of work; 0: it never ends */
	uint64_t rest_ns;   /* from the end of a burst to the next one */
	uint64_t kernel_ns; /* a lease that is revoked goes on for up to that long */
	uint64_t drain_ns;  /* and then for that long */
	/* Not 0: its kernels last exactly kernel_ns, it waits for them after so many, and a revoked
	   lease ends when the kernels in flight are done. */
	uint32_t sync_every;
	uint64_t arrives, leaves; /* leaves 0: it stays */
	bool random;              /* work, rest and kernel are means, not exact */
	bool idle;                /* it never has work */
	/* It is gone when its burst is over, and comes as another client of its owner rest_ns
	 * later.
	 */
	bool visits;
};

/* A lease from its gate's opening until its last work was done. `until`: when it was revoked;
 * UINT64_MAX: not yet. */
struct lease_sim_span {
	uint32_t client;
	uint64_t from, to, until;
};

struct lease_sim_result {
	uint64_t busy_ns; /* GPU time used (the driver's view) */
	uint64_t free_ns; /* the part of it while none of its GPUs was time-sliced */
	uint64_t wanting_ns;
	uint64_t waits, wait_sum_ns, wait_longest_ns;    /* waits that ended */
	uint64_t bursts, burst_sum_ns, burst_longest_ns; /* from having work to its end */
	struct lease_client_stat stat;
};

struct lease_sim;

/* `span` (may be NULL) is told every lease at its end. NULL: no memory. */
struct lease_sim *lease_sim_new(uint64_t seed,
				void (*span)(void *context, const struct lease_sim_span *span),
				void *context);
void lease_sim_free(struct lease_sim *sim);
void lease_sim_set(struct lease_sim *sim, uint32_t gpu, const struct lease_setting *setting);
/* Clients are numbered from 0. -errno. */
int lease_sim_add(struct lease_sim *sim, const struct lease_sim_client *client);
/* From the grant to the opened gate, and from an idle holder to its end; 0.1 and 0.2 ms unless
 * told. */
void lease_sim_costs(struct lease_sim *sim, uint64_t open_ns, uint64_t idle_ns);
/* Goes on until `until`. 0; -EPROTO: the policy broke its own rules (two holders of one GPU,
 * endless actions without time passing), which lease_sim_fault() tells. */
int lease_sim_run(struct lease_sim *sim, uint64_t until);
/* Tells the span callback of the leases that go on, as if they ended now. */
void lease_sim_flush(struct lease_sim *sim);
/* Forgets the longest waits and bursts until now. */
void lease_sim_forget(struct lease_sim *sim);
const char *lease_sim_fault(const struct lease_sim *sim);
uint64_t lease_sim_now(const struct lease_sim *sim);
struct lease_sim_result lease_sim_result(const struct lease_sim *sim, uint32_t client);
/* GPU time in which nobody held it; and of it, while somebody had work for it. */
uint64_t lease_sim_idle(const struct lease_sim *sim, uint32_t gpu);
uint64_t lease_sim_wasted(const struct lease_sim *sim, uint32_t gpu);
struct lease_table *lease_sim_table(struct lease_sim *sim);
