/* Where the daemon keeps what outlives it (store.h), and the host's restarts: the state directory.
 *
 * The system's is /var/lib/carve. It is on disk; the runtime directory, which holds sockets and
 * lock, usually is not. `carve.db` in the runtime directory is then a link to the database. By it
 * the next daemon finds the living sessions wherever they are kept. A daemon that is told another
 * place moves nothing: it says which `mv` its administrator may type.
 *
 * Where no place is named or usual, both are the same directory. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct error;
struct keep;
struct runtime;
struct store;

#define STATE_DIR_SYSTEM "/var/lib/carve"

struct state {
	char wanted[PATH_MAX / 2]; /* where it is to be */
	char dir[PATH_MAX / 2];    /* where it is, once it was opened; absolute */
	int lock_fd;               /* keeps other daemons out of `dir`; -1: runtime's lock does */
	bool named;                /* `wanted` was, by the option of this start */
	char stays[512];           /* why it is not where it is to be; "": it is */
};

/* Chooses the directory: `named` (by the option) or `configured`, each "" or NULL for none. Else it
 * is the system's for a runtime directory that is the system's, and $XDG_STATE_HOME/carve/HOST for
 * a user's usual one. Else it is where the sessions are already, or the runtime directory. 0 or
 * negative with *err. */
int state_choose(struct state *state, const struct runtime *runtime, const char *named,
		 const char *configured, struct error *err);
/* Opens the database there, and ends the sessions from before the host's restart in it. Where the
 * sessions are kept elsewhere, a directory that was named by the option is refused. Another choice
 * is given up for the place of the sessions, which is logged: a wrong file stops no service, and no
 * upgrade. */
int state_open(struct state *state, const struct runtime *runtime, struct keep *keep,
	       struct store **ret, struct error *err);
/* Why the open database cannot be read, as store_explain(). */
void state_explain(const struct state *state, int rc, struct error *err);
/* Whether state_open() of a daemon that takes over would find a database that it understands,
 * without touching it. *ret_dir is where the database is. */
int state_check(const struct runtime *runtime, char ret_dir[static PATH_MAX / 2],
		struct error *err);
/* Before a system daemon gives up being root: gives its directories and files to the user that it
 * becomes (0: it stays root). Has the link say where they are, or stays where they are as
 * state_open() does. Only what root or a worker of carve's had is given away. 0 or negative with
 * *err. */
int state_prepare(struct state *state, const struct runtime *runtime, uid_t uid, gid_t gid,
		  struct error *err);
/* Gives a directory, and what of a database is in it, to a user. 0 or -errno; -EPERM: it, or a
 * file, may be another's. */
int state_directory_give(const char *dir, uid_t uid, gid_t gid);
/* Whether somebody removed the directory or its lock; or the link in the runtime directory. */
bool state_lock_missing(const struct state *state, const struct runtime *runtime);
bool state_link_missing(const struct state *state, const struct runtime *runtime);
/* Leaves copies of the databases to the next daemon (a negative descriptor: there is no copy). Its
 * state_open() puts them in place of what is left of the files. 0 or -errno. */
int state_leave_copies(struct keep *keep, int sessions_fd, int jobs_fd);
void state_close(struct state *state);
