/* The jobs that wait for ends of others, or for times, so that an end or a second concerns only
 * those that wait for it. No memory is taken for a wait for an end: its links are in the one that
 * waits, and in the one that is waited for. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In a ring; zero: in none. */
struct queue_link {
	struct queue_link *next, *previous;
};

/* The waits for one target. Zero: nobody waits for it. It does not move while somebody does. */
struct queue_target {
	struct queue_link waits;
};

/* A wait for one target. Zero: there is none. */
struct queue_after {
	struct queue_link link;
};

/* A wait for a time. Zero: there is none. */
struct queue_time {
	int64_t at;
	size_t place; /* in the heap, from 1 on */
};

struct queue_waits {
	struct queue_link told;   /* waits whose targets have ended */
	struct queue_time **heap; /* the earliest first; malloc'ed */
	size_t count, room;
};

void queue_waits_begin(struct queue_waits *waits);
/* No wait is left. */
void queue_waits_free(struct queue_waits *waits);

void queue_wait_for(struct queue_after *wait, struct queue_target *target);
/* There may be none. */
void queue_wait_end(struct queue_after *wait);
/* The target has ended, and will not come again. Takes as long with many waits as with one. */
void queue_target_ended(struct queue_waits *waits, struct queue_target *target);
/* One of the waits whose target has ended; NULL: none is left. The caller ends it. */
struct queue_after *queue_waits_told(const struct queue_waits *waits);

/* Begins a wait for a time; `time` must not be waiting yet. 0 or -ENOMEM. */
int queue_time_wait(struct queue_waits *waits, struct queue_time *time, int64_t at);
/* There may be none. */
void queue_time_end(struct queue_waits *waits, struct queue_time *time);
/* The earliest wait for a time that has come; NULL: none has. The caller ends it. */
struct queue_time *queue_waits_due(const struct queue_waits *waits, int64_t now);
