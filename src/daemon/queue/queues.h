/* Queues at work: agents, the jobs that have not ended, and who starts next. core/queue.h decides;
 * this asks it when something changed, starts shims, and notes how jobs end. Loop thread only.
 *
 * No job is lost and none runs twice, because of the order of steps. Each step has a kill point,
 * and tests/system/queue kills the daemon or the shim at every one of them:
 *   1. the job is on disk before the client is told its ID;
 *   2. the slice is granted to the job, and a shim is started, which waits;
 *   3. the slice becomes the shim's, and the start is written to disk, with the shim;
 *   4. the shim is told to go;
 *   5. the shim records that the command starts, then lets it run, then records how it ended;
 *   6. the end is written to disk, and the records are removed.
 * A daemon that starts finds what the last one left in its database and in the records. */
#pragma once

#include <stdbool.h>

#include "daemon/queue/queue_context.h"

struct error;

/* Opens the database and takes up what the last daemon left. After the sessions are back. NULL:
 * that failed, and *err says why. */
struct queues *queues_start(const struct queues_host *host, struct error *err);
/* Takes NULL. Jobs go on. */
void queues_stop(struct queues *queues);
/* Answers those who wait for the disk: the daemon stops. The loop waits. Takes NULL. */
void queues_settle(struct queues *queues);
/* Something changed that may let a job start. */
void queues_kick(struct queues *q);
/* Before the loop sleeps: writes what was enqueued, and starts what can start. */
void queues_run(struct queues *q);
void queues_tick(struct queues *q);
/* Whether somebody removed a file of the queues' database, whose name is returned, else NULL. */
const char *queues_database_missing(const struct queues *q);
/* As database_copy(). */
int queues_database_copy(const struct queues *q);
/* Whether the daemon is needed: an agent is there, or a job runs. */
bool queues_busy(const struct queues *q);
