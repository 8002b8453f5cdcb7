#include "daemon/attach/attach.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/attach/dying.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/crowd.h"
#include "daemon/host/fair.h"
#include "daemon/host/handover.h"
#include "daemon/host/limited.h"
#include "daemon/host/listener.h"
#include "daemon/host/log.h"
#include "daemon/host/owner.h"
#include "daemon/host/peer.h"
#include "daemon/host/privileges.h"
#include "daemon/host/rights.h"
#include "daemon/lease/leases.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/settle/cgroups.h"
#include "daemon/settle/settle.h"
#include "proto/attach.h"

#define CONNECTIONS_MAX 16384u
/* A connection without a slot that is silent for this long is closed. */
#define SILENCE_MAX_NS 30000000000ull
/* A driver that does not answer keeps no command from beginning. */
#define BINDING_MAX_NS 2000000000ull
/* A process that allocates without a pause is not waited for longer than this many samples. */
#define SETTLE_TRIES 20u

struct attach_connection {
	struct attach_connection *next, *previous;
	struct attach_server *server;
	uv_poll_t poll;
	int fd;
	struct peer peer;
	uid_t owner;             /* to whom it counts (crowd.h) */
	struct process *process; /* NULL: it has no slot */
	uint64_t heard_ns;
	uint64_t binding;       /* its command's cgroup gets a limit, then it is answered; 0: no */
	uint64_t settle_sample; /* number of the sample that it waits for; 0: none */
	unsigned settle_tries;
	uint64_t settle_leaving;
	uint32_t settle_gpu; /* whose excess the reply tells, plus 1; 0: none */
	/* CLOCK_MONOTONIC, since when it waits for what ending processes hold, or for the sample
	 * (0: none) that shows what others do; 0: it does not. */
	uint64_t sweep_ns;
	uint64_t sweep_sample;
	char entering[LEDGER_SESSION_SIZE]; /* the session that it waits for a slot of; "": none */
	struct fair_work turn;              /* what it says is read in its user's turn */
};

struct attach_server {
	struct sessions *sessions;
	struct fair *turns; /* those of HTTP, too */
	uint64_t heard_ns;  /* CLOCK_MONOTONIC, when anybody last said something */
	uint64_t bindings;  /* so many were begun */
	uv_poll_t poll;
	int fd;
	struct attach_connection *connections;
	struct crowd crowd;
	bool full; /* no descriptor was left: nothing is accepted until the next tick */
};

static void on_connection_closed(uv_handle_t *handle)
{
	struct attach_connection *c = handle->data;

	close_fd(&c->fd);
	free(c);
}

static void connection_close(struct attach_connection *c)
{
	fair_withdraw(&c->turn);
	if (c->process)
		process_disconnected(c->process);
	if (c->next)
		c->next->previous = c->previous;
	*(c->previous ? &c->previous->next : &c->server->connections) = c->next;
	crowd_leave(&c->server->crowd, c->owner);
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
	connection_close(c);
}

/* ---- replies ----------------------------------------------------------------------------- */

/* False where the peer does not take it: it is of no use any more. */
static bool reply_send(struct attach_connection *c, const struct attach_reply *reply,
		       const int *fds, unsigned fd_count)
{
	struct iovec part = {.iov_base = (void *)reply, .iov_len = sizeof(*reply)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd_count) {
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);

		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
	}
	return sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*reply);
}

__attribute__((format(printf, 3, 4))) static bool
reply_status(struct attach_connection *c, enum attach_status status, const char *format, ...)
{
	struct attach_reply reply = {
		.magic = ATTACH_MAGIC,
		.version = ATTACH_VERSION,
		.status = (uint16_t)status,
		.slot = c->process ? c->process->slot : LEDGER_SLOT_DAEMON,
	};
	va_list args;

	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	vsnprintf(reply.message, sizeof(reply.message), format, args);
	va_end(args);
	return reply_send(c, &reply, NULL, 0);
}

static bool reply_books(struct attach_connection *c, const struct session *session)
{
	struct attach_reply reply = {
		.magic = ATTACH_MAGIC,
		.version = ATTACH_VERSION,
		.status = ATTACH_OK,
		.slot = c->process ? c->process->slot : LEDGER_SLOT_DAEMON,
	};
	bool wakes = c->process && session->lease;
	const int fds[] = {session->books.limits_fd, session->books.ledger_fd,
			   wakes ? leases_wake_fd(session->lease) : -1};

	return reply_send(c, &reply, fds, wakes ? 3 : 2);
}

/* ---- requests ---------------------------------------------------------------------------- */

