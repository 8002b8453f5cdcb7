/* The next program asks a call anew whose answer is due, such as a request that waits for room. All
 * such calls can be asked twice. libmicrohttpd cannot take a connection in the middle of a call, so
 * those answers are written here. Afterwards the connection is libmicrohttpd's again. */
#include "daemon/api/http_handover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "daemon/api/api.h"
#include "daemon/api/http_private.h"
#include "daemon/api/view.h"
#include "daemon/host/handover.h"
#include "daemon/host/log.h"
#include "daemon/host/rights.h"
#include "daemon/node.h"
#include "daemon/waiting/waiting.h"

/* A client that does not take its answer for this long does not get it. */
#define SEND_PATIENCE_NS 15000000000ull

/* ---- leaving ----------------------------------------------------------------------------- */

bool http_quiet(const struct http_server *server)
{
	unsigned due = 0;

	for (const struct http_call *c = server->deferred; c; c = c->next)
		due += c->connection != NULL;
	return server->calls == due && !server->sendings;
}

static enum MHD_Result argument_note(void *arg, enum MHD_ValueKind kind, const char *name,
				     const char *value)
{
	json_object_set_new(arg, name, json_string(value ? value : ""));
	return MHD_YES;
}

static json_t *arguments_of(const struct http_call *c)
{
	json_t *arguments = json_object();

	if (c->connection)
		MHD_get_connection_values(c->connection, MHD_GET_ARGUMENT_KIND, argument_note,
					  arguments);
	else
		json_object_update(arguments, json_object_get(c->taken, "arguments"));
	return arguments;
}

/* The wish of a request that waits, now: the same ID, and the rest of its time. */
static json_t *body_of_waiter(const struct http_call *c, const struct waiter *w)
{
	json_t *body = json_loadb(c->call.body, c->call.body_size, 0, NULL);
	uint64_t now = now_monotonic_ns();
	double left = w->deadline_ns > now ? (double)(w->deadline_ns - now) / 1e9 : 0;

	json_object_set_new(body, "id", json_string(w->id));
	json_object_set_new(body, "wait_for", json_real(left));
	char *text = json_dumps(body, JSON_COMPACT);
	json_t *string = json_string(text);
	free(text);
	json_decref(body);
	return string;
}

static json_t *body_of(const struct http_call *c)
{
	json_t *string = json_stringn(c->call.body, c->call.body_size);

	return string ? string : json_string(""); /* no UTF-8: nobody looked at it */
}

static void call_leave(struct handover *h, const struct http_call *c, const struct waiter *w,
		       bool upgrade)
{
	int fd = c->connection ? http_connection_fd(c->connection) : c->fd;

	handover_add(h, "calls",
		     json_pack("{s:o, s:o, s:s, s:s, s:o, s:o, s:b, s:b}", "fd", handover_fd(h, fd),
			       "peer", handover_peer(&c->call.peer), "method", c->call.method,
			       "path", c->call.path, "arguments", arguments_of(c), "body",
			       w ? body_of_waiter(c, w) : body_of(c), "close", c->closes, "upgrade",
			       upgrade));
	if (w)
		handover_add(h, "waiting",
			     json_pack("{s:s, s:I, s:I}", "id", w->id, "created",
				       (json_int_t)w->created, "passed", (json_int_t)w->passed));
}

static const struct waiter *waiter_of(const struct node *node, const struct http_call *c)
{
	const struct waiter *w = node->waiting.first;

	while (w && (!w->ask.cb || w->ask.arg != &c->call))
		w = w->next;
	return w;
}

void http_hand_over(struct http_server *server, struct handover *h, const struct call *upgrade)
{
	/* Those who wait for room first, in their order. */
	for (const struct waiter *w = server->node->waiting.first; w; w = w->next)
		if (w->ask.cb)
			call_leave(h, http_call(w->ask.arg), w, false);
	for (const struct http_call *c = server->deferred; c; c = c->next)
		if (!waiter_of(server->node, c))
			call_leave(h, c, NULL, &c->call == upgrade);
	for (const struct http_connection *o = server->open; o; o = o->next)
		if (!o->in_call)
			handover_add(h, "connections",
				     handover_fd(h, http_connection_fd(o->connection)));
	for (const struct arrival *a = server->arrivals.first; a; a = a->next)
		handover_add(h, "connections", handover_fd(h, a->fd));
}

/* ---- going on ---------------------------------------------------------------------------- */

void http_connection_adopt(struct http_server *server, int fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	rights_refuse(fd); /* a program of before may not have asked for it */
	/* Closes it where that fails. */
	if (MHD_add_connection(server->mhd, fd, (struct sockaddr *)&address, sizeof(address)) !=
	    MHD_YES)
		log_event(LOG_WARNING, "http.connection_lost error=\"%s\"", strerrordesc_np(errno));
	server->resumed = true; /* something may be there to be read already */
}

/* An answer that its client does not take at once. The loop goes on meanwhile. */
struct http_sending {
	struct http_sending *next; /* server->sendings */
	struct http_server *server;
	uv_poll_t poll;
	int fd;
	char *data;
	size_t size, sent;
	bool closes; /* the connection ends with it */
	uint64_t until_ns;
};

