#include "core/queue_waits.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/macros.h"

/* ---- ends ----------------------------------------------------------------------------------- */

static void ring_begin(struct queue_link *ring)
{
	ring->next = ring->previous = ring;
}

void queue_waits_begin(struct queue_waits *waits)
{
	*waits = (struct queue_waits){0};
	ring_begin(&waits->told);
}

void queue_waits_free(struct queue_waits *waits)
{
	free(waits->heap);
	waits->heap = NULL;
}

void queue_wait_for(struct queue_after *wait, struct queue_target *target)
{
	struct queue_link *ring = &target->waits, *link = &wait->link;

	if (!ring->next)
		ring_begin(ring);
	link->previous = ring->previous;
	link->next = ring;
	link->previous->next = ring->previous = link;
}

void queue_wait_end(struct queue_after *wait)
{
	struct queue_link *link = &wait->link;

	if (!link->next)
		return;
	link->previous->next = link->next;
	link->next->previous = link->previous;
	*link = (struct queue_link){0};
}

void queue_target_ended(struct queue_waits *waits, struct queue_target *target)
{
	struct queue_link *ring = &target->waits, *told = &waits->told;

	if (!ring->next || ring->next == ring)
		return;
	ring->next->previous = told->previous;
	told->previous->next = ring->next;
	ring->previous->next = told;
	told->previous = ring->previous;
	*ring = (struct queue_link){0};
}

struct queue_after *queue_waits_told(const struct queue_waits *waits)
{
	return waits->told.next == &waits->told
		       ? NULL
		       : CONTAINER_OF(waits->told.next, struct queue_after, link);
}

/* ---- times ---------------------------------------------------------------------------------- */

static void put(struct queue_waits *waits, size_t place, struct queue_time *time)
{
	waits->heap[place - 1] = time;
	time->place = place;
}

static void rise(struct queue_waits *waits, size_t place, struct queue_time *time)
{
	for (; place > 1 && waits->heap[place / 2 - 1]->at > time->at; place /= 2)
		put(waits, place, waits->heap[place / 2 - 1]);
	put(waits, place, time);
}

static void sink(struct queue_waits *waits, size_t place, struct queue_time *time)
{
	for (size_t child; (child = 2 * place) <= waits->count; place = child) {
		if (child < waits->count && waits->heap[child]->at < waits->heap[child - 1]->at)
			child++;
		if (waits->heap[child - 1]->at >= time->at)
			break;
		put(waits, place, waits->heap[child - 1]);
	}
	put(waits, place, time);
}

int queue_time_wait(struct queue_waits *waits, struct queue_time *time, int64_t at)
{
	struct queue_time **heap =
		array_grown(waits->heap, waits->count, &waits->room, sizeof(struct queue_time *));

	if (!heap)
		return -ENOMEM;
	waits->heap = heap;
	time->at = at;
	rise(waits, ++waits->count, time);
	return 0;
}

void queue_time_end(struct queue_waits *waits, struct queue_time *time)
{
	size_t place = time->place;

	if (!place)
		return;
	struct queue_time *last = waits->heap[--waits->count];

	time->place = 0;
	if (last == time)
		return;
	if (last->at < time->at)
		rise(waits, place, last);
	else
		sink(waits, place, last);
}

struct queue_time *queue_waits_due(const struct queue_waits *waits, int64_t now)
{
	return waits->count && waits->heap[0]->at <= now ? waits->heap[0] : NULL;
}
