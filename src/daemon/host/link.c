#include "daemon/host/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/socket.h"

/* The time for answers in one pass of the loop. */
#define ANSWERS_NS 2000000ull

struct link_asked {
	struct link_asked *next;
	struct link_owner *owner;
	bool is_sent;
	uint64_t number;
	uint64_t since_ns; /* asked; once it is sent: since then */
	uint64_t until_ns; /* 0: for ever */
	link_cb cb;        /* NULL: nobody waits */
	void *arg;
	int fd[LINK_FDS_MAX]; /* -1: none; until it is sent */
	unsigned fd_count;
	_Alignas(uint64_t) unsigned char request[LINK_MESSAGE_MAX];
};

/* As long as it has a request. */
struct link_owner {
	struct link_owner *next;
	uid_t uid;
	bool has_sent; /* one of its requests is with the other side */
	unsigned count, with_fds;
	struct link_asked *first, *last; /* that wait */
};

/* ---- owners ------------------------------------------------------------------------------- */

static struct link_owner **owner_place(struct link *l, uid_t uid)
{
	struct link_owner **at = &l->owners;

	while (*at && (*at)->uid != uid)
		at = &(*at)->next;
	return at;
}

static struct link_owner *owner_get(struct link *l, uid_t uid)
{
	struct link_owner **at = owner_place(l, uid);

	if (!*at && (*at = calloc(1, sizeof(**at))))
		(*at)->uid = uid;
	return *at;
}

/* Behind all others; an owner without requests goes. */
static void owner_pass(struct link *l, struct link_owner *owner)
{
	struct link_owner **at = owner_place(l, owner->uid);

	*at = owner->next;
	if (!owner->first && !owner->has_sent) {
		free(owner);
		return;
	}
	while (*at)
		at = &(*at)->next;
	*at = owner;
	owner->next = NULL;
}

static void asked_free(struct link_asked *asked)
{
	for (unsigned i = 0; i < LINK_FDS_MAX; i++)
		close_fd(&asked->fd[i]);
	free(asked);
}

/* Takes a request out of the line of its owner. */
static void waiting_remove(struct link *l, struct link_asked *asked)
{
	struct link_owner *owner = asked->owner;
	struct link_asked **at = &owner->first, *before = NULL;

	while (*at != asked) {
		before = *at;
		at = &before->next;
	}
	*at = asked->next;
	if (owner->last == asked)
		owner->last = before;
	owner->count--;
	owner->with_fds -= asked->fd_count > 0;
}

/* ---- sending ------------------------------------------------------------------------------ */

static void events_want(struct link *l, bool writable);

static void sent_append(struct link *l, struct link_asked *asked)
{
	struct link_asked **at = &l->sent;

	while (*at)
		at = &(*at)->next;
	*at = asked;
	asked->next = NULL;
	asked->is_sent = true;
	asked->since_ns = now_monotonic_ns();
	asked->owner->has_sent = true;
	l->sent_count++;
	for (unsigned i = 0; i < LINK_FDS_MAX; i++)
		close_fd(&asked->fd[i]);
}

/* The first owner in turn who has nothing with the other side, and something to send. */
static struct link_owner *owner_next(const struct link *l)
{
	struct link_owner *owner = l->owners;

	while (owner && (owner->has_sent || !owner->first))
		owner = owner->next;
	return owner;
}

/* Sends what may be sent. False: the other side is gone. */
static bool waiting_send(struct link *l)
{
	struct link_owner *owner;
	int rc = 0;

	while (rc == 0 && l->sent_count < LINK_SENT_MAX && (owner = owner_next(l))) {
		struct link_asked *asked = owner->first;

		rc = descriptors_send(l->fd, asked->request, l->kind->size, asked->fd,
				      asked->fd_count);
		if (rc < 0)
			break;
		waiting_remove(l, asked);
		sent_append(l, asked);
		owner_pass(l, owner);
	}
	events_want(l, rc == -EAGAIN);
	return rc != -EPIPE && rc != -ECONNRESET && rc != -ENOTCONN;
}

/* ---- answers ------------------------------------------------------------------------------ */

