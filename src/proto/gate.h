/* The gate: whether a session's processes may submit work to its GPUs, in the ledger that daemon
 * and processes map. Part of the ledger's ABI (docs/dev/gate.md is the specification).
 *
 * One 64-bit word a session, {epoch, state}: that of the session's GPU 0. A session over several
 * GPUs leases them together, so one word stands for all. Every change of the word adds one to the
 * epoch, and wakes the threads that sleep on its low 32 bits (FUTEX_WAIT, not private: several
 * processes). These are threads that wait for it to open, and the front's helper threads, which
 * wait for any change.
 *
 * The functions that may change it, and their callers:
 *
 *   from          to           who                                   function
 *   any           OFF          daemon: time-slicing is switched off  gate_set
 *   OPEN, CLOSED  the same     daemon: other GPUs of it are sliced   gate_replace
 *   any           OPEN         daemon: lease, nobody else wants      gate_set
 *   any           CONTENDED    daemon: lease, others want            gate_set
 *   any           CLOSED       daemon: lease ended                   gate_set
 *   OPEN/CONTENDED IDLE        daemon: the holder has no work        gate_replace
 *   IDLE          CLOSED       daemon: somebody else gets the GPU    gate_replace
 *   IDLE          CONTENDED    a process of the session that has     gate_replace, then it writes
 *                              work again                            to the wake descriptor
 *   CLOSED, IDLE  OPEN         a waiter, when the daemon is gone,    gate_replace
 *                              or hangs
 *
 * A launching thread stores 1 to its gate_thread.in_launch, then loads the word. The closer changes
 * the word, then has every CPU pass a barrier (membarrier GLOBAL_EXPEDITED), then reads in_launch.
 * So a launch that the closer doesn't see in_launch of has seen the closed gate. If a process has
 * not registered for that barrier yet (gate_process.registered is 0), its threads use a full fence
 * instead. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ledger.h"

enum gate_state {
	GATE_OFF = 0,       /* word 0: no time-slicing; a launch is one load and compare */
	GATE_OPEN = 1,      /* pass; nobody else wants the GPU */
	GATE_CONTENDED = 2, /* pass, with bounded work in flight and completion markers */
	GATE_CLOSED = 3,    /* wait */
	GATE_IDLE = 4,      /* holds a lease that it may take up again: see above */
};

#define GATE_STATE_BITS 8
#define GATE_STATE(word) ((enum gate_state)((word) & ((1u << GATE_STATE_BITS) - 1)))
#define GATE_EPOCH(word) ((word) >> GATE_STATE_BITS)

/* More threads than that in a process count themselves in `launching_others`. A record of a stream
 * is of one thread's work in it, so that counting needs no locked instruction. Streams without a
 * record share the last one, which is done when all of their work is. */
#define GATE_THREADS_MAX 64u
#define GATE_STREAMS_MAX 128u

/* One a thread that submits. Written by that thread alone. */
struct gate_thread {
	_Atomic uint32_t in_launch; /* 1: between the look at the gate and the driver's return */
	_Atomic uint32_t thread;    /* its ID, as the process sees it; 0: the record is free */
	uint64_t reserved;
};

/* One a thread and stream that got work of it. All of it is finished when done == submitted, while
 * the thread is not in a launch: it counts a launch after the driver's return, before in_launch is
 * cleared. Numbers count launches and wrap round. */
struct gate_stream {
	_Atomic uint32_t submitted; /* by the front: work handed to the driver */
	_Atomic uint32_t marked;    /* by the front: the last number that a marker was put in for */
	_Atomic uint32_t done;      /* by the GPU (a stream write-value): the last marker reached;
				       by the front, where it asks the driver instead */
	_Atomic uint32_t used;
};

/* One a slot: what the daemon needs to know of a process's work. Zeroed when the slot is given to a
 * process; the process writes all of it (a hostile one spoils its own session's turns only). */
struct gate_process {
	_Atomic uint32_t registered;       /* for membarrier GLOBAL_EXPEDITED */
	_Atomic uint32_t waiting;          /* threads that wait at the gate */
	_Atomic uint32_t launching_others; /* threads without a record that are in a launch */
	_Atomic uint32_t threads;          /* records in use: [0, threads) */
	_Atomic uint32_t streams;          /* records in use: [0, streams) */
	_Atomic uint32_t armed;   /* 1: it has seen the gate and keeps the records below; 0: it has
				     submitted nothing since time-slicing was switched on */
	_Atomic uint64_t waits;   /* times that a thread waited at the gate */
	_Atomic uint64_t wait_ns; /* sum of how long, CLOCK_MONOTONIC */
	_Atomic uint64_t in_flight_ns; /* estimate of the GPU time handed in and not done, of the
					  GPU that has most */
	uint64_t reserved[10];
	struct gate_thread thread[GATE_THREADS_MAX];
	struct gate_stream stream[GATE_STREAMS_MAX];
};

