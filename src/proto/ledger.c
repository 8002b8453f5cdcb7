/* The word `committed` is changed by compare-and-swap only, and it names the operation that made
 * it: {slot, seq}. The operation that overwrites it first notes in that slot that the earlier one
 * took effect (`helped`). So "did it take effect?" has an answer for an operation that was under
 * way when its process died. It is yes if the word still names the operation, or if the slot's note
 * does. Everything after the swap (the slot's own sum, the intent's end) is redone from the intent
 * record, which holds the value before. An operation's number is the count of that slot's earlier
 * operations on that GPU that took effect. So a refused operation leaves no trace, and its number
 * is used again. */
#include "proto/ledger.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "proto/gate.h"

#define SUM_MASK ((1ull << LEDGER_WORD_SUM_BITS) - 1)
#define SUM_MOST ((int64_t)(SUM_MASK >> 1))
#define SUM_LEAST (-SUM_MOST - 1)
#define SLOT_MASK ((1ull << LEDGER_WORD_SLOT_BITS) - 1)
#define SEQ_MASK ((1ull << LEDGER_WORD_SEQ_BITS) - 1)

static uint64_t word_make(int64_t sum, uint32_t slot, uint64_t seq)
{
	return ((uint64_t)sum & SUM_MASK) | (uint64_t)slot << LEDGER_WORD_SUM_BITS |
	       (seq & SEQ_MASK) << (LEDGER_WORD_SUM_BITS + LEDGER_WORD_SLOT_BITS);
}

/* Below zero where a process has just given back what the daemon had struck off before. */
static int64_t word_sum(uint64_t word)
{
	return (int64_t)(word << (64 - LEDGER_WORD_SUM_BITS)) >> (64 - LEDGER_WORD_SUM_BITS);
}

static uint32_t word_slot(uint64_t word)
{
	return word >> LEDGER_WORD_SUM_BITS & SLOT_MASK;
}

static uint16_t word_seq(uint64_t word)
{
	return (uint16_t)(word >> (LEDGER_WORD_SUM_BITS + LEDGER_WORD_SLOT_BITS));
}

static size_t slot_stride(uint32_t gpu_count)
{
	return ALIGN_UP(sizeof(struct ledger_slot) + gpu_count * sizeof(struct ledger_slot_gpu),
			64);
}

/* A page a process: it has the driver register it. */
#define TIME_STRIDE 4096u
_Static_assert(sizeof(struct gate_process) <= TIME_STRIDE, "one page a process");

static size_t managed_unlisted_offset(uint32_t gpu_count, uint32_t slot_count)
{
	size_t slots =
		ALIGN_UP(sizeof(struct ledger_header), 128) + gpu_count * sizeof(struct ledger_gpu);

	return slots + slot_count * slot_stride(gpu_count);
}

static size_t time_offset(uint32_t gpu_count, uint32_t slot_count)
{
	return ALIGN_UP(managed_unlisted_offset(gpu_count, slot_count) +
				(size_t)slot_count * gpu_count * sizeof(uint64_t),
			4096);
}

size_t ledger_size(uint32_t gpu_count, uint32_t slot_count)
{
	return time_offset(gpu_count, slot_count) + (size_t)slot_count * TIME_STRIDE;
}

void ledger_init(struct ledger_header *header, uint32_t gpu_count, uint32_t slot_count)
{
	header->version = LEDGER_VERSION;
	header->version_oldest = LEDGER_VERSION;
	header->size = ledger_size(gpu_count, slot_count);
	header->gpu_count = gpu_count;
	header->slot_count = slot_count;
	header->gpu_offset = ALIGN_UP(sizeof(*header), 128);
	header->slot_offset = header->gpu_offset + gpu_count * (uint32_t)sizeof(struct ledger_gpu);
	header->slot_stride = (uint32_t)slot_stride(gpu_count);
	header->time_offset = (uint32_t)time_offset(gpu_count, slot_count);
	header->time_stride = TIME_STRIDE;
	header->managed_unlisted_offset = (uint32_t)managed_unlisted_offset(gpu_count, slot_count);
	/* The word 0 names operation 0 of slot 0, so that slot's count starts at 1. */
	struct ledger l = {.header = header};
	for (uint32_t gpu = 0; gpu < gpu_count; gpu++)
		ledger_slot_gpu(&l, LEDGER_SLOT_DAEMON, gpu)->applied = 1;
	header->magic = LEDGER_MAGIC;
}

