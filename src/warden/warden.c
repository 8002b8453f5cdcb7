/* The warden's loop. It receives requests while all its answers are sent, so that a worker that
 * does not read its answers is not listened to. A request waits in its owner's turn. In a turn it
 * runs here, or is given to a child process. The answer leaves in the message that the request came
 * in. All is one thread; nothing here blocks.
 *
 * A worker that hangs up, or sends something that is no request, is forgotten with all its
 * requests. The answers of children that still work go to nobody, but that of a sync. */
#include "warden/warden.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "warden/child.h"
#include "warden/jobs.h"
#include "warden/message.h"
#include "warden/operations.h"
#include "warden/turns.h"

/* In one pass: messages that are received, and the time for which requests are run. */
#define RECEIVED_MAX 64u
#define RUN_NS 2000000ull

/* Descriptors that are waited for: the link, the children, and then the shims of jobs. */
#define OWN_POLLS (1u + WARDEN_CHILDREN_MAX)

_Static_assert(WARDEN_POLLS_MAX == OWN_POLLS + PERMITS_MOST, "room for all of them");

struct warden {
	struct warden_place place;
	int link_fd;
	struct warden_turns turns;
	struct warden_message *unsent, **unsent_end; /* answers */
	struct warden_children children;
	bool more; /* requests may begin at once */
};

int warden_open(const struct warden_place *place, struct warden **ret)
{
	struct warden *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->place = *place;
	w->link_fd = -1;
	w->unsent_end = &w->unsent;
	if (w->place.jobs)
		jobs_shims_begin(w->place.jobs);
	*ret = w;
	return 0;
}

static void worker_forget(struct warden *w)
{
	close_fd(&w->link_fd);
	warden_turns_clear(&w->turns);
	warden_children_forget(&w->children);
	while (w->unsent) {
		struct warden_message *answer = w->unsent;

		w->unsent = answer->next;
		warden_message_free(answer);
	}
	w->unsent_end = &w->unsent;
	w->more = false;
}

void warden_link(struct warden *w, int link_fd)
{
	worker_forget(w);
	w->link_fd = link_fd;
}

bool warden_is_linked(const struct warden *w)
{
	return w->link_fd >= 0;
}

void warden_close(struct warden *w)
{
	if (!w)
		return;
	worker_forget(w);
	warden_children_leave(&w->children);
	close_fd(&w->place.dir_fd);
	free(w);
}

/* ---- answers ------------------------------------------------------------------------------ */

static void answer_add(struct warden *w, struct warden_message *answer)
{
	answer->next = NULL;
	*w->unsent_end = answer;
	w->unsent_end = &answer->next;
}

/* 0; -EAGAIN: the worker has to read first; else it is gone. */
static int answers_send(struct warden *w)
{
	while (w->unsent) {
		struct warden_message *answer = w->unsent;
		int rc = warden_message_send(w->link_fd, answer);

		if (rc < 0)
			return rc;
		w->unsent = answer->next;
		if (!w->unsent)
			w->unsent_end = &w->unsent;
		warden_message_free(answer);
	}
	return 0;
}

/* ---- requests ----------------------------------------------------------------------------- */

/* 0; -EAGAIN: there is none; else the worker is gone, or broken. */
static int request_take(struct warden *w)
{
	struct warden_message *request = warden_message_new();
	int rc = request ? warden_message_receive(w->link_fd, request) : -ENOMEM;

	if (rc < 0) {
		warden_message_free(request);
		return rc;
	}
	rc = warden_operation_check(request);
	if (rc == 0)
		rc = warden_turns_add(&w->turns, request);
	if (rc == 0)
		return 0;
	warden_message_answer(request, rc, NULL, 0, -1);
	answer_add(w, request);
	return 0;
}

static bool may_begin(void *arg, const struct warden_message *request)
{
	const struct warden *w = arg;
	const struct warden_room *room = warden_operation_find(request->head.operation)->room;

	return !room || warden_children_may(&w->children, room, request->head.owner);
}

