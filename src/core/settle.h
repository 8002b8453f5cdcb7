/* The amount that the daemon posts for a process beside its own charges: the difference between the
 * driver's figure and what the process charged. Pure: figures and flags in, a verdict out. Bytes
 * are those of one process on one GPU, and times are ns of one clock. docs/dev/ledger.md tells the
 * whole. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* ---- whether a reading can be used --------------------------------------------------------- */

/* The calls of a process that take or give memory, counted by itself (they wrap round). */
struct settle_calls {
	bool sampled;               /* it was attached when the sample started */
	bool asks;                  /* it waits for the answer to a question about this sample */
	uint32_t seen_begun, begun; /* calls begun: when the sample started, and now */
	uint32_t seen_done;         /* calls done, when the sample started */
	uint32_t seen_release_pending,
		release_pending; /* the calls under way that wait for the daemon */
};

/* Whether no call changed what the process has while the sample was taken. Calls that wait for the
 * daemon change nothing. */
bool settle_is_quiescent(const struct settle_calls *calls);

/* ---- posting for a quiescent process ------------------------------------------------------- */

struct settle_reading {
	bool failed;              /* the driver gave no figures of this GPU */
	uint64_t figure;          /* the bytes that the process holds, by the driver */
	int64_t used;             /* the bytes that it had charged */
	int64_t managed_unlisted; /* the managed memory in `used` that is in no process's figure */
	int64_t release_pending;  /* the part of `used` that it gave back and asks about */
	int64_t twins;       /* the part of the figure that is in other slots of the same process */
	int64_t maybe_freed; /* the part of `used` that it may not hold, by its own word */
	int64_t context;     /* the cost of a context, as learned */
	int64_t posted;      /* the amount posted now */
	int64_t floor;       /* <= 0: nothing below it is posted, but by `maybe_freed` */
	bool asks;           /* the process asked about this sample */
	bool asks_exact;     /* and said that all that it charged is on the device */
	bool managed; /* an unknown part of what it charged is elsewhere than in the figure */
};

/* The amount to be posted, and the floor from now on. False: it cannot be told; nothing is set.
 *
 * Upwards the driver is always right. Downwards it is not: managed memory that is not on the GPU
 * yet was charged, is not in the driver's figure, and must stay charged. So the amount falls below
 * zero only as far as it did when the process itself asked. The process asked just after it had
 * charged a context by its learned cost, and said that there is no such memory. The amount never
 * falls by more than that cost. Most drivers have such memory in no process's figure at all: while
 * there is some, the amount does not fall. */
bool settle_aim(const struct settle_reading *reading, int64_t *ret_aim, int64_t *ret_floor);

/* By how many bytes more is charged for a process than the driver says; 0 where it cannot be told.
 * `charged` counts what is posted, too. */
uint64_t settle_over(const struct settle_reading *reading, uint64_t charged);

/* ---- a process that is never quiescent ----------------------------------------------------- */

/* This many comparisons in a row give a verdict. Fewer than there are while the process waits for
 * an answer. */
#define SETTLE_MOVING_COMPARISONS 16u

/* The least by which the driver's figure was beyond the charges: by the higher of those before and
 * after the sample, and the lower of what is in no figure. */
int64_t settle_beyond(uint64_t figure, int64_t used_before, int64_t used_after,
		      int64_t unlisted_before, int64_t unlisted_after, int64_t twins);

/* The least of what the last `count` comparisons and this one found. */
int64_t settle_least(unsigned count, int64_t least, int64_t beyond);

/* Whether this comparison, after `count` others, is the one that is posted. Upwards only: a process
 * that took something and gave it back just in between shows less than it holds. */
bool settle_is_enough(unsigned count);

/* A process that was not quiescent seems to have less than is posted for it. `beyond` is from
 * settle_beyond() with the present figures on both sides. */
bool settle_may_have_less(int64_t beyond, int64_t posted, int64_t floor, int64_t maybe_freed);

/* ---- a session ----------------------------------------------------------------------------- */

/* Processes of a session that exported memory may have each other's: what one gives back may be in
 * another's figure. So nobody is posted to have less but by a sample over which all were quiescent.
 */
struct settle_session {
	bool exported;      /* a process of it has, or had */
	bool quiescent;     /* all of them were, and each GPU's figures are known */
	bool has_less;      /* a quiescent one has less than is posted for it */
	bool may_have_less; /* one that is not quiescent seems to have less */
};

enum settle_verdict {
	SETTLE_NOTHING, /* nobody has less */
	SETTLE_LOWER,   /* quiescent ones are posted to have what they have */
	SETTLE_DEFER,   /* somebody may have less, which this sample cannot show */
};

enum settle_verdict settle_decide(const struct settle_session *session);

/* ---- making a session quiescent ------------------------------------------------------------ */

/* For this long processes begin no call, while each look may find all quiescent. */
#define SETTLE_HOLD_NS 100000000ull
/* If one of them does not get out of its call even so, the others go on for a while, ever longer,
 * before that is tried again. */
#define SETTLE_PAUSE_MIN_NS 100000000ull
#define SETTLE_PAUSE_MAX_NS 2000000000ull

/*   from    condition                              to
 *   any     no look is wanted                      FREE, and the next pause is the shortest
 *   FREE    a look is wanted                       HELD
 *   HELD    for more than SETTLE_HOLD_NS           PAUSED, each time twice as long
 *   PAUSED  the pause is over                      HELD */
enum settle_quiesce_state { SETTLE_FREE, SETTLE_HELD, SETTLE_PAUSED, SETTLE_QUIESCE_STATES };

/* A zeroed one is FREE. */
struct settle_quiesce {
	enum settle_quiesce_state state;
	uint64_t at_ns;    /* HELD: since when; PAUSED: until when */
	uint64_t pause_ns; /* the last pause; 0: there was none */
};

void settle_quiesce_next(struct settle_quiesce *quiesce, bool wanted, uint64_t now_ns);
/* Until when its processes are told to begin no call; 0: they may. Longer than it is held, so that
 * a look that comes late finds them still. */
uint64_t settle_quiesce_until(const struct settle_quiesce *quiesce);