_Static_assert(sizeof(struct gate_thread) == 16, "the gate is an ABI");
_Static_assert(sizeof(struct gate_stream) == 16, "the gate is an ABI");
_Static_assert(offsetof(struct gate_process, waits) == 24, "the gate is an ABI");
_Static_assert(offsetof(struct gate_process, thread) == 128, "the gate is an ABI");
_Static_assert(sizeof(struct gate_process) == 128 + 64 * 16 + 128 * 16, "the gate is an ABI");

/* The word that a change of this one into `state` makes of it. The word off itself is 0, so that
 * looking at it costs least; the epoch starts anew with it. */
uint64_t gate_next(uint64_t word, enum gate_state state);

/* The session's gate word. */
static inline _Atomic uint64_t *gate_word(const struct ledger *l)
{
	return &ledger_gpu(l, 0)->gate;
}
/* The slot's part; NULL: a ledger from before there was time-slicing, whose gate stays off. */
struct gate_process *gate_process(const struct ledger *l, uint32_t slot);

/* Which of the session's GPUs the gate is for, those whose time is sliced: work on others neither
 * waits nor counts. */
static inline bool gate_is_for_all(const struct ledger_limits *limits)
{
	return !atomic_load_explicit(&limits->unsliced_gpus, memory_order_relaxed) ||
	       atomic_load_explicit(&limits->unsliced_generation, memory_order_relaxed) !=
		       atomic_load_explicit(&limits->generation, memory_order_relaxed);
}
/* By its place in the ledger. Any number: for what has no place there it is. */
static inline bool gate_is_for(const struct ledger_limits *limits, uint32_t gpu)
{
	uint64_t unsliced = atomic_load_explicit(&limits->unsliced_gpus, memory_order_relaxed);

	return gate_is_for_all(limits) || gpu >= LEDGER_GPUS_MAX || !(unsliced >> gpu & 1);
}
/* Daemon: says which GPUs it is not for. A thread that passes an open gate by the word that it has
 * seen, or waits at a closed one, looks again. If the gate still is `own`, which the daemon put
 * there, it is set to the same state anew. Returns what the daemon has put there now. */
uint64_t gate_set_unsliced(const struct ledger *l, struct ledger_limits *limits, uint64_t own,
			   uint64_t unsliced);

/* Puts the gate into `state` whatever it was, in one step that no writing of processes can hold up.
 * Returns the new word. Daemon only; concurrent gate_replace()s of processes are ordered before or
 * after it. */
uint64_t gate_set(const struct ledger *l, enum gate_state state);
/* Puts the gate into `state` if the word still is `seen`. */
bool gate_replace(const struct ledger *l, uint64_t seen, enum gate_state state);

/* The fate of the word `own`, which the daemon put there and nobody else may change but as the
 * table above says. */
enum gate_change {
	GATE_SAME,
	GATE_TAKEN_UP, /* an idle gate, by a process that has work again */
	GATE_FORSAKEN, /* a waiter opened it, as it takes the daemon for gone */
	GATE_SPOILT,   /* no front does that */
};
enum gate_change gate_change_of(uint64_t own, uint64_t seen);
/* Whether a launch that finds this word goes on to the driver. */
static inline bool gate_passes(uint64_t word)
{
	return GATE_STATE(word) != GATE_CLOSED && GATE_STATE(word) != GATE_IDLE;
}

/* Daemon: passes a barrier on all CPUs that run registered processes. After it gate_launching() is
 * right for the gate as it was set before. 0, or -errno where the kernel has none (then wait a
 * little). */
int gate_barrier(void);
/* Whether any thread of the process may be inside a launch. */
bool gate_launching(const struct gate_process *p);
/* Whether all work that it has handed in is done: every stream's, where nobody is launching. */
bool gate_drained(const struct gate_process *p);
/* A number that changes when the process submits: the sum over its streams. */
uint32_t gate_submitted(const struct gate_process *p);