static void request_begin(struct warden *w, struct warden_message *request)
{
	const struct warden_room *room = warden_operation_find(request->head.operation)->room;
	int rc = room ? warden_children_begin(&w->children, &w->place, room, request) : 0;

	if (room && rc == 0)
		return;
	if (room)
		warden_message_answer(request, rc, NULL, 0, -1);
	else
		warden_operation_run(&w->place, request);
	answer_add(w, request);
}

static void requests_run(struct warden *w)
{
	uint64_t until = now_monotonic_ns() + RUN_NS;
	struct warden_message *request = NULL;

	while (now_monotonic_ns() < until && (request = warden_turns_next(&w->turns, may_begin, w)))
		request_begin(w, request);
	w->more = request;
}

/* ---- the register of rights --------------------------------------------------------------- */

/* A child waits for the disk. Where it cannot begin, a later pass tries again. */
static void sync_begin(struct warden *w)
{
	const struct warden_room *room = warden_operation_find(WARDEN_OWN_SYNC)->room;

	if (!jobs_sync_is_due(w->place.jobs))
		return;
	struct warden_message *request =
		warden_children_may(&w->children, room, 0) ? warden_message_new() : NULL;
	int rc = request ? jobs_sync_begin(w->place.jobs) : -EAGAIN;

	if (rc >= 0) {
		request->head = (struct warden_head){.magic = WARDEN_MAGIC,
						     .version = WARDEN_VERSION,
						     .operation = WARDEN_OWN_SYNC};
		request->fd[0] = rc;
		rc = warden_children_begin(&w->children, &w->place, room, request);
		if (rc < 0)
			jobs_synced(w->place.jobs, -EAGAIN);
	}
	if (rc < 0)
		warden_message_free(request);
}

/* ---- the loop ----------------------------------------------------------------------------- */

unsigned warden_poll_fill(struct warden *w, struct pollfd *ret, int *timeout_ms)
{
	int waits[] = {w->more ? 0 : -1, warden_children_tend(&w->children),
		       w->place.jobs ? jobs_wait_ms(w->place.jobs) : -1};
	unsigned count = 0;

	for (size_t i = 0; i < ARRAY_SIZE(waits); i++)
		if (waits[i] >= 0)
			*timeout_ms = *timeout_ms < 0 ? waits[i] : MIN(*timeout_ms, waits[i]);
	ret[count++] = (struct pollfd){.fd = w->link_fd, .events = w->unsent ? POLLOUT : POLLIN};
	for (unsigned i = 0; i < WARDEN_CHILDREN_MAX; i++) {
		const struct warden_child *child = &w->children.slot[i];
		bool there = child->state == WARDEN_CHILD_IDLE || child->state == WARDEN_CHILD_BUSY;

		ret[count++] = (struct pollfd){.fd = there ? child->fd : -1, .events = POLLIN};
	}
	if (w->place.jobs)
		count += permits_poll(&w->place.jobs->permits, ret + count);
	return count;
}

static void children_look(struct warden *w, const struct pollfd *fds)
{
	for (unsigned i = 0; i < WARDEN_CHILDREN_MAX; i++) {
		struct warden_message *answer =
			warden_child_take(&w->children.slot[i], fds[i].revents);

		if (answer && answer->head.operation == WARDEN_OWN_SYNC) {
			jobs_synced(w->place.jobs, -answer->head.error);
			warden_message_free(answer);
		} else if (answer) {
			answer_add(w, answer);
		}
	}
}

void warden_poll_run(struct warden *w, const struct pollfd *fds, unsigned count)
{
	int rc = 0;

	if (count >= OWN_POLLS)
		children_look(w, fds + 1);
	if (w->place.jobs && count >= OWN_POLLS)
		jobs_step(w->place.jobs, fds + OWN_POLLS, count - OWN_POLLS);
	if (w->place.jobs)
		sync_begin(w);
	if (w->link_fd < 0)
		return;
	if (count && fds[0].revents & (POLLIN | POLLHUP | POLLERR) && !w->unsent)
		for (unsigned i = 0; i < RECEIVED_MAX && rc == 0; i++)
			rc = request_take(w);
	if (rc == 0 || rc == -EAGAIN) {
		requests_run(w);
		rc = answers_send(w);
	}
	if (rc < 0 && rc != -EAGAIN)
		worker_forget(w);
}
