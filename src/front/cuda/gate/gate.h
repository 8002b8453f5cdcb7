/* Submissions pass the session's gate (proto/gate.h, docs/dev/gate.md). Nothing is locked, and no
 * clock is read, while it is open. GATED_HOOK defines a hook that submits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cuda_abi.h"
#include "front/cuda/gate/gate_offsets.h"
#include "front/process.h"
#include "proto/gate.h"

#define GATE_UNLIKELY(e) __builtin_expect(!!(e), 0)

/* The work that is handed in, for learning how long it takes. */
struct gate_work {
	uint64_t
		what; /* a function, an executable graph, or a GATE_WORK_*, which have no address */
	uint64_t size; /* blocks of the grid, or bytes; 0 counts as 1 */
	bool anywhere; /* it may work on other GPUs than its stream's: a graph's nodes */
};
#define GATE_WORK_FILL 1u
#define GATE_WORK_COPY 2u

/* Places of a thread's table of streams that it gave work to. */
#define GATE_NEAR 8u

struct gate;
struct gate_lane;

/* The record of a thread that submits, written by it alone, but for `stream`. In memory that is
 * empty in a forked child. */
struct gate_local {
	struct gate_thread *record;  /* NULL: not in use */
	uint64_t open_word;          /* the gate as it was found open; 0: look closer */
	_Atomic(CUstream) stream;    /* the last one submitted to; NULL: look closer */
	_Atomic uint32_t *submitted; /* its count */
	struct gate_lane *_Atomic last;
	struct gate_lane *near[GATE_NEAR];
	uint32_t unmarked;    /* launches since it last put markers in */
	uint32_t beside;      /* launches that pass the closed gate for a host function's sake */
	uint64_t beside_word; /* the gate that they pass */
	uint32_t index;
	struct gate *gate; /* that it is of */
};

_Static_assert(offsetof(struct gate_local, record) == GATE_LOCAL_RECORD, "for assembly");
_Static_assert(offsetof(struct gate_local, open_word) == GATE_LOCAL_OPEN_WORD, "for assembly");
_Static_assert(offsetof(struct gate_local, stream) == GATE_LOCAL_STREAM, "for assembly");
_Static_assert(offsetof(struct gate_local, submitted) == GATE_LOCAL_SUBMITTED, "for assembly");
_Static_assert(offsetof(struct gate_thread, in_launch) == 0, "for assembly");
_Static_assert(offsetof(CUlaunchConfig, hStream) == LAUNCH_CONFIG_STREAM, "for assembly");

/* The session's gate word; before there is one, a word that is off. */
extern __attribute__((visibility("hidden"))) _Atomic uint64_t *gate_at;
/* The same, or one that nobody finds open: while captures may be going on in this process, or
 * launches may need local memory (cuda/charge/local.h). */
extern __attribute__((visibility("hidden"))) _Atomic uint64_t *_Atomic gate_short;
/* The calling thread's, or one without a record; what it points to is empty in a forked child. The
 * only thread-local storage of the front, of a kind that needs no call. */
extern __attribute__((visibility("hidden"),
		      tls_model("initial-exec"))) _Thread_local struct gate_local *gate_self;

