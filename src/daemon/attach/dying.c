#include "daemon/attach/dying.h"

#include <poll.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/attach/attach.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

/* For a process: its pidfd, and its connection. */
#define DESCRIPTORS 2

static bool is_alive(const struct process *p)
{
	return !process_is_dead(p);
}

/* Its connection ended, as by exec, or its memory is given up already. Where the connection is
 * still there an exec gives nothing back, as a child holds it, and the driver's with it. One that
 * has not been heard of since a daemon before this one is not awaited. */
static bool is_ending(const struct process *p)
{
	return (p->heard && !p->connection && process_is_charged(p)) ||
	       process_is_ending(p->id.pid);
}

static void ended_note(struct session *s, const struct pollfd *fds)
{
	for (struct process *p = s->processes; p; p = p->next, fds += DESCRIPTORS)
		if (is_alive(p) && fds[0].revents)
			process_ended(p);
}

static void hung_up_note(struct session *s, const struct pollfd *fds)
{
	for (struct process *p = s->processes; p; p = p->next, fds += DESCRIPTORS)
		if (p->connection && fds[1].revents & POLLHUP)
			attach_hang_up(p->connection);
}

static void ending_note(struct session *s)
{
	for (struct process *p = s->processes; p; p = p->next)
		if (is_alive(p) && !p->ending_ns && is_ending(p))
			p->ending_ns = now_monotonic_ns();
}

void dying_look(struct session *s, const struct attach_connection *asking)
{
	struct pollfd fds[DESCRIPTORS * LEDGER_SLOTS_MAX];
	nfds_t count = 0;

	for (const struct process *p = s->processes; p; p = p->next) {
		if (count == ARRAY_SIZE(fds))
			return;
		bool asks = p->connection == asking;
		int connection = p->connection && !asks ? attach_descriptor(p->connection) : -1;

		fds[count++] =
			(struct pollfd){.fd = process_watch_descriptor(p->watch), .events = POLLIN};
		fds[count++] = (struct pollfd){.fd = connection};
	}
	if (poll(fds, count, 0) < 0)
		return;
	ended_note(s, fds);
	hung_up_note(s, fds);
	ending_note(s);
}

static bool hung_up(const struct attach_connection *c)
{
	struct pollfd fd = {.fd = attach_descriptor(c)};

	return poll(&fd, 1, 0) > 0 && fd.revents & POLLHUP;
}

bool dying_any(const struct session *s, uint64_t since)
{
	uint64_t now = now_monotonic_ns();

	for (const struct process *p = s->processes; p; p = p->next) {
		if (!p->ending_ns || p->ending_ns > since ||
		    now - p->ending_ns >= PROCESS_ENDING_MOST_NS)
			continue;
		if (p->life != PROCESS_LIFE_INHERITED || hung_up(p->connection))
			return true;
	}
	return false;
}
