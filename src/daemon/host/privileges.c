#include "daemon/host/privileges.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/socket.h"
#include "daemon/host/handover.h"
#include "daemon/host/log.h"
#include "proto/guard.h"

#define DESCRIPTOR_PATIENCE_MS 100
/* The last thing that is asked of it. */
#define LEAVE_PATIENCE_MS 1000

struct privileges_asked {
	struct privileges_asked *next;
	struct guard_request request;
	char session[PRIVILEGES_SESSION_SIZE];
	signal_cb cb;
	void *context;
};

/* ---- the guard's answers ----------------------------------------------------------------- */

static struct guard_request request_make(struct privileges *p, enum guard_op op,
					 struct process_id process)
{
	return (struct guard_request){
		.magic = GUARD_MAGIC,
		.version = GUARD_VERSION,
		.op = (uint16_t)op,
		.number = ++p->number,
		.pid = process.pid,
		.birth = process.birth,
	};
}

static struct process_id process_of(const struct guard_request *request)
{
	return (struct process_id){.pid = request->pid, .birth = request->birth};
}

/* The answer to a signal, in the order in which they were sent. */
static void signal_answered(struct privileges *p, const struct guard_reply *reply)
{
	struct privileges_asked *asked = p->first;

	if (!asked || asked == p->unsent || asked->request.number != reply->number)
		return;
	p->first = asked->next;
	if (asked->cb)
		asked->cb(asked->context, asked->session, process_of(&asked->request),
			  -reply->error);
	free(asked);
}

/* 0; -EAGAIN: there is none; else the guard is gone. */
static int reply_take(struct privileges *p, struct guard_reply *ret, int *ret_fd)
{
	ssize_t n = descriptor_receive(p->link_fd, ret, sizeof(*ret), ret_fd);

	if (n == -EAGAIN || n == -EINTR)
		return -EAGAIN;
	if (n > 0 && guard_reply_check(ret, (size_t)n) == 0)
		return 0;
	close_fd(ret_fd);
	return -EPIPE;
}

static void events_want(struct privileges *p);

static void unsent_send(struct privileges *p)
{

	while (p->unsent && descriptors_send(p->link_fd, &p->unsent->request,
					     sizeof(p->unsent->request), NULL, 0) == 0)
		p->unsent = p->unsent->next;
	events_want(p);
}

/* The descriptor that comes along is closed where nobody wants it. */
static void reply_handle(struct privileges *p, const struct guard_reply *reply, int *fd)
{
	if (reply->op == GUARD_FILE && p->file_number && reply->number == p->file_number) {
		p->file_number = 0;
		p->file_cb(p->file_context, reply->error ? -reply->error
					    : *fd < 0    ? -EIO
							 : steal_fd(fd));
	}
	close_fd(fd);
	if (reply->op == GUARD_SIGNAL)
		signal_answered(p, reply);
	else if (reply->op == GUARD_RENEW && reply->error)
		log_event(LOG_WARNING, "guard.stays error=\"%s\"", strerrordesc_np(reply->error));
	else if (reply->op == GUARD_RENEW)
		log_event(LOG_INFO, "guard.renewed");
}

static void on_guard(uv_poll_t *poll, int status, int events)
{
	struct privileges *p = poll->data;
	struct guard_reply reply;
	int fd = -1, rc;

	while ((rc = reply_take(p, &reply, &fd)) == 0)
		reply_handle(p, &reply, &fd);
	if (rc == -EAGAIN) {
		unsent_send(p);
		return;
	}
	/* Without it no session's processes could be ended. The next daemon has a new one. */
	uv_poll_stop(poll);
	privileges_part_ended(p);
}

static void events_want(struct privileges *p)
{

	if (p->poll)
		uv_poll_start(p->poll, UV_READABLE | (p->unsent ? UV_WRITABLE : 0), on_guard);
}

/* ---- its life ---------------------------------------------------------------------------- */

void privileges_init(struct privileges *p, int link_fd, int mig_fd)
{
	*p = (struct privileges){.link_fd = link_fd, .mig_fd = mig_fd, .limits_fd = -1};
}

void privileges_part_ended(struct privileges *p)
{
	if (p->on_ended)
		p->on_ended(p->context);
}

/* Its answers are read by others: only its end is looked for. */
static void on_limits_ended(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	uv_poll_stop(poll);
	log_event(LOG_ERROR, "limit.guard_ended");
	privileges_part_ended(poll->data);
}

/* *ret: a poll of the link, not listening yet. */
static int link_open(struct privileges *p, uv_loop_t *loop, int fd, uv_poll_t **ret)
{
	uv_poll_t *poll = calloc(1, sizeof(*poll));
	int rc = poll ? uv_poll_init(loop, poll, fd) : -ENOMEM;

	if (rc < 0) {
		free(poll);
		return rc;
	}
	poll->data = p;
	*ret = poll;
	return 0;
}

