/* The connections of the HTTP server.
 *
 * A connection reads a request, has the request answered (http_call.c), sends the answer, and reads
 * the next request. It does only one of these at a time. Requests that a client sends ahead stay in
 * the socket, or in `rest`. HTTP_TURN_BYTES bounds one reading, and the socket's buffer bounds one
 * writing. Each of them is a piece of work in the user's turn (host/fair.h), so that hundreds of
 * connections of one user do not keep another user waiting. The loop does not listen to a
 * connection that waits for its turn. It listens to a connection that waits for an answer only for
 * its end.
 *
 * call_reply() sends nothing, as a handler may use its call after it replied. http_prepare() sends
 * all answers of a pass before the loop sleeps. Reading is by rights_recv(), so that descriptors
 * which come along are not closed here. All of this runs in the loop's thread, and nothing blocks.
 */
#include "daemon/api/http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/api/http_private.h"
#include "daemon/host/limited.h"
#include "daemon/host/log.h"
#include "daemon/host/peer.h"
#include "daemon/host/rights.h"
#include "daemon/node.h"

#define CONNECTIONS_MAX 4096u
/* Room (KiB) for all answers that clients have not read yet, those of ANSWER_SMALL and less left
 * out. One user has half of it. */
#define ANSWERS_KIB_MAX (64u << 10)
/* Room (KiB) for all bodies of requests that are not answered yet, small ones left out. */
#define BODIES_KIB_MAX (64u << 10)
/* A connection on which nothing moves for this long ends. */
#define SILENCE_MAX_NS 15000000000ull

static void on_turn(struct fair_work *turn);

static void fault_log(struct http_server *server, const char *fault)
{
	/* Clients can cause any number of these. */
	if (server->logged) {
		server->unlogged++;
		return;
	}
	server->logged = true;
	log_event(LOG_WARNING, "http.wrong error=\"%s\"", fault);
}

/* ---- the end of a connection ------------------------------------------------------------- */

static void server_release(struct http_server *server)
{
	if (--server->open_handles)
		return;
	budget_free(&server->budget);
	budget_free(&server->answers);
	budget_free(&server->bodies);
	free(server);
}

static void on_connection_closed(uv_handle_t *handle)
{
	struct http_connection *c = handle->data;

	close_fd(&c->fd);
	server_release(c->server);
	free(c);
}

static void connection_close(struct http_connection *c)
{
	struct http_server *server = c->server;

	if (c->wait.deferred)
		c->wait.on_gone(&c->call);
	fair_withdraw(&c->turn);
	http_call_end(c);
	http_reader_free(&c->reader);
	free(steal_ptr(&c->rest.data));
	budget_leave(&server->budget, c->owner);
	if (c->next)
		c->next->previous = c->previous;
	*(c->previous ? &c->previous->next : &server->open) = c->next;
	rights_drain(c->fd);
	uv_poll_stop(&c->poll);
	uv_close((uv_handle_t *)&c->poll, on_connection_closed);
	arrivals_go_on(&server->arrivals);
}

/* ---- reading ----------------------------------------------------------------------------- */

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct http_connection *c = poll->data;

	if (status < 0)
		c->watched = 0; /* libuv has stopped to look */
	if (c->wait.deferred)
		http_call_abort(c, "the client went away");
	else if (c->state == HTTP_READS || c->state == HTTP_WRITES) {
		c->turn.run = on_turn;
		if (!fair_do(&c->server->node->turns, c->owner, &c->turn))
			http_watch(c, 0);
	}
}

void http_watch(struct http_connection *c, int events)
{
	if (events == c->watched)
		return;
	c->watched = events;
	if (events)
		(void)uv_poll_start(&c->poll, events, on_event);
	else
		uv_poll_stop(&c->poll);
}

/* A client that said Expect, and has sent nothing of its body yet, waits for this word. */
static void continue_say(struct http_connection *c)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";

	if (c->reader.head_ended && c->reader.continues && !c->body.received)
		(void)!send(c->fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (c->reader.head_ended)
		c->reader.continues = false;
}

/* Takes bytes up to the end of a request. False: the connection ends. */
static bool bytes_take(struct http_connection *c, const char **data, size_t *size)
{
	while (c->state == HTTP_READS) {
		switch (http_reader_take(&c->reader, data, size)) {
		case HTTP_STEP_MORE:
			continue_say(c);
			return true;
		case HTTP_STEP_HEAD:
			if (!http_call_begin(c))
				return false;
			break;
		case HTTP_STEP_BODY:
			if (!http_call_body(c, c->reader.part, c->reader.part_size))
				return false;
			break;
		case HTTP_STEP_END:
			c->server->called = true;
			http_call_take(c);
			return true;
		case HTTP_STEP_WRONG:
			fault_log(c->server, c->reader.fault);
			http_call_wrong(c);
			return true;
		}
	}
	return true;
}