static uint64_t slots_end_of(const struct ledger_header *h)
{
	return h->slot_offset + (uint64_t)h->slot_count * h->slot_stride;
}

/* Those of an earlier version have none. */
static bool managed_unlisted_area_fits(const struct ledger_header *h)
{
	uint64_t bytes = (uint64_t)h->slot_count * h->gpu_count * sizeof(uint64_t);

	if (!h->managed_unlisted_offset)
		return true;
	return h->managed_unlisted_offset % sizeof(uint64_t) == 0 &&
	       h->managed_unlisted_offset >= slots_end_of(h) &&
	       h->managed_unlisted_offset + bytes <= h->size;
}

/* Ledgers made before there was time-slicing have none. */
static bool time_area_fits(const struct ledger_header *h)
{
	if (!h->time_offset)
		return true;
	return h->time_offset % TIME_STRIDE == 0 && h->time_stride % TIME_STRIDE == 0 &&
	       h->time_stride >= sizeof(struct gate_process) && h->time_offset >= slots_end_of(h) &&
	       h->time_offset + (uint64_t)h->slot_count * h->time_stride <= h->size;
}

int ledger_check(const struct ledger_header *h, size_t size)
{
	if (size < sizeof(*h) || h->magic != LEDGER_MAGIC)
		return -EPROTO;
	if (h->version < LEDGER_VERSION || h->version_oldest > LEDGER_VERSION)
		return -EPROTONOSUPPORT;
	if (h->size > size || h->gpu_count == 0 || h->gpu_count > LEDGER_GPUS_MAX ||
	    h->slot_count < 2 || h->slot_count > LEDGER_SLOTS_MAX ||
	    h->slot_stride < slot_stride(h->gpu_count) || h->slot_stride % 64 ||
	    h->gpu_offset < sizeof(*h) || h->gpu_offset % 64 || h->slot_offset % 64 ||
	    h->slot_offset < h->gpu_offset + h->gpu_count * sizeof(struct ledger_gpu) ||
	    slots_end_of(h) > h->size || !managed_unlisted_area_fits(h) || !time_area_fits(h))
		return -EPROTO;
	return 0;
}

int ledger_limits_check(const struct ledger_limits *limits, size_t size)
{
	if (size < sizeof(*limits) || limits->magic != LEDGER_LIMITS_MAGIC)
		return -EPROTO;
	if (limits->version < LEDGER_VERSION || limits->version_oldest > LEDGER_VERSION)
		return -EPROTONOSUPPORT;
	if (limits->gpu_count == 0 || limits->gpu_count > LEDGER_GPUS_MAX ||
	    limits->session[LEDGER_SESSION_SIZE - 1])
		return -EPROTO;
	return 0;
}

static inline const struct ledger_header *shape_of(const struct ledger *l)
{
	return l->shape ? l->shape : l->header;
}

struct ledger_gpu *ledger_gpu(const struct ledger *l, uint32_t gpu)
{
	return (struct ledger_gpu *)((char *)l->header + shape_of(l)->gpu_offset) + gpu;
}

struct ledger_slot *ledger_slot(const struct ledger *l, uint32_t slot)
{
	const struct ledger_header *shape = shape_of(l);

	return (struct ledger_slot *)((char *)l->header + shape->slot_offset +
				      (size_t)slot * shape->slot_stride);
}

