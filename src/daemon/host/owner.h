/* Whose a user ID is: users have ranges of subordinate IDs (/etc/subuid, for their containers), and
 * what these use counts as their owner's. */
#pragma once

#include <sys/types.h>

struct node;

/* The user to whose budgets this one's use counts: the owner of its range, or itself. An unknown ID
 * may have the file read again, off the loop: until then it is its own owner. */
uid_t owner_of(uid_t uid);
/* Reads the file now; names are looked up, which may ask a server: only before the loop runs, and
 * on threads. */
void owner_load(void);
/* Has it read again on the loop's threads where owner_of() was asked for unknown IDs. */
void owner_refresh(struct node *node);

/* For tests: the file of that name instead. */
void owner_load_from(const char *path);
