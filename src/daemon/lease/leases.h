/* Leases, run: opens and closes gates of sessions as the lease table says (core/lease.h). A thread
 * of its own does so, because a turn must not wait for the daemon's loop (docs/dev/adr/0004).
 *
 * All functions are the loop's; they take the lock that the thread holds while it works (some ten
 * microseconds), and none waits for longer. A session with a ledger is a member. Its mapping is the
 * thread's to read from leases_join() until leases_leave() has returned. GPUs are positions in the
 * pool. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/lease.h"
#include "core/lease_conduct.h"
#include "core/lease_measure.h"
#include "proto/ledger.h"

struct leases;
struct lease_member;

/* 0 or -errno. */
int leases_start(struct leases **ret);
/* Ends the thread. Gates stay as they are: the next daemon takes them up, or waiters open them.
 * Takes NULL. */
void leases_stop(struct leases *leases);

/* Where GPUs have clocks of their own (gpus_clock_lag()): how far the one that is furthest behind
 * is behind CLOCK_MONOTONIC when that is now_ns, ns. Called under the thread's lock; must not wait.
 * To be told before anything else; NULL: no more. */
typedef uint64_t leases_lag(const void *arg, uint64_t now_ns);
void leases_clock(struct leases *leases, leases_lag *lag, const void *arg);
/* The time by which leases go, ns: lease_clock.h. All times of turns are this clock's. */
uint64_t leases_now(struct leases *leases);

/* From now on accounts are written into a memfd (lease_accounts.h), so that the next daemon goes on
 * with them. `kept_fd` is that of the daemon before, and becomes the leases'. -1, or no such file:
 * makes a new one. Returns the descriptor, which stays the leases', or -errno. */
int leases_accounts(struct leases *leases, int kept_fd);
/* The GPU's name in the accounts; to be told before leases_set(). */
void leases_name(struct leases *leases, uint32_t gpu, const char *uuid);

/* Takes effect at once: gates of sessions on it are closed, or done away with. */
void leases_set(struct leases *leases, uint32_t gpu, const struct lease_setting *setting);

/* How much of the GPU's time its sessions have been promised in all, ppm: from when they are
 * granted until they have ended, whether they are members or not. */
void leases_promise(struct leases *leases, uint32_t gpu, uint32_t ppm);

struct lease_joining {
	const char *id; /* the session's */
	uid_t uid;
	uint64_t owner;              /* the owner whose debts it shares: slicing_owner() */
	const struct ledger *ledger; /* mapped until leases_leave() */
	struct ledger_limits *limits;
	uint64_t gpus;     /* mask, not 0 */
	uint32_t fraction; /* as lease_client_add() takes it */
	/* Since when its GPU time is counted, ns since 1970. Accounts of the daemon before have
	 * their own. */
	int64_t counted_from;
	int wake_fd; /* that its processes have already; it becomes the member's. -1: make one */
};
/* 0 or -errno; then the descriptor is closed. */
int leases_join(struct leases *leases, const struct lease_joining *joining,
		struct lease_member **ret);
/* Takes NULL. */
void leases_leave(struct leases *leases, struct lease_member *member);
/* Resized. */
void leases_share(struct leases *leases, struct lease_member *member, uint32_t fraction);

/* Which of its GPUs (bits: places in its ledger) its gate is not for. */
void leases_unsliced(struct leases *leases, struct lease_member *member, uint64_t unsliced);

/* The descriptor that processes get; the member's. */
int leases_wake_fd(const struct lease_member *member);
/* A slot belongs to a living process. `hears`: it has the wake descriptor; else it has one of
 * another daemon, and is looked at by the clock. */
void leases_process_add(struct leases *leases, struct lease_member *member, uint32_t slot,
			bool hears);
/* Its process is gone, or what it had on the GPU is. */
void leases_process_gone(struct leases *leases, struct lease_member *member, uint32_t slot);

/* Times of a session's turns as they are in its accounts (lease_accounts.h), at most some seconds
 * old: a daemon that follows on a killed one never has less. */
struct lease_kept {
	uint64_t held_ns, waited_ns, overrun_ns;
};

struct lease_standing {
	bool sliced; /* one of its GPUs is time-sliced: the rest counts */
	struct lease_client_stat stat;
	int64_t counted_from; /* since when `stat` counts, ns since 1970 */
	uint64_t stalls;      /* drains that were given up */
	uint64_t
		suspended_ns; /* the time for which its owner still has no turns; 0: it has turns */
	uint64_t beyond_ns, returned_ns; /* as lease_measured() tells */
	uint64_t reopened;               /* gates opened again so that work could end */
	uint64_t idle_ns; /* how long it is quiet until its turn is taken to be over */
	uint64_t forged;  /* times that its gate was found open against the plan */
	uint64_t waits;   /* times that threads of its living processes waited at the gate */
	struct lease_kept kept;
};
void leases_standing(struct leases *leases, const struct lease_member *member,
		     struct lease_standing *ret);

/* The GPUs' time that processes used, by the driver, and its consequences (core/lease_measure.h).
 * To be asked for as leases_measure_mark() returns, told then; `uses` are of clients that
 * leases_client() names. `unfronted` of a use becomes true where the process is to be ended: it
 * used the GPU without the front, and its user is suspended for it. `lag` is how far the GPU's own
 * clock is behind CLOCK_MONOTONIC. */
uint64_t leases_client(const struct lease_member *member);
void leases_measure_mark(struct leases *leases, uint32_t gpu, uint64_t lag);
void leases_measure(struct leases *leases, uint32_t gpu, struct lease_use *uses, size_t count,
		    uint32_t busy_ppm);
/* Whether an owner has no turns for now, because of its programs' conduct (core/lease_conduct.h).
 */
bool leases_suspended(struct leases *leases, uint64_t owner);
bool leases_any_suspended(struct leases *leases);

/* An owner is suspended, or did again the thing for which it is suspended. */
struct lease_verdict {
	uint64_t owner;
	enum conduct_event event;
	char session[16]; /* the one whose process did it; "": the process is in none */
	uint64_t for_ns;  /* the time for which the owner has no turns now */
};
/* Those that are new, `room` at most; `notify` is called when there are some: by any thread, with
 * the lock held. Returns how many. */
void leases_watch(struct leases *leases, void (*notify)(void *arg), void *arg);
size_t leases_verdicts(struct leases *leases, struct lease_verdict *verdicts, size_t room);

/* One turn, for the trace. Times are those of leases_now(). */
enum lease_end { LEASE_END_NONE, LEASE_END_TIME, LEASE_END_IDLE, LEASE_END_STALLED };
struct lease_turn {
	uint64_t number; /* counts up by one */
	char session[16];
	uid_t uid;
	uint64_t gpus;
	uint64_t opened, until;   /* until: when it was to end at the latest; UINT64_MAX: open */
	uint64_t revoked, closed; /* 0: it goes on */
	enum lease_end end;
	bool contended;
};
/* Copies the turns from number `from` on that have ended and are remembered, `room` at most.
 * Returns how many; *ret_next: where to go on. */
#define LEASE_TURNS_KEPT 16384u
size_t leases_turns(struct leases *leases, uint64_t from, struct lease_turn *turns, size_t room,
		    uint64_t *ret_next);
/* Copies those that go on. */
size_t leases_turns_open(struct leases *leases, struct lease_turn *turns, size_t room);