/* One submission that did not go the short way. */
struct gate_call {
	struct gate_local *local; /* NULL: not counted, or the thread has no record */
	struct gate_lane *lane;   /* NULL: not counted, or among the strays */
	struct gate_sample *sample;
	CUstream stray; /* not NULL: a stream, or a thread, without a record of its own */
	bool crowded;   /* the thread has no record */
	bool contended; /* it passed with its work bounded */
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

/* Passes the gate, or waits. To be followed by the driver's call and gate_end(). */
void gate_begin(struct gate_call *c, CUstream stream, struct gate_work work);
CUresult gate_end(struct gate_call *c, CUresult result);

/* The exported entries of launches go this way by themselves where there is assembly for it
 * (LAUNCHED in front/x86_64/trampoline.inc), and come here where it is closed to them.
 *
 * The short way, through a gate that this thread has found open before, to the stream that it last
 * submitted to. NULL: go the other. To be followed by the driver's call and gate_leave(). */
static __attribute__((always_inline)) inline struct gate_local *gate_enter(CUstream stream)
{
	struct gate_local *l = gate_self;

	if (GATE_UNLIKELY(!l->record))
		return NULL;
	/* The closer's barrier stands between this store and the next load. */
	atomic_store_explicit(&l->record->in_launch, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	_Atomic uint64_t *word = atomic_load_explicit(&gate_short, memory_order_relaxed);
	if (!GATE_UNLIKELY(atomic_load_explicit(word, memory_order_acquire) != l->open_word ||
			   atomic_load_explicit(&l->stream, memory_order_relaxed) != stream))
		return l;
	atomic_store_explicit(&l->record->in_launch, 0, memory_order_release);
	return NULL;
}

/* Counted when it is in, and also where it was refused, which harms nothing. */
static __attribute__((always_inline)) inline void gate_leave(struct gate_local *l)
{
	atomic_store_explicit(l->submitted,
			      atomic_load_explicit(l->submitted, memory_order_relaxed) + 1,
			      memory_order_release);
	atomic_store_explicit(&l->record->in_launch, 0, memory_order_release);
}

/* Defines gated_NAME, which submits something else than a kernel: parameters and arguments in
 * parentheses; the stream as gate_stream_of() has it. NAME is in CUDA_GATED or CUDA_LAUNCHED of
 * hooks.h: while the gate is off the exported entry jumps to the driver without coming here. */
#define GATED_SELDOM(name, parameters, arguments, stream, what_, size_)                      \
	CUresult gated_##name parameters                                                     \
	{                                                                                    \
		struct gate_call call_;                                                      \
		gate_begin(&call_, stream,                                                   \
			   (struct gate_work){.what = (uintptr_t)(what_), .size = (size_)}); \
		return gate_end(&call_, real_##name arguments);                              \
	}

/* Whether it waits for, or is counted by, the gate at all: its GPU's time may not be sliced. */
bool gate_is_for_stream(CUstream stream);
/* The call submits to one more stream. */
void gate_count_more(const struct gate_call *c, CUstream stream);

/* Captures that may be going on in this process: one more, from before the driver's call on and
 * begun after it; one less. */
void gate_capture_begins(void);
void gate_capture_begun(void);
void gate_capture_ended(void);
extern __attribute__((visibility("hidden"))) _Atomic uint32_t gate_captures;
/* Around calls of the front's own that must not meet a capture, and the look at gate_captures
 * before them: one that begins meanwhile waits for their end. False: one is just beginning, and
 * they are not to be made now. */
bool gate_look_begin(void);
void gate_look_end(void);
/* While captures are going on in the process, own calls of the driver must not disturb them: around
 * those that relaxed mode allows. False: one is just beginning, and nothing is to be called. */
struct gate_relaxed {
	bool changed;
	CUstreamCaptureMode before;
};
bool gate_relax(struct gate_relaxed *r);
void gate_relax_end(const struct gate_relaxed *r);
/* Whether what is handed into it becomes part of a graph. */
bool gate_is_capturing(CUstream stream);
/* From now on launches of this process come to gated_X and look whether they need local memory
 * (local.h), or not any more. */
void gate_watch(bool on);
extern __attribute__((visibility("hidden"))) _Atomic bool gate_watching;
static inline bool gate_is_watched(void)
{
	return GATE_UNLIKELY(atomic_load_explicit(&gate_watching, memory_order_relaxed));
}
/* The process is attached: from now on its session's gate counts. */
void gate_bind(struct process *p);
/* A copy between host and device of so many bytes: passes a closed gate on a budget. */
void gate_host_copy(uint64_t bytes);
/* The calling thread is about to wait for the GPU. */
void gate_before_wait(void);
/* Around the driver's call that waits for all of a context (NULL: the current one): what other
 * threads left in their own default streams is done then. The second returns its result. */
struct gate_own_numbers {
	uint32_t count;
	uint32_t number[GATE_STREAMS_MAX];
	uint8_t lane[GATE_STREAMS_MAX];
};
void gate_own_note(struct gate_own_numbers *n, CUcontext context);
CUresult gate_own_waited(const struct gate_own_numbers *n, CUresult result);
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
/* A context is made current for some calls. */
struct gate_switch {
	bool pushed;
};
bool gate_switch_to(struct gate_switch *s, CUcontext context);
void gate_switch_back(const struct gate_switch *s);
