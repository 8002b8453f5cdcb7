/* Sessions of a daemon that ran before this one are read from the store, with the processes that
 * are in them. Their ledgers are what was kept of them (keep.h). Nothing of other processes is
 * looked at, but whether they live. */
#pragma once

struct holder;
struct node;
struct session;

/* Has leases go on with the accounts that the last daemon kept. The inventory must be in. */
void takeover_accounts(struct node *node);
/* Has the accounts kept while a GPU is time-sliced and a session has a ledger: a supervisor that
 * ends leaves nothing then. Called about once a second. */
void takeover_accounts_look(struct node *node);
/* Restores all sessions. The inventory must be in. 0 or -errno of the store. */
int takeover_run(struct node *node);

/* Has the session's ledger kept for the next daemon. */
void takeover_keep(const struct session *session);
/* Likewise the mount namespace that a command of root's was given; and no longer. */
void takeover_keep_namespace(const struct holder *holder);
void takeover_forget_namespace(const struct holder *holder);
/* The session ends, and its ledger with it. */
void takeover_forget(const struct session *session);
