/* The ledger: the limits of a session and the charges of its processes, in memory that the daemon
 * makes and every process of the session maps. docs/dev/ledger.md is its specification. This header
 * is the ABI, in which fronts and daemons of different builds meet. So nothing below may move
 * within a version.
 *
 * Two sealed memfds a session:
 *   limits  written by the daemon, mapped read-only by workloads (they get a read-only descriptor)
 *   ledger  header, one `struct ledger_gpu` a GPU, then slots: one a process
 *
 * Truth is in the slots: process S holds slot[S].gpu[G].used + .settled on GPU G. The word
 * `committed` of a GPU carries the sum of those and *which slot's operation made it so*. That makes
 * every operation detectable. After a process died at any instruction, its intent record and the
 * committed word say whether its last operation took effect. If another process has overwritten the
 * word, the note that it left behind, `helped`, says so. No process waits for another; there is no
 * lock. See docs/dev/ledger.md.
 *
 * Amounts are bytes in slots and units of LEDGER_GRANULE in the committed word. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define LEDGER_MAGIC 0x52444c43u        /* "CLDR" */
#define LEDGER_LIMITS_MAGIC 0x4d494c43u /* "CLIM" */
#define LEDGER_VERSION 1u
#define LEDGER_GPUS_MAX 64u
#define LEDGER_SLOTS_MAX 1024u
/* Slot 0 is the daemon's: its intents cover settling and reaping. It holds memory that a process
 * gave back, while the daemon does not know yet whether the driver keeps it for another. */
#define LEDGER_SLOT_DAEMON 0u
/* Amounts are multiples of this many bytes (the driver's smallest address alignment: cuMemAlloc
 * returns addresses aligned to at least 256 B; 512 B is the step it hands out). */
#define LEDGER_GRANULE 512ull
#define LEDGER_UUID_SIZE 16
#define LEDGER_SESSION_SIZE 40

#define LEDGER_BEAT_MS 1000u
#define LEDGER_BEAT_COUNT_BITS 16

/* ---- limits page ------------------------------------------------------------------------- */

struct ledger_limit {
	uint8_t uuid[LEDGER_UUID_SIZE]; /* the GPU's or MIG device's, as the driver reports it */
	_Atomic uint64_t limit_bytes;   /* any number of bytes */
	_Atomic uint64_t context_bytes; /* learned cost of one context; 0: not known */
	char pci_bus_id[32];            /* "00000000:01:00.0", NUL-terminated */
	char uuid_text[48];             /* "GPU-..." or "MIG-...", NUL-terminated */
	uint64_t reserved[2];
};

struct ledger_limits {
	uint32_t magic;
	uint16_t version;        /* the writer's version */
	uint16_t version_oldest; /* the oldest front that may use this */
	uint32_t size;           /* bytes of this mapping */
	uint32_t gpu_count;
	char session[LEDGER_SESSION_SIZE]; /* ID, NUL-terminated */
	_Atomic uint32_t generation;       /* starts of the daemon; changes when one took over */
	uint32_t flags;
	/* GPU time that a process may have in flight while others want the GPU, in us; 0: the
	 * front's own choice. */
	_Atomic uint32_t in_flight_us;
	/* A sign that the daemon's lease thread runs: {generation:16, count:16}. It is another
	 * number each second (LEDGER_BEAT_MS) while the session's GPU time is sliced. If the
	 * generation is not the one above, or the word is 0, the daemon does not say. */
	_Atomic uint32_t beat;
	/* CLOCK_MONOTONIC in ns; until then no process begins a call that takes or gives memory,
	 * as the daemon compares. 0: nobody waits. */
	_Atomic uint64_t still_until_ns;
	/* Bits: GPUs (places below) whose time is not sliced, which the session's gate is not for.
	 * By a daemon of that generation; of another one than the above: there are none. */
	_Atomic uint64_t unsliced_gpus;
	_Atomic uint32_t unsliced_generation;
	/* Bits: GPUs whose driver has managed memory in no process's figure, as a daemon of that
	 * generation found; of another one: that is not known of any. */
	_Atomic uint32_t managed_unlisted_generation;
	_Atomic uint64_t managed_unlisted_gpus;
	uint64_t reserved[3];
	struct ledger_limit gpu[LEDGER_GPUS_MAX];
};

/* ---- ledger ------------------------------------------------------------------------------ */

/* Bits of the committed word: units of LEDGER_GRANULE (in two's complement), then who put it there.
 */
#define LEDGER_WORD_SUM_BITS 38
#define LEDGER_WORD_SLOT_BITS 10
#define LEDGER_WORD_SEQ_BITS 16

