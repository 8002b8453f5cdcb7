/* The state of a launch and its warps, as the handlers of operations see it. */
#pragma once

#include "ptx/code.h"

/* Why an entry is not to run although it could. */
enum hold {
	HOLD_NONE,
	HOLD_POLLING, /* it polls: others go first */
	HOLD_BARRIER, /* it has reached a barrier; other lanes of the warp have not */
};

/* The stack of a warp's lanes that took different ways: one entry a way, the running one on top.
 * Entries whose lanes have all left are dropped when they come up. */
struct simt {
	uint32_t pc;        /* where to go on; of the top one it is warp->pc */
	uint32_t mask;      /* lanes */
	int32_t reconverge; /* on reaching this join, the entry ends; -1: never */
	enum hold held;
};

struct frame {
	const struct function *function;
	const struct insn *call; /* NULL: the kernel */
	uint32_t return_pc;
	uint32_t returned; /* lanes */
	uint32_t simt_base;
	uint32_t local_base;
	size_t register_base;
};

enum warp_state {
	WARP_READY,
	WARP_BARRIER,
	WARP_SLEEPING,
	WARP_DONE,
};

struct warp {
	unsigned char *base[2]; /* the frame's registers, the module's constants */
	const struct insn *code;
	const uint32_t *extra;
	uint32_t pc;
	uint32_t active;  /* lanes: the top entry's mask */
	uint32_t left;    /* instructions until its turn is over ... */
	uint32_t counted; /* ... and as many as that when they were last counted */
	bool stop;        /* leave the loop: see state and launch->stop */
	enum warp_state state;

	struct simt *simt;
	uint32_t simt_count, simt_room;
	struct frame *frames;
	uint32_t frame_count, frame_room;
	unsigned char *registers;
	size_t register_room;

	struct block *block;
	struct launch *launch;
	uint32_t number; /* in the block */
	uint32_t lanes;  /* that exist */
	uint32_t live;   /* that have not exited */
	uint32_t tid[3][WARP_LANES];
	unsigned char *local; /* lane 0's; the next lane's is launch->local_bytes on */
	uint32_t local_base;  /* the frame's base */

	/* Waiting. */
	uint64_t wake; /* ns */
	uint32_t barrier;
	const struct insn *barrier_insn; /* bar_red: whose result is awaited */
	uint32_t barrier_mask;
	uint32_t gathered; /* lanes that have reached the barrier before the others */
	/* Polling: the same clock or word read again and again. */
	bool idle;
	bool watches; /* a word, not only a clock */
	uint32_t spins;
	uint64_t polled_place, polled_value;
};

struct barrier {
	uint32_t arrived;        /* warps */
	uint32_t expected;       /* warps; 0: all of the block */
	uint32_t popc, all, any; /* results of bar_red */
};

struct block {
	struct launch *launch;
	uint32_t id[3];
	struct warp *warps;
	uint32_t warps_left; /* not done */
	unsigned char *shared;
	unsigned char *local;
	struct barrier barriers[BARRIER_COUNT + 1];
	bool running;
};

#define RANGE_CACHE 16

struct launch {
	const struct ptx_launch *given;
	const struct ptx_module *module;
	const struct function *kernel;
	struct ptx_result *result;
	uint32_t warps_per_block, threads;
	uint32_t shared_bytes; /* static and dynamic */
	uint32_t local_bytes;  /* a thread's */
	unsigned char *params;
	_Alignas(64) unsigned char few_params[256];
	uint32_t param_bytes;
	bool stop;
	int status;
	struct ptx_range ranges[RANGE_CACHE];
	unsigned range_count, range_next;
	struct ptx_range *range;            /* the last one found */
	_Alignas(16) uint32_t workspace[4]; /* a cooperative grid's */
	uint64_t started;                   /* ns, for %clock */
	struct warp *running;               /* the last one that had a turn */
	uint64_t paused_ns;                 /* since it last met the others */
	uint64_t spinning_since;            /* warps only poll clocks, 0: they don't */
};

/* --- launch.c */
uint64_t launch_now(struct launch *launch);
/* How long it has run, for sleeping. */
uint64_t launch_elapsed(struct launch *launch);
/* To be called before anything is used that others see: after long pauses, others were there
 * before.
 */
void launch_meet(struct launch *launch);
#define MEET_NS 200000u
static inline void launch_meet_when_due(struct launch *launch)
{
	if (launch->paused_ns >= MEET_NS)
		launch_meet(launch);
}
/* Ends the launch; `lane` says which thread. The first fault is kept. */
void warp_fault(struct warp *warp, enum ptx_fault_kind kind, uint64_t address, unsigned lane);
void warp_out_of_memory(struct warp *warp);
/* A clock or the same value was read again; may stop the warp so that others run. */
void warp_polled(struct warp *warp, uint32_t weight);
void warp_polled_value(struct warp *warp, uint64_t place, uint64_t value);
/* The range of a global address, cached; NULL: none. */
struct ptx_range *launch_range(struct launch *launch, uint64_t address);
/* A range of memory at a generic address of one thread, NULL and a fault if there is none. */
unsigned char *warp_resolve(struct warp *warp, uint64_t address, size_t size, bool write,
			    unsigned lane);

/* --- frames and lanes (frame.c) */
/* Enters the kernel. 0 or -ENOMEM. */
int warp_start(struct warp *warp, const struct function *kernel);
/* Lanes leave: for good, or the frame. */
void warp_exit(struct warp *warp, uint32_t mask);
void warp_return(struct warp *warp, uint32_t mask);
void warp_call(struct warp *warp, const struct insn *insn, const struct function *callee,
	       uint32_t mask);
/* The running lanes go different ways; see struct simt. */
void warp_split(struct warp *warp, int32_t reconverge, const uint32_t *pcs, const uint32_t *masks,
		unsigned count);
/* At a join: goes on with whoever is next. */
void warp_join(struct warp *warp, uint32_t join);
/* The running lanes poll for something that others of the warp may have to bring: those go first.
 */
void warp_rotate(struct warp *warp);
/* The lanes of `mask` have reached a barrier. True: with them all that the warp waits for have;
 * false: others of the warp run first. */
bool warp_gather(struct warp *warp, uint32_t mask);

/* --- barriers (flow.c) */
/* The whole warp has reached warp->barrier. */
void warp_barrier_wait(struct warp *warp);
void block_warp_done(struct block *block);

/* --- device printf (print.c) */
void warp_print(struct warp *warp, const struct insn *insn, uint32_t mask);
/* Reads the argument `index` of a call, of one lane. */
uint64_t call_argument(const struct warp *warp, const struct insn *insn, unsigned index,
		       unsigned lane);
void call_return(struct warp *warp, const struct insn *insn, uint64_t value, unsigned lane);

/* The handlers by enum ptx_op: for any processor, and for x86-64-v3 (see handlers.h). */
extern const exec_fn exec_table_base[], exec_table_v3[];
/* Those best for this processor. */
const exec_fn *exec_handlers(void);