struct ledger_slot_gpu *ledger_slot_gpu(const struct ledger *l, uint32_t slot, uint32_t gpu)
{
	return (struct ledger_slot_gpu *)(ledger_slot(l, slot) + 1) + gpu;
}

_Atomic uint64_t *ledger_managed_unlisted(const struct ledger *l, uint32_t slot, uint32_t gpu)
{
	const struct ledger_header *shape = shape_of(l);

	if (!shape->managed_unlisted_offset)
		return NULL;
	return (_Atomic uint64_t *)((char *)l->header + shape->managed_unlisted_offset) +
	       (size_t)slot * shape->gpu_count + gpu;
}

static _Atomic int64_t *slot_field(const struct ledger *l, const struct ledger_intent *intent)
{
	struct ledger_slot_gpu *books = ledger_slot_gpu(l, intent->target, intent->gpu);

	return intent->field == LEDGER_FIELD_SETTLED ? &books->settled : &books->used;
}

/* Notes in the slot that `word` names that its operation took effect, before the word is
 * overwritten. The note is only replaced if it did not change since before the word was seen to be
 * current. So a helper that slept can not put an older note over a newer one. */
static bool word_help(const struct ledger *l, uint32_t gpu, uint64_t word)
{
	uint32_t slot = word_slot(word);

	if (slot >= shape_of(l)->slot_count)
		return true; /* only a corrupt ledger says so */
	struct ledger_slot_gpu *books = ledger_slot_gpu(l, slot, gpu);
	uint64_t note = word_seq(word) + 1ull, old = atomic_load(&books->helped);
	if (old == note)
		return true;
	if (atomic_load(&ledger_gpu(l, gpu)->committed) != word)
		return false;
	return atomic_compare_exchange_strong(&books->helped, &old, note) || old == note;
}

static bool intent_took_effect(const struct ledger *l, uint32_t slot,
			       const struct ledger_intent *intent)
{
	uint64_t word = atomic_load(&ledger_gpu(l, intent->gpu)->committed);
	uint64_t helped = atomic_load(&ledger_slot_gpu(l, slot, intent->gpu)->helped);

	return (word_slot(word) == slot && word_seq(word) == intent->seq) ||
	       helped == intent->seq + 1ull;
}

/* The steps after a swap that took effect; every line may be repeated. */
static void intent_finish(const struct ledger *l, uint32_t slot, const struct ledger_intent *intent)
{
	struct ledger_slot_gpu *own = ledger_slot_gpu(l, slot, intent->gpu);
	/* If a hostile process wrote the numbers, the sum may be anything. */
	int64_t after = (int64_t)((uint64_t)intent->before + (uint64_t)intent->delta);

	atomic_store_explicit(slot_field(l, intent), after, memory_order_relaxed);
	/* `applied` advances to seq + 1, in the low 16 bits that the word can show. */
	uint64_t applied = atomic_load_explicit(&own->applied, memory_order_relaxed);
	if ((applied & SEQ_MASK) == intent->seq)
		atomic_store_explicit(&own->applied, applied + 1, memory_order_relaxed);
	atomic_store_explicit(&ledger_slot(l, slot)->intent.active, 0, memory_order_release);
}