static bool books_or_reply(struct attach_connection *c, struct session *s, bool *ret_alive)
{
	int rc = session_books(s);

	if (rc == 0)
		return true;
	*ret_alive =
		rc == -EBUSY
			? reply_status(c, ATTACH_FAILED,
				       "carved ended, and session %s's processes go on, but its "
				       "ledger was lost; wait until they have ended, or end them",
				       s->record.id)
		: rc == -ENODEV
			? reply_status(c, ATTACH_FAILED, "the GPU of session %s is gone",
				       s->record.id)
			: reply_status(c, ATTACH_FAILED, "carved cannot make the ledger: %s",
				       rc == -EMFILE
					       ? limited_descriptors_text(strerrordesc_np(EMFILE))
					       : strerrordesc_np(-rc));
	return false;
}

/* Whether processes of the session are ending that hold what this connection asks for, or may hold
 * less than is posted. It is answered when that is over. */
static bool sweep_begin(struct attach_connection *c, struct session *s)
{
	uint64_t now;

	if (s->state != SESSION_ACTIVE)
		return false;
	dying_look(s, c);
	now = now_monotonic_ns();
	bool dying = dying_any(s, now);
	c->sweep_sample = c->process ? settle_room(s) : 0;
	if (!dying && !c->sweep_sample)
		return false;
	c->sweep_ns = now;
	if (dying)
		processes_await(s);
	return true;
}

/* Somebody is still ending, or the figures are not there yet. */
static bool sweep_waits(struct attach_connection *c, struct session *s)
{
	bool known = !c->sweep_sample || settle_room_known(s, &c->sweep_sample);

	return dying_any(s, c->sweep_ns) || !known;
}

/* May have to wait for the slot of a process that is just ending, once. */
static bool enter(struct attach_connection *c, struct session *s, bool waits)
{
	int rc = process_attach(s, c->peer.process, c, &c->process);

	if (rc == -ENOSPC && waits && sweep_begin(c, s)) {
		snprintf(c->entering, sizeof(c->entering), "%s", s->record.id);
		return true;
	}
	if (rc == -ENOSPC)
		return reply_status(c, ATTACH_FULL, "session %s has %u processes already",
				    s->record.id, BOOKS_SLOTS - 1);
	if (rc < 0)
		return reply_status(c, ATTACH_FAILED, "cannot attach: %s", strerrordesc_np(-rc));
	/* It does not wait: the front binds it. */
	(void)cgroups_bind(s, c->peer.process, false, NULL, NULL, 0);
	return reply_books(c, s);
}

static bool handle_workload(struct attach_connection *c, struct session *s)
{
	bool alive;

	if (c->process || c->sweep_ns || c->binding)
		return reply_status(c, ATTACH_MALFORMED, "this connection has a slot already");
	return books_or_reply(c, s, &alive) ? enter(c, s, true) : alive;
}

static bool handle_observe(struct attach_connection *c, struct session *s)
{
	bool alive;

	return books_or_reply(c, s, &alive) ? reply_books(c, s) : alive;
}

static void on_bound(void *context, uint64_t number)
{
	struct attach_server *server = context;
	struct attach_connection *c = server->connections;

	while (c && c->binding != number)
		c = c->next;
	if (!c)
		return;
	c->binding = 0;
	if (!reply_status(c, ATTACH_OK, "%s", ""))
		connection_close(c);
}

/* Before the command begins the driver has the limit of its cgroup, where it takes one. */
static bool bind_begin(struct attach_connection *c, struct session *s)
{
	uint64_t number = c->server->bindings + 1;

	if (!cgroups_bind(s, c->peer.process, true, on_bound, c->server, number))
		return false;
	c->binding = c->server->bindings = number;
	return true;
}

/* Its mount namespace is not known yet. */
static bool reply_busy(struct attach_connection *c, const struct session *s)
{
	log_event(LOG_WARNING, "attach.busy session=%s pid=%d", s->record.id,
		  (int)c->peer.process.pid);
	return reply_status(c, ATTACH_BUSY, "carved is too busy to see whose slice this is");
}

static bool handle_command(struct attach_connection *c, struct session *s, uint32_t flags)
{
	bool made = flags & ATTACH_FLAG_NAMESPACE && c->peer.uid == 0;
	int mount_fd = made ? privileges_namespace(s->sessions->privileges, c->peer.process) : -1;

	if (made && privileges_try_again(mount_fd))
		return reply_busy(c, s);
	int rc = session_command_add(s, &c->peer.process, mount_fd);

	if (rc < 0)
		return reply_status(c, ATTACH_FAILED, "cannot watch the command: %s",
				    rc == -EMFILE
					    ? limited_descriptors_text(
						      "this user has too many commands in slices")
					    : strerrordesc_np(-rc));
	/* From within its namespace it comes a second time. */
	if (!(flags & ATTACH_FLAG_NAMESPACE) && bind_begin(c, s))
		return true;
	return reply_status(c, ATTACH_OK, "%s", "");
}

