/* Requests that are not decided yet, by priority and then in the order they came. Every request
 * passes through here; most leave it at once.
 *
 * A later request may be granted before an earlier one that does not fit. So that this cannot delay
 * the earlier one for ever, it is passed at most WAITING_PASSES times. Then nothing more is granted
 * on the GPUs that it may use until it is served or gives up. A session that grows passes it,
 * too.
 *
 * A request that is not granted at once is a row of the store as long as it waits. A daemon that
 * starts takes the rows up in their order. Their clients' connections ended with the last daemon,
 * so each request is absent until its client asks again by the same ID. Meanwhile it keeps its
 * place: nothing behind it is granted on the GPUs that it may use. A request whose client does not
 * come within WAITING_RETURN_NS is forgotten. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/host/budget.h"
#include "daemon/host/peer.h"
#include "daemon/request/request.h"

struct error;
struct mig_grant;
struct waiting;
struct pool;
struct quotas;
struct report;
struct session;
struct sessions;
struct time_limits;

#define WAITING_PASSES 16u
/* Requests that wait, all users' together; one user has half of what the others leave. */
#define WAITING_MAX 4096u
/* Own clients ask again within a second of the next daemon's start; they look every 0.1 s. */
#define WAITING_RETURN_NS 5000000000ull
/* Bytes of a request that waits, as the store has it: a wish for 64 GPUs has some 600. */
#define WAITING_BODY_MAX 4096u

/* The answer: a session, or NULL and why not. */
typedef void (*waiter_cb)(void *arg, struct session *session, const struct error *err);

/* The caller, who is answered. */
struct waiter_ask {
	waiter_cb cb;
	void *arg;
	const char
		*body; /* the request as it came, JSON, as long as it waits; NULL: it has no row */
	size_t body_size; /* bytes */
};

/* A request is queued first. It becomes making when an instance was ordered for it, and queued
 * again when the order is done without success. An absent one becomes queued when it is asked for
 * again. */
enum waiter_state {
	WAITER_QUEUED,
	WAITER_MAKING, /* its MIG instances are being made */
	WAITER_ABSENT, /* it comes from a daemon before this one, and its client is not back */
};

struct waiter {
	struct waiter *next;
	char id[STORE_ID_SIZE]; /* the ID of the session to be */
	struct slice_request request;
	struct peer peer;
	uid_t owner;                    /* to whom it counts (budget.h) */
	uint64_t sample;                /* decided on figures no older than this sample */
	uint64_t since_ns, deadline_ns; /* CLOCK_MONOTONIC */
	int64_t created;                /* CLOCK_REALTIME, ns */
	unsigned passed;
	enum waiter_state state;
	uint64_t absent_until_ns; /* CLOCK_MONOTONIC */
	bool recorded;            /* it is a row of the store */
	bool counted;             /* it was told to mig_came() */
	bool for_drained;         /* it waits for drained GPUs, and holds up nobody meanwhile */
	char why[512];            /* it is not granted yet */
	struct waiter_ask ask;    /* .cb is NULL while it is absent */
};

/* All of them, and the parts of the daemon that this room uses. The daemon's root owns it. On the
 * loop's thread only. */
struct waiting {
	/* Lent. */
	struct sessions *sessions;
	struct pool *pool;
	struct quotas *quotas;
	struct report *report;
	const struct time_limits *times; /* the default and the longest time-out of sessions */
	struct waiter *first;            /* in the order in which they are served */
	bool dirty;                      /* something changed that may let one through */
	bool owners_shown;               /* users see who holds the GPUs (`show_owners`) */
	struct budget budget;            /* the same, counted by user */
};

/* Queues a request. The callback is called later, even where it can be decided at once. A request
 * of this user and ID that waits already keeps its place and its time, and the caller before is
 * told so. Returns 0 or -errno.
 * -EMFILE: its user has too many that wait. */
int waiting_add(struct waiting *waiting, const struct slice_request *request,
		const struct peer *peer, const struct waiter_ask *ask);
/* Takes up the requests that waited for the daemon before this one. The sessions and the inventory
 * must be in. 0 or -errno of the store. */
int waiting_load(struct waiting *waiting);
/* The fate of a request that came now and had its GPUs resolved: 0, or negative with *err.
 */
int waiting_would(const struct waiting *waiting, const struct slice_request *request,
		  const struct peer *peer, struct place_result *ret, struct error *err);
/* The same for one that waits. */
int waiting_explain(const struct waiting *waiting, const struct waiter *waiter,
		    struct place_result *ret, struct error *err);
/* A session grows on a GPU of the pool (by its position): whether it may, before requests that
 * wait; and that it has, which passes them. */
bool waiting_lets_grow(const struct waiting *waiting, uint32_t gpu);
void waiting_grown(struct waiting *waiting, uint32_t gpu);
/* The waiter with this `arg` is gone. */
void waiting_cancel(struct waiting *waiting, void *arg);
/* Refuses a waiting request by its ID, as its owner wishes. False: there is none. */
bool waiting_release(struct waiting *waiting, struct waiter *waiter);
/* Whether another instance is being decided on for this session. */
bool waiting_resizes(const struct waiting *waiting, const char *session);
struct waiter *waiting_find(const struct waiting *waiting, const char *id);
/* Its place in the row, from 1. */
unsigned waiting_position(const struct waiting *waiting, const struct waiter *waiter);
/* The user's request of this name. */
struct waiter *waiting_named(const struct waiting *waiting, uid_t uid, const char *name);
/* The user's request for a current session, of those before `before` (NULL: of all); NULL: none. */
struct waiter *waiting_for_current(const struct waiting *waiting, uid_t uid,
				   const struct waiter *before);
/* The MIG instances of request `id` are there, or not: *why says why not, NULL that it is to be
 * decided anew. The waiter may be gone: then they are nobody's. */
void waiting_made(struct waiting *waiting, const char *id, const struct mig_grant *instances,
		  const struct error *why);
/* Something changed that may let requests through. Decides nothing itself: see waiting_run(). */
void waiting_kick(struct waiting *waiting);
/* Decides what can be decided, unless memory of ended sessions has to be waited for. Called on the
 * loop, once samples can be believed, and never from inside another operation. */
void waiting_run(struct waiting *waiting);
