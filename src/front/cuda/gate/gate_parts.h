/* The gate's parts among themselves: what a process keeps while its session is time-sliced. See
 * gate.h for what hooks use.
 *
 * One `struct gate` a process, from the first submission that finds the gate not off. All of it is
 * empty in a forked child. */
#pragma once

#include "base/clock.h"
#include "front/cuda/gate/gate.h"

#define GATE_CONTEXTS_MAX 32u
#define GATE_RING 16u
#define GATE_LEARNED_BITS 10u
#define GATE_SAMPLES 16u
#define GATE_STRAYS 128u
#define GATE_HOSTS_MAX 16u
/* The ledger's, and one for all that it does not have. */
#define GATE_GPUS_MAX (LEDGER_GPUS_MAX + 1u)
#define GATE_GPU_NONE LEDGER_GPUS_MAX
/* The work that may be in flight, by the estimate, where a host function waits. */
#define GATE_HOST_NS_MOST 2000000000ull
/* And this many launches pass at a time: it needs some time to find what the thread holds free. */
#define GATE_HOST_BURST 64u
/* A launch counts for so long until one of its kind has been timed. The figure is more than any
 * bound, so nothing else of unknown duration is handed in beside it. Else a queue of kernels of 400
 * ms would outstay the turn by all of them. Neither this process nor the daemon takes the launch
 * for one that waits for another launch, until it has taken that long. */
#define GATE_UNKNOWN_NS 150000000u
/* Room in flight where the daemon doesn't say. */
#define GATE_BOUND_NS 4000000u
/* How long a stream's end waits for another thread's marker, or question, to be in. */
#define GATE_BUSY_NS_MOST 1000000000ull
#define GATE_END_NAP_NS 50000u

enum gate_context_state {
	GATE_CONTEXT_NEW = 0,
	GATE_CONTEXT_MARKS,   /* streams write their numbers into the page */
	GATE_CONTEXT_QUERIES, /* they cannot: the driver is asked */
};

struct gate_context {
	CUcontext handle;          /* NULL: free; under gate.lock */
	uint32_t gpu;              /* its number in the ledger, or GATE_GPU_NONE */
	_Atomic uint32_t state;    /* enum gate_context_state */
	struct gate_process *view; /* the page, mapped and registered once more for this context */
	CUdeviceptr at;            /* the view's address, as the GPU sees it */
	const struct gate_process *origin; /* the process's own mapping of it */
};

enum gate_lane_state {
	GATE_LANE_FREE = 0,
	GATE_LANE_LIVE,
	GATE_LANE_ENDING, /* its stream is gone; free when it is done */
};

/* One thread's work in one stream. The owner alone counts; `busy` is held by whoever puts a marker
 * in or asks the driver, so that the stream is not destroyed meanwhile. */
struct gate_lane {
	_Atomic(CUstream) stream; /* CU_STREAM_LEGACY, _PER_THREAD, or a handle; NULL: none */
	struct gate_local *_Atomic owner;
	struct gate_stream *record;
	_Atomic uint32_t busy;
	_Atomic uint32_t state;
	struct gate_context *context;
	uint32_t gpu;               /* the context's */
	_Atomic uint64_t handed_ns; /* estimates of all handed in */
	_Atomic uint32_t
		done_units; /* the part done at the last marker seen done: GATE_UNIT_NS each */
	_Atomic uint64_t ring[GATE_RING]; /* markers: number << 32 | handed in, in units */
	uint32_t ring_at;
	/* gate_own.c: what the helper waits for, since when, and when it last looked. */
	uint32_t waited_for;
	uint64_t waited_since, looked_at;
};
#define GATE_UNIT_NS 256u

/* How long nothing has completed since a thread found no room. */
struct gate_stall {
	uint64_t since; /* 0: it has just begun */
	uint32_t done;  /* changes when something completes */
};

/* A thread's record of a GPU, while others want that GPU. */
struct gate_room {
	uint64_t ns; /* the work it may hand in before it adds up all that is in flight */
	struct gate_stall stall;
	uint32_t stalls;     /* times in a row that it passed without room */
	uint32_t stall_done; /* the part of the work in flight that was completed by then */
	uint32_t helped;     /* how often that is to be quicker, as it helped */
	uint32_t helped_by;  /* and what it begins with */
	uint32_t ahead_done; /* completions when it passed because work was about to end */
	bool ahead;          /* that was ever */
};

