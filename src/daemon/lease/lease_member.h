/* The lease thread's record of a session, and its readings of the pages of its processes. The
 * pages are written by workloads: nothing in them is an index or a bound here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/lease/lease_idle.h"
#include "daemon/lease/leases.h"
#include "proto/gate.h"

#define MEMBER_WORDS (LEDGER_SLOTS_MAX / 64)

/* FREE -> SHUT when a GPU of it is time-sliced; any state -> FREE when none is. SHUT -> HOLDS by a
 * grant, or where its process opened the gate by itself. HOLDS -> YIELDS when it goes idle, and
 * back where it has work again. HOLDS -> DRAINING when its lease is revoked. -> SHUT at its end. */
enum member_state {
	MEMBER_FREE,     /* no GPU of it is time-sliced: its gate is off */
	MEMBER_SHUT,     /* waits for a lease, or has nothing to do */
	MEMBER_HOLDS,    /* its gate is open */
	MEMBER_YIELDS,   /* it went idle: its gate is shut, and its lease is about to be revoked */
	MEMBER_DRAINING, /* its gate is shut, its work goes on */
};

/* A slot whose process hung when its lease was to end, or slept through it: as it stood then. */
struct member_stuck {
	struct member_stuck *next;
	uint32_t slot, submitted, done;
	bool hung;  /* while it stands like that its work is not waited for */
	bool leaks; /* it had work on the GPU, and still has */
	/* It waited at a gate that was open, as a stopped process does. Until then, or until it has
	 * passed, or says that it waits, nobody waits for it. 0: it did not. */
	uint64_t asleep_until, waits;
};

/* The streams of a slot whose work stood still when the gate was opened for it. */
struct member_stalled {
	struct member_stalled *next;
	uint32_t slot, done; /* done: their sum then */
	uint64_t streams[GATE_STREAMS_MAX / 64];
};

static inline struct lease_kept lease_kept_of(const struct lease_client_stat *stat)
{
	return (struct lease_kept){stat->held_ns, stat->waited_ns, stat->overrun_ns};
}

struct lease_member {
	struct lease_member *next;
	uint64_t number; /* the client's ID in the lease table; never given twice */
	/* The one that is suspended for its faults: its owner. Containers of strangers run as root,
	 * so each session of root's answers for itself. */
	uint64_t culprit;
	struct lease_joining info;
	char id[16];
	int wake_fd;
	enum member_state state;
	uint64_t gate;               /* the word of its gate, as it was last set */
	uint64_t shut_at;            /* while SHUT: when it was last found shut */
	uint64_t forged;             /* times that it was found open against the plan */
	bool contended;              /* as the gate was last set */
	bool wants;                  /* as the table was last told */
	bool woken;                  /* the wake descriptor said something */
	bool heard;                  /* or may have, while it was not listened to */
	uint64_t live[MEMBER_WORDS]; /* slots of living processes */
	uint64_t deaf[MEMBER_WORDS]; /* those of them that have another daemon's descriptor */
	uint64_t muted_until;        /* its wake descriptor is not listened to; 0: it is */
	struct member_stuck *stuck;
	struct member_stalled *stalled;
	struct lease_entry *account; /* its own (lease_accounts.h); NULL: none yet */
	bool account_due;            /* it is to be written: a turn began or ended */
	struct lease_kept kept;      /* as they were written last */
	uint64_t asleep_ns; /* a process that waits at its open gate for so long counts as asleep */
	/* Quiet: no work, no launch, since then; 0: it is not. */
	uint64_t quiet_since;
	uint32_t quiet_submitted;
	/* Its gate was opened, and it has not handed anything in yet. Until then the time that its
	 * threads take to wake up is nobody's. 0: it has, or that was long enough. */
	uint64_t opening_until;
	uint32_t opening_submitted;
	struct lease_idle idle;
	uint64_t ponder_until; /* closed a moment ago: may yet come to the gate; 0: no */
	/* While draining. */
	uint64_t progress_at, give_up_at, give_up_most, stall_ns, reopened_until;
	uint64_t near_end; /* by the estimate it is nearly over then */
	uint32_t progress;
	unsigned reopens;
	uint64_t reopened_at; /* since when it is closed again; 0: nothing is to be learned of it */
	/* Learned from the drains before: so many more are opened soon, as the last time it helped;
	 * and how often the next opening's room is doubled. */
	unsigned stalls_known, doubled;
	uint32_t room_us;  /* GPU time that a process may have in flight */
	bool planned_anew; /* since a waiter opened its gate */
	/* Work went on when a drain was given up: how long without a lease until leak_at, and how
	 * much of that is charged at most. */
	bool leaks;
	uint64_t leak_at, leak_ns, leak_ns_most;
	uint64_t look_at; /* when to look at its pages again; UINT64_MAX: when something happens */
	uint64_t stalls, reopened;
	/* When its turn should have ended, of work that goes on; 0: none does. And since when that
	 * was not told the table, which bears it for a while. */
	uint64_t outstays_since, outstays_told;
	uint64_t proven_ns;     /* the longest that work of it took, and was done then */
	struct lease_turn turn; /* the one that goes on */
};

/* The sum over a member's living processes. */
struct member_look {
	bool launching, drained;
	bool marked;        /* unfinished work will report its end, whatever its process does */
	uint32_t submitted; /* changes when one submits */
	uint32_t progress;  /* changes when work ends or a launch does */
	uint32_t processes;
	bool waiting;          /* and is awake, as far as one knows */
	uint64_t in_flight_ns; /* estimate; at most LOOK_IN_FLIGHT_MAX_NS */
	uint64_t waits;
};
#define LOOK_IN_FLIGHT_MAX_NS 10000000000ull

void member_look(const struct lease_member *member, uint64_t now, struct member_look *ret);
/* Tells whoever waits at its gate that the daemon runs, and goes on telling. */
void member_beat(struct lease_member *member);
/* Those of its processes that are not done are taken for hung until they stir. */
void member_note_stuck(struct lease_member *member);
/* True: work of it went on. */
bool member_forget_stuck(struct lease_member *member, uint32_t slot);
/* Those of its processes that wait are taken for asleep until then. */
void member_note_asleep(struct lease_member *member, uint64_t until);
/* One of them says that it waits; nobody knows which. */
void member_rouse(struct lease_member *member);
/* When the next of them is looked at again; UINT64_MAX: none is asleep. */
uint64_t member_sleep_ends(const struct lease_member *member, uint64_t now);
/* Notes that the work that is not done stands still. */
void member_note_stalled(struct lease_member *member);
/* Some of that has moved since. */
bool member_stalled_moved(const struct lease_member *member);
void member_forget_stalled(struct lease_member *member);
/* Whether work of those goes on that was handed in before they were noted. */
bool member_leaks(struct lease_member *member);

static inline bool member_any(const uint64_t bits[static MEMBER_WORDS])
{
	uint64_t any = 0;

	for (unsigned i = 0; i < MEMBER_WORDS; i++)
		any |= bits[i];
	return any != 0;
}