int privileges_start(struct privileges *p, uv_loop_t *loop, void (*on_ended)(void *context),
		     void *context)
{
	if (p->link_fd < 0)
		return 0;
	int rc = link_open(p, loop, p->link_fd, &p->poll);
	if (rc == 0 && p->limits_fd >= 0)
		rc = link_open(p, loop, p->limits_fd, &p->limits_poll);
	if (rc < 0)
		return rc;
	p->on_ended = on_ended;
	p->context = context;
	if (p->limits_poll)
		uv_poll_start(p->limits_poll, UV_DISCONNECT, on_limits_ended);
	events_want(p);
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

void privileges_stop(struct privileges *p)
{
	while (p->first) {
		struct privileges_asked *asked = p->first;

		p->first = asked->next;
		free(asked);
	}
	p->unsent = NULL;
	p->file_number = 0;
	p->on_ended = NULL;
	if (p->poll)
		uv_close((uv_handle_t *)steal_ptr(&p->poll), on_closed);
	if (p->limits_poll)
		uv_close((uv_handle_t *)steal_ptr(&p->limits_poll), on_closed);
}

void privileges_leave(struct privileges *p, bool sockets)
{
	struct guard_request leave = request_make(p, GUARD_LEAVE, (struct process_id){0});
	struct pollfd readable = {.fd = p->link_fd, .events = POLLIN};
	struct guard_reply reply = {0};
	int fd = -1;

	bool waits = p->link_fd >= 0 && sockets &&
		     descriptors_send(p->link_fd, &leave, sizeof(leave), NULL, 0) == 0;
	while (waits && reply.number != leave.number) {
		waits = poll(&readable, 1, LEAVE_PATIENCE_MS) > 0 &&
			descriptor_receive(p->link_fd, &reply, sizeof(reply), &fd) > 0;
		close_fd(&fd);
	}
	close_fd(&p->link_fd);
	close_fd(&p->mig_fd);
	close_fd(&p->limits_fd);
}

void privileges_hand_over(const struct privileges *p, struct handover *h)
{
	if (p->link_fd >= 0)
		json_object_set_new(h->root, "guard", handover_fd(h, p->link_fd));
	if (p->mig_fd >= 0)
		json_object_set_new(h->root, "mig_guard", handover_fd(h, p->mig_fd));
	if (p->limits_fd >= 0)
		json_object_set_new(h->root, "limits_guard", handover_fd(h, p->limits_fd));
}

void privileges_take_over(struct privileges *p, struct handover *h)
{
	privileges_init(p, handover_take(h, json_object_get(h->root, "guard")),
			handover_take(h, json_object_get(h->root, "mig_guard")));
	p->limits_fd = handover_take(h, json_object_get(h->root, "limits_guard"));
	/* Numbers that the last program gave out: answers to those are nobody's. */
	p->number = now_monotonic_ns();
}

void privileges_renew(struct privileges *p)
{
	struct guard_request renew = request_make(p, GUARD_RENEW, (struct process_id){0});

	if (p->link_fd >= 0)
		(void)descriptors_send(p->link_fd, &renew, sizeof(renew), NULL, 0);
}

/* ---- signals ----------------------------------------------------------------------------- */

static int signal_send(struct process_id process, int signal)
{
	cleanup_close int pidfd = process_open(process);

	if (pidfd < 0)
		return pidfd;
	return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}

void privileges_signal(struct privileges *p, uid_t uid, const char *session,
		       struct process_id process, int signal, signal_cb cb, void *context)
{
	struct privileges_asked *asked = p->link_fd < 0 ? NULL : calloc(1, sizeof(*asked)),
				**at = &p->first;

	if (!asked) {
		int rc = p->link_fd < 0 ? signal_send(process, signal) : -ENOMEM;

		if (cb)
			cb(context, session, process, rc);
		return;
	}
	asked->request = request_make(p, GUARD_SIGNAL, process);
	asked->request.uid = uid;
	asked->request.signal = signal;
	snprintf(asked->session, sizeof(asked->session), "%s", session);
	asked->cb = cb;
	asked->context = context;
	while (*at)
		at = &(*at)->next;
	*at = asked;
	if (!p->unsent)
		p->unsent = asked;
	unsent_send(p);
}

/* ---- descriptors ------------------------------------------------------------------------- */

/* Asks for a descriptor, and waits for it. */
static int descriptor_ask(struct privileges *p, const struct guard_request *request)
{
	struct pollfd readable = {.fd = p->link_fd, .events = POLLIN};
	struct guard_reply reply;
	int fd = -1, rc = 0;

	if (descriptors_send(p->link_fd, request, sizeof(*request), NULL, 0) < 0)
		return -EAGAIN;
	/* Answers to signals that were sent before it come first. */
	while (rc == 0) {
		if (poll(&readable, 1, DESCRIPTOR_PATIENCE_MS) <= 0)
			return -ETIMEDOUT;
		rc = reply_take(p, &reply, &fd);
		if (rc == -EAGAIN) {
			rc = 0;
		} else if (rc == 0 && reply.number == request->number) {
			if (reply.error)
				close_fd(&fd);
			return reply.error ? -reply.error : fd;
		} else if (rc == 0) {
			reply_handle(p, &reply, &fd);
		}
	}
	return rc;
}

int privileges_namespace(struct privileges *p, struct process_id process)
{
	struct guard_request request = request_make(p, GUARD_NAMESPACE, process);

	return p->link_fd < 0 ? process_mount_namespace(process) : descriptor_ask(p, &request);
}

bool privileges_try_again(int error)
{
	return error == -ETIMEDOUT || error == -EAGAIN || error == -EMFILE || error == -ENFILE ||
	       error == -ENOMEM;
}

int privileges_file(struct privileges *p, enum guard_file file)
{
	struct guard_request request = request_make(p, GUARD_FILE, (struct process_id){0});

	request.file = file;
	return descriptor_ask(p, &request);
}

void privileges_file_ask(struct privileges *p, enum guard_file file,
			 void (*cb)(void *context, int fd), void *context)
{
	struct guard_request request = request_make(p, GUARD_FILE, (struct process_id){0});

	request.file = file;
	if (descriptors_send(p->link_fd, &request, sizeof(request), NULL, 0) < 0) {
		cb(context, -EAGAIN);
		return;
	}
	p->file_number = request.number;
	p->file_cb = cb;
	p->file_context = context;
}

bool privileges_guarded(const struct privileges *privileges)
{
	return privileges->link_fd >= 0;
}