struct ledger_gpu {
	_Atomic uint64_t committed; /* {seq:16, slot:10, sum:38} */
	_Atomic uint64_t peak_bytes;
	_Atomic uint64_t refused; /* allocations answered "out of memory" by the slice */
	_Atomic uint64_t gate;    /* on GPU 0 the session's gate, see proto/gate.h; on others 0 */
	/* CLOCK_MONOTONIC: until then somebody of the session looks for room that there may be.
	 * An amount charged for a moment only is to be given back at once, and nothing more charged
	 * so. */
	_Atomic uint64_t short_until_ns;
	_Atomic uint64_t refused_bytes; /* the sum of what `refused` counts */
	uint64_t reserved[10];
};

enum ledger_slot_state {
	LEDGER_SLOT_FREE = 0,
	LEDGER_SLOT_LIVE = 1, /* given to a process */
	LEDGER_SLOT_DEAD = 2, /* its process is gone, the driver may still hold its memory */
};

enum ledger_field {
	LEDGER_FIELD_USED = 0,    /* written by the slot's process */
	LEDGER_FIELD_SETTLED = 1, /* written by the daemon: implicit memory the driver reports */
};

/* The change that an operation is about to make. Valid while `active` is odd; replayed or discarded
 * after a death. */
struct ledger_intent {
	_Atomic uint32_t active;
	uint16_t gpu;
	uint16_t target; /* slot whose field changes: the own one, or any for the daemon */
	uint16_t field;  /* enum ledger_field */
	uint16_t seq;
	uint32_t reserved;
	int64_t before; /* value of the field before, bytes */
	int64_t delta;  /* bytes */
};

/* Whether a process has managed memory, which need not be on the device. */
enum ledger_managed {
	LEDGER_MANAGED_NONE = 0,
	LEDGER_MANAGED_SOME = 1,
	LEDGER_MANAGED_UNLISTED = 2, /* and all of it is in ledger_managed_unlisted() */
};

struct ledger_slot_gpu {
	_Atomic int64_t used;     /* bytes charged by the process */
	_Atomic int64_t settled;  /* bytes posted by the daemon; may be negative */
	_Atomic uint64_t helped;  /* seq + 1 of an operation of this slot that somebody overwrote */
	_Atomic uint64_t applied; /* operations of this slot that took effect on this GPU */
};

struct ledger_slot {
	_Atomic uint32_t state;       /* enum ledger_slot_state; the daemon alone writes it */
	int32_t pid;                  /* as the daemon sees it */
	uint64_t start_time;          /* with pid: names the process for ever */
	_Atomic uint32_t calls_begun; /* driver calls that take or give memory: entered ... */
	_Atomic uint32_t calls_done;  /* ... and returned; equal: the books are settled */
	struct ledger_intent intent;
	/* Not 0: others may have been given handles to memory of this process, by which the driver
	 * keeps it when it is given back, in their figures. Never 0 again. */
	_Atomic uint32_t exported;
	/* Calls that wait for the daemon's word, as on whether they may uncharge what they gave
	 * back to the driver, and change nothing until it comes. */
	_Atomic uint32_t release_pending;
	/* Those, and calls that are about to give back what others may have. While there are any,
	 * some may be charged twice. */
	_Atomic uint32_t releases_in_progress;
	/* Not 0: it has opened memory of other processes, which is in its figure when they give it
	 * up. Never 0 again. */
	_Atomic uint32_t imported;
	/* Bytes of memory that this process gave back while a descriptor of it, which it exported
	 * and marked (proto/mark.h), may have been open. The daemon makes it 0 when none is. */
	_Atomic uint64_t exported_fd_bytes;
	/* Charged, but perhaps not held any more, which nobody tells the process: bytes that it
	 * gave back, or that the driver packs as it likes. If it has memory that may be elsewhere
	 * (`managed`), figures do not tell. */
	_Atomic uint64_t maybe_freed;
	/* The memory that its pools and graphs were seen to hold, and may have given back since,
	 * but while they were just looked at (`not_revalidated` is 0): it looks soon. */
	_Atomic uint64_t growing;
	_Atomic uint32_t not_revalidated;
	_Atomic uint32_t managed; /* enum ledger_managed */
	/* How often the process began to uncharge such bytes. */
	_Atomic uint32_t local_release_seq;
	/* Not 0: the daemon may have posted less for such bytes, so that they are uncharged by its
	 * leave alone, as what is leaving. */
	_Atomic uint32_t daemon_corrected;
	uint8_t reserved[16];
	/* struct ledger_slot_gpu gpu[gpu_count] follows; the stride is in the header */
};

