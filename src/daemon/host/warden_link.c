/* A request waits first (core/turns.h). When its owner's turn comes and the socket has room, it is
 * sent, and stays among the sent ones until an answer has its number.
 *
 * Threads of the pool call: a thread puts its call (on its stack) into a list under the lock, wakes
 * the loop and waits for the condition. The loop asks in its name, and the callback fills in the
 * call under the lock. So only the loop touches the rest. */
#include "daemon/host/warden_link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/socket.h"
#include "daemon/host/log.h"

/* Answers that are taken in one pass of the loop. */
#define ANSWERS_MAX 64u
#define TOLD_EVERY_NS 60000000000ull

struct warden_asked {
	struct turn turn; /* in the line of requests that wait; it is first */
	struct warden_asked *next;
	warden_cb cb; /* NULL: it is forgotten */
	void (*drop)(void *context);
	void *context;
	size_t answer_size;
	uint64_t until_ns; /* CLOCK_MONOTONIC; 0: for ever */
	uint64_t sent_ns;
	int fd[WARDEN_DESCRIPTORS_MAX];
	struct {
		struct warden_head head;
		unsigned char data[];
	} message;
};

struct warden_call {
	struct warden_call *next;
	const struct warden_question *question;
	void *answer;
	int rc;
	bool taken, done;
};

struct answer {
	struct warden_head head;
	_Alignas(8) unsigned char data[WARDEN_SIZE_MAX];
};

/* ---- lists -------------------------------------------------------------------------------- */

static void asked_free(struct warden_asked *asked)
{
	for (unsigned i = 0; i < WARDEN_DESCRIPTORS_MAX; i++)
		close_fd(&asked->fd[i]);
	free(asked);
}

static struct warden_asked *waiting_first(const struct warden_link *l)
{
	return (struct warden_asked *)l->waiting.first;
}

static struct warden_asked *waiting_next(const struct warden_asked *asked)
{
	return (struct warden_asked *)asked->turn.next;
}

/* ---- sending ------------------------------------------------------------------------------ */

static void on_event(uv_poll_t *poll, int status, int events);

static void events_want(struct warden_link *l)
{
	if (l->poll)
		uv_poll_start(l->poll, UV_READABLE | (l->full ? UV_WRITABLE : 0), on_event);
}

/* 0; -EAGAIN: the socket has no room; else the warden is gone, which shows when it is read. */
static int asked_send(const struct warden_link *l, const struct warden_asked *asked)
{
	unsigned count = 0;

	while (count < WARDEN_DESCRIPTORS_MAX && asked->fd[count] >= 0)
		count++;
	return descriptors_send(l->fd, &asked->message,
				sizeof(asked->message.head) + asked->message.head.size, asked->fd,
				count);
}

static bool has_sent_enough(const struct warden_link *l, uid_t owner)
{
	size_t count = 0;

	for (const struct warden_asked *asked = l->sent; asked; asked = asked->next)
		count += asked->turn.user == owner;
	return count >= WARDEN_WAITING_OWNER;
}

/* The first request whose owner has room at the warden. Requests of one owner mostly follow each
 * other, so that few owners are counted. */
static struct warden_asked *waiting_due(const struct warden_link *l)
{
	struct warden_asked *asked = waiting_first(l);
	const struct warden_asked *full = NULL;

	for (; asked; asked = waiting_next(asked)) {
		if (full && full->turn.user == asked->turn.user)
			continue;
		if (!has_sent_enough(l, asked->turn.user))
			return asked;
		full = asked;
	}
	return NULL;
}

static void sent_add(struct warden_link *l, struct warden_asked *asked)
{
	struct warden_asked **end = &l->sent;

	turns_remove(&l->waiting, &asked->turn);
	turns_pass(&l->waiting, asked->turn.user);
	while (*end)
		end = &(*end)->next;
	asked->next = NULL;
	*end = asked;
	asked->sent_ns = now_monotonic_ns();
	l->sent_count++;
	for (unsigned i = 0; i < WARDEN_DESCRIPTORS_MAX; i++)
		close_fd(&asked->fd[i]);
}

static void requests_send(struct warden_link *l)
{
	struct warden_asked *asked;

	l->full = false;
	while (l->sent_count < WARDEN_WAITING_ALL && !l->full && (asked = waiting_due(l))) {
		l->full = asked_send(l, asked) < 0;
		if (!l->full)
			sent_add(l, asked);
	}
	events_want(l);
}

/* ---- answers ------------------------------------------------------------------------------ */

/* The warden's own word: a child of it took too long. That is told once a minute. */
static void timed_out_log(struct warden_link *l, const struct warden_head *head)
{
	uint64_t now = now_monotonic_ns();

	if (l->told_ns && now - l->told_ns < TOLD_EVERY_NS)
		return;
	l->told_ns = now;
	log_event(LOG_WARNING, "warden.timed_out operation=%u owner=%u", head->operation,
		  head->owner);
}

