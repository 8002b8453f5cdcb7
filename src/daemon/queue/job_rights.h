/* Rights that are over: the warden is told of them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/queue/job_store.h"

struct queues;
struct warrant;

/* Rights that the launcher is to be told of. */
struct queue_overs {
	bool all_told;    /* the database has none */
	struct over told; /* the warden is being told of these */
	uint64_t asked;
};
/* The rights of the jobs from `position` on, among those of a warrant (NULL: they have none), are
 * over: the database has that until the warden was told. 0 or -errno. */
int queue_rights_over(struct queues *q, const struct warrant *warrant, uint64_t position,
		      uint64_t count);
/* Tells the warden of more, where it can be told. Each second and after each step, too. */
void queue_overs_tell(struct queues *q);
void queue_overs_end(struct queues *q);