/* How long one kind of work takes. Read and written by all threads without a lock: what gets mixed
 * up is mended by the next sample. */
struct gate_learned {
	_Atomic uint64_t key;
	_Atomic uint32_t ns; /* 0: not known */
	_Atomic uint32_t uses;
	_Atomic uint32_t samples;
};

/* Two timing events around a launch. */
struct gate_sample {
	_Atomic uint32_t used; /* 1: being filled or read, 2: waits for the GPU */
	CUcontext context;     /* the events' context; NULL: none made yet */
	CUevent begin, end;
	struct gate_learned *learned;
	uint64_t key;
};

/* A stream with work of threads, or more streams, than there are records for: its own driver is
 * asked. */
struct gate_stray {
	CUstream stream; /* NULL: free; under gate.lock */
	CUcontext context;
	_Atomic uint32_t dirty;
	_Atomic uint32_t busy; /* the driver is being asked; whoever destroys it waits */
};

struct gate {
	struct process *process;
	struct gate_process *page;
	struct lock lock; /* the tables; never held over a call into the driver */
	struct gate_local locals[GATE_THREADS_MAX];
	struct gate_room rooms[GATE_THREADS_MAX][GATE_GPUS_MAX];
	struct gate_lane lanes[GATE_STREAMS_MAX];
	struct gate_context contexts[GATE_CONTEXTS_MAX];
	struct gate_learned learned[1u << GATE_LEARNED_BITS];
	struct gate_sample samples[GATE_SAMPLES];
	struct gate_stray strays[GATE_STRAYS];
	_Atomic uint32_t helper; /* 1: there is a helper thread */
	_Atomic uint32_t helper_stop;
	_Atomic uint32_t helper_inside; /* 1: it is in a call into the driver */
	/* gate_host.c: threads that run host functions; 0: none. */
	_Atomic uint32_t hosts[GATE_HOSTS_MAX];
	_Atomic uint32_t host_count;
	struct lock host_lock;
	struct gate_host_call *host_calls; /* not in use */
	_Atomic uint64_t gone_since;  /* when the daemon was first seen gone, ns; 0: it is there */
	_Atomic uint32_t beat_seen;   /* its beat as it was then; 0: nobody has looked */
	_Atomic uint64_t budget_word; /* the closed gate for which `budget_used` counts */
	_Atomic uint64_t budget_used; /* bytes between host and device that passed it */
};

static inline uint64_t gate_bound_ns(const struct gate *g)
{
	uint32_t us = atomic_load_explicit(&g->process->attachment.ledger.limits->in_flight_us,
					   memory_order_relaxed);

	return us ? us * 1000ull : GATE_BOUND_NS;
}

/* Sleeps about that long; no cancellation point. */
void gate_nap(uint64_t ns);
/* Sleeps while the gate is as it was seen, at most that long. */
void gate_sleep_on_word(uint64_t seen, uint64_t ns);

/* The process's if it has been made. */
struct gate *gate_peek(void);
/* The calling thread's. NULL: it has none (gate_local_find), or all are taken. */
static inline struct gate_local *gate_local_find(void)
{
	return gate_self->record ? gate_self : NULL;
}

/* gate_lane.c */
/* The calling thread's record of work in that stream. NULL: all are taken. */
struct gate_lane *gate_lane_of(struct gate *g, struct gate_local *l, CUstream stream);
/* From now on the thread takes the short way to it. */
void gate_lane_aim(struct gate_local *l, struct gate_lane *lane, CUstream stream);
/* The GPU of a stream that there may be no record for. */
uint32_t gate_gpu_of_stream(struct gate *g, CUstream stream);
static inline bool gate_lane_is(const struct gate_lane *lane, const struct gate_local *l,
				CUstream stream)
{
	return atomic_load_explicit(&lane->stream, memory_order_relaxed) == stream &&
	       atomic_load_explicit(&lane->owner, memory_order_relaxed) == l;
}
/* A handle that means another stream in every context, and maybe thread. */
static inline bool gate_lane_is_default(const struct gate_lane *lane)
{
	CUstream stream = atomic_load(&lane->stream);

	return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}
