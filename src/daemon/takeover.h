/* Sessions of a daemon that ran before this one: read from the store, their ledgers taken back from
 * the processes that live in them. */
#pragma once

struct node;

/* Restores all sessions. The inventory must be in. 0 or -errno of the store. */
int takeover_run(struct node *node);
