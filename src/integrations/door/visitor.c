/* Each visitor passes the handshake of TLS, where that is configured, and is then with the door's
 * kind. Nothing here waits: whatever would block goes on when the loop says that the socket is
 * ready.
 *
 * A visitor that has not proved who it is has some seconds, and gives way to newer ones when all
 * places are taken. So programs that open connections keep nobody out who proves who it is, unless
 * they open them faster than that visitor can send its request. Visitors from one origin elsewhere
 * have a part of the places. All that comes from this host has one address, so there is no such
 * part of it. */
#include "integrations/door/visitor.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "integrations/door/tls.h"

/* ---- the end ------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
	struct visitor *v = handle->data;

	close_fd(&v->fd);
	free(v);
}

void visitor_close(struct visitor *v)
{
	struct door *door = v->door;

	door->kind->visitor_gone(v);
	if (v->next)
		v->next->previous = v->previous;
	*(v->previous ? &v->previous->next : &door->visitors) = v->next;
	door->visitor_count--;
	tls_session_free(steal_ptr(&v->tls));
	uv_poll_stop(&v->poll);
	uv_close((uv_handle_t *)&v->poll, on_closed);
}

void visitor_refuse(struct visitor *v, enum refusal why)
{
	v->door->refused[why]++;
	visitor_close(v);
}

/* ---- the socket ---------------------------------------------------------------------------- */

/* Goes on with the handshake. */
static void shake(struct visitor *v)
{
	bool writes = false;
	int rc = tls_session_shake(v->tls, &writes);

	if (rc == -EAGAIN) {
		visitor_await(v, writes ? UV_WRITABLE : UV_READABLE);
	} else if (rc < 0) {
		visitor_refuse(v, REFUSED_HANDSHAKE);
	} else {
		v->shaken = true;
		v->door->kind->visitor_go_on(v);
	}
}

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct visitor *v = poll->data;

	if (status < 0)
		visitor_close(v);
	else if (!v->shaken)
		shake(v);
	else
		v->door->kind->visitor_go_on(v);
}

void visitor_await(struct visitor *v, int events)
{
	if (uv_poll_start(&v->poll, events, on_event) < 0)
		visitor_close(v);
}

void visitor_rest(struct visitor *v)
{
	uv_poll_stop(&v->poll);
}

ssize_t visitor_read(struct visitor *v, void *data, size_t size, bool *writes)
{
	*writes = false;
	if (v->tls)
		return tls_session_read(v->tls, data, size, writes);
	ssize_t n = recv(v->fd, data, size, MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

ssize_t visitor_write(struct visitor *v, const void *data, size_t size, bool *writes)
{
	*writes = true;
	if (v->tls)
		return tls_session_write(v->tls, data, size, writes);
	ssize_t n = send(v->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 ? -errno : n;
}

/* ---- new ones, and old ones ---------------------------------------------------------------- */

/* A host of IPv6 has a network of 64 bits to itself. */
static void origin_read(const struct sockaddr_storage *address, unsigned char ret[static 16])
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
	bool six = address->ss_family == AF_INET6;

	memset(ret, 0, 16);
	if (!six)
		memcpy(ret + 12, &in->sin_addr, 4);
	else if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		memcpy(ret + 12, in6->sin6_addr.s6_addr + 12, 4);
	else
		memcpy(ret, &in6->sin6_addr, 8);
}

static bool door_proves(const struct door *door)
{
	return door->kind->signs_in || door->config.client_ca[0] || door->config.token_file[0];
}

/* Ends the oldest visitor that has proved nothing, where `origin` is not NULL: one of this origin.
 * Where visitors prove nothing, none of them is spared. False: there is none. */
static bool oldest_end(struct door *door, const unsigned char *origin)
{
	bool proves = door_proves(door);
	struct visitor *oldest = NULL;

	for (struct visitor *v = door->visitors; v; v = v->next)
		if (!(v->proved && proves) && (!origin || !memcmp(v->origin, origin, 16)))
			oldest = v;
	if (oldest)
		visitor_refuse(oldest, REFUSED_FULL);
	else
		door->refused[REFUSED_FULL]++;
	return oldest;
}

static unsigned count_of(const struct door *door, const unsigned char *origin)
{
	unsigned count = 0;

	for (const struct visitor *v = door->visitors; v; v = v->next)
		count += !memcmp(v->origin, origin, 16);
	return count;
}

/* Makes a place where there is none. */
static bool place_make(struct door *door, const struct sockaddr_storage *address)
{
	const struct door_kind *kind = door->kind;
	unsigned char origin[16];

	origin_read(address, origin);
	if (kind->origin_max && !door_address_is_loopback(address) &&
	    count_of(door, origin) >= kind->origin_max)
		return oldest_end(door, origin);
	return door->visitor_count < kind->visitors_max || oldest_end(door, NULL);
}

void visitor_open(struct door *door, int fd, const struct sockaddr_storage *address)
{
	struct visitor *v = place_make(door, address) ? calloc(1, door->kind->visitor_size) : NULL;

	if (!v || uv_poll_init(&door->loop, &v->poll, fd) < 0) {
		free(v);
		close(fd);
		return;
	}
	v->door = door;
	v->fd = fd;
	v->next = door->visitors;
	v->poll.data = v;
	v->opened_ns = v->moved_ns = now_monotonic_ns();
	v->shaken = !door->tls;
	origin_read(address, v->origin);
	if (v->next)
		v->next->previous = v;
	door->visitors = v;
	door->visitor_count++;
	if (door->tls && !(v->tls = tls_session_new(door->tls, fd)))
		visitor_close(v);
	else
		visitor_await(v, UV_READABLE);
}

void visitors_tick(struct door *door)
{
	uint64_t now = now_monotonic_ns();

	for (struct visitor *v = door->visitors, *next; v; v = next) {
		next = v->next;
		if (!v->proved && now - v->opened_ns > door->kind->proof_ns)
			visitor_refuse(v, REFUSED_SLOW);
		else if (v->shaken && door->kind->visitor_is_over(v, now))
			visitor_close(v);
	}
}

void visitors_close(struct door *door)
{
	while (door->visitors)
		visitor_close(door->visitors);
}
