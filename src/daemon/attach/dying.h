/* Memory that is on its way back to a slice: of processes that have ended, are just ending, or have
 * become another program. A process that finds no room asks for it before it is refused. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct attach_connection;
struct session;

/* Takes note of processes of the session that ended, before the loop hears of it by itself, and of
 * those that are ending. The connection that asks is left alone. The session must be active. Costs
 * two system calls, and one more for each process. */
void dying_look(struct session *session, const struct attach_connection *asking);
/* Whether memory is still to come back of processes that were known to be ending at `since`
 * (CLOCK_MONOTONIC). Memory that forked children hold on to does not come back, and is not waited
 * for. */
bool dying_any(const struct session *session, uint64_t since);
