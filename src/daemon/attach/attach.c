/* The messages of processes, and the replies to them. */
#include "daemon/attach/attach.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/file.h"
#include "daemon/attach/attach_private.h"
#include "daemon/attach/dying.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/bounded_root.h"
#include "daemon/host/limited.h"
#include "daemon/host/log.h"
#include "daemon/host/owner.h"
#include "daemon/host/privileges.h"
#include "daemon/lease/leases.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/settle/cgroups.h"
#include "daemon/settle/device_access.h"

/* A process that allocates without a pause is not waited for longer than this many samples. */
#define SETTLE_TRIES 20u

/* ---- replies ----------------------------------------------------------------------------- */

/* The kernel allows the daemon's user as many descriptors in unread messages as a process may open,
 * for all connections together (too_many_unix_fds()). So a connection has one message with three of
 * them unread at most, and connections are a quarter of that at most (budget_begin()). */
static bool has_read_all(const struct attach_connection *c)
{
	int unread = 0;

	return ioctl(c->fd, SIOCOUTQ, &unread) < 0 || unread == 0;
}

/* False where the peer does not take it: it is of no use any more. */
static bool reply_send(struct attach_connection *c, const struct attach_reply *reply,
		       const int *fds, unsigned fd_count)
{
	struct iovec part = {.iov_base = (void *)reply, .iov_len = sizeof(*reply)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd_count && !has_read_all(c))
		return false;
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
				       : rc == -EFBIG ? LIMITED_FILE_SIZE_TEXT
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
	return reply_books(c, s);
}

/* After it waited: the session may have ended meanwhile. */
static bool enter_late(struct attach_connection *c, const char *session, bool waits)
{
	struct session *s = session_find(c->server->sessions, session);

	if (s && s->state == SESSION_ACTIVE && books_exist(&s->books))
		return enter(c, s, waits);
	return reply_status(c, ATTACH_NO_SESSION, "there is no session %.39s", session);
}

/* ---- the driver's limit, before a process begins or has memory --------------------------- */

void attach_bound(void *context, uint64_t number, const char *refusal)
{
	struct attach_server *server = context;
	struct attach_connection *c = server->connections;
	char session[LEDGER_SESSION_SIZE];

	while (c && c->binding != number)
		c = c->next;
	if (!c)
		return;
	c->binding = 0;
	memcpy(session, c->binding_session, sizeof(session));
	bool alive = refusal      ? reply_status(c, ATTACH_FAILED, "%s", refusal)
		     : session[0] ? enter_late(c, session, true)
				  : reply_status(c, ATTACH_OK, "%s", "");
	if (!alive)
		attach_connection_close(c);
}

/* Whether attach_bound() answers, or *ret_alive does: the process may not go on. False: there is no
 * limit to wait for. */
static bool bind_begin(struct attach_connection *c, struct session *s, enum leaf_asker asker,
		       bool *ret_alive)
{
	uint64_t number = ++c->server->bindings;
	bool enters = asker == LEAF_ATTACHING;

	snprintf(c->binding_session, sizeof(c->binding_session), "%s", enters ? s->record.id : "");
	c->binding = number;
	int rc = device_access_bind(s, c->peer.process, asker, attach_bound, c->server, number);
	*ret_alive = true;
	if (rc <= 0)
		c->binding = 0;
	if (rc < 0)
		*ret_alive = reply_status(c, ATTACH_FAILED, "%s", cgroups_bind_refusal(rc));
	return rc != 0;
}

bool attach_workload(struct attach_connection *c, struct session *s)
{
	bool alive;

	if (c->process || c->sweep_ns)
		return reply_status(c, ATTACH_MALFORMED, "this connection has a slot already");
	if (!books_or_reply(c, s, &alive) || bind_begin(c, s, LEAF_ATTACHING, &alive))
		return alive;
	return enter(c, s, true);
}

