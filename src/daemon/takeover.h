/* Sessions of a daemon that ran before this one: read from the store, their ledgers taken back from
 * the processes that live in them, or from what the last program left (node->handover). */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct handover;
struct node;
struct session;

/* Restores all sessions. The inventory must be in. 0 or -errno of the store. */
int takeover_run(struct node *node);
/* Takes the ledger of a session that has none here from descriptors that one of its processes sent
 * (which stay the caller's), if it is one; checked as those that are found. */
void takeover_ledger(struct session *session, int limits, int ledger);
/* Whether a process that may be looked into has not mapped the session's ledger. */
bool takeover_has_no_ledger(const struct session *session, pid_t pid);
/* Leaves all ledgers to the next program. */
void takeover_leave(const struct node *node, struct handover *handover);