/* Keeps the bytes that came in behind the request that is answered now. Without memory for them the
 * connection ends, after this answer: the request may stand in a list already. */
static void rest_keep(struct http_connection *c, const char *data, size_t size)
{
	char *rest = size && !c->last ? malloc(size) : NULL;

	if (size && !rest)
		c->last = true;
	if (rest)
		memcpy(rest, data, size);
	free(c->rest.data);
	c->rest.data = rest;
	c->rest.size = rest ? size : 0;
}

static void input_end(struct http_connection *c)
{
	if (http_reader_close(&c->reader) == HTTP_STEP_WRONG)
		fault_log(c->server, "a connection ended within a request");
	connection_close(c);
}

static void connection_read(struct http_connection *c)
{
	const char *data = c->rest.data;
	size_t size = c->rest.size;

	if (!size) {
		ssize_t n = rights_recv(c->fd, c->server->buffer, HTTP_TURN_BYTES, MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			http_watch(c, UV_READABLE);
			return;
		}
		if (n <= 0) {
			input_end(c);
			return;
		}
		data = c->server->buffer;
		size = (size_t)n;
		c->moved_ns = now_monotonic_ns();
	}
	if (!bytes_take(c, &data, &size)) {
		connection_close(c);
		return;
	}
	rest_keep(c, data, size);
	if (c->state == HTTP_READS)
		http_watch(c, UV_READABLE);
}

/* ---- writing ----------------------------------------------------------------------------- */

static void request_next(struct http_connection *c)
{
	http_call_end(c);
	if (c->last) {
		connection_close(c);
		return;
	}
	http_reader_next(&c->reader);
	c->state = HTTP_READS;
	if (!c->rest.size)
		http_watch(c, UV_READABLE);
	else if (!fair_do(&c->server->node->turns, c->owner, &c->turn))
		http_watch(c, 0);
}

/* Sends as much of the answer as the socket takes. */
static void connection_write(struct http_connection *c)
{
	struct http_answer *a = &c->answer;
	size_t text_sent = a->sent > a->head_size ? a->sent - a->head_size : 0;
	size_t head_sent = a->sent - text_sent;
	struct iovec parts[] = {{a->head + head_sent, a->head_size - head_sent},
				{a->text + text_sent, a->size - text_sent}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t n = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

	c->turn.run = on_turn;
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		connection_close(c);
		return;
	}
	if (n > 0) {
		a->sent += (size_t)n;
		c->moved_ns = now_monotonic_ns();
	}
	if (a->sent == a->head_size + a->size)
		request_next(c);
	else
		http_watch(c, UV_WRITABLE);
}

static void on_turn(struct fair_work *turn)
{
	struct http_connection *c = CONTAINER_OF(turn, struct http_connection, turn);

	if (c->state == HTTP_READS)
		connection_read(c);
	else
		connection_write(c);
}

static void answers_send(struct http_server *server)
{
	fair_begin(&server->node->turns);
	for (struct http_connection *c; (c = server->answered);) {
		server->answered = c->next_answered;
		http_call_drop_body(c);
		c->state = HTTP_WRITES;
		connection_write(c);
	}
	fair_end(&server->node->turns);
}

/* ---- new connections --------------------------------------------------------------------- */

