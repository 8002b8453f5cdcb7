/* The worker's side of its warden (proto/warden.h): numbered requests, and a callback from the loop
 * with each answer. The loop never waits for the warden. A thread of the pool may (
 * warden_link_call()).
 *
 * Requests of one owner that the warden has not answered are bounded by WARDEN_WAITING_OWNER. Later
 * ones wait here, and owners take turns. Loop thread only, but for warden_link_call(). */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "core/turns.h"
#include "proto/warden.h"

struct warden_asked;
struct warden_call;

struct warden_link {
	int fd; /* -1: there is no warden */
	uv_loop_t *loop;
	uv_poll_t *poll;
	uv_async_t *async; /* threads have called */
	void (*on_ended)(void *context);
	void *context;
	uint64_t number;
	struct turns waiting;      /* requests that were not sent, in turns by owner */
	struct warden_asked *sent; /* their answers are due; the oldest is first */
	size_t sent_count;
	bool full;        /* the socket has no room */
	uint64_t told_ns; /* CLOCK_MONOTONIC, when the log was told of a time-out last; 0: never */
	pthread_mutex_t lock;
	pthread_cond_t answered;
	struct warden_call *calls; /* threads wait for them; under the lock */
	bool stopped;              /* no calls any more; under the lock */
};

/* Tells the end of a request: 0 and what the answer says, or -errno; -EPIPE: the warden is gone. A
 * descriptor that came along is closed afterwards, unless the callback takes it (steal_fd()). */
typedef void (*warden_cb)(void *context, int rc, const void *answer, int *fd);

struct warden_question {
	enum warden_operation operation;
	uid_t owner;         /* in whose turn it is done */
	const void *request; /* it has `size` bytes */
	size_t size;
	size_t answer_size;              /* an answer without an error has so many bytes */
	int fds[WARDEN_DESCRIPTORS_MAX]; /* `fd_count` of them go along; copied */
	unsigned fd_count;
	uint64_t patience_ns; /* the time for the answer, which is -ETIMEDOUT then; 0: any time */
};

/* `fd`: the socket to the warden, which becomes the link's; -1: there is none. */
void warden_link_init(struct warden_link *link, int fd);
/* Begins to listen, once there is a loop. on_ended(context) is called when the warden is gone. 0 or
 * -errno. */
int warden_link_start(struct warden_link *link, uv_loop_t *loop, void (*on_ended)(void *context),
		      void *context);
/* The loop ends: no more callbacks, and threads that wait get -EPIPE. */
void warden_link_stop(struct warden_link *link);
/* The daemon ends, after the loop. */
void warden_link_close(struct warden_link *link);
bool warden_link_there(const struct warden_link *link);

/* An owner has so many requests here at most that were not sent, without descriptors and with
 * descriptors, which this process holds open meanwhile. */
#define WARDEN_LINK_OWNER_MAX 1024u
#define WARDEN_LINK_OWNER_FDS_MAX 256u

/* Asks. `cb` is called once, from the loop and not before this returns. After warden_link_stop() or
 * warden_link_forget() drop(context) is called in its place. The request's number, or 0: no memory,
 * no warden, or the owner has too many, and neither is called. */
uint64_t warden_link_ask(struct warden_link *link, const struct warden_question *question,
			 warden_cb cb, void (*drop)(void *context), void *context);
/* Nobody wants to know any more of this number. */
void warden_link_forget(struct warden_link *link, uint64_t number);
/* Each second: requests whose time is over fail. */
void warden_link_tick(struct warden_link *link);
/* How long the warden has not answered the request that it has had for longest; 0: it has none. */
uint64_t warden_link_silent_ns(const struct warden_link *link);
/* From a thread that is not the loop's: waits for the answer, of question->answer_size bytes. 0 or
 * -errno. */
int warden_link_call(struct warden_link *link, const struct warden_question *question,
		     void *answer);