static bool handle_observe(struct attach_connection *c, struct session *s)
{
	bool alive;

	return books_or_reply(c, s, &alive) ? reply_books(c, s) : alive;
}

static bool command_holds(const struct attach_connection *c, uint32_t flags)
{
	return flags & ATTACH_FLAG_NAMESPACE && !(flags & ATTACH_FLAG_STOPPED) && c->peer.uid == 0;
}

/* Its mount namespace is not known yet. */
static bool reply_busy(struct attach_connection *c, const struct session *s)
{
	log_event(LOG_WARNING, "attach.busy session=%s pid=%d", s->record.id,
		  (int)c->peer.process.pid);
	return reply_status(c, ATTACH_BUSY, "carved is too busy to see whose slice this is");
}

/* The namespace is held that was made for root's command. */
static bool handle_command(struct attach_connection *c, struct session *s, uint32_t flags,
			   struct namespace_seen *seen)
{
	if (flags & ATTACH_FLAG_STOPPED) {
		session_command_remove(s, &c->peer.process);
		return reply_status(c, ATTACH_OK, "%s", "");
	}
	if (command_holds(c, flags) && privileges_try_again(seen->rc))
		return reply_busy(c, s);
	bool alive;
	int rc = session_command_add(s, &c->peer.process,
				     command_holds(c, flags) ? steal_fd(&seen->fd) : -1);

	if (rc < 0)
		return reply_status(c, ATTACH_FAILED, "cannot watch the command: %s",
				    rc == -EMFILE
					    ? limited_descriptors_text(
						      "this user has too many commands in slices")
					    : strerrordesc_np(-rc));
	if (bind_begin(c, s, LEAF_COMMAND, &alive))
		return alive;
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

bool attach_settle(struct attach_connection *c, enum settle_why why, uint32_t gpu, uint64_t leaving)
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

bool attach_sweep(struct attach_connection *c)
{
	if (!c->process || c->settle_sample || c->sweep_ns)
		return reply_status(c, ATTACH_MALFORMED, "nothing to sweep");
	return sweep_begin(c, c->process->session) || reply_status(c, ATTACH_OK, "%s", "");
}

/* Also the root of a container that shares the host's user IDs. */
static bool is_root(const struct attach_connection *c)
{
	return c->peer.uid == 0 || uid_is_bounded_root(c->peer.uid);
}

static bool is_owners(const struct attach_connection *c, const struct session *s)
{
	return c->peer.uid == s->record.uid || owner_of(c->peer.uid) == s->record.uid;
}

/* 0, -EPERM, or -EAGAIN: not known yet. A user's containers run as subordinate users. A container
 * may share the host's user IDs: its root comes into the session of its slice, and of no other. */
static int is_in_session(const struct attach_connection *c, const struct session *s,
			 enum attach_kind kind, const struct namespace_seen *seen)
{
	if (is_root(c))
		return kind == ATTACH_RESUME ? 0 : session_shut_in(s, seen);
	if (is_owners(c, s))
		return 0;
	return kind == ATTACH_COMMAND ? -EPERM : session_admits(s, seen);
}

/* False: the connection is to be closed. `seen`: the mount namespace of the process, where that
 * matters. */
static bool enter_session(struct attach_connection *c, const struct attach_request *request,
			  struct namespace_seen *seen)
{
	struct session *s = session_find(c->server->sessions, request->session);

