/* Sessions of a daemon that ran before this one are read from the store, with the processes that
 * are in them. Their ledgers are what was kept of them (keep.h), or what the last program left
 * (node->handover). Nothing of other processes is looked at, but whether they live. */
#pragma once

struct handover;
struct holder;
struct node;
struct session;

/* Has leases go on with the accounts that the last daemon kept. The inventory must be in. */
void takeover_accounts(struct node *node);
/* Has the accounts kept while a GPU is time-sliced and a session has a ledger: a keeper ends when
 * it holds nothing. Called about once a second. */
void takeover_accounts_look(struct node *node);
/* Restores all sessions. The inventory must be in. 0 or -errno of the store. */
int takeover_run(struct node *node);
/* Leaves all ledgers to the next program. */
void takeover_leave(const struct node *node, struct handover *handover);

/* Has the session's ledger kept for the next daemon; and all of them (keep_start()). */
void takeover_keep(const struct session *session);
void takeover_keep_all(void *node);
/* Likewise the mount namespace that a command of root's was given; and no longer. */
void takeover_keep_namespace(const struct holder *holder);
void takeover_forget_namespace(const struct holder *holder);
/* The session ends, and its ledger with it. */
void takeover_forget(const struct session *session);