static void on_too_many(void *arg, int fd)
{
	static const char body[] =
		"{\"error\":{\"code\":4,\"message\":\"you have too many connections to carved\","
		"\"hint\":\"close some, or wait for a moment\"}}";
	char head[HTTP_ANSWER_HEAD_SIZE];
	struct iovec parts[] = {
		{head, http_answer_head(head, sizeof(head), HTTP_STATUS_SERVICE_UNAVAILABLE,
					&http_json, sizeof(body) - 1, "close")},
		{(void *)body, sizeof(body) - 1}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	(void)!sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* NULL: the user has too many connections, or there is no memory. */
static struct http_connection *connection_make(struct http_server *server, int fd)
{
	struct http_connection *c = calloc(1, sizeof(*c));

	if (!c || !budget_enter(&server->budget, peer_uid(fd), &c->owner)) {
		free(c);
		return NULL;
	}
	int rc = uv_poll_init(&server->node->loop, &c->poll, fd);
	if (rc < 0) {
		log_event(LOG_WARNING, "http.connection_lost error=\"%s\"", uv_strerror(rc));
		budget_leave(&server->budget, c->owner);
		free(c);
		return NULL;
	}
	c->poll.data = c;
	return c;
}

/* The connection's first words, if they are there, are read in the same turn. */
static void on_arrival(void *arg, int fd)
{
	struct http_server *server = arg;
	struct http_connection *c = connection_make(server, fd);

	if (!c) {
		on_too_many(server, fd);
		rights_close(&fd);
		return;
	}
	c->server = server;
	c->fd = fd;
	c->call.node = server->node;
	c->moved_ns = now_monotonic_ns();
	c->turn.run = on_turn;
	http_reader_begin(&c->reader, HTTP_REQUEST, HTTP_HEAD_BYTES_MAX);
	server->open_handles++;
	c->next = server->open;
	if (c->next)
		c->next->previous = c;
	server->open = c;
	connection_read(c);
}

/* ---- the server -------------------------------------------------------------------------- */

void http_tick(struct http_server *server)
{
	uint64_t now = now_monotonic_ns();

	arrivals_go_on(&server->arrivals);
	for (struct http_connection *c = server->open, *next; c; c = next) {
		next = c->next;
		if ((c->state == HTTP_READS || c->state == HTTP_WRITES) && !c->turn.line &&
		    now - c->moved_ns > SILENCE_MAX_NS)
			connection_close(c);
	}
	/* A line about the faults that had no line of their own is this second's line. */
	server->logged = server->unlogged > 0;
	if (server->unlogged)
		log_event(LOG_WARNING, "http.not_logged lines=%u", server->unlogged);
	server->unlogged = 0;
}

/* While the idle handle runs, the loop looks at its descriptors and does not sleep. */
static void on_more_to_do(uv_idle_t *idle)
{
}

void http_prepare(struct http_server *server)
{
	struct fair *turns = &server->node->turns;
	bool waited = fair_waits(turns);

	server->called = false;
	(void)fair_run(turns);
	answers_send(server);
	/* A request that was taken here may need work that the loop does before http_prepare(). So
	 * the loop comes round again. */
	if (waited || server->called || fair_waits(turns))
		uv_idle_start(&server->more_to_do, on_more_to_do);
	else
		uv_idle_stop(&server->more_to_do);
}

void http_answered(struct http_connection *c)
{
	c->state = HTTP_ANSWERED;
	c->next_answered = c->server->answered;
	c->server->answered = c;
	/* The loop may be about to sleep. */
	uv_idle_start(&c->server->more_to_do, on_more_to_do);
}

int http_server_start(struct node *node, int fd, call_answer answer, struct http_server **ret)
{
	struct http_server *server = calloc(1, sizeof(*server));

	if (!server)
		return -ENOMEM;
	server->node = node;
	server->answer = answer;
	budget_begin(&server->budget, CONNECTIONS_MAX);
	budget_begin_any(&server->answers, ANSWERS_KIB_MAX);
	budget_begin_any(&server->bodies, BODIES_KIB_MAX);
	/* Where descriptors are few, more connections wait until one of these ends. */
	server->arrivals = (struct arrivals){
		.turns = &node->turns,
		.budget = &server->budget,
		.to = {.open = on_arrival, .refuse = on_too_many, .most = limited_last()},
		.arg = server};
	int rc = arrivals_begin(&server->arrivals, &node->loop, fd);
	if (rc < 0) {
		free(server);
		return rc;
	}
	uv_idle_init(&node->loop, &server->more_to_do);
	server->more_to_do.data = server;
	server->open_handles = 2;
	*ret = server;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	server_release(handle->data);
}

/* A request that has arrived is answered before the server stops, if its handler answers at once.
 */
void http_server_stop(struct http_server *server)
{
	if (!server)
		return;
	arrivals_open(&server->arrivals);
	for (struct http_connection *c = server->open, *next; c; c = next) {
		next = c->next;
		if (c->state != HTTP_READS)
			continue;
		fair_withdraw(&c->turn);
		connection_read(c);
	}
	for (struct http_connection *c = server->open; c; c = c->next)
		if (c->wait.deferred)
			http_call_abort(c, "carved is stopping");
	answers_send(server);
	while (server->open)
		connection_close(server->open);
	arrivals_end(&server->arrivals, on_closed);
	uv_close((uv_handle_t *)&server->more_to_do, on_closed);
}

uint64_t http_refused(const struct http_server *server)
{
	return server->refused;
}

unsigned http_connections(const struct http_server *server)
{
	return server->budget.total;
}