struct ledger_header {
	uint32_t magic;
	uint16_t version;
	uint16_t version_oldest;
	uint64_t size; /* bytes of the whole mapping */
	uint32_t gpu_count;
	uint32_t slot_count;
	uint32_t gpu_offset;  /* where struct ledger_gpu[gpu_count] begins */
	uint32_t slot_offset; /* where slot 0 begins */
	uint32_t slot_stride;
	/* The offset of slot 0's struct gate_process (proto/gate.h), page-aligned; 0: there are
	 * none. */
	uint32_t time_offset;
	uint32_t time_stride;             /* one a slot */
	uint32_t managed_unlisted_offset; /* where ledger_managed_unlisted() of slot 0 and GPU 0 is;
					     0: there are none */
	uint32_t reserved[16];
};

#define LEDGER_ASSERT(e) _Static_assert(e, "the ledger is an ABI: " #e)
LEDGER_ASSERT(sizeof(struct ledger_limit) == 128);
LEDGER_ASSERT(offsetof(struct ledger_limit, limit_bytes) == 16);
LEDGER_ASSERT(offsetof(struct ledger_limit, context_bytes) == 24);
LEDGER_ASSERT(offsetof(struct ledger_limit, pci_bus_id) == 32);
LEDGER_ASSERT(offsetof(struct ledger_limit, uuid_text) == 64);
LEDGER_ASSERT(offsetof(struct ledger_limits, session) == 16);
LEDGER_ASSERT(offsetof(struct ledger_limits, generation) == 56);
LEDGER_ASSERT(offsetof(struct ledger_limits, gpu) == 128);
LEDGER_ASSERT(sizeof(struct ledger_gpu) == 128);
LEDGER_ASSERT(offsetof(struct ledger_gpu, gate) == 24);
LEDGER_ASSERT(offsetof(struct ledger_gpu, short_until_ns) == 32);
LEDGER_ASSERT(sizeof(struct ledger_intent) == 32);
LEDGER_ASSERT(offsetof(struct ledger_intent, before) == 16);
LEDGER_ASSERT(sizeof(struct ledger_slot_gpu) == 32);
LEDGER_ASSERT(offsetof(struct ledger_slot, intent) == 24);
LEDGER_ASSERT(offsetof(struct ledger_slot, exported) == 56);
LEDGER_ASSERT(offsetof(struct ledger_slot, release_pending) == 60);
LEDGER_ASSERT(offsetof(struct ledger_slot, releases_in_progress) == 64);
LEDGER_ASSERT(offsetof(struct ledger_slot, imported) == 68);
LEDGER_ASSERT(offsetof(struct ledger_slot, exported_fd_bytes) == 72);
LEDGER_ASSERT(offsetof(struct ledger_slot, maybe_freed) == 80);
LEDGER_ASSERT(offsetof(struct ledger_slot, growing) == 88);
LEDGER_ASSERT(offsetof(struct ledger_slot, not_revalidated) == 96);
LEDGER_ASSERT(offsetof(struct ledger_slot, managed) == 100);
LEDGER_ASSERT(offsetof(struct ledger_slot, local_release_seq) == 104);
LEDGER_ASSERT(offsetof(struct ledger_slot, daemon_corrected) == 108);
LEDGER_ASSERT(sizeof(struct ledger_slot) == 128);
LEDGER_ASSERT(sizeof(struct ledger_header) == 112);
LEDGER_ASSERT(offsetof(struct ledger_header, time_offset) == 36);
LEDGER_ASSERT(offsetof(struct ledger_limits, in_flight_us) == 64);
LEDGER_ASSERT(offsetof(struct ledger_limits, beat) == 68);
LEDGER_ASSERT(offsetof(struct ledger_limits, still_until_ns) == 72);
LEDGER_ASSERT(offsetof(struct ledger_limits, unsliced_gpus) == 80);
LEDGER_ASSERT(offsetof(struct ledger_limits, unsliced_generation) == 88);
LEDGER_ASSERT(offsetof(struct ledger_limits, managed_unlisted_generation) == 92);
LEDGER_ASSERT(offsetof(struct ledger_limits, managed_unlisted_gpus) == 96);
LEDGER_ASSERT(offsetof(struct ledger_header, managed_unlisted_offset) == 44);
LEDGER_ASSERT(LEDGER_WORD_SUM_BITS + LEDGER_WORD_SLOT_BITS + LEDGER_WORD_SEQ_BITS == 64);

/* A mapping of both parts. Plain pointers, owned by whoever mapped them. */
struct ledger {
	const struct ledger_limits *limits; /* the daemon casts const away to write */
	struct ledger_header *header;
	/* The header's numbers as they were when they were checked. The daemon has them, as it does
	 * not trust the other processes that map the ledger to leave the header alone. NULL: the
	 * header itself (a process of the session, which harms only its own slice). */
	const struct ledger_header *shape;
};

