/* Requests that enqueue jobs, until the jobs are on disk and in the table. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/queue/job.h"

struct enqueues;
struct error;
struct queues;

/* Enqueues `count` jobs, an array where `indexes` is there. When they are on disk it calls back
 * with the ID of the first. 0 in its place: they could not be written, and *err says why. Where 0
 * is returned, `text` (malloc), `indexes` and the warrant of `spec` become the queue's. */
typedef void (*enqueue_cb)(void *arg, int64_t id, uint32_t count, const struct error *err);
struct enqueue_request {
	const struct peer *peer;
	const char *queue, *key;
	struct job_spec spec;
	char *text;
	uint32_t count;
	int32_t *indexes;
	enqueue_cb cb;
	void *arg;
};
int jobs_enqueue(struct queues *q, const struct enqueue_request *request);
/* Whether a request of that user's with that key is being written: it has no ID to be told yet. */
bool jobs_enqueue_has(const struct queues *q, uid_t uid, const char *key);
/* Nobody waits for that answer any more. */
void jobs_enqueue_forget(struct queues *q, void *arg);

/* NULL: no memory. */
struct enqueues *enqueues_new(void);
/* Whether some are under way. */
bool enqueues_busy(const struct queues *q);
/* Writes the requests of this round of the loop in one step. */
void enqueue_commit(struct queues *q);
/* Returns whether a long array has a part to do, and gives its owner. */
bool enqueue_part_owner(const struct queues *q, uid_t *ret);
/* The next part. */
void enqueue_part(struct queues *q);
void enqueues_free(struct queues *q);
