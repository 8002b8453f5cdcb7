/* Declarations that the parts of books.h share. All with the process's lock held, but for
 * ..._alone(). */
#pragma once

#include "front/books.h"

/* The slot's counters have one writer at a time: whoever holds the lock. */
static inline void slot_count_up(_Atomic uint32_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_release);
}

static inline void slot_count_down(_Atomic uint32_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) - 1,
			      memory_order_release);
}

/* The same where nothing else is done under the lock. */
static inline void slot_count_up_alone(struct process *p, _Atomic uint32_t *counter)
{
	owned_lock_acquire(&p->lock);
	slot_count_up(counter);
	owned_lock_release(&p->lock);
}

static inline void slot_count_down_alone(struct process *p, _Atomic uint32_t *counter)
{
	owned_lock_acquire(&p->lock);
	slot_count_down(counter);
	owned_lock_release(&p->lock);
}

/* The charge becomes `to` bytes instead of `from`. 0, or -ENOMEM with nothing changed. */
int books_resize_locked(struct process *p, uint32_t gpu, uint64_t from, uint64_t to);
/* It is out of the table: uncharges it, or lets it leave. */
void books_drop_locked(struct process *p, const struct object *object);

/* Tells the daemon how much of what is charged need not be held. */
void books_maybe_freed_tell_locked(struct process *p);
/* The daemon is to know of descriptors that were given out before it is told that this leaves. */
void books_leave_object_locked(struct process *p, const struct object *object);
/* It is about to be uncharged: the daemon, which reads what is charged first, never finds it apart
 * and not charged. */
void books_managed_unlisted_end_locked(struct process *p, const struct object *object);
/* It is uncharged. Without any the driver's figures tell all again. */
void books_managed_end_locked(struct process *p, const struct object *object);

/* A pool or what graphs hold is booked with `now` bytes instead of `before`. */
void books_growing_tell_locked(struct process *p, enum object_kind kind, uint64_t before,
			       uint64_t now);

/* Blocks beyond those that the arrays fill. */
uint32_t books_arrays_extra(const struct process_arrays *arrays);
void books_array_drop_locked(struct process *p, const struct object *array);