static void answer_take(struct warden_link *l, const struct answer *answer, size_t size, int *fd)
{
	struct warden_asked **at = &l->sent;

	while (*at && (*at)->message.head.number != answer->head.number)
		at = &(*at)->next;
	struct warden_asked *asked = *at;
	if (!asked)
		return;
	*at = asked->next;
	l->sent_count--;
	bool fits = warden_answer_fits(&answer->head, size, asked->answer_size);
	int rc = fits ? -answer->head.error : -EPROTO;
	if (rc == -ETIMEDOUT)
		timed_out_log(l, &asked->message.head);
	if (asked->cb)
		asked->cb(asked->context, rc, answer->data, fd);
	asked_free(asked);
}

/* All that were asked are answered by this. */
static void all_fail(struct warden_link *l)
{
	int none = -1;

	while (waiting_first(l))
		sent_add(l, waiting_first(l));
	while (l->sent) {
		struct answer answer = {.head = {.magic = WARDEN_MAGIC,
						 .number = l->sent->message.head.number,
						 .error = EPIPE}};

		answer_take(l, &answer, sizeof(answer.head), &none);
	}
}

static void link_end(struct warden_link *l)
{
	if (l->poll)
		uv_poll_stop(l->poll);
	close_fd(&l->fd);
	all_fail(l);
	l->on_ended(l->context);
}

/* 0; -EAGAIN: there is none; else the warden is gone. */
static int answer_receive(struct warden_link *l)
{
	static struct answer answer; /* the loop's alone */
	cleanup_close int fd = -1;
	ssize_t n = descriptor_receive(l->fd, &answer, sizeof(answer), &fd);

	if (n == -EAGAIN || n == -EINTR)
		return -EAGAIN;
	if (n <= 0 || !warden_head_fits(&answer.head, (size_t)n))
		return -EPIPE;
	answer_take(l, &answer, (size_t)n, &fd);
	return l->fd < 0 ? -EAGAIN : 0;
}

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct warden_link *l = poll->data;
	int rc = 0;

	for (unsigned i = 0; i < ANSWERS_MAX && rc == 0; i++)
		rc = answer_receive(l);
	if (rc == -EPIPE)
		link_end(l);
	else if (l->fd >= 0)
		requests_send(l);
}

/* ---- asking ------------------------------------------------------------------------------- */

bool warden_link_there(const struct warden_link *l)
{
	return l->fd >= 0;
}

static struct warden_asked *asked_make(struct warden_link *l, const struct warden_question *q)
{
	struct warden_asked *asked = calloc(1, sizeof(*asked) + q->size);

	if (!asked)
		return NULL;
	asked->answer_size = q->answer_size;
	asked->message.head = (struct warden_head){.magic = WARDEN_MAGIC,
						   .version = WARDEN_VERSION,
						   .operation = (uint16_t)q->operation,
						   .number = ++l->number,
						   .size = (uint32_t)q->size,
						   .owner = q->owner};
	if (q->size)
		memcpy(asked->message.data, q->request, q->size);
	for (unsigned i = 0; i < WARDEN_DESCRIPTORS_MAX; i++)
		asked->fd[i] = -1;
	for (unsigned i = 0; i < q->fd_count; i++)
		if ((asked->fd[i] = fcntl(q->fds[i], F_DUPFD_CLOEXEC, 3)) < 0) {
			asked_free(asked);
			return NULL;
		}
	return asked;
}

/* Whether the owner may have one more request that waits, with or without descriptors. */
static bool has_room(const struct warden_link *l, uid_t owner, bool with_fds)
{
	size_t count = 0;

	for (const struct warden_asked *asked = waiting_first(l); asked;
	     asked = waiting_next(asked))
		count += asked->turn.user == owner && (asked->fd[0] >= 0) == with_fds;
	return count < (with_fds ? WARDEN_LINK_OWNER_FDS_MAX : WARDEN_LINK_OWNER_MAX);
}

uint64_t warden_link_ask(struct warden_link *l, const struct warden_question *q, warden_cb cb,
			 void (*drop)(void *context), void *context)
{
	bool may = l->fd >= 0 && has_room(l, q->owner, q->fd_count > 0);
	struct warden_asked *asked = may ? asked_make(l, q) : NULL;

	if (!asked)
		return 0;
	if (q->patience_ns)
		asked->until_ns = now_monotonic_ns() + q->patience_ns;
	uint64_t number = asked->message.head.number;
	asked->cb = cb;
	asked->drop = drop;
	asked->context = context;
	turns_add(&l->waiting, &asked->turn, q->owner);
	if (!l->full)
		requests_send(l);
	return number;
}

/* Number 0: all of them. */
static void forget_one(struct warden_asked *asked, uint64_t number)
{
	if (!asked->cb || (number && asked->message.head.number != number))
		return;
	asked->cb = NULL;
	asked->drop(asked->context);
}

static void forget(struct warden_link *l, uint64_t number)
{
	for (struct warden_asked *asked = l->sent; asked; asked = asked->next)
		forget_one(asked, number);
	for (struct warden_asked *asked = waiting_first(l); asked; asked = waiting_next(asked))
		forget_one(asked, number);
}

void warden_link_forget(struct warden_link *l, uint64_t number)
{
	if (number)
		forget(l, number);
}

static bool is_late(const struct warden_asked *asked, uint64_t now)
{
	return asked->cb && asked->until_ns && now >= asked->until_ns;
}