/* A process that attached to the daemon before this one and goes on here: its slot was taken up
 * with the ledger, so only the connection is new. */
static bool handle_resume(struct attach_connection *c, struct session *s, uint32_t slot)
{
	for (struct process *p = s->processes; p && !c->process; p = p->next) {
		if (p->slot != slot || p->life != PROCESS_LIFE_UNCONNECTED ||
		    !process_same(p->id, c->peer.process))
			continue;
		process_connected(p, c);
		c->process = p;
		process_hears(p, true);
		return reply_books(c, s);
	}
	return reply_status(c, ATTACH_MALFORMED, "slot %u is not yours to resume", slot);
}

/* gpu: a position in the session, plus 1; 0: none is meant. leaving: of that one, in bytes. */
static bool handle_settle(struct attach_connection *c, enum settle_why why, uint32_t gpu,
			  uint64_t leaving)
{
	if (!c->process || c->settle_sample || c->sweep_ns ||
	    (leaving && (!gpu || gpu > c->process->session->record.gpu_count)))
		return reply_status(c, ATTACH_MALFORMED, "nothing to settle");
	c->settle_tries = 0;
	c->settle_gpu = gpu;
	c->settle_leaving = leaving;
	c->settle_sample = process_settle(c->process, why, gpu ? gpu - 1 : 0, leaving);
	return true;
}

static bool handle_sweep(struct attach_connection *c)
{
	if (!c->process || c->settle_sample || c->sweep_ns)
		return reply_status(c, ATTACH_MALFORMED, "nothing to sweep");
	return sweep_begin(c, c->process->session) || reply_status(c, ATTACH_OK, "%s", "");
}

/* 0, -EPERM, or -EAGAIN: not known yet. A user's containers run as subordinate users. */
static int is_in_session(const struct attach_connection *c, const struct session *s,
			 enum attach_kind kind)
{
	if (c->peer.uid == s->record.uid || c->peer.uid == 0 ||
	    owner_of(c->peer.uid) == s->record.uid)
		return 0;
	return kind == ATTACH_COMMAND ? -EPERM : session_admits(s, c->peer.process);
}

/* False: the connection is to be closed. */
static bool handle_session(struct attach_connection *c, const struct attach_request *request)
{
	struct session *s = session_find(c->server->sessions, request->session);

	if (!s || s->state != SESSION_ACTIVE)
		return reply_status(c, ATTACH_NO_SESSION, "there is no session %.39s",
				    request->session);
	int rc = is_in_session(c, s, request->kind);
	if (rc == -EAGAIN)
		return reply_busy(c, s);
	if (rc < 0)
		return reply_status(c, ATTACH_NOT_PERMITTED, "session %s is another user's",
				    s->record.id);
	switch (request->kind) {
	case ATTACH_WORKLOAD:
		return handle_workload(c, s);
	case ATTACH_COMMAND:
		return handle_command(c, s, request->flags);
	case ATTACH_OBSERVE:
		return handle_observe(c, s);
	case ATTACH_RESUME:
		return handle_resume(c, s, request->slot);
	default:
		return reply_status(c, ATTACH_MALFORMED, "unknown request %u", request->kind);
	}
}