static inline bool gate_lane_unmarked(const struct gate_lane *lane)
{
	return atomic_load(&lane->record->submitted) != atomic_load(&lane->record->marked);
}
static inline bool gate_lane_done(const struct gate_lane *lane)
{
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): as in lane_find() */
	return atomic_load_explicit(&lane->record->submitted, memory_order_acquire) ==
	       atomic_load_explicit(&lane->record->done, memory_order_acquire);
}
/* Whether the driver has to be asked about it. */
bool gate_lane_by_query(const struct gate_lane *lane);
/* Puts a marker in behind what it has, or asks the driver. False: somebody else is at it. */
bool gate_lane_mark(struct gate *g, struct gate_lane *lane);
/* Work handed in up to `number` is done, which is known otherwise. */
void gate_lane_settle(struct gate_lane *lane, uint32_t number);
/* All of the calling thread's, or those in one stream only. */
void gate_lanes_mark_own(struct gate *g, struct gate_local *l, CUstream only);
/* Work that the calling thread handed in while nobody counted fills the bound until it is done.
 * `opened`: the gate has been open since. */
void gate_lanes_count_own(struct gate *g, const struct gate_local *l, bool opened);
/* On one GPU. */
struct gate_flight {
	uint64_t sum, most; /* the sum over its lanes; the most of any lane */
	const struct gate_lane *longest;
	uint32_t done; /* changes when something completes */
};
/* Returns the sum of the GPU that has most in flight, which is said in the page, too. */
uint64_t gate_in_flight(struct gate *g, uint32_t gpu, struct gate_flight *ret);
/* The context of a stream; the current one of a default stream. */
CUcontext gate_stream_context(CUstream stream);

/* gate_stray.c */
/* Work without a record. */
void gate_stray_note(struct gate *g, CUstream stream);
/* Helper: has the driver asked about those. True: all of it is done. */
bool gate_strays_look(struct gate *g);
/* The driver is not asked any more about that stream; NULL: about any of that context. */
void gate_strays_forget(struct gate *g, CUstream stream, CUcontext context);

/* gate_room.c */
static inline struct gate_room *gate_room(struct gate *g, const struct gate_local *l,
					  const struct gate_lane *lane)
{
	return &g->rooms[l->index][lane->gpu];
}
/* It adds up anew, on all GPUs. */
void gate_room_forget(struct gate *g, const struct gate_local *l);
/* Waits until `ns` more fit on the lane's GPU, with nothing locked and the thread in no launch.
 * Gives up where nothing completes, or the gate is not contended any more. The time that work takes
 * may be `unknown`. */
void gate_room_make(struct gate *g, struct gate_local *l, const struct gate_lane *lane, uint64_t ns,
		    bool unknown);

/* gate_own.c */
/* The calling thread has handed something in, while others want the GPU. */
void gate_own_submitted(struct gate *g, struct gate_lane *lane);
/* Helper: looks at one that was not done. False: it is now, as far as anybody can know. */
bool gate_own_look(struct gate_lane *lane);

/* gate_host.c */
static inline bool gate_host_runs(const struct gate *g)
{
	return atomic_load(&g->host_count) != 0;
}
/* Whether the thread of a host function that runs sleeps: it may wait for what the calling thread
 * holds. Reads /proc. */
bool gate_host_waits(struct gate *g);

/* gate_learn.c */
struct gate_learned *gate_learned_find(struct gate *g, struct gate_work work);
uint64_t gate_learned_ns(const struct gate_learned *learned, struct gate_work work,
			 bool *ret_unknown);
/* NULL: not this time. */
struct gate_sample *gate_sample_begin(struct gate *g, struct gate_learned *learned,
				      struct gate_lane *lane);
void gate_sample_end(struct gate_sample *s, struct gate_lane *lane, CUresult result);
/* Learns from those that are done, in the lane's context, which is current. */
void gate_samples_look(struct gate *g, const struct gate_lane *lane);
void gate_samples_drop(struct gate *g, CUcontext context);

/* gate_helper.c */
void gate_helper_start(struct gate *g);