/* Bytes of a ledger for that many GPUs and slots. */
size_t ledger_size(uint32_t gpu_count, uint32_t slot_count);
/* Lays out a zeroed mapping of ledger_size() bytes. */
void ledger_init(struct ledger_header *header, uint32_t gpu_count, uint32_t slot_count);
/* Checks magic, version, and that every offset lies inside `size` mapped bytes: the content may be
 * hostile. 0, -EPROTO (not a ledger) or -EPROTONOSUPPORT (another version). */
int ledger_check(const struct ledger_header *header, size_t size);
int ledger_limits_check(const struct ledger_limits *limits, size_t size);

struct ledger_gpu *ledger_gpu(const struct ledger *l, uint32_t gpu);
struct ledger_slot *ledger_slot(const struct ledger *l, uint32_t slot);
struct ledger_slot_gpu *ledger_slot_gpu(const struct ledger *l, uint32_t slot, uint32_t gpu);
/* Bytes of `used` that are managed memory which the driver has in no process's figure. NULL: the
 * ledger has no place for that. */
_Atomic uint64_t *ledger_managed_unlisted(const struct ledger *l, uint32_t slot, uint32_t gpu);
/* GPUs of which the daemon that runs has said so. */
static inline uint64_t ledger_managed_unlisted_gpus(const struct ledger_limits *limits)
{
	uint64_t gpus = atomic_load_explicit(&limits->managed_unlisted_gpus, memory_order_relaxed);

	return gpus && atomic_load(&limits->managed_unlisted_generation) ==
				       atomic_load(&limits->generation)
		       ? gpus
		       : 0;
}

/* All below: lock-free, async-death-safe; gpu and slot must be in range. Calls *for one slot* must
 * be serialised by the caller (the front's mutex; the daemon is one thread). */

/* Reserves `bytes` (rounded up to the granule) for `slot` if the GPU's sum stays within its limit.
 * 0, or -ENOMEM leaving everything as it was. */
int ledger_charge(const struct ledger *l, uint32_t slot, uint32_t gpu, uint64_t bytes);
/* Gives `bytes` (rounded up likewise) back. */
void ledger_uncharge(const struct ledger *l, uint32_t slot, uint32_t gpu, uint64_t bytes);
/* Raises peak_bytes to at least `bytes`. */
void ledger_peak(const struct ledger *l, uint32_t gpu, uint64_t bytes);
/* Daemon: what a slot says, where that can be an amount at all; else 0, which is written there. */
int64_t ledger_used(const struct ledger *l, uint32_t slot, uint32_t gpu);
int64_t ledger_settled(const struct ledger *l, uint32_t slot, uint32_t gpu);
/* Daemon: sets slot's settled amount, whatever the limit says. */
void ledger_settle(const struct ledger *l, uint32_t slot, uint32_t gpu, int64_t settled_bytes);
/* Daemon: sets what its own slot holds, whatever the limit says. */
void ledger_keep(const struct ledger *l, uint32_t gpu, uint64_t bytes);
/* The bytes that the daemon's own slot holds. */
uint64_t ledger_kept(const struct ledger *l, uint32_t gpu);
/* Daemon: lowers the limit, through the daemon's own mapping of it. Returns 0 where no sum of
 * charges is above it from now on. Returns -EBUSY where more is charged, and the limit stays as it
 * was. */
int ledger_shrink(const struct ledger *l, struct ledger_limits *limits, uint32_t gpu,
		  uint64_t bytes);
/* Daemon: finishes or discards what a dead process (or a dead daemon: slot 0) was doing.
 * Idempotent. */
void ledger_recover(const struct ledger *l, uint32_t slot);
/* Daemon: gives back on one GPU what a recovered, dead slot still holds. */
void ledger_reap(const struct ledger *l, uint32_t slot, uint32_t gpu);
/* Daemon: makes a slot usable by a new process: counters zero, state LIVE. The slot must be FREE.
 */
void ledger_slot_assign(const struct ledger *l, uint32_t slot, int32_t pid, uint64_t start_time);
/* Daemon: recovers and reaps all GPUs of a slot and frees it. */
void ledger_slot_release(const struct ledger *l, uint32_t slot);

/* Bytes committed by all processes of the session on this GPU. */
uint64_t ledger_committed(const struct ledger *l, uint32_t gpu);
/* used + settled of one slot, never negative. */
uint64_t ledger_slot_bytes(const struct ledger *l, uint32_t slot, uint32_t gpu);
/* How many entries of limits->gpu[] there are, whatever is written there. */
static inline uint32_t ledger_gpu_count(const struct ledger_limits *limits)
{
	return limits->gpu_count < LEDGER_GPUS_MAX ? limits->gpu_count : LEDGER_GPUS_MAX;
}
static inline uint64_t ledger_limit(const struct ledger *l, uint32_t gpu)
{
	return atomic_load_explicit(&l->limits->gpu[gpu].limit_bytes, memory_order_relaxed);
}