static bool handle(struct attach_connection *c, const struct attach_request *request, size_t size)
{
	if (size != sizeof(*request) || request->magic != ATTACH_MAGIC)
		return reply_status(c, ATTACH_MALFORMED, "not an attach request"), false;
	if (request->version != ATTACH_VERSION)
		return reply_status(
			c, ATTACH_VERSION_MISMATCH,
			"this carved (%s) speaks version %u of the attach protocol, the "
			"program's carve version %u",
			CARVE_VERSION, ATTACH_VERSION, request->version);
	if (request->session[LEDGER_SESSION_SIZE - 1])
		return reply_status(c, ATTACH_MALFORMED, "not an attach request"), false;
	if (request->kind == ATTACH_SETTLE)
		return handle_settle(
			c, request->flags & ATTACH_FLAG_INEXACT ? SETTLE_INEXACT : SETTLE_EXACT,
			request->reserved[0],
			request->flags & ATTACH_FLAG_LEAVING ? request->reserved[1] * LEDGER_GRANULE
							     : 0);
	if (request->kind == ATTACH_SWEEP)
		return handle_sweep(c);
	return handle_session(c, request);
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
	if (n <= 0 || !handle(c, &message.request, (size_t)n))
		connection_close(c);
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

/* Memory that is leaving is in the books before the process hears that it is. */
static bool reply_settled(struct attach_connection *c, bool settled)
{
	struct process *p = c->process;
	uint32_t gpu = c->settle_gpu - 1;
	struct attach_reply reply = {
		.magic = ATTACH_MAGIC,
		.version = ATTACH_VERSION,
		.status = ATTACH_OK,
		.slot = p ? p->slot : LEDGER_SLOT_DAEMON,
	};

	if (p && settled && c->settle_gpu && gpu < p->session->record.gpu_count) {
		uint64_t over = process_over(p, gpu);

		reply.reserved[0] = (uint32_t)over;
		reply.reserved[1] = (uint32_t)(over >> 32);
		reply.reserved[2] = ATTACH_SURE;
	}
	if (c->settle_leaving)
		reply.reserved[2] = ATTACH_TAKEN_OVER;
	if (p)
		process_settle_end(p, settled);
	return reply_send(c, &reply, NULL, 0);
}

/* Of a connection that waits; false: it is to be closed. */
static bool sweep_look(struct attach_connection *c)
{
	struct session *s = c->entering[0] ? session_find(c->server->sessions, c->entering)
			    : c->process   ? c->process->session
					   : NULL;
	bool goes_on = s && s->state == SESSION_ACTIVE && sweep_waits(c, s);

	if (goes_on && !(c->entering[0] && process_slot_free(s)))
		return true;
	c->sweep_ns = 0;
	if (!c->entering[0])
		return reply_status(c, ATTACH_OK, "%s", "");
	bool found = s && s->state == SESSION_ACTIVE && books_exist(&s->books);
	bool alive = found ? enter(c, s, false)
			   : reply_status(c, ATTACH_NO_SESSION, "there is no session %.39s",
					  c->entering);
	c->entering[0] = '\0';
	return alive;
}

void attach_swept(struct attach_server *server)
{
	for (struct attach_connection *c = server->connections, *next; c; c = next) {
		next = c->next;
		if (c->sweep_ns && !sweep_look(c))
			connection_close(c);
	}
}

void attach_sampled(struct attach_server *server)
{
	struct pool *pool = server->sessions->pool;

	attach_swept(server);

	for (struct attach_connection *c = server->connections, *next; c; c = next) {
		next = c->next;
		if (!c->settle_sample || c->settle_sample > pool->done)
			continue;
		bool settled = c->process && process_settled(c->process);
		if (c->process && !settled && process_settle_waits(c->process))
			continue;
		if (c->process && !settled && !c->settle_leaving &&
		    ++c->settle_tries < SETTLE_TRIES) {
			c->settle_sample =
				pool_refresh(pool, session_gpu_mask(c->process->session));
			continue;
		}
		c->settle_sample = 0;
		if (!reply_settled(c, settled))
			connection_close(c);
	}
}

/* ---- the server -------------------------------------------------------------------------- */

/* The descriptor becomes the connection's. -EMFILE: its user has too many. */
static int connection_open(struct attach_server *server, int *fd, const struct peer *peer,
			   struct attach_connection **ret)
{
	struct attach_connection *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	int rc = crowd_enter(&server->crowd, peer->uid, &c->owner) ? 0 : -EMFILE;
	if (rc == 0) {
		rc = uv_poll_init(server->sessions->loop, &c->poll, *fd);
		if (rc < 0)
			crowd_leave(&server->crowd, c->owner);
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
	rights_drain(fd);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct attach_server *server = poll->data;
	cleanup_close int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		server->full = errno == EMFILE || errno == ENFILE;
		if (server->full)
			uv_poll_stop(&server->poll);
		return;
	}
	struct attach_connection *c;
	struct peer peer;
	int rc = limited_is_last(fd) ? -EMFILE : peer_identify(fd, &peer);
	if (rc == 0)
		rc = connection_open(server, &fd, &peer, &c);
	if (rc < 0)
		connection_refuse(fd, rc);
}

int attach_server_start(struct sessions *sessions, struct fair *turns, int fd,
			struct attach_server **ret)
{
	struct attach_server *server = calloc(1, sizeof(*server));

	if (!server)
		return -ENOMEM;
	server->sessions = sessions;
	server->turns = turns;
	server->fd = fd;
	server->poll.data = server;
	rights_refuse(fd);
	crowd_begin(&server->crowd, CONNECTIONS_MAX);
	int rc = uv_poll_init(sessions->loop, &server->poll, fd);
	if (rc == 0)
		rc = uv_poll_start(&server->poll, UV_READABLE, on_connection);
	if (rc < 0) {
		free(server);
		return rc;
	}
	*ret = server;
	return 0;
}

int attach_server_listen(struct attach_server *server, int fd)
{
	return listener_replace(&server->poll, on_connection, server->fd, fd);
}

static void on_server_closed(uv_handle_t *handle)
{
	struct attach_server *server = handle->data;

	rights_close_listener(&server->fd);
	crowd_free(&server->crowd);
	free(server);
}

void attach_server_stop(struct attach_server *server)
{
	if (!server)
		return;
	for (struct attach_connection *c = server->connections, *next; c; c = next) {
		next = c->next;
		c->process = NULL; /* not disconnected: the daemon is going, not they */
		connection_close(c);
	}
	uv_close((uv_handle_t *)&server->poll, on_server_closed);
}

unsigned attach_connections(const struct attach_server *server)
{
	return server->crowd.total;
}

uint64_t attach_heard_ns(const struct attach_server *server)
{
	return server->heard_ns;
}

int attach_listening(const struct attach_server *server)
{
	return server->fd;
}

void attach_tick(struct attach_server *server)
{
	uint64_t now = now_monotonic_ns();

	if (server->full) {
		server->full = false;
		uv_poll_start(&server->poll, UV_READABLE, on_connection);
	}
	for (struct attach_connection *c = server->connections, *next; c; c = next) {
		next = c->next;
		if (c->binding && now - c->heard_ns > BINDING_MAX_NS)
			on_bound(server, c->binding);
		else if (!c->process && now - c->heard_ns > SILENCE_MAX_NS)
			connection_close(c);
	}
}

/* ---- upgrades ---------------------------------------------------------------------------- */

void attach_hand_over(const struct attach_server *server, struct handover *h)
{
	for (const struct attach_connection *c = server->connections; c; c = c->next) {
		json_t *left = json_pack(
			"{s:o, s:o, s:b, s:I, s:I}", "fd", handover_fd(h, c->fd), "peer",
			handover_peer(&c->peer), "settling", c->settle_sample != 0, "settle_gpu",
			(json_int_t)c->settle_gpu, "leaving", (json_int_t)c->settle_leaving);

		if (c->sweep_ns)
			json_object_set_new(left, "sweeping", json_string(c->entering));

		if (c->process) {
			json_object_set_new(left, "session",
					    json_string(c->process->session->record.id));
			json_object_set_new(left, "slot", json_integer(c->process->slot));
		}
		handover_add(h, "attached", left);
	}
}

static struct process *process_of(const struct sessions *sessions, const json_t *from)
{
	const char *id = json_string_value(json_object_get(from, "session"));
	json_int_t slot = json_integer_value(json_object_get(from, "slot"));
	struct session *s = id ? session_find(sessions, id) : NULL;
	struct process *p = s ? s->processes : NULL;

	while (p && (p->slot != slot || p->connection))
		p = p->next;
	return p;
}

static void connection_take_over(struct attach_server *server, struct handover *h,
				 const json_t *from)
{
	cleanup_close int fd = handover_take(h, json_object_get(from, "fd"));
	struct attach_connection *c;
	struct peer peer;

	rights_refuse(fd); /* a program of before may not have asked for it */
	/* The peer's identity was asked for when it connected: by now its process may have ended,
	 * and its children hold the connection. */
	if (fd < 0 || !handover_take_peer(json_object_get(from, "peer"), &peer) ||
	    connection_open(server, &fd, &peer, &c) < 0)
		return;
	const char *entering = json_string_value(json_object_get(from, "sweeping"));
	struct session *s = entering ? session_find(server->sessions, entering) : NULL;

	c->process = process_of(server->sessions, from);
	if (s && !c->process)
		(void)handle_workload(c, s);
	if (!c->process)
		return;
	if (c->process->connection != c)
		process_connected(c->process, c);
	if (json_is_true(json_object_get(from, "settling")))
		(void)handle_settle(
			c, SETTLE_INEXACT,
			(uint32_t)json_integer_value(json_object_get(from, "settle_gpu")),
			(uint64_t)json_integer_value(json_object_get(from, "leaving")));
	if (entering && !s)
		(void)handle_sweep(c);
}

void attach_take_over(struct attach_server *server, struct handover *h)
{
	size_t i;
	json_t *from;

	json_array_foreach(json_object_get(h->root, "attached"), i, from)
		connection_take_over(server, h, from);
}
