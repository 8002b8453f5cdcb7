/* Submissions pass the session's gate (proto/gate.h, docs/gate.md). Nothing is locked, and no clock
 * is read, while it is open. GATED_HOOK defines a hook that submits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cuda_abi.h"
#include "front/process.h"
#include "front/thread.h"
#include "proto/gate.h"

#define GATE_UNLIKELY(e) __builtin_expect(!!(e), 0)

/* What is handed in, for learning how long it takes. */
struct gate_work {
	uint64_t
		what; /* a function, an executable graph, or a GATE_WORK_*, which have no address */
	uint64_t size; /* blocks of the grid, or bytes; 0 counts as 1 */
};
#define GATE_WORK_FILL 1u
#define GATE_WORK_COPY 2u

/* Places of a thread's table of streams that it gave work to. */
#define GATE_NEAR 8u

struct gate_lane;

/* What a thread that submits keeps, written by it alone. In memory that is empty in a forked child.
 */
struct gate_local {
	struct gate_thread *record; /* NULL: not in use */
	uint64_t open_word;         /* the gate as it was found open; 0: look closer */
	struct gate_lane *last;
	struct gate_lane *near[GATE_NEAR];
	uint64_t room_ns;  /* what it may hand in before it adds up what is in flight */
	uint32_t unmarked; /* launches since it last put markers in */
	uint32_t stalls;   /* times in a row that it passed without room */
	uint32_t index;
};

/* One a thread and stream: see gate_lane.h for the rest. */
struct gate_lane_key {
	_Atomic(CUstream) stream; /* CU_STREAM_LEGACY, _PER_THREAD, or a handle; NULL: none */
	struct gate_local *_Atomic owner;
	struct gate_stream *record;
};

static inline bool gate_lane_is(const struct gate_lane_key *lane, const struct gate_local *l,
				CUstream stream)
{
	return atomic_load_explicit(&lane->stream, memory_order_relaxed) == stream &&
	       atomic_load_explicit(&lane->owner, memory_order_relaxed) == l;
}

/* Thread pointer -> gate_local: open addressing. */
#define GATE_THREAD_BITS 9u
struct gate_thread_place {
	_Atomic uint64_t thread;
	struct gate_local *local;
};

/* What the hooks look at. In memory that is empty in a forked child, too. */
struct gate_front {
	struct gate_thread_place places[1u << GATE_THREAD_BITS];
};

/* The session's gate word; before there is one, a word that is off. */
extern __attribute__((visibility("hidden"))) _Atomic uint64_t *gate_at;
/* Before there is one, an empty one. */
extern __attribute__((visibility("hidden"))) struct gate_front *gate_front;
/* Captures that may be going on in this process; see gate_capture.c. */
extern __attribute__((visibility("hidden"))) _Atomic uint32_t gate_captures;

/* One submission under way. An open gate sets the first three only. */
struct gate_call {
	struct gate_local *local; /* NULL: nothing to leave */
	struct gate_lane *lane;   /* NULL: not counted, or among the strays */
	bool contended;           /* gate_end has more to do */
	struct gate_sample *sample;
	CUstream stray; /* not NULL: a stream, or a thread, without a record of its own */
	bool crowded;   /* the thread has no record */
	bool unknown;   /* nobody knows yet how long it takes */
};

static inline bool gate_is_off(void)
{
	return atomic_load_explicit(gate_at, memory_order_acquire) == 0;
}

/* The stream that a handle stands for, by which its records go. */
static inline CUstream gate_stream_of(CUstream handle)
{
	return handle ? handle : CU_STREAM_LEGACY;
}
static inline CUstream gate_stream_ptsz(CUstream handle)
{
	return handle ? handle : CU_STREAM_PER_THREAD;
}

static inline uint32_t gate_thread_place(uint64_t thread)
{
	return (uint32_t)(thread * 0x9e3779b97f4a7c15ull >> (64 - GATE_THREAD_BITS));
}

/* Passes the gate, or waits. To be followed by the driver's call and gate_end(). */
void gate_begin_slow(struct gate_call *c, CUstream stream, struct gate_work work);
void gate_end_slow(struct gate_call *c, CUresult result);

static inline void gate_begin(struct gate_call *c, CUstream stream, struct gate_work work)
{
	uint64_t thread = thread_pointer();
	const struct gate_thread_place *place = &gate_front->places[gate_thread_place(thread)];

	if (!GATE_UNLIKELY(atomic_load_explicit(&place->thread, memory_order_relaxed) != thread)) {
		struct gate_local *l = place->local;
		const struct gate_lane_key *lane = (const struct gate_lane_key *)l->last;

		/* The closer's barrier stands between this store and the next load. */
		atomic_store_explicit(&l->record->in_launch, 1, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		if (!GATE_UNLIKELY(atomic_load_explicit(gate_at, memory_order_acquire) !=
					   l->open_word ||
				   !gate_lane_is(lane, l, stream) ||
				   atomic_load_explicit(&gate_captures, memory_order_relaxed))) {
			c->local = l;
			c->lane = l->last;
			c->contended = false;
			return;
		}
		atomic_store_explicit(&l->record->in_launch, 0, memory_order_release);
	}
	gate_begin_slow(c, stream, work);
}

static inline CUresult gate_end(struct gate_call *c, CUresult result)
{
	if (GATE_UNLIKELY(c->contended || result != CUDA_SUCCESS)) {
		gate_end_slow(c, result);
		return result;
	}
	struct gate_stream *record = ((struct gate_lane_key *)c->lane)->record;

	atomic_store_explicit(&record->submitted,
			      atomic_load_explicit(&record->submitted, memory_order_relaxed) + 1,
			      memory_order_release);
	atomic_store_explicit(&c->local->record->in_launch, 0, memory_order_release);
	return result;
}

/* The call submits to one more stream. */
void gate_count_more(const struct gate_call *c, CUstream stream);

/* Defines gated_NAME, which submits: parameters and arguments in parentheses; the stream as
 * gate_stream_of() has it. NAME is in CUDA_GATED of hooks.h: while the gate is off the exported
 * entry jumps to the driver without coming here. */
#define GATED(name, parameters, arguments, stream, what_, size_)                             \
	CUresult gated_##name parameters                                                     \
	{                                                                                    \
		struct gate_call call_;                                                      \
		gate_begin(&call_, stream,                                                   \
			   (struct gate_work){.what = (uintptr_t)(what_), .size = (size_)}); \
		return gate_end(&call_, real_##name arguments);                              \
	}

/* The process is attached: from now on its session's gate counts. */
void gate_bind(struct process *p);
/* A copy between host and device of so many bytes: passes a closed gate on a budget. */
void gate_host_copy(uint64_t bytes);
/* The calling thread is about to wait for the GPU. */
void gate_before_wait(void);
/* Another context may be current now, or one of another life. */
void gate_context_changed(void);
/* Around the driver's call that destroys a stream, or a context. */
void gate_stream_destroy(CUstream stream);
void gate_context_destroy_begin(CUcontext context);
void gate_context_destroy_end(CUcontext context, bool gone);
/* A stream was made that the NULL stream waits for, and that waits for it. */
void gate_blocking_stream_made(void);
/* An executable graph is gone; its handle may come to name another. */
void gate_forget_work(const void *what);