	if (!s || s->state != SESSION_ACTIVE)
		return reply_status(c, ATTACH_NO_SESSION, "there is no session %.39s",
				    request->session);
	int rc = is_in_session(c, s, request->kind, seen);
	if (rc == -EAGAIN)
		return reply_busy(c, s);
	if (rc < 0)
		return reply_status(c, ATTACH_NOT_PERMITTED,
				    c->peer.uid && !uid_is_bounded_root(c->peer.uid)
					    ? "session %s is another user's"
					    : "this is in another slice than that of session %s",
				    s->record.id);
	switch (request->kind) {
	case ATTACH_WORKLOAD:
		return attach_workload(c, s);
	case ATTACH_COMMAND:
		return handle_command(c, s, request->flags, seen);
	case ATTACH_OBSERVE:
		return handle_observe(c, s);
	case ATTACH_RESUME:
		return handle_resume(c, s, request->slot);
	default:
		return reply_status(c, ATTACH_MALFORMED, "unknown request %u", request->kind);
	}
}

static void on_namespace(void *context, struct namespace_seen *seen)
{
	struct attach_connection *c = context;

	c->naming = 0;
	if (!enter_session(c, &c->named, seen))
		attach_connection_close(c);
}

void attach_naming_end(struct attach_connection *c)
{
	struct session *s = session_find(c->server->sessions, c->named.session);

	privileges_forget(c->server->sessions->privileges, c->naming);
	c->naming = 0;
	if (s ? !reply_busy(c, s)
	      : !reply_status(c, ATTACH_NO_SESSION, "there is no session %.39s", c->named.session))
		attach_connection_close(c);
}

/* False: the connection is to be closed. The daemon does not wait for its warden. */
static bool handle_session(struct attach_connection *c, const struct attach_request *request)
{
	struct privileges *privileges = c->server->sessions->privileges;
	const struct session *s = session_find(c->server->sessions, request->session);
	struct namespace_seen seen = {.rc = -EAGAIN, .fd = -1};
	bool holds = request->kind == ATTACH_COMMAND && command_holds(c, request->flags);
	bool asks = s &&
		    (holds || (request->kind != ATTACH_RESUME && (is_root(c) || !is_owners(c, s)) &&
			       session_asks_namespace(s, is_root(c))));

	if (c->naming)
		return reply_status(c, ATTACH_MALFORMED, "this connection has asked already");
	if (asks && privileges_guarded(privileges)) {
		c->named = *request;
		c->naming = privileges_namespace_ask(privileges, c->owner, c->peer.process, holds,
						     on_namespace, c);
		if (c->naming)
			return true;
	} else if (asks) {
		seen = privileges_namespace_look(c->peer.process);
	}
	bool alive = enter_session(c, request, &seen);
	close_fd(&seen.fd);
	return alive;
}

bool attach_handle(struct attach_connection *c, const struct attach_request *request, size_t size)
{
	if (size != sizeof(*request) || request->magic != ATTACH_MAGIC)
		return reply_status(c, ATTACH_MALFORMED, "not an attach request"), false;
	if (c->binding)
		return reply_status(c, ATTACH_MALFORMED, "the last request is not answered yet"),
		       false;
	if (request->version != ATTACH_VERSION)
		return reply_status(
			c, ATTACH_VERSION_MISMATCH,
			"this carved (%s) speaks version %u of the attach protocol, the "
			"program's carve version %u",
			CARVE_VERSION, ATTACH_VERSION, request->version);
	if (request->session[LEDGER_SESSION_SIZE - 1])
		return reply_status(c, ATTACH_MALFORMED, "not an attach request"), false;
	if (request->kind == ATTACH_SETTLE)
		return attach_settle(
			c, request->flags & ATTACH_FLAG_INEXACT ? SETTLE_INEXACT : SETTLE_EXACT,
			request->reserved[0],
			request->flags & ATTACH_FLAG_LEAVING ? request->reserved[1] * LEDGER_GRANULE
							     : 0);
	if (request->kind == ATTACH_SWEEP)
		return attach_sweep(c);
	return handle_session(c, request);
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

/* Looks at a connection that waits; false: it is to be closed. */
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
	bool alive = enter_late(c, c->entering, false);
	c->entering[0] = '\0';
	return alive;
}

void attach_swept(struct attach_server *server)
{
	for (struct attach_connection *c = server->connections, *next; c; c = next) {
		next = c->next;
		if (c->sweep_ns && !sweep_look(c))
			attach_connection_close(c);
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
			attach_connection_close(c);
	}
}
