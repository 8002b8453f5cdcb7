/* A link to a process with rights: requests with a number, and answers that come later.
 *
 * Nothing here waits. A request is sent when it is its owner's turn, and its callback is called
 * from the loop with the answer. An owner has one request with the other side at a time, so that a
 * request waits for one request of each other owner at most. The requests of all owners that the
 * other side has not answered, and the requests that wait of an owner, are bounded.
 *
 * Every message begins with a head; its size is the link's. A link may be open or closed: requests
 * wait until link_open(), or fail by link_fail(). Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#define LINK_MESSAGE_MAX 64u
#define LINK_FDS_MAX 2u
/* Requests that the other side has; and requests of one owner that wait, without descriptors and
 * with descriptors, which this process holds open meanwhile. */
#define LINK_SENT_MAX 32u
#define LINK_OWNER_MAX 1024u
#define LINK_OWNER_FDS_MAX 256u

/* How a request begins, and how an answer does. */
struct link_request {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint64_t number;
};
struct link_reply {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint64_t number;
	int32_t error; /* 0, or an errno value */
};

struct link_asked;
struct link_owner;

/* Called once for each request: 0 with the answer, or -errno with it or with NULL. *fd is the
 * descriptor that came along (-1: none): steal_fd() keeps it, else it is closed. The error is
 * -ETIMEDOUT where no answer came in the request's time, and -EPIPE where the other side ended. */
typedef void (*link_cb)(void *arg, int rc, const void *reply, int *fd);

/* What a link is for, in static memory. */
struct link_kind {
	uint32_t magic;
	uint16_t version;
	size_t size; /* of a message, in both directions */
	int (*reply_check)(const void *reply, size_t size);
	/* Looks at every answer, before its callback; NULL: nobody does. */
	void (*on_reply)(void *context, const void *reply);
	/* The other side has ended or is broken. The link is closed; requests that were not sent
	 * wait still. */
	void (*on_ended)(void *context, int rc);
};

struct link {
	const struct link_kind *kind;
	void *context;
	uv_loop_t *loop;
	uv_poll_t *poll; /* NULL: the link is closed */
	int fd;
	uint64_t number;         /* the last request's */
	struct link_asked *sent; /* the longest ago sent first */
	unsigned sent_count;
	struct link_owner *owners; /* the one whose turn it is comes first */
};

void link_begin(struct link *link, const struct link_kind *kind, void *context, uv_loop_t *loop);
/* The descriptor becomes the link's. 0 or -errno. */
int link_open(struct link *link, int fd);
/* Closes the link. All requests are forgotten without a call. */
void link_end(struct link *link);
/* The requests that wait fail by this error. */
void link_fail(struct link *link, int rc);

/* A request in an owner's turn. It begins with a struct link_request, of which the operation is
 * set; it and the descriptors are copied. `patience_ns`: the time for the answer; 0: any time.
 * 0, with *ret (may be NULL) until the callback, which is not called before this returns; or
 * -errno: -EAGAIN the owner has too many. */
struct link_ask {
	uid_t owner;
	const void *request;
	const int *fds;
	unsigned fd_count;
	uint64_t patience_ns;
	link_cb cb;
	void *arg;
};
int link_ask(struct link *link, const struct link_ask *ask, struct link_asked **ret);
/* Nobody waits for that answer any more: its callback is not called. */
void link_forget(struct link *link, struct link_asked *asked);
/* Each second: requests whose time is over fail. */
void link_tick(struct link *link);
/* How long the other side has not answered the request that it has had for longest; 0: it has
 * none. */
uint64_t link_silent_ns(const struct link *link);
