/* GPU memory that nothing keeps but an open descriptor of it (cuMemExportToShareableHandle), which
 * no process's figure shows. The front marks such descriptors (proto/mark.h), and /proc/locks tells
 * which are open. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/gpus.h"

struct node;
struct process;
struct session;
struct descriptor;

struct descriptors {
	struct descriptor *list; /* marked ones of the sessions, as of the newest sample */
	size_t count, room;
	/* By GPU of the pool: bytes that no process had while there were none, the less of two
	 * samples, one after the other; and by the last one. */
	uint64_t unlisted[GPUS_MAX], last[GPUS_MAX];
	bool had_some; /* by the last one */
};

/* Takes stock where a session may have some. Called when a sample is in, before it is compared. */
void descriptors_read(struct node *node);
void descriptors_free(struct node *node);
/* Whether any of a process's is open. */
bool descriptors_of(const struct process *process);
/* Bytes on GPU `position` of a session that its processes, living or not, gave back and that open
 * descriptors keep: at most what the driver holds for no process. Of the newest sample. */
uint64_t descriptors_keep(const struct session *session, uint32_t position);