static void answered(struct link_asked *asked, int rc, const void *reply, int *fd)
{
	if (asked->cb)
		asked->cb(asked->arg, rc, reply, fd);
	asked_free(asked);
}

/* The request with that number, which the other side has no more. NULL: nobody asked so, as where a
 * program before this one did. */
static struct link_asked *sent_take(struct link *l, uint64_t number)
{
	struct link_asked **at = &l->sent, *asked;

	while (*at && (*at)->number != number)
		at = &(*at)->next;
	if (!(asked = *at))
		return NULL;
	*at = asked->next;
	l->sent_count--;
	asked->owner->has_sent = false;
	if (!asked->owner->first)
		owner_pass(l, asked->owner);
	return asked;
}

/* Those that the other side had are lost with it. */
static void ended(struct link *l, int rc)
{
	struct link_asked *lost = NULL, **end = &lost;
	int none = -1;

	uv_close((uv_handle_t *)steal_ptr(&l->poll), (uv_close_cb)free);
	close_fd(&l->fd);
	while (l->sent) {
		*end = sent_take(l, l->sent->number);
		end = &(*end)->next;
	}
	*end = NULL;
	l->kind->on_ended(l->context, rc);
	while (lost) {
		struct link_asked *asked = lost;

		lost = asked->next;
		answered(asked, -EPIPE, NULL, &none);
	}
}

/* One answer; -EAGAIN: there is none. */
static int reply_take(struct link *l)
{
	union {
		struct link_reply head;
		unsigned char bytes[LINK_MESSAGE_MAX];
	} reply;
	cleanup_close int fd = -1;
	ssize_t n = descriptor_receive(l->fd, &reply, l->kind->size, &fd);

	if (n == -EAGAIN || n == -EINTR)
		return -EAGAIN;
	if (n <= 0 || l->kind->reply_check(&reply, (size_t)n) < 0)
		return n < 0 ? (int)n : -EPIPE;
	if (l->kind->on_reply)
		l->kind->on_reply(l->context, &reply);
	struct link_asked *asked = sent_take(l, reply.head.number);
	if (asked)
		answered(asked, -reply.head.error, &reply, &fd);
	return 0;
}

static void on_link(uv_poll_t *poll, int status, int events)
{
	struct link *l = poll->data;
	uint64_t end = now_monotonic_ns() + ANSWERS_NS;
	int rc = 0;

	/* A callback may end the link. */
	while (rc == 0 && l->poll == poll && now_monotonic_ns() < end)
		rc = reply_take(l);
	if (l->poll != poll)
		return;
	if (rc < 0 && rc != -EAGAIN)
		ended(l, rc);
	else if (!waiting_send(l))
		ended(l, -EPIPE);
}

static void events_want(struct link *l, bool writable)
{
	if (l->poll)
		uv_poll_start(l->poll, UV_READABLE | (writable ? UV_WRITABLE : 0), on_link);
}

/* ---- its life ----------------------------------------------------------------------------- */

void link_begin(struct link *l, const struct link_kind *kind, void *context, uv_loop_t *loop)
{
	/* Numbers that a program before gave out: answers to those are nobody's. */
	*l = (struct link){.kind = kind,
			   .context = context,
			   .loop = loop,
			   .fd = -1,
			   .number = now_monotonic_ns()};
}

int link_open(struct link *l, int fd)
{
	uv_poll_t *poll = calloc(1, sizeof(*poll));
	int rc = poll ? uv_poll_init(l->loop, poll, fd) : -ENOMEM;

	if (rc < 0) {
		free(poll);
		close_fd(&fd);
		return rc;
	}
	poll->data = l;
	l->poll = poll;
	l->fd = fd;
	/* What waits is sent by the loop. */
	events_want(l, true);
	return 0;
}

void link_end(struct link *l)
{
	if (l->poll)
		uv_close((uv_handle_t *)steal_ptr(&l->poll), (uv_close_cb)free);
	close_fd(&l->fd);
	while (l->sent)
		asked_free(sent_take(l, l->sent->number));
	while (l->owners) {
		struct link_owner *owner = l->owners;
		struct link_asked *asked = owner->first;

		if (asked) {
			waiting_remove(l, asked);
			asked_free(asked);
		} else {
			owner_pass(l, owner);
		}
	}
}

