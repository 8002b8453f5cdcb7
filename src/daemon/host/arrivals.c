#include "daemon/host/arrivals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/limited.h"
#include "daemon/host/peer.h"
#include "daemon/host/rights.h"

/* So many connections are accepted in each pass of the loop, whatever else that does: a connection
 * that nobody accepts is in everybody's way. They take some 0.5 ms. */
#define ARRIVALS_LEAST 50u

/* The descriptor becomes the caller's. */
static int arrival_take(struct arrival *arrival)
{
	struct arrivals *a = arrival->of;
	int fd = arrival->fd;

	fair_withdraw(&arrival->turn);
	if (arrival->next)
		arrival->next->previous = arrival->previous;
	*(arrival->previous ? &arrival->previous->next : &a->first) = arrival->next;
	budget_leave(a->budget, arrival->owner);
	free(arrival);
	return fd;
}

static void on_turn(struct fair_work *turn)
{
	struct arrival *arrival = CONTAINER_OF(turn, struct arrival, turn);
	// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first of a list has none before it
	struct arrivals *a = arrival->of;

	a->to.open(a->arg, arrival_take(arrival));
}

static void refuse(struct arrivals *a, int fd)
{
	a->to.refuse(a->arg, fd);
	rights_close(&fd);
}

static void arrive(struct arrivals *a, int fd)
{
	struct arrival *arrival = calloc(1, sizeof(*arrival));

	if (!arrival || (a->to.leaves_last && limited_is_last(fd)) ||
	    !budget_enter(a->budget, peer_uid(fd), &arrival->owner)) {
		free(arrival);
		refuse(a, fd);
		return;
	}
	arrival->of = a;
	arrival->fd = fd;
	arrival->turn.run = on_turn;
	arrival->next = a->first;
	if (a->first)
		a->first->previous = arrival;
	a->first = arrival;
	/* Not at once: others may be there to be accepted. */
	if (!fair_line_up(a->turns, arrival->owner, &arrival->turn))
		on_turn(&arrival->turn);
}

static bool is_full(const struct arrivals *a)
{
	return a->to.most && a->budget->total >= a->to.most;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct arrivals *a = CONTAINER_OF(poll, struct arrivals, poll);

	fair_begin(a->turns);
	for (unsigned count = 0; count < ARRIVALS_LEAST || !fair_is_spent(a->turns); count++) {
		int fd = is_full(a) ? -1 : accept4(a->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		a->full = fd < 0 && (is_full(a) || errno == EMFILE || errno == ENFILE);
		if (a->full)
			uv_poll_stop(&a->poll);
		if (fd < 0)
			break;
		arrive(a, fd);
	}
	fair_end(a->turns);
}

int arrivals_begin(struct arrivals *a, uv_loop_t *loop, int fd)
{
	int rc = uv_poll_init(loop, &a->poll, fd);

	if (rc < 0)
		return rc;
	a->poll.data = a->arg;
	a->fd = fd;
	rights_refuse(fd);
	return uv_poll_start(&a->poll, UV_READABLE, on_connection);
}

void arrivals_go_on(struct arrivals *a)
{
	if (!a->full || uv_is_closing((uv_handle_t *)&a->poll))
		return;
	a->full = false;
	(void)uv_poll_start(&a->poll, UV_READABLE, on_connection);
}

void arrivals_open(struct arrivals *a)
{
	while (a->first)
		on_turn(&a->first->turn);
}

void arrivals_end(struct arrivals *a, uv_close_cb cb)
{
	while (a->first) {
		// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): likewise
		int fd = arrival_take(a->first);

		rights_close(&fd);
	}
	uv_poll_stop(&a->poll);
	uv_close((uv_handle_t *)&a->poll, cb);
	rights_close_listener(&a->fd);
}