/* 1: all of it is out; 0: the client has not taken all of it yet; or -errno. */
static int send_more(struct http_sending *s)
{
	while (s->sent < s->size) {
		ssize_t n = send(s->fd, s->data + s->sent, s->size - s->sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			s->sent += (size_t)n;
		else if (errno == EAGAIN)
			return 0;
		else if (errno != EINTR)
			return -errno;
	}
	return 1;
}

static void sending_free(struct http_sending *s)
{
	close_fd(&s->fd);
	free(s->data);
	free(s);
}

static void on_sending_closed(uv_handle_t *handle)
{
	struct http_sending *s = handle->data;
	struct http_server *server = s->server;

	if (s->sent == s->size && !s->closes && !server->stopping)
		http_connection_adopt(server, steal_fd(&s->fd));
	sending_free(s);
	http_server_release(server);
}

static void sending_end(struct http_sending *s)
{
	struct http_sending **at = &s->server->sendings;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	uv_close((uv_handle_t *)&s->poll, on_sending_closed);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
	struct http_sending *s = poll->data;

	if (status < 0 || send_more(s) != 0)
		sending_end(s);
}

void http_sendings_look(struct http_server *server, bool all)
{
	uint64_t now = now_monotonic_ns();

	for (struct http_sending *s = server->sendings, *next; s; s = next) {
		next = s->next;
		if (all || now >= s->until_ns)
			sending_end(s);
	}
}

/* The rest is sent when the client reads. False: it cannot be. */
static bool sending_go_on(struct http_sending *s)
{
	if (uv_poll_init(&s->server->node->loop, &s->poll, s->fd) < 0)
		return false;
	s->poll.data = s;
	s->server->open_handles++;
	s->until_ns = now_monotonic_ns() + SEND_PATIENCE_NS;
	s->next = s->server->sendings;
	s->server->sendings = s;
	uv_poll_start(&s->poll, UV_WRITABLE, on_writable);
	return true;
}

static const char *status_text(unsigned status)
{
	switch (status) {
	case MHD_HTTP_OK:
		return "OK";
	case MHD_HTTP_CREATED:
		return "Created";
	default:
		return "Refused";
	}
}

void http_taken_answer(struct http_call *c, unsigned status, char *text)
{
	struct http_sending *s = calloc(1, sizeof(*s));
	int length = -1;

	if (s)
		length = asprintf(&s->data,
				  "HTTP/1.1 %u %s\r\n%sContent-Type: application/json\r\n"
				  "Content-Length: %zu\r\n\r\n%s",
				  status, status_text(status),
				  c->closes ? "Connection: close\r\n" : "", text ? strlen(text) : 0,
				  text ? text : "");
	free(text);
	if (length < 0) {
		free(s);
		close_fd(&c->fd);
		return;
	}
	s->server = c->call.node->http;
	s->fd = steal_fd(&c->fd);
	s->size = (size_t)length;
	s->closes = c->closes;
	int rc = send_more(s);
	if (rc == 0 && sending_go_on(s))
		return;
	if (rc == 1 && !s->closes)
		http_connection_adopt(s->server, steal_fd(&s->fd));
	sending_free(s);
}

const char *http_taken_argument(const struct http_call *c, const char *name)
{
	return json_string_value(json_object_get(json_object_get(c->taken, "arguments"), name));
}

static struct http_call *call_taken(struct http_server *server, struct handover *h, json_t *from)
{
	struct http_call *c = calloc(1, sizeof(*c));
	const json_t *body = json_object_get(from, "body");

	if (!c)
		return NULL;
	c->fd = handover_take(h, json_object_get(from, "fd"));
	c->taken = json_incref(from);
	c->closes = json_is_true(json_object_get(from, "close"));
	c->dispatched = true;
	c->call.node = server->node;
	c->call.method = json_string_value(json_object_get(from, "method"));
	c->call.path = json_string_value(json_object_get(from, "path"));
	c->call.body = json_string_value(body);
	c->call.body_size = json_string_length(body);
	if (c->fd >= 0 && c->call.method && c->call.path && c->call.body &&
	    handover_take_peer(json_object_get(from, "peer"), &c->call.peer))
		return c;
	http_call_free(c);
	return NULL;
}

static void waiter_restore(struct node *node, const json_t *from)
{
	const char *id = json_string_value(json_object_get(from, "id"));
	struct waiter *w = id ? waiting_find(&node->waiting, id) : NULL;

	if (!w)
		return;
	w->created = json_integer_value(json_object_get(from, "created"));
	w->passed = (unsigned)json_integer_value(json_object_get(from, "passed"));
}

void http_take_over(struct http_server *server, struct handover *h)
{
	size_t i;
	json_t *item;

	json_array_foreach(json_object_get(h->root, "connections"), i, item)
	{
		int fd = handover_take(h, item);

		if (fd >= 0)
			http_connection_adopt(server, fd);
	}
	json_array_foreach(json_object_get(h->root, "calls"), i, item)
	{
		struct http_call *c = call_taken(server, h, item);

		if (!c)
			continue;
		if (json_is_true(json_object_get(item, "upgrade")))
			call_reply(&c->call, MHD_HTTP_OK, view_version(server->node));
		else
			api_handle(&c->call);
	}
	json_array_foreach(json_object_get(h->root, "waiting"), i, item)
		waiter_restore(server->node, item);
}
