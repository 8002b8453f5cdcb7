/* libmicrohttpd reads from each connection that is ready and looks at all that it has read, up to
 * CONNECTION_MEMORY, before it comes back to the loop. Hundreds of connections with thousands of
 * chunks or fields each would take seconds. So reading fails with EAGAIN once its time in a pass of
 * the loop is over. The connection then rests, suspended, in its user's line (host/fair.h), and a
 * turn has it read once. */
#include "daemon/api/http_reading.h"

#include <microhttpd.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/host/rights.h"

/* The hook in recv() knows nothing but the descriptor. Loop thread only. */
static struct {
	struct MHD_Daemon *mhd;
	struct fair *turns;
	bool *resumed;
	struct http_reading **by_fd;
	size_t room;
	struct http_reading *turn; /* the one whose turn it is */
	struct http_reading *late; /* those that were refused in this run of libmicrohttpd */
} reading;

static void on_turn(struct fair_work *turn);

static struct http_reading *connection_at(int fd)
{
	return (size_t)fd < reading.room ? reading.by_fd[fd] : NULL;
}

static bool may_read(int fd)
{
	struct http_reading *open = connection_at(fd);

	if (!open || open == reading.turn)
		return true;
	if (!fair_waits(reading.turns))
		return true;
	if (!open->late) {
		open->late = true;
		open->next_late = reading.late;
		reading.late = open;
	}
	return false;
}

static void resume(struct http_reading *open)
{
	MHD_resume_connection(open->connection);
	*reading.resumed = true;
}

static bool is_suspended(const struct http_reading *open)
{
	return MHD_get_connection_info(open->connection, MHD_CONNECTION_INFO_CONNECTION_SUSPENDED)
		->suspended;
}

/* A connection whose call is deferred is suspended already, and is read from once that has its
 * answer. */
static void late_line_up(void)
{
	for (struct http_reading *open; (open = reading.late);) {
		reading.late = open->next_late;
		open->late = false;
		if (is_suspended(open))
			continue;
		MHD_suspend_connection(open->connection);
		open->turn.run = on_turn;
		if (!fair_line_up(reading.turns, open->owner, &open->turn))
			resume(open);
	}
}

static void turn_run(struct http_reading *open)
{
	reading.turn = open;
	MHD_run(reading.mhd);
	reading.turn = NULL; /* it may be gone */
	late_line_up();
}

static void on_turn(struct fair_work *turn)
{
	struct http_reading *open =
		(struct http_reading *)((char *)turn - offsetof(struct http_reading, turn));

	MHD_resume_connection(open->connection);
	turn_run(open);
}

void http_reading_first(int fd)
{
	struct http_reading *open = connection_at(fd);

	if (open)
		turn_run(open);
}

void http_reading_run(void)
{
	fair_begin(reading.turns);
	MHD_run(reading.mhd);
	late_line_up();
	fair_end(reading.turns);
}

void http_reading_begin(struct MHD_Daemon *mhd, struct fair *turns, bool *resumed)
{
	reading.mhd = mhd;
	reading.turns = turns;
	reading.resumed = resumed;
	rights_recv_asks(may_read);
}

void http_reading_add(struct http_reading *open)
{
	size_t fd = (size_t)open->fd;

	if (fd >= reading.room) {
		size_t room = MAX(fd + 1, reading.room * 2);
		struct http_reading **by_fd =
			realloc(reading.by_fd, room * sizeof(struct http_reading *));

		if (!by_fd)
			return; /* it is read from whenever it is ready */
		memset(by_fd + reading.room, 0,
		       (room - reading.room) * sizeof(struct http_reading *));
		reading.by_fd = by_fd;
		reading.room = room;
	}
	reading.by_fd[fd] = open;
}

void http_reading_remove(struct http_reading *open)
{
	int fd = open->fd;

	if (connection_at(fd) == open)
		reading.by_fd[fd] = NULL;
	for (struct http_reading **at = &reading.late; open->late && *at; at = &(*at)->next_late)
		if (*at == open) {
			*at = open->next_late;
			break;
		}
	fair_withdraw(&open->turn);
}

void http_reading_release(struct http_reading *open)
{
	if (!open->turn.line)
		return;
	fair_withdraw(&open->turn);
	resume(open);
}

void http_reading_end(void)
{
	rights_recv_asks(NULL);
	free(reading.by_fd);
	reading.by_fd = NULL;
	reading.room = 0;
}
