/* A relay reads nothing of what it carries but the status of answers, by which it knows a browser
 * that is signed in. carved decides all else. So a relay has only these states:
 *
 *   STARTS   the browser has sent nothing yet
 *   ASKS     carved is told that the connection to it is a door's (api_door.h)
 *   RUNS     bytes go to and fro
 *   ENDS     carved is not to be had: the browser is told, and the connection ends
 *
 * carved says whether it takes the connection for a door's. Until then no byte of the browser's is
 * sent, as carved would answer on any other connection as to the user of this program.
 *
 * A buffer that is not empty is not read into, so that each side is read as fast as the other one
 * takes what it sent. */
#include "integrations/web/relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "http/http_ask.h"
#include "integrations/door/door.h"
#include "integrations/door/visitor.h"

#define IN_BYTES 16384u
#define OUT_BYTES 65536u
/* A browser that takes nothing for this long ends. */
#define SLOW_NS 10000000000ull
/* A connection on which carved has answered nothing for this long ends. The page has news each 10 s
 * at least. */
#define SILENCE_NS 60000000000ull
/* Steps in one round of the loop. */
#define STEPS_MAX 64u

static const char greeting[] = "GET /v1/web/door HTTP/1.1\r\nHost: localhost\r\n\r\n";
static const char unavailable[] =
	"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 24\r\n"
	"Cache-Control: no-store\r\nConnection: close\r\n\r\ncarved does not answer.\n";

enum relay_state { RELAY_STARTS, RELAY_ASKS, RELAY_RUNS, RELAY_ENDS };

/* The connection to carved. It outlives its relay until the loop has let it go. */
struct line {
	uv_poll_t poll;
	int fd;
	struct relay *relay;
};

struct relay {
	struct visitor visitor; /* first, so that the visitor leads to its relay */
	enum relay_state state;
	struct line *line;
	struct http_ask ask;
	int visitor_events, line_events; /* that are waited for */
	uint64_t answered_ns, out_ns;
	size_t in_size, in_sent, out_size, out_sent;
	char in[IN_BYTES], out[OUT_BYTES];
};

const unsigned long relay_size = sizeof(struct relay);

static void pump(struct relay *r);

/* ---- the connection to carved -------------------------------------------------------------- */

static void on_line_closed(uv_handle_t *handle)
{
	struct line *line = handle->data;

	close_fd(&line->fd);
	free(line);
}

static void line_close(struct relay *r)
{
	struct line *line = steal_ptr(&r->line);

	http_ask_free(&r->ask);
	if (!line)
		return;
	line->relay = NULL;
	uv_poll_stop(&line->poll);
	uv_close((uv_handle_t *)&line->poll, on_line_closed);
}

static void on_line_event(uv_poll_t *poll, int status, int events)
{
	const struct line *line = poll->data;

	if (line->relay)
		pump(line->relay);
}

/* The browser is told, and the log once, until carved answers again. */
static bool logged;

static void fail(struct relay *r, const char *why)
{
	if (!logged)
		log_event(LOG_WARNING, "web.unanswered socket=%s error=\"%s\"",
			  r->visitor.door->socket, why);
	logged = true;
	line_close(r);
	r->state = RELAY_ENDS;
	memcpy(r->out, unavailable, sizeof(unavailable) - 1);
	r->out_size = sizeof(unavailable) - 1;
	r->out_sent = 0;
	r->out_ns = now_monotonic_ns();
}

