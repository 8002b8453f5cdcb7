/* Compares the driver's figures of attached processes with their charges: posted in their slots by
 * the samples over which they were quiescent. Memory that they gave back and others may have is
 * charged to somebody at every moment (docs/dev/ledger.md). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/session/process.h"

struct sessions;
struct settling;

/* Tells the session's processes on which GPUs managed memory is in no process's figure, as far as
 * that is known. The second tells those of all sessions with a ledger. The third tells that nothing
 * is known: a daemon of an earlier version, which may take over, does not tell. */
void settle_tell(struct session *session);
void settle_say(struct settling *settling);

/* Has it compared, as it asks for, until process_settle_end(). leaving: bytes that it has charged
 * on GPU `position` of its session and gave back to the driver. Returns the number of the first
 * sample that counts. */
uint64_t process_settle(struct process *process, enum settle_why why, uint32_t position,
			uint64_t leaving);
/* Whether that is done: its slot agrees with the newest sample, and what is leaving is charged to
 * whom the driver says has it. False: it, or another process that may have that, did not stand
 * still. */
bool process_settled(const struct process *process);
/* Not settled: whether the next samples, which come by themselves, are to be waited for. */
bool process_settle_waits(const struct process *process);
/* It is answered. Not settled: what is leaving is charged to the daemon until it can be told. */
void process_settle_end(struct process *process, bool settled);
/* By how many bytes more is charged for it on GPU `position` of its session than the driver says,
 * where it has just been settled. */
uint64_t process_over(const struct process *process, uint32_t position);

/* Called when a process of the session has no room. Returns the number of the sample that shows
 * whether others have less than is charged for them. 0: nothing is charged that a sample could
 * lower. */
uint64_t settle_room(struct session *session);
/* Whether that is in the books, or the wait for it has timed out. Otherwise *sample is the
 * next one to look at. */
bool settle_room_known(struct session *session, uint64_t *sample);

/* The process is gone. Memory that it exported may be in others' figures, or its descriptors may be
 * open. Then that memory is charged to the daemon until its holder is known. `compared`:
 * settle_all() has compared the newest sample. */
void settle_keep(const struct process *process, bool compared);
/* Begins with books in which nothing stands. `sessions` is lent. */
void settle_begin(struct settling *settling, struct sessions *sessions);
/* Called when a sample starts. */
void processes_sampling(struct settling *settling);
/* Compares all, by the sample that is in. */
void settle_all(struct settling *settling);
