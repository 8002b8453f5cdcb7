/* The owner of a user ID: users have ranges of subordinate IDs (/etc/subuid, for their containers),
 * and their use counts as the owner's. */
#pragma once

#include <sys/types.h>
#include <uv.h>

/* The user to whose budgets this one's use counts: the owner of its range, or itself. An unknown ID
 * may have the file read again, off the loop: until then it is its own owner. */
uid_t owner_of(uid_t uid);
/* Reads the file now; names are looked up, which may ask a server: only before the loop runs, and
 * on threads. */
void owner_load(void);
/* Has the file read again on the loop's threads if owner_of() was asked for unknown IDs. */
void owner_refresh(uv_loop_t *loop);

/* For tests: the file of that name instead. */
void owner_load_from(const char *path);