/* 0 or -errno. */
static int line_make(struct relay *r)
{
	struct door *door = r->visitor.door;
	struct line *line = calloc(1, sizeof(*line));
	int rc = line ? line->fd = door_connect(door) : -ENOMEM;

	if (rc >= 0)
		rc = uv_poll_init(&door->loop, &line->poll, line->fd);
	if (rc < 0) {
		if (line)
			close_fd(&line->fd);
		free(line);
		return rc;
	}
	line->poll.data = line;
	line->relay = r;
	r->line = line;
	/* A new socket has room for it. */
	ssize_t n = send(line->fd, greeting, sizeof(greeting) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	return n == sizeof(greeting) - 1 ? 0 : -EPIPE;
}

static void line_open(struct relay *r)
{
	http_ask_begin(&r->ask, 4096);
	r->state = RELAY_ASKS;
	int rc = line_make(r);
	if (rc < 0)
		fail(r, strerrordesc_np(-rc));
}

/* The answer to the greeting. */
static void greeted(struct relay *r, size_t size)
{
	switch (http_ask_take(&r->ask, r->out, size)) {
	case HTTP_ASK_MORE:
		return;
	case HTTP_ASK_ANSWERED:
		if (r->ask.status != HTTP_STATUS_OK) {
			fail(r, "it does not take this program's user for web.user");
			return;
		}
		logged = false;
		r->state = RELAY_RUNS;
		http_ask_free(&r->ask);
		return;
	default:
		fail(r, "it does not answer as carved does");
	}
}

/* ---- to and fro ---------------------------------------------------------------------------- */

/* False: carved has ended the connection. */
static bool line_read(struct relay *r, bool *moved)
{
	ssize_t n = recv(r->line->fd, r->out, sizeof(r->out), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		r->line_events |= UV_READABLE;
		return true;
	}
	*moved = true;
	if (r->state == RELAY_ASKS) {
		greeted(r, n > 0 ? (size_t)n : 0);
		return true;
	}
	if (n <= 0)
		return false;
	r->out_size = (size_t)n;
	r->answered_ns = r->out_ns = now_monotonic_ns();
	/* "HTTP/1.1 200 OK": carved knows the browser. */
	r->visitor.proved |=
		n > 9 && !memcmp(r->out, "HTTP/1.1 ", 9) && (r->out[9] == '2' || r->out[9] == '3');
	return true;
}

/* A step towards the browser. False: the relay ends. */
static bool out_move(struct relay *r, bool *moved)
{
	bool writes = true;

	if (r->out_sent == r->out_size)
		return !r->line || line_read(r, moved);
	ssize_t n = visitor_write(&r->visitor, r->out + r->out_sent, r->out_size - r->out_sent,
				  &writes);
	if (n == -EAGAIN || n == -EINTR) {
		r->visitor_events |= writes ? UV_WRITABLE : UV_READABLE;
		return true;
	}
	if (n <= 0)
		return false;
	*moved = true;
	r->out_sent += (size_t)n;
	r->out_ns = now_monotonic_ns();
	if (r->out_sent < r->out_size)
		return true;
	r->out_sent = r->out_size = 0;
	return r->state != RELAY_ENDS;
}

static bool line_write(struct relay *r, bool *moved)
{
	ssize_t n = send(r->line->fd, r->in + r->in_sent, r->in_size - r->in_sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		r->line_events |= UV_WRITABLE;
		return true;
	}
	if (n < 0)
		return false;
	*moved = true;
	r->in_sent += (size_t)n;
	if (r->in_sent == r->in_size)
		r->in_sent = r->in_size = 0;
	return true;
}

/* A step towards carved. */
static bool in_move(struct relay *r, bool *moved)
{
	bool writes = false;

	if (r->state == RELAY_ENDS)
		return true;
	if (r->in_sent < r->in_size)
		return r->state != RELAY_RUNS || line_write(r, moved);
	ssize_t n = visitor_read(&r->visitor, r->in, sizeof(r->in), &writes);
	if (n == -EAGAIN || n == -EINTR) {
		r->visitor_events |= writes ? UV_WRITABLE : UV_READABLE;
		return true;
	}
	if (n <= 0)
		return false;
	*moved = true;
	r->in_size = (size_t)n;
	r->visitor.moved_ns = now_monotonic_ns();
	if (r->state == RELAY_STARTS)
		line_open(r);
	return true;
}

static void events_await(struct relay *r)
{
	if (r->line && r->line_events)
		(void)uv_poll_start(&r->line->poll, r->line_events, on_line_event);
	else if (r->line)
		uv_poll_stop(&r->line->poll);
	if (r->visitor_events)
		visitor_await(&r->visitor, r->visitor_events);
	else
		visitor_rest(&r->visitor);
}

static void pump(struct relay *r)
{
	bool moved = true;

	for (unsigned i = 0; moved && i < STEPS_MAX; i++) {
		moved = false;
		r->visitor_events = r->line_events = 0;
		if (!out_move(r, &moved) || !in_move(r, &moved)) {
			visitor_close(&r->visitor);
			return;
		}
	}
	/* A socket can be written nearly always: the loop comes round to this relay again, after
	 * the others. TLS may have bytes of the browser that the socket has no more. */
	if (moved)
		r->visitor_events |= UV_WRITABLE;
	events_await(r);
}

void relay_go_on(struct visitor *visitor)
{
	pump((struct relay *)visitor);
}

void relay_gone(struct visitor *visitor)
{
	line_close((struct relay *)visitor);
}

bool relay_is_over(struct visitor *visitor, uint64_t now)
{
	const struct relay *r = (const struct relay *)visitor;
	uint64_t answered = MAX(r->answered_ns, visitor->opened_ns);

	if (r->out_size && now - r->out_ns > SLOW_NS) {
		visitor->door->refused[REFUSED_SLOW]++;
		return true;
	}
	return now - answered > SILENCE_NS;
}
