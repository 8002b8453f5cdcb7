/* Work of users of which a part is done at a time, in the users' turns: nobody waits for more than
 * one part of each other user's. A user's own work keeps its order. Pure. */
#pragma once

#include <sys/types.h>

/* Embedded in the work. */
struct turn {
	struct turn *next;
	uid_t user;
};

/* Zero: there is none. */
struct turns {
	struct turn *first; /* the one whose turn it is */
};

/* Behind all others. */
void turns_add(struct turns *turns, struct turn *turn, uid_t user);
/* It is there. */
void turns_remove(struct turns *turns, const struct turn *turn);
/* The user had a turn: all of that user's work goes behind everybody else's. */
void turns_pass(struct turns *turns, uid_t user);
