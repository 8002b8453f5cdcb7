/* Connections that clients make to a listening socket. All users have one row of connections that
 * nobody has accepted yet, and a client whose connection does not fit in it has to wait. So
 * connections are accepted as fast as the kernel gives them, and counted. To open one (who is it,
 * what does it say) takes ten times as long, and is done in its user's turn (host/fair.h). Loop
 * thread. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/host/budget.h"
#include "daemon/host/fair.h"

struct arrival;

/* Their owner's callbacks. */
struct arrivals_to {
	/* The descriptor becomes the callee's. It does not count in `budget` any more: the callee
	 * has it enter, for which there is room. */
	void (*open)(void *arg, int fd);
	/* Says why to one whose user has too many; it is closed then. */
	void (*refuse)(void *arg, int fd);
	/* The number that may be there at once; the others wait to be accepted. 0: any number. */
	unsigned most;
	/* The last descriptors are kept for others: limited_is_last(). */
	bool leaves_last;
};

struct arrivals {
	uv_poll_t poll; /* its `data` is `arg` */
	int fd;         /* listens */
	struct fair *turns;
	struct budget *budget;
	struct arrivals_to to;
	void *arg;
	struct arrival *first; /* that wait for their turns */
	bool full;             /* nothing is accepted until arrivals_go_on() */
};

struct arrival {
	struct arrival *next, *previous;
	struct arrivals *of;
	int fd;
	uid_t owner; /* to whom it counts */
	struct fair_work turn;
};

/* `fd` listens, and becomes the callee's where that succeeds. 0 or an error of libuv. */
int arrivals_begin(struct arrivals *arrivals, uv_loop_t *loop, int fd);
/* A connection has ended, or some time is over: there may be a place, or a descriptor. */
void arrivals_go_on(struct arrivals *arrivals);
/* Those that wait for their turns have them now. */
void arrivals_open(struct arrivals *arrivals);
/* Listens no more, which `cb` tells. Those that wait are closed. */
void arrivals_end(struct arrivals *arrivals, uv_close_cb cb);