static inline void peak_raise(struct ledger_gpu *gpu, uint64_t bytes)
{
	uint64_t peak = atomic_load_explicit(&gpu->peak_bytes, memory_order_relaxed);

	while (bytes > peak &&
	       !atomic_compare_exchange_weak_explicit(&gpu->peak_bytes, &peak, bytes,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

/* Its four numbers of two bytes, in one store; carve runs on little-endian machines. */
static inline void intent_name(struct ledger_intent *intent, uint32_t gpu, uint32_t target,
			       enum ledger_field field, uint64_t seq)
{
	uint64_t name = (uint64_t)gpu | (uint64_t)target << 16 | (uint64_t)field << 32 | seq << 48;

	memcpy((char *)intent + offsetof(struct ledger_intent, gpu), &name, sizeof(name));
}
LEDGER_ASSERT(offsetof(struct ledger_intent, target) == offsetof(struct ledger_intent, gpu) + 2);
LEDGER_ASSERT(offsetof(struct ledger_intent, field) == offsetof(struct ledger_intent, gpu) + 4);
LEDGER_ASSERT(offsetof(struct ledger_intent, seq) == offsetof(struct ledger_intent, gpu) + 6);

/* The one operation: adds delta bytes to `field` of slot `target` and to the sum, in the name of
 * `slot`. Returns -ENOMEM where it is limited, delta > 0 and the sum would pass the limit. The work
 * is done by the numbers in here; the record in shared memory is for the process that recovers
 * after a death. */
static __attribute__((always_inline)) inline int ledger_add(const struct ledger *l, uint32_t slot,
							    uint32_t target,
							    enum ledger_field which, uint32_t gpu,
							    int64_t delta, bool limited)
{
	struct ledger_gpu *shared = ledger_gpu(l, gpu);
	struct ledger_slot *record = ledger_slot(l, slot);
	struct ledger_slot_gpu *own = (struct ledger_slot_gpu *)(record + 1) + gpu;
	struct ledger_slot_gpu *books = target == slot ? own : ledger_slot_gpu(l, target, gpu);
	_Atomic int64_t *field = which == LEDGER_FIELD_SETTLED ? &books->settled : &books->used;
	struct ledger_intent *intent = &record->intent;
	int64_t units = delta / (int64_t)LEDGER_GRANULE;
	uint64_t applied = atomic_load_explicit(&own->applied, memory_order_relaxed);
	uint64_t word, next;
	int64_t before = atomic_load_explicit(field, memory_order_relaxed);

	/* Numbers wrap here: a note of the last round must not pass for one of this. */
	if (__builtin_expect((applied & SEQ_MASK) == 0, 0))
		atomic_store(&own->helped, 0);
	intent_name(intent, gpu, target, which, applied);
	intent->delta = delta;
	intent->before = before;
	atomic_store_explicit(&intent->active, 1, memory_order_release);
	word = atomic_load(&shared->committed);
	for (;;) {
		/* After the word: who swaps a word from after ledger_shrink() has its limit. */
		uint64_t limit = limited ? ledger_limit(l, gpu) : UINT64_MAX;
		int64_t sum = word_sum(word) + units;

		if (sum < SUM_LEAST)
			sum = SUM_LEAST; /* only a corrupt ledger gets here */
		if (delta > 0 &&
		    __builtin_expect(sum > SUM_MOST ||
					     (sum > 0 && (uint64_t)sum * LEDGER_GRANULE > limit),
				     0)) {
			atomic_store_explicit(&intent->active, 0, memory_order_release);
			return -ENOMEM;
		}
		next = word_make(sum, slot, applied);
		if (__builtin_expect(word_slot(word) != slot, 0) && !word_help(l, gpu, word))
			word = atomic_load(&shared->committed);
		else if (atomic_compare_exchange_weak(&shared->committed, &word, next))
			break;
	}
	/* As intent_finish(). */
	atomic_store_explicit(field, (int64_t)((uint64_t)before + (uint64_t)delta),
			      memory_order_relaxed);
	atomic_store_explicit(&own->applied, applied + 1, memory_order_relaxed);
	atomic_store_explicit(&intent->active, 0, memory_order_release);
	/* A posted amount may be charged twice for a moment: the daemon raises it by what is held.
	 */
	if (delta > 0 && limited && word_sum(next) > 0)
		peak_raise(shared, (uint64_t)word_sum(next) * LEDGER_GRANULE);
	return 0;
}

void ledger_peak(const struct ledger *l, uint32_t gpu, uint64_t bytes)
{
	peak_raise(ledger_gpu(l, gpu), bytes);
}

static int64_t round_to_granule(uint64_t bytes)
{
	return (int64_t)ALIGN_UP(bytes, LEDGER_GRANULE);
}

int ledger_charge(const struct ledger *l, uint32_t slot, uint32_t gpu, uint64_t bytes)
{
	int r = bytes > INT64_MAX / 2 ? -ENOMEM : 0;

	if (bytes && r == 0)
		r = ledger_add(l, slot, slot, LEDGER_FIELD_USED, gpu, round_to_granule(bytes),
			       true);
	return r;
}

void ledger_uncharge(const struct ledger *l, uint32_t slot, uint32_t gpu, uint64_t bytes)
{
	if (bytes)
		ledger_add(l, slot, slot, LEDGER_FIELD_USED, gpu, -round_to_granule(bytes), false);
}

static __attribute__((noinline)) void daemon_add(const struct ledger *l, uint32_t target,
						 enum ledger_field field, uint32_t gpu,
						 int64_t delta)
{
	ledger_add(l, LEDGER_SLOT_DAEMON, target, field, gpu, delta, false);
}

int ledger_shrink(const struct ledger *l, struct ledger_limits *limits, uint32_t gpu,
		  uint64_t bytes)
{
	uint64_t before = ledger_limit(l, gpu);

	if (ledger_committed(l, gpu) > bytes)
		return -EBUSY;
	limits->gpu[gpu].limit_bytes = bytes;
	/* A process that still uses the old limit read the word before this, and loses its swap. */
	daemon_add(l, LEDGER_SLOT_DAEMON, LEDGER_FIELD_USED, gpu, 0);
	if (ledger_committed(l, gpu) <= bytes)
		return 0;
	limits->gpu[gpu].limit_bytes = before;
	return -EBUSY;
}

/* An amount of a slot that another process may have written anything into. An amount that cannot be
 * one is struck out: the process has spoilt its own slice's books, and that is all. */
static int64_t amount_read(_Atomic int64_t *field)
{
	int64_t bytes = atomic_load(field);

	if (bytes <= (int64_t)(SUM_MASK * LEDGER_GRANULE) &&
	    bytes >= -(int64_t)(SUM_MASK * LEDGER_GRANULE))
		return bytes;
	atomic_store(field, 0);
	return 0;
}

int64_t ledger_used(const struct ledger *l, uint32_t slot, uint32_t gpu)
{
	return amount_read(&ledger_slot_gpu(l, slot, gpu)->used);
}

int64_t ledger_settled(const struct ledger *l, uint32_t slot, uint32_t gpu)
{
	return amount_read(&ledger_slot_gpu(l, slot, gpu)->settled);
}

void ledger_settle(const struct ledger *l, uint32_t slot, uint32_t gpu, int64_t settled_bytes)
{
	int64_t unit = (int64_t)LEDGER_GRANULE, used;
	struct ledger_slot_gpu *books = ledger_slot_gpu(l, slot, gpu);

	/* A slot never counts for less than nothing. */
	used = amount_read(&books->used);
	if (settled_bytes < -used)
		settled_bytes = -used;
	settled_bytes = settled_bytes >= 0 ? (settled_bytes + unit - 1) / unit * unit
					   : settled_bytes / unit * unit;
	int64_t delta = settled_bytes - amount_read(&books->settled);
	if (delta)
		daemon_add(l, slot, LEDGER_FIELD_SETTLED, gpu, delta);
}

uint64_t ledger_kept(const struct ledger *l, uint32_t gpu)
{
	int64_t kept = ledger_used(l, LEDGER_SLOT_DAEMON, gpu);

	return kept > 0 ? (uint64_t)kept : 0;
}

void ledger_keep(const struct ledger *l, uint32_t gpu, uint64_t bytes)
{
	struct ledger_slot_gpu *own = ledger_slot_gpu(l, LEDGER_SLOT_DAEMON, gpu);
	int64_t delta = round_to_granule(bytes) - amount_read(&own->used);

	if (delta)
		daemon_add(l, LEDGER_SLOT_DAEMON, LEDGER_FIELD_USED, gpu, delta);
}

void ledger_recover(const struct ledger *l, uint32_t slot)
{
	struct ledger_intent *intent = &ledger_slot(l, slot)->intent;

	if (!(atomic_load(&intent->active) & 1))
		return;
	/* The record was written by a process that may have been hostile, and its like may be
	 * writing on: what is checked is what is used. */
	struct ledger_intent said = {
		.gpu = intent->gpu,
		.target = intent->target,
		.field = intent->field,
		.seq = intent->seq,
		.before = intent->before,
		.delta = intent->delta,
	};
	atomic_signal_fence(memory_order_seq_cst);
	bool sane = said.gpu < shape_of(l)->gpu_count && said.target < shape_of(l)->slot_count &&
		    (slot == LEDGER_SLOT_DAEMON || said.target == slot);
	if (sane && intent_took_effect(l, slot, &said))
		intent_finish(l, slot, &said);
	else
		atomic_store(&intent->active, 0);
}

void ledger_reap(const struct ledger *l, uint32_t slot, uint32_t gpu)
{
	struct ledger_slot_gpu *books = ledger_slot_gpu(l, slot, gpu);
	int64_t used = amount_read(&books->used);
	int64_t settled = amount_read(&books->settled);

	if (settled)
		daemon_add(l, slot, LEDGER_FIELD_SETTLED, gpu, -settled);
	if (used)
		daemon_add(l, slot, LEDGER_FIELD_USED, gpu, -used);
}

void ledger_slot_assign(const struct ledger *l, uint32_t slot, int32_t pid, uint64_t start_time)
{
	struct ledger_slot *s = ledger_slot(l, slot);

	/* `applied`, `helped` and the word go on from the slot's last user: they number operations
	 * of the slot, not of the process. */
	s->pid = pid;
	s->start_time = start_time;
	if (gate_process(l, slot))
		memset(gate_process(l, slot), 0, sizeof(struct gate_process));
	for (uint32_t gpu = 0;
	     gpu < shape_of(l)->gpu_count && ledger_managed_unlisted(l, slot, gpu); gpu++)
		atomic_store(ledger_managed_unlisted(l, slot, gpu), 0);
	atomic_store(&s->exported, 0);
	atomic_store(&s->imported, 0);
	atomic_store(&s->release_pending, 0);
	atomic_store(&s->releases_in_progress, 0);
	atomic_store(&s->exported_fd_bytes, 0);
	atomic_store(&s->maybe_freed, 0);
	atomic_store(&s->growing, 0);
	atomic_store(&s->not_revalidated, 0);
	atomic_store(&s->managed, 0);
	atomic_store(&s->local_release_seq, 0);
	atomic_store(&s->daemon_corrected, 0);
	atomic_store(&s->calls_begun, 0);
	atomic_store(&s->calls_done, 0);
	atomic_store(&s->state, LEDGER_SLOT_LIVE);
}

void ledger_slot_release(const struct ledger *l, uint32_t slot)
{
	ledger_recover(l, slot);
	for (uint32_t gpu = 0; gpu < shape_of(l)->gpu_count; gpu++)
		ledger_reap(l, slot, gpu);
	ledger_slot(l, slot)->pid = 0;
	atomic_store(&ledger_slot(l, slot)->state, LEDGER_SLOT_FREE);
}

uint64_t ledger_committed(const struct ledger *l, uint32_t gpu)
{
	int64_t sum = word_sum(atomic_load(&ledger_gpu(l, gpu)->committed));

	return sum > 0 ? (uint64_t)sum * LEDGER_GRANULE : 0;
}

uint64_t ledger_slot_bytes(const struct ledger *l, uint32_t slot, uint32_t gpu)
{
	struct ledger_slot_gpu *books = ledger_slot_gpu(l, slot, gpu);
	int64_t bytes = (int64_t)((uint64_t)atomic_load(&books->used) +
				  (uint64_t)atomic_load(&books->settled));

	return bytes > 0 ? (uint64_t)bytes : 0;
}