static void waiting_fail(struct link *l, struct link_asked *asked, int rc)
{
	int none = -1;

	waiting_remove(l, asked);
	if (!asked->owner->first && !asked->owner->has_sent)
		owner_pass(l, asked->owner);
	answered(asked, rc, NULL, &none);
}

void link_fail(struct link *l, int rc)
{
	uint64_t last = l->number;
	struct link_owner *owner = l->owners;

	/* A callback may ask anew: such a request is not among those that fail. */
	while (owner) {
		if (owner->first && owner->first->number <= last) {
			waiting_fail(l, owner->first, rc);
			owner = l->owners;
		} else {
			owner = owner->next;
		}
	}
}

/* ---- asking ------------------------------------------------------------------------------- */

static bool has_room(const struct link_owner *owner, const struct link_ask *ask)
{
	return ask->fd_count ? owner->with_fds < LINK_OWNER_FDS_MAX
			     : owner->count - owner->with_fds < LINK_OWNER_MAX;
}

int link_ask(struct link *l, const struct link_ask *ask, struct link_asked **ret)
{
	struct link_owner *owner = owner_get(l, ask->owner);
	bool room = owner && has_room(owner, ask);
	struct link_asked *asked = room ? calloc(1, sizeof(*asked)) : NULL;
	struct link_request *head;
	int rc = asked ? 0 : owner && !room ? -EAGAIN : -ENOMEM;

	for (unsigned i = 0; asked && i < LINK_FDS_MAX; i++) {
		asked->fd[i] = i < ask->fd_count ? fcntl(ask->fds[i], F_DUPFD_CLOEXEC, 0) : -1;
		if (i < ask->fd_count && asked->fd[i] < 0)
			rc = -errno;
	}
	if (rc < 0) {
		if (asked)
			asked_free(asked);
		if (owner && !owner->first)
			owner_pass(l, owner);
		return rc;
	}
	memcpy(asked->request, ask->request, l->kind->size);
	head = (struct link_request *)asked->request;
	head->magic = l->kind->magic;
	head->version = l->kind->version;
	head->number = asked->number = ++l->number;
	asked->fd_count = ask->fd_count;
	asked->cb = ask->cb;
	asked->arg = ask->arg;
	asked->since_ns = now_monotonic_ns();
	asked->until_ns = ask->patience_ns ? asked->since_ns + ask->patience_ns : 0;
	asked->owner = owner;
	*(owner->first ? &owner->last->next : &owner->first) = asked;
	owner->last = asked;
	owner->count++;
	owner->with_fds += ask->fd_count > 0;
	if (ret)
		*ret = asked;
	/* From the loop, so that no callback comes before this returns. */
	events_want(l, true);
	return 0;
}

void link_forget(struct link *l, struct link_asked *asked)
{
	asked->cb = NULL;
	if (!asked->is_sent)
		waiting_fail(l, asked, 0);
}

static void sent_expire(struct link *l, uint64_t now)
{
	int none = -1;

	for (struct link_asked *asked = l->sent, *next; asked; asked = next) {
		link_cb cb = asked->cb;

		next = asked->next;
		if (!cb || !asked->until_ns || now < asked->until_ns)
			continue;
		asked->cb = NULL;
		cb(asked->arg, -ETIMEDOUT, NULL, &none);
	}
}

/* The first one of each owner whose time is over. */
static struct link_asked *waiting_due(const struct link *l, uint64_t now)
{
	for (const struct link_owner *owner = l->owners; owner; owner = owner->next)
		for (struct link_asked *asked = owner->first; asked; asked = asked->next)
			if (asked->until_ns && now >= asked->until_ns)
				return asked;
	return NULL;
}

void link_tick(struct link *l)
{
	uint64_t now = now_monotonic_ns();
	struct link_asked *asked;

	sent_expire(l, now);
	while ((asked = waiting_due(l, now)))
		waiting_fail(l, asked, -ETIMEDOUT);
	/* Also where a send failed for want of memory. */
	events_want(l, true);
}

uint64_t link_silent_ns(const struct link *l)
{
	return l->sent ? now_monotonic_ns() - l->sent->since_ns : 0;
}
