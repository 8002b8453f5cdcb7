/* Privilege separation, of a system daemon that root started. The process becomes a worker, which
 * has a user of its own and no rights, and talks to everybody. Its warden (warden/warden.h)
 * keeps the rights that are needed. Things that only root may make are made before: directories,
 * sockets, claims. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct error;
struct node;
struct supervise;
struct supervise_ends;

/* The worker's user, where there is one. */
#define SEPARATE_USER "carve"

/* Whether this daemon is to be separated, or at least to have a warden. */
bool separate_wanted(const struct node *node);
/* In carve's own supervisor, before each start of a worker (struct supervise): decides what the
 * worker becomes, and makes its link to the warden. That is carve-warden.service, where it runs,
 * else this process hosts the warden. 0 or negative with *err. */
int separate_begin(struct supervise *supervise, struct supervise_ends *ret, struct error *err);
/* Does it: returns as the worker. `user` names its user; NULL: SEPARATE_USER, or where there is
 * none a free ID (WARDEN_ID_FIRST); "root": it stays root, with a warden. So it does, with a word
 * in the log, where the user has no access to what it needs; node->separation says why. 0 or
 * negative with *err. */
int separate(struct node *node, const char *user, struct error *err);

/* Once the lease thread runs: this one has the usual priority again. */
void separate_settle(void);
/* The whole of `carved --prepare`, for a service whose daemon has no right to give files away:
 * makes directories, for the user that it becomes. Returns the exit code. */
int separate_prepare(struct node *node, const char *user, struct error *err);

/* The whole of `carved --warden`; see warden_main(). */
int separate_warden(struct node *node, const char *user, struct error *err);

struct separation {
	bool separated;
	char why_not[160]; /* "": it is, or it need not be */
};
