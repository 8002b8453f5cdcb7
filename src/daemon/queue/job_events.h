/* Changes of jobs' states: the last ones, and the requests that wait for the next one. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/queue_spec.h"
#include "daemon/host/listeners.h"
#include "daemon/queue/job.h"
#include "daemon/queue/job_store.h"
#include "daemon/store/disk.h"

struct peer;
struct queues;

/* Changes that are remembered. */
#define QUEUE_EVENTS 4096u

struct queue_event {
	uint64_t number;
	int64_t id, array;
	int32_t index;
	uid_t uid;
	char queue[QUEUE_NAME_SIZE]; /* the queue may have no job any more */
	enum job_state state;
	int64_t at;
	uint32_t attempt;
};

/* The numbers of ends. */
struct queue_end_numbers {
	int64_t last;    /* that was given to an end */
	int64_t durable; /* all ends up to this number are on the disk */
	int64_t syncing; /* all ends up to this number wait for the disk; 0: none do */
	struct disk_waiter waiter;
	char database[JOB_STORE_ID_SIZE]; /* its ID */
};

/* Every change of a job's state has a number. */
uint64_t queue_events_last(const struct queues *q);
/* The changes after number `from`, the oldest that are remembered first; those that the viewer may
 * not see in detail are left out. */
json_t *queue_events(const struct queues *q, uint64_t from, const struct peer *viewer,
		     uint64_t *ret_next);
struct job_events {
	struct queue_event event[QUEUE_EVENTS];
	uint64_t last; /* the number of the last one */
	bool told;     /* listeners have not heard of it */
	struct listeners listeners;
	struct queue_end_numbers ends;
};

/* Remembers a change to this state. */
void queue_event_add(struct queues *q, const struct job_record *record, enum job_state state);
/* The ends of jobs are numbered from 1 on, without regard to restarts. The numbers are those of one
 * database: a new database has another one, and its ends have the first numbers
 * again. Only ends that are on the disk are told, so that a power cut takes no number back. */
struct queue_end_part {
	json_t *ends;         /* owned by the caller; those that the viewer may see in detail */
	const char *database; /* the ID of the database */
	uint64_t next;        /* the first number that was not looked at */
};
/* The first number that no end on the disk has. */
uint64_t queue_end_next(const struct queues *q);
/* Whether the end with this number is still to come, or to come to the disk, as the next one or one
 * of those whose jobs have ended. */
bool queue_end_is_awaited(const struct queues *q, uint64_t number);
/* Looks at some ends from number `from` on. A `next` below `from` says that no end has come near
 * that number. 0 or -errno. */
int queue_end_read(const struct queues *q, uint64_t from, const struct peer *viewer,
		   struct queue_end_part *ret);
/* Reads the last number of an end from the database. 0 or -errno. */
int queue_end_load(struct queues *q);
/* The number of the next end, which the caller writes to the database with the job. */
int64_t queue_end_number_take(struct queues *q);
/* Has the ends so far on the disk, soon. Each second. */
void queue_end_sync(struct queues *q);
/* Calls once at the next change, or when ends have come to the disk. */
int queue_listen(struct queues *q, listener_cb cb, void *arg);
void queue_unlisten(struct queues *q, const void *arg);
/* Tells those who wait, if there was a change. */
void queue_events_tell(struct queues *q);
