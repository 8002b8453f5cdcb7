/* The inside of leases.h: what its thread and the loop share, under `lock`. */
#pragma once

#include <pthread.h>

#include "daemon/lease/lease_accounts.h"
#include "daemon/lease/lease_clock.h"
#include "daemon/lease/lease_member.h"

#define VERDICTS_KEPT 64u

/* One against whom something is held, or was: a user, or one session of root's (its number with
 * this bit). */
#define CULPRIT_SESSION (1ull << 63)
struct lease_owner {
	struct lease_owner *next;
	uint64_t owner;
	struct lease_conduct conduct;
};

struct leases {
	pthread_mutex_t lock;
	pthread_t thread;
	int poll_fd, timer_fd, kick_fd;
	bool stopping;
	struct lease_table *table;
	struct lease_member *members;
	uint64_t next_number;
	uint64_t sliced; /* mask of GPUs whose mode is not off */
	leases_lag *lag; /* NULL: the GPUs have no clocks of their own */
	const void *lag_arg;
	struct lease_clock clock;
	struct lease_accounts *accounts; /* NULL: none are kept */
	int accounts_fd;
	char gpu_name[LEASE_GPUS_MAX][LEASE_ACCOUNTS_NAME]; /* their UUIDs; "": not told */
	struct lease_owner *owners;
	struct lease_verdict verdicts[VERDICTS_KEPT]; /* not fetched yet */
	size_t verdict_count;
	void (*notify)(void *arg);
	void *notify_arg;
	uint64_t measured_from[LEASE_GPUS_MAX]; /* before, nothing is judged */
	uint64_t gates_at; /* when the gates of who waits are looked at again */
	/* The daemon may have been away or hung for so long that waiters took it for gone; until
	 * `missed_until`, CLOCK_MONOTONIC. */
	bool missed;
	uint64_t missed_until;
	/* When members were last told that the thread runs; CLOCK_MONOTONIC. 0: there is nobody to
	 * tell. */
	uint64_t beat_ns;
	uint64_t look_cost_ns; /* the cost of one pass: a running mean of the thread's CPU time */
	/* How long the thread may yet look without sleeping in between, ns; negative: not at all.
	 */
	int64_t spin_ns;
	struct lease_turn turns[LEASE_TURNS_KEPT]; /* a ring: number N is at N % LEASE_TURNS_KEPT */
	uint64_t turn_count;                       /* numbers start at 1 */
};

/* leases_now(), locked. */
uint64_t turns_now(struct leases *leases);
/* Does all that is due at `now` and returns when to be called again: UINT64_MAX: when something
 * happens; so soon after now: without sleeping. Locked. */
#define LEASES_AT_ONCE_NS 1u
uint64_t turns_run(struct leases *leases, uint64_t now);
/* The member's GPUs, or their modes, are others now. Locked. */
void turns_member_changed(struct leases *leases, struct lease_member *member, uint64_t now);
/* Takes it out of the table. Locked. */
void turns_member_remove(struct leases *leases, struct lease_member *member, uint64_t now);
/* Listens to its wake descriptor, or does not. Locked. */
void leases_listen(struct leases *leases, struct lease_member *member, bool listens);
