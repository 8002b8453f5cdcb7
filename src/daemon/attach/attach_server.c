/* The listening socket, and the connections that it accepts. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "daemon/attach/attach.h"
#include "daemon/attach/attach_private.h"
#include "daemon/host/limited.h"
#include "daemon/host/privileges.h"
#include "daemon/host/rights.h"
#include "daemon/session/process.h"
#include "daemon/session/sessions.h"

#define CONNECTIONS_MAX 16384u
/* A connection without a slot that is silent for this long is closed. */
#define SILENCE_MAX_NS 30000000000ull
/* A warden that does not answer has the program ask again. */
#define NAMING_MAX_NS 1000000000ull

static void on_connection_closed(uv_handle_t *handle)
{
	struct attach_connection *c = handle->data;

	close_fd(&c->fd);
	free(c);
}

void attach_connection_close(struct attach_connection *c)
{
	fair_withdraw(&c->turn);
	privileges_forget(c->server->sessions->privileges, c->naming);
	if (c->process)
		process_disconnected(c->process);
	if (c->next)
		c->next->previous = c->previous;
	*(c->previous ? &c->previous->next : &c->server->connections) = c->next;
	budget_leave(&c->server->budget, c->owner);
	rights_drain(c->fd);
	uv_poll_stop(&c->poll);
	uv_close((uv_handle_t *)&c->poll, on_connection_closed);
}

void attach_forget(struct attach_connection *c)
{
	c->process = NULL;
}

int attach_descriptor(const struct attach_connection *c)
{
	return c->fd;
}

void attach_hang_up(struct attach_connection *c)
{
	attach_connection_close(c);
}

static void request_take(struct attach_connection *c)
{
	/* One byte more than there should be, so that longer messages show. */
	struct {
		struct attach_request request;
		char rest;
	} message = {0};
	ssize_t n = rights_recv(c->fd, &message, offsetof(typeof(message), rest) + 1, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	c->heard_ns = c->server->heard_ns = now_monotonic_ns();
	if (n <= 0 || !attach_handle(c, &message.request, (size_t)n))
		attach_connection_close(c);
}

static void on_request(uv_poll_t *poll, int status, int events);

static void on_turn(struct fair_work *turn)
{
	struct attach_connection *c =
		(struct attach_connection *)((char *)turn -
					     offsetof(struct attach_connection, turn));

	request_take(c);
	if (!uv_is_closing((uv_handle_t *)&c->poll) && !uv_is_active((uv_handle_t *)&c->poll))
		(void)uv_poll_start(&c->poll, UV_READABLE, on_request);
}

/* It is not listened to while it waits for its user's turn. */
static void on_request(uv_poll_t *poll, int status, int events)
{
	struct attach_connection *c = poll->data;

	if (!fair_do(c->server->turns, c->owner, &c->turn))
		uv_poll_stop(poll);
}

/* The descriptor becomes the connection's. -EMFILE: its user has too many. */
int attach_connection_open(struct attach_server *server, int *fd, const struct peer *peer,
			   struct attach_connection **ret)
{
	struct attach_connection *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	int rc = budget_enter(&server->budget, peer->uid, &c->owner) ? 0 : -EMFILE;
	if (rc == 0) {
		rc = uv_poll_init(server->sessions->loop, &c->poll, *fd);
		if (rc < 0)
			budget_leave(&server->budget, c->owner);
	}
	if (rc < 0) {
		free(c);
		return rc;
	}
	c->server = server;
	c->fd = steal_fd(fd);
	c->peer = *peer;
	c->turn.run = on_turn;
	c->heard_ns = now_monotonic_ns();
	c->poll.data = c;
	c->next = server->connections;
	if (c->next)
		c->next->previous = c;
	server->connections = c;
	*ret = c;
	return uv_poll_start(&c->poll, UV_READABLE, on_request);
}

static void connection_refuse(int fd, int rc)
{
	struct attach_reply reply = {
		.magic = ATTACH_MAGIC, .version = ATTACH_VERSION, .status = ATTACH_FAILED};

	snprintf(reply.message, sizeof(reply.message), "%s",
		 rc == -EMFILE
			 ? limited_descriptors_text("this user has too many connections to carved")
			 : strerrordesc_np(-rc));
	(void)!send(fd, &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void on_too_many(void *arg, int fd)
{
	connection_refuse(fd, -EMFILE);
}

static void on_connection(void *arg, int connected_fd)
{
	cleanup_close int fd = connected_fd;
	struct attach_connection *c;
	struct peer peer;
	int rc = peer_identify(fd, &peer);

	if (rc == 0)
		rc = attach_connection_open(arg, &fd, &peer, &c);
	if (rc < 0) {
		connection_refuse(fd, rc);
		rights_drain(fd);
	}
}

int attach_server_start(struct sessions *sessions, struct fair *turns, int fd,
			struct attach_server **ret)
{
	struct attach_server *server = calloc(1, sizeof(*server));

	if (!server)
		return -ENOMEM;
	server->sessions = sessions;
	server->turns = turns;
	budget_begin(&server->budget, CONNECTIONS_MAX);
	server->arrivals = (struct arrivals){
		.turns = turns,
		.budget = &server->budget,
		.to = {.open = on_connection, .refuse = on_too_many, .leaves_last = true},
		.arg = server};
	int rc = arrivals_begin(&server->arrivals, sessions->loop, fd);
	if (rc < 0) {
		free(server);
		return rc;
	}
	*ret = server;
	return 0;
}

static void on_server_closed(uv_handle_t *handle)
{
	struct attach_server *server = handle->data;

	budget_free(&server->budget);
	free(server);
}

void attach_server_stop(struct attach_server *server)
{
	if (!server)
		return;
	for (struct attach_connection *c = server->connections, *next; c; c = next) {
		next = c->next;
		c->process = NULL; /* not disconnected: the daemon is going, not they */
		attach_connection_close(c);
	}
	arrivals_end(&server->arrivals, on_server_closed);
}

unsigned attach_connections(const struct attach_server *server)
{
	return server->budget.total;
}

uint64_t attach_heard_ns(const struct attach_server *server)
{
	return server->heard_ns;
}

void attach_tick(struct attach_server *server)
{
	uint64_t now = now_monotonic_ns();

	arrivals_go_on(&server->arrivals);
	for (struct attach_connection *c = server->connections, *next; c; c = next) {
		next = c->next;
		if (c->naming && now - c->heard_ns > NAMING_MAX_NS)
			attach_naming_end(c);
		else if (!c->process && now - c->heard_ns > SILENCE_MAX_NS)
			attach_connection_close(c);
	}
}
