/* Decides which client gets the GPUs' time, for how long, and how much it is charged. Pure: no
 * clock, no I/O; a caller tells it what happened and when, asks what is to be done, does it, and
 * says when it was done. One struct lease_table a host. Times are ns on one monotonic clock, which
 * never goes back between two calls. Not for several threads at once.
 *
 * Terms. A client is a session. Shares are parts per million of one GPU's time. A lease is one turn
 * of exclusive use of all the client's GPUs (a gang). A plan is lease / granularity long.
 *
 * The caller's duties:
 *   wants    a client has work, or a thread waiting (true); it has neither (false). A client that
 *            holds a lease and goes idle is told as wants = false, then its lease is revoked.
 *   opened   the gate of a granted client was opened. If threads wait at it, the first of them has
 *            handed something in, or took too long. Or it was found open, see lease_opened().
 *   closed   its gate is closed and its last work is done (drained), or was given up waiting for.
 *
 * From `opened` to `closed` is what it is charged, overrun included. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/compute.h"

#define LEASE_GPUS_MAX 64u
#define LEASE_PPM 1000000u
#define LEASE_NS_DEFAULT 250000000ull
#define LEASE_NS_MIN 5000000ull
#define LEASE_NS_MAX 10000000000ull
#define LEASE_GRANULARITY_DEFAULT 50000u /* 5%, ppm */
#define LEASE_GRANULARITY_MIN 10000u
#define LEASE_GRANULARITY_MAX 500000u
#define LEASE_GRANULARITY_RIGHT "5%"
/* The part that all clients with no request of their own get together where requests sum to 1: 1%.
 */
#define LEASE_FLOOR_PPM 10000u

/* plan_ns = lease_ns / granularity. COMPUTE_OFF: clients on this GPU need no lease for it. */
struct lease_setting {
	enum compute_mode mode;
	uint64_t lease_ns;
	uint32_t granularity_ppm;
};

uint64_t lease_plan_ns(const struct lease_setting *setting);

struct lease_table;

/* NULL where there is no memory. Caller frees. */
struct lease_table *lease_table_new(void);
void lease_table_free(struct lease_table *t);

/* Takes effect from the next decision on; lease and granularity are brought within their limits. */
void lease_set(struct lease_table *t, uint32_t gpu, const struct lease_setting *setting,
	       uint64_t now);
const struct lease_setting *lease_get(const struct lease_table *t, uint32_t gpu);
/* How much of the GPU's time has been promised to fractions in all, clients or not: what is none is
 * as a client that never wants. At least what its clients have; that is all, unless told. */
void lease_promise(struct lease_table *t, uint32_t gpu, uint32_t ppm, uint64_t now);

/* Strict mode: a client with a fraction gets that. It gets what it slept through late, up to one
 * plan, and only from time that nobody else is promised. Clients without a fraction share what no
 * fraction has been promised, whether the promised time is used or not. Fair mode: what nobody's
 * guarantee needs is shared equally among those that want it. In both modes, clients without a
 * fraction that want time get 1% at least. Where the fractions leave less, they are scaled down to
 * leave that. In fair mode only the fractions of clients that want time count.
 *
 * `fraction_ppm`: the slice's share as asked by --gpu or --gpu-compute; 0: sized by memory only.
 * Request and limit follow from the GPU's mode. Fair: the request is the fraction, and the limit 1.
 * Strict: the limit is the fraction too, but 1 where the fraction is 0. `gpus`: bit mask, not 0.
 * `id` is the caller's; unique. `owner`: any number. A client that is removed leaves what it still
 * owes to its owner. The owner pays with the first turns of the next clients, for max(4 plans, 10
 * min) at most. 0, -EEXIST, -EINVAL or -ENOMEM. */
int lease_client_add(struct lease_table *t, uint64_t id, uint64_t owner, uint64_t gpus,
		     uint32_t fraction_ppm, uint64_t now);
/* Resized. */
void lease_client_share(struct lease_table *t, uint64_t id, uint32_t fraction_ppm, uint64_t now);
/* Its gate is closed for ever; what it held is free. */
void lease_client_remove(struct lease_table *t, uint64_t id, uint64_t now);

void lease_wants(struct lease_table *t, uint64_t id, bool wants, uint64_t now);
/* Granted, or not: a client may have taken its idle gate back by itself, or have run freely while
 * the GPU's mode was off. It holds from then on (contended, until LEASE_CHANGE says otherwise) and
 * is revoked at once where it may not. Where several hold one GPU so, all are revoked, and nobody
 * is granted it before they are closed. */
void lease_opened(struct lease_table *t, uint64_t id, uint64_t now);
void lease_closed(struct lease_table *t, uint64_t id, uint64_t now);
/* It was closed though its work went on, and that ran `ns` more while it held no lease: told when
 * it has ended. Charged like an overrun. */
void lease_leaked(struct lease_table *t, uint64_t id, uint64_t ns, uint64_t now);

/* It gets nothing, and gives back what it holds, as if it wanted nothing; until it is let go it is
 * only noted what lease_wants() says. */
void lease_client_bar(struct lease_table *t, uint64_t id, bool barred, uint64_t now);
/* The most that clients of other owners, of those that want or hold it now, have been promised of
 * one of these GPUs, ppm; 0: there are none. */
uint32_t lease_others(const struct lease_table *t, uint64_t gpus, uint64_t owner);

enum lease_action_kind {
	LEASE_NONE = 0,
	/* Open the gate (contended: with bounded work in flight), then call lease_opened(). */
	LEASE_GRANT,
	/* Close the gate, drain, then call lease_closed(). Because its time is up, it went idle, or
	 * a client below its guarantee woke up. */
	LEASE_REVOKE,
	/* The holder goes on; `contended` is as it says now. */
	LEASE_CHANGE,
};

struct lease_action {
	enum lease_action_kind kind;
	uint64_t id;
	/* Others want its GPUs, or wanted them lately, or its share ends (strict): it will have to
	   give them back, so little work should be in flight. */
	bool contended;
	/* LEASE_GRANT: when its lease ends, if it is opened now; UINT64_MAX: when somebody else
	   wants a GPU of it. A lease may go on after its end where nobody comes before it. */
	uint64_t until;
};

/* The next step, now: called again until it gives LEASE_NONE; then *ret_next is when to call
 * again though nothing happened (UINT64_MAX: only when something does). Bounded work per call. Each
 * action is given once. Clients none of whose GPUs is time-sliced are none of its business. */
struct lease_action lease_next(struct lease_table *t, uint64_t now, uint64_t *ret_next);

/* For showing. `received`: GPU time held over the last whole plan and over the last 60 s, in ppm of
 * the time passed (since it came, if that is less). */
struct lease_client_stat {
	uint32_t request_ppm, limit_ppm; /* as they follow from mode and fraction */
	uint32_t received_plan_ppm, received_minute_ppm;
	uint64_t held_ns;    /* all its leases, drain included */
	uint64_t overrun_ns; /* the part after a lease was to end */
	uint64_t waited_ns;  /* wanted, but had no lease */
	uint64_t waited_longest_ns;
	uint64_t waits; /* times that it waited, the present one included */
	uint64_t leases, preempted;
	bool wants, holds;
};
/* 0 or -ENOENT. */
int lease_client_stat(const struct lease_table *t, uint64_t id, uint64_t now,
		      struct lease_client_stat *ret);
