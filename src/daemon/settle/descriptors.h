/* GPU memory that nothing keeps but an open descriptor of it (cuMemExportToShareableHandle), which
 * no process's figure shows. The front marks such descriptors (proto/mark.h), and /proc/locks tells
 * which are open. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/gpus.h"
#include "daemon/settle/locks.h"

struct settling;
struct process;
struct session;

struct descriptors {
	struct locks now;        /* marked ones of the sessions, as of the newest sample */
	struct locks before;     /* and of the one before it */
	uint64_t read_ns;        /* how long it took to find them */
	uint64_t pause_until_ns; /* that was too long: it is not tried before */
	/* By GPU of the pool: bytes that no process had while there were none, the less of two
	 * samples, one after the other; and by the last one. */
	uint64_t unlisted[GPUS_MAX], last[GPUS_MAX];
	bool had_some; /* by the last one */
};

/* Whether a process of the session has given others handles to its memory, as far as its processes
 * say. Without that none of its descriptors is marked. */
bool descriptors_exported(const struct session *session);
/* Takes stock where a session may have some. Called when a sample is in, before it is compared. */
void descriptors_read(struct settling *settling);
void descriptors_free(struct settling *settling);
/* Whether any of a process's is open. */
bool descriptors_of(const struct process *process);
/* Bytes that open descriptors of GPU `position` of a session stand for, among what its processes,
 * living or not, gave back. The session may have ended. The other: whether there are any, by this
 * sample or the one before it. */
uint64_t descriptors_marked(const struct settling *settling, const char *id, uint32_t position);
bool descriptors_open(const struct settling *settling, const char *id, uint32_t position);
/* The memory that the driver holds for no process on that GPU of the pool, beyond what is usual. It
 * is from its newest sample. */
uint64_t descriptors_unlisted(const struct settling *settling, int gpu);
/* Bytes on GPU `position` of a session that its processes, living or not, gave back and that open
 * descriptors keep: at most what the driver holds for no process. It is from the newest sample. */
uint64_t descriptors_keep(const struct session *session, uint32_t position);
