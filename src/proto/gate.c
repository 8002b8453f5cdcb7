#include "proto/gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"

/* A thread that is not woken looks by itself within 100 ms. So no process can keep the daemon busy
 * with waking its threads. */
#define WAKE_MOST 256

struct gate_process *gate_process(const struct ledger *l, uint32_t slot)
{
	const struct ledger_header *shape = l->shape ? l->shape : l->header;

	if (!shape->time_offset)
		return NULL;
	return (struct gate_process *)((char *)l->header + shape->time_offset +
				       (size_t)slot * shape->time_stride);
}

uint64_t gate_next(uint64_t word, enum gate_state state)
{
	return state == GATE_OFF ? 0 : (GATE_EPOCH(word) + 1) << GATE_STATE_BITS | state;
}

static void wake(const struct ledger *l)
{
	/* The low half, on the little-endian machines that carve runs on. */
	syscall(SYS_futex, (uint32_t *)gate_word(l), FUTEX_WAKE, WAKE_MOST, NULL, NULL, 0);
}

uint64_t gate_set(const struct ledger *l, enum gate_state state)
{
	uint64_t next = gate_next(atomic_load_explicit(gate_word(l), memory_order_relaxed), state);

	atomic_store(gate_word(l), next);
	wake(l);
	return next;
}

enum gate_change gate_change_of(uint64_t own, uint64_t seen)
{
	enum gate_state was = GATE_STATE(own);

	if (seen == own)
		return GATE_SAME;
	if (was == GATE_IDLE && seen == gate_next(own, GATE_CONTENDED))
		return GATE_TAKEN_UP;
	if ((was == GATE_IDLE || was == GATE_CLOSED) && seen == gate_next(own, GATE_OPEN))
		return GATE_FORSAKEN;
	return GATE_SPOILT;
}

bool gate_replace(const struct ledger *l, uint64_t seen, enum gate_state state)
{
	if (!atomic_compare_exchange_strong(gate_word(l), &seen, gate_next(seen, state)))
		return false;
	wake(l);
	return true;
}

uint64_t gate_set_unsliced(const struct ledger *l, struct ledger_limits *limits, uint64_t own,
			   uint64_t unsliced)
{
	uint32_t generation = atomic_load(&limits->generation);
	enum gate_state state = GATE_STATE(own);

	if (atomic_load(&limits->unsliced_gpus) == unsliced &&
	    atomic_load(&limits->unsliced_generation) == generation)
		return own;
	atomic_store(&limits->unsliced_gpus, unsliced);
	atomic_store(&limits->unsliced_generation, generation);
	if ((state == GATE_OPEN || state == GATE_CLOSED) && gate_replace(l, own, state))
		return gate_next(own, state);
	return own;
}

int gate_barrier(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) < 0 ? -errno : 0;
}

bool gate_launching(const struct gate_process *p)
{
	uint32_t threads = MIN(atomic_load(&p->threads), GATE_THREADS_MAX);

	if (atomic_load(&p->launching_others))
		return true;
	for (uint32_t i = 0; i < threads; i++)
		if (atomic_load_explicit(&p->thread[i].in_launch, memory_order_acquire))
			return true;
	return false;
}

bool gate_drained(const struct gate_process *p)
{
	uint32_t streams = MIN(atomic_load(&p->streams), GATE_STREAMS_MAX);

	for (uint32_t i = 0; i < streams; i++) {
		const struct gate_stream *s = &p->stream[i];

		if (atomic_load_explicit(&s->done, memory_order_acquire) !=
		    atomic_load_explicit(&s->submitted, memory_order_acquire))
			return false;
	}
	return true;
}

uint32_t gate_submitted(const struct gate_process *p)
{
	uint32_t streams = MIN(atomic_load(&p->streams), GATE_STREAMS_MAX);
	uint32_t sum = 0;

	for (uint32_t i = 0; i < streams; i++)
		sum += atomic_load_explicit(&p->stream[i].submitted, memory_order_relaxed);
	return sum;
}
