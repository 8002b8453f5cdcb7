#include "warden/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "warden/message.h"
#include "warden/operations.h"
#include "warden/process.h"

/* An idle child ends after this long. */
#define IDLE_MS 2000
/* A child whose time is over is killed by its own alarm. The answer waits for this long for it. */
#define KILLED_MS 500
/* A child that is to end is looked for this often: it ends at once, as a rule. */
#define ENDING_MS 20

/* ---- in the child ------------------------------------------------------------------------- */

static _Noreturn void child_run(struct warden_place *place, const struct warden_room *room,
				int link_fd)
{
	static struct warden_message message;
	struct pollfd readable = {.events = POLLIN};
	int rc = warden_process_keep((int *const[]){&link_fd, &place->dir_fd}, 2);

	warden_process_name(room->name);
	if (rc == 0)
		rc = warden_rights_keep(room->capabilities);
	signal(SIGALRM, SIG_DFL);
	readable.fd = link_fd;
	while (rc == 0 || rc == -EAGAIN) {
		for (unsigned i = 0; i < WARDEN_DESCRIPTORS_MAX; i++)
			message.fd[i] = -1;
		(void)poll(&readable, 1, -1);
		rc = warden_message_receive(link_fd, &message);
		if (rc < 0)
			continue;
		(void)alarm(room->patience_s);
		warden_operation_run(place, &message);
		(void)alarm(0);
		/* Its link has room: there is one answer on it at a time. */
		rc = warden_message_send(link_fd, &message);
		close_fd(&message.fd[0]);
	}
	_exit(rc == -EPIPE ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* ---- in the warden ------------------------------------------------------------------------ */

static struct warden_child *find(struct warden_children *children, enum warden_child_state state,
				 const struct warden_room *room)
{
	for (unsigned i = 0; i < WARDEN_CHILDREN_MAX; i++)
		if (children->slot[i].state == state && (!room || children->slot[i].room == room))
			return &children->slot[i];
	return NULL;
}

/* When the alarm of a child that works ends it; CLOCK_MONOTONIC. */
static uint64_t alarm_at_ns(const struct warden_child *child)
{
	return child->since_ns + child->room->patience_s * 1000000000ull;
}

/* When a child that works ought to have died by its alarm. */
static uint64_t overdue_at_ns(const struct warden_child *child)
{
	return alarm_at_ns(child) + KILLED_MS * 1000000ull;
}

static bool is_overdue(const struct warden_child *child)
{
	return child->state == WARDEN_CHILD_BUSY && child->room &&
	       now_monotonic_ns() >= overdue_at_ns(child);
}

/* Whether children whose time is over leave an owner no place in the room. */
static bool room_is_stuck(const struct warden_children *children, const struct warden_room *room,
			  uint32_t owner)
{
	unsigned stuck = 0, owners = 0;

	for (unsigned i = 0; i < WARDEN_CHILDREN_MAX; i++) {
		const struct warden_child *child = &children->slot[i];
		bool overdue = child->room == room && is_overdue(child);

		stuck += overdue;
		owners += overdue && child->owner == owner;
	}
	return stuck >= room->most || owners >= room->most_of_owner;
}

bool warden_children_may(const struct warden_children *children, const struct warden_room *room,
			 uint32_t owner)
{
	unsigned busy = 0, owners = 0, free_slots = 0;

	for (unsigned i = 0; i < WARDEN_CHILDREN_MAX; i++) {
		const struct warden_child *child = &children->slot[i];
		bool works = child->state == WARDEN_CHILD_BUSY && child->room == room;

		busy += works;
		owners += works && child->owner == owner;
		free_slots += child->state == WARDEN_CHILD_NONE ||
			      (child->state == WARDEN_CHILD_IDLE && child->room == room);
	}
	return (busy < room->most && owners < room->most_of_owner && free_slots) ||
	       room_is_stuck(children, room, owner);
}

static int child_fork(struct warden_child *child, struct warden_place *place,
		      const struct warden_room *room)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid == 0)
		child_run(place, room, ends[1]);
	int rc = pid < 0 ? -errno : 0;
	close(ends[1]);
	if (rc < 0) {
		close(ends[0]);
		return rc;
	}
	*child = (struct warden_child){
		.state = WARDEN_CHILD_IDLE, .pid = pid, .fd = ends[0], .room = room};
	return 0;
}

/* The child reads that nothing comes any more, and its end is closed when it has ended. Its host
 * waits for the process: were the host's wait first, its PID could be another process's here. */
