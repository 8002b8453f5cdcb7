/* The process's knowledge of its session. All of it lies in memory that the kernel empties in a
 * forked child (MADV_WIPEONFORK), however it was forked. So a child finds itself unattached, owning
 * nothing, its locks free, and takes a slot of its own when it first needs one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "front/attach.h"
#include "front/environment.h"
#include "front/lock.h"
#include "front/small.h"
#include "front/table.h"

enum process_state {
	PROCESS_UNATTACHED = 0,
	PROCESS_ATTACHED,
	PROCESS_REFUSED, /* could not attach, and said why: no GPU memory from now on */
};

/* More pools than that are settled by calls on them only, not by synchronising. */
#define PROCESS_GROWING_MAX 256u

/* Calls that may make something grow, and are under way: into pools, or into the memory of graphs.
 */
struct process_growth {
	uint32_t calls;
	bool alone; /* one of them is to be the only one, or is */
};

/* Arrays that are smaller than a block. The driver packs them into blocks, too, but nothing shows
 * into which. So a block is charged for each, and blocks that the driver did not take are given
 * back when it has said what it holds. */
struct process_arrays {
	uint32_t count, blocks; /* arrays, and blocks charged for them */
	uint64_t bytes;         /* the size of the arrays */
	uint32_t maybe_freed;   /* blocks that may be charged too many since it was asked */
	bool asking;
	bool exact; /* none is charged too much: it said so, and there was no other since */
};

struct process_gpu {
	struct small_hot hot;
	struct small_calls small;
	struct process_arrays arrays;
	/* Bytes that were given back to the driver, which may keep them, and stay charged until
	 * they were told to the daemon: books_leaving_begin(). */
	uint64_t leaving;
	/* The part of that which stays charged while some of what is charged may not be on the
	 * device. */
	uint64_t remains;
	/* The memory that the daemon kept when it was last waited for in vain. */
	_Atomic uint64_t kept_in_vain;
	_Atomic uint64_t releases_in_vain; /* the same of releases_of() */
	/* Held over a driver call that may make local memory grow: cuda/charge/local.h. */
	struct lock local_growing;
	_Atomic uint64_t primary; /* handle of the primary context, 0: none yet */
};

struct gate;

struct process {
	_Atomic uint32_t state; /* enum process_state */
	struct lock attaching;  /* held while attaching, and over requests to the daemon */
	struct owned_lock lock; /* guards what follows, and the slot's operations */
	struct attachment attachment;
	struct table objects;
	struct process_gpu gpu[LEDGER_GPUS_MAX];
	/* Pools and graph memory in `objects`, for going through them: see cuda/charge/grow.h. */
	struct object growing[PROCESS_GROWING_MAX];
	uint32_t growing_count;
	struct process_growth growth[2]; /* see process_growth_of() */
	uint64_t growing_bytes;          /* booked for those */
	uint64_t graph_bytes;            /* the part of that for the memory of graphs */
	uint32_t graph_count;            /* OBJECT_GRAPHs */
	uint32_t freeing_count;          /* OBJECT_FREEINGs */
	bool lessening;         /* the driver may have had for some time what is dropped just now */
	uint64_t growing_looks; /* numbers of looks at what is held: books_look_begin() */
	uint32_t graph_epoch;  /* changes when the memory behind a graph may have been taken away */
	uint64_t graph_stream; /* where graphs with memory were launched last */
	uint64_t pieces_freed, pieces_freeing; /* pieces of pools: how often one was freed, and how
						  many are being freed */
	_Atomic bool growing_not_revalidated;  /* something free in one may be given back */
	_Atomic uint32_t growing_waits;        /* threads in calls that may do that just now */
	/* Pools were destroyed of which something stayed: it was posted by the daemon, and nothing
	 * else tells when it has gone. */
	_Atomic bool has_remains;
	_Atomic uint32_t managed_count;          /* objects that may not be on the device */
	_Atomic uint32_t managed_unlisted_count; /* such that are in ledger_managed_unlisted() */
	bool doubts;                             /* there may be such as books_doubt() leaves */
	struct small_map *small_maps;            /* not in use */
	uint64_t last_memory;                    /* number of the latest OBJECT_PHYSICAL */
	uint64_t last_freeing;                   /* number of the latest OBJECT_FREEING */
	uint64_t last_mark;                      /* number of the latest mark (proto/mark.h) */
	uint32_t last_mapping, unmaps; /* number of the latest OBJECT_MAPPING; see cuda/vmm.c */
	struct environment_swap environment;
	/* cuda/charge/local.h: guards who looks closer; bytes a thread of the function that needs
	 * most; functions that were not asked yet. */
	struct lock local_lock;
	_Atomic uint64_t local_most;
	_Atomic uint32_t local_unknown;
	_Atomic uint32_t libraries; /* OBJECT_LIBRARY that there are */
	struct gate *_Atomic gate;  /* cuda/gate/gate_parts.h; NULL: not armed */
	/* Ledger GPU of each of the driver's devices, plus 1; 0: not asked yet; UINT8_MAX: none. */
	_Atomic uint8_t device_gpu[LEDGER_GPUS_MAX];
};

/* Its own in the ledger; it must be attached. */
static inline struct ledger_slot *process_slot(const struct process *p)
{
	return ledger_slot(&p->attachment.ledger, p->attachment.slot);
}

/* By enum object_kind. */
static inline struct process_growth *process_growth_of(struct process *p, int kind)
{
	return &p->growth[kind != OBJECT_POOL];
}

/* The process, attached. NULL: it has no session and gets no GPU memory; the reason was written to
 * stderr, in one line, the first time. May block for about two seconds while attaching. */
struct process *process_get(void);

/* The same without attaching and without a word, for calls that take nothing. NULL: not attached.
 */
struct process *process_peek(void);

/* Has the daemon give back what processes of the session held that are no more; see
 * attach_sweep(). */
bool process_sweep(struct process *p);
/* Has the daemon post what the driver says this process holds; see attach_settle(). In s->over it
 * tells by how much more is charged on that GPU. contexts: after a call of contexts, whose learned
 * cost may be too much. The amount beyond it is posted as less than nothing, if all else that was
 * charged is surely there. */
void process_settle(struct process *p, bool contexts, struct attach_settling *s);