static struct warden_asked *late_find(const struct warden_link *l, uint64_t now)
{
	for (struct warden_asked *asked = l->sent; asked; asked = asked->next)
		if (is_late(asked, now))
			return asked;
	for (struct warden_asked *asked = waiting_first(l); asked; asked = waiting_next(asked))
		if (is_late(asked, now))
			return asked;
	return NULL;
}

/* A request that fails here may still be done, and its answer is nobody's then. Callbacks may ask
 * again, so the lists are looked at anew after each. */
void warden_link_tick(struct warden_link *l)
{
	uint64_t now = now_monotonic_ns();
	struct warden_asked *late;
	int none = -1;

	while ((late = late_find(l, now))) {
		warden_cb cb = late->cb;

		late->cb = NULL;
		cb(late->context, -ETIMEDOUT, NULL, &none);
	}
}

uint64_t warden_link_silent_ns(const struct warden_link *l)
{
	return l->sent ? now_monotonic_ns() - l->sent->sent_ns : 0;
}

/* ---- threads ------------------------------------------------------------------------------ */

static void call_end(struct warden_link *l, struct warden_call *call, int rc)
{
	struct warden_call **at = &l->calls;

	while (*at != call)
		at = &(*at)->next;
	*at = call->next;
	call->rc = rc;
	call->done = true;
	pthread_cond_broadcast(&l->answered);
}

struct called {
	struct warden_link *link;
	struct warden_call *call;
};

static void on_called(void *context, int rc, const void *answer, int *fd)
{
	struct called *called = context;
	struct warden_link *l = called->link;

	pthread_mutex_lock(&l->lock);
	if (rc == 0 && called->call->question->answer_size)
		memcpy(called->call->answer, answer, called->call->question->answer_size);
	call_end(l, called->call, rc);
	pthread_mutex_unlock(&l->lock);
	free(called);
}

/* With the lock. A call that cannot be asked ends here. */
static void call_ask(struct warden_link *l, struct warden_call *call)
{
	struct called *called = malloc(sizeof(*called));

	call->taken = true;
	if (called)
		*called = (struct called){.link = l, .call = call};
	if (called && warden_link_ask(l, call->question, on_called, free, called))
		return;
	free(called);
	call_end(l, call, l->fd < 0 ? -EPIPE : -ENOMEM);
}

static void on_async(uv_async_t *async)
{
	struct warden_link *l = async->data;

	pthread_mutex_lock(&l->lock);
	for (struct warden_call *call = l->calls, *next; call; call = next) {
		next = call->next;
		if (!call->taken)
			call_ask(l, call);
	}
	pthread_mutex_unlock(&l->lock);
}

int warden_link_call(struct warden_link *l, const struct warden_question *q, void *answer)
{
	struct warden_call call = {.question = q, .answer = answer, .rc = -EPIPE};

	pthread_mutex_lock(&l->lock);
	if (!l->stopped) {
		call.next = l->calls;
		l->calls = &call;
		uv_async_send(l->async);
		while (!call.done)
			pthread_cond_wait(&l->answered, &l->lock);
	}
	pthread_mutex_unlock(&l->lock);
	return call.rc;
}

/* ---- its life ----------------------------------------------------------------------------- */

void warden_link_init(struct warden_link *l, int fd)
{
	*l = (struct warden_link){.fd = fd, .stopped = true};
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->answered, NULL);
	/* A worker that was restarted may meet answers to the last one's numbers. */
	l->number = now_monotonic_ns();
}

static void on_freed(uv_handle_t *handle)
{
	free(handle);
}

int warden_link_start(struct warden_link *l, uv_loop_t *loop, void (*on_ended)(void *context),
		      void *context)
{
	l->loop = loop;
	l->on_ended = on_ended;
	l->context = context;
	if (l->fd < 0)
		return 0;
	uv_async_t *async = calloc(1, sizeof(*async));
	int rc = async ? uv_async_init(loop, async, on_async) : -ENOMEM;
	if (rc < 0) {
		free(async);
		return rc;
	}
	async->data = l;
	l->async = async;
	l->stopped = false;
	uv_poll_t *poll = calloc(1, sizeof(*poll));
	rc = poll ? uv_poll_init(loop, poll, l->fd) : -ENOMEM;
	if (rc < 0) {
		free(poll);
		return rc;
	}
	poll->data = l;
	l->poll = poll;
	events_want(l);
	return 0;
}

static void calls_stop(struct warden_link *l)
{
	pthread_mutex_lock(&l->lock);
	l->stopped = true;
	while (l->calls)
		call_end(l, l->calls, -EPIPE);
	pthread_mutex_unlock(&l->lock);
}

void warden_link_stop(struct warden_link *l)
{
	forget(l, 0);
	all_fail(l);
	calls_stop(l);
	if (l->poll)
		uv_close((uv_handle_t *)steal_ptr(&l->poll), on_freed);
	if (l->async)
		uv_close((uv_handle_t *)steal_ptr(&l->async), on_freed);
}

void warden_link_close(struct warden_link *l)
{
	close_fd(&l->fd);
}