static void child_end(struct warden_child *child)
{
	(void)shutdown(child->fd, SHUT_WR);
	child->state = WARDEN_CHILD_ENDING;
}

static bool child_has_ended(const struct warden_child *child)
{
	struct pollfd link = {.fd = child->fd};

	return poll(&link, 1, 0) == 1;
}

int warden_children_begin(struct warden_children *children, struct warden_place *place,
			  const struct warden_room *room, struct warden_message *request)
{
	struct warden_child *child = find(children, WARDEN_CHILD_IDLE, room);
	int rc = 0;

	if (room_is_stuck(children, room, request->head.owner))
		return -ETIMEDOUT;
	if (!child) {
		child = find(children, WARDEN_CHILD_NONE, NULL);
		rc = child ? child_fork(child, place, room) : -EAGAIN;
	}
	if (rc == 0)
		rc = warden_message_send(child->fd, request);
	/* A child that died while it was idle. */
	if (rc == -EPIPE)
		child_end(child);
	if (rc < 0)
		return rc;
	child->state = WARDEN_CHILD_BUSY;
	child->request = request;
	child->owner = request->head.owner;
	child->since_ns = now_monotonic_ns();
	return 0;
}

/* The child keeps its place for as long as it lives. */
static struct warden_message *overdue_take(struct warden_child *child)
{
	struct warden_message *request = is_overdue(child) ? child->request : NULL;

	if (!request)
		return NULL;
	child->request = NULL;
	warden_message_answer(request, -ETIMEDOUT, NULL, 0, -1);
	return request;
}

struct warden_message *warden_child_take(struct warden_child *child, bool readable)
{
	if (!readable)
		return overdue_take(child);
	struct warden_message *answer = warden_message_new(), *request = child->request;
	int rc = answer ? warden_message_receive(child->fd, answer) : -ENOMEM;

	if (rc == -EAGAIN) {
		warden_message_free(answer);
		return NULL;
	}
	uint64_t now = now_monotonic_ns();
	bool alarmed = now >= alarm_at_ns(child);
	child->request = NULL;
	if (rc == 0) {
		child->state = WARDEN_CHILD_IDLE;
		child->since_ns = now;
	} else {
		child_end(child);
	}
	if (!request) {
		warden_message_free(answer);
		return NULL;
	}
	if (rc == 0) {
		warden_message_free(request);
		return answer;
	}
	warden_message_free(answer);
	warden_message_answer(request, alarmed ? -ETIMEDOUT : -ECHILD, NULL, 0, -1);
	return request;
}

void warden_children_forget(struct warden_children *children)
{
	for (unsigned i = 0; i < WARDEN_CHILDREN_MAX; i++) {
		struct warden_message *request = children->slot[i].request;

		if (!request || warden_operation_find(request->head.operation)->own)
			continue;
		warden_message_free(request);
		children->slot[i].request = NULL;
	}
}

/* Until its time is over. */
static int busy_ms(const struct warden_child *child, uint64_t now)
{
	uint64_t until = overdue_at_ns(child);

	return until > now ? (int)((until - now) / 1000000) + 1 : 1;
}

int warden_children_tend(struct warden_children *children)
{
	uint64_t now = now_monotonic_ns();
	int next = -1;

	for (unsigned i = 0; i < WARDEN_CHILDREN_MAX; i++) {
		struct warden_child *child = &children->slot[i];
		int wait_ms = -1;

		if (child->state == WARDEN_CHILD_IDLE) {
			wait_ms = IDLE_MS - (int)((now - child->since_ns) / 1000000);
			if (wait_ms <= 0)
				child_end(child);
		}
		if (child->state == WARDEN_CHILD_BUSY && (child->request || !is_overdue(child)))
			wait_ms = busy_ms(child, now);
		if (child->state == WARDEN_CHILD_ENDING) {
			wait_ms = ENDING_MS;
			if (child_has_ended(child)) {
				close_fd(&child->fd);
				child->state = WARDEN_CHILD_NONE;
				continue;
			}
		}
		if (wait_ms >= 0)
			next = next < 0 ? wait_ms : MIN(next, wait_ms);
	}
	return next;
}

void warden_children_leave(struct warden_children *children)
{
	for (unsigned i = 0; i < WARDEN_CHILDREN_MAX; i++) {
		warden_message_free(children->slot[i].request);
		if (children->slot[i].state != WARDEN_CHILD_NONE)
			close_fd(&children->slot[i].fd);
	}
	*children = (struct warden_children){0};
}
