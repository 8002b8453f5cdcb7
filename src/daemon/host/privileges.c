#include "daemon/host/privileges.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"

/* ---- its life ---------------------------------------------------------------------------- */

void privileges_init(struct privileges *p, int link_fd)
{
	*p = (struct privileges){0};
	warden_link_init(&p->warden, link_fd);
}

int privileges_start(struct privileges *p, uv_loop_t *loop, void (*on_ended)(void *context),
		     void *context)
{
	return warden_link_start(&p->warden, loop, on_ended, context);
}

void privileges_stop(struct privileges *p)
{
	warden_link_stop(&p->warden);
}

void privileges_leave(struct privileges *p)
{
	warden_link_close(&p->warden);
}

bool privileges_guarded(const struct privileges *p)
{
	return warden_link_there(&p->warden);
}

int privileges_call(void *context, uint16_t operation, const void *request, size_t size,
		    void *answer, size_t answer_size)
{
	struct privileges *p = context;

	return warden_link_call(
		&p->warden,
		&(struct warden_question){.operation = (enum warden_operation)operation,
					  .request = request,
					  .size = size,
					  .answer_size = answer_size},
		answer);
}

/* ---- signals ----------------------------------------------------------------------------- */

struct signal_asked {
	struct privileges *privileges;
	char session[PRIVILEGES_SESSION_SIZE];
	struct warden_signal request;
	signal_cb cb;
	void *context;
};

static int signal_send(struct process_id process, int signal)
{
	cleanup_close int pidfd = process_open(process);

	if (pidfd < 0)
		return pidfd;
	return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}

static void signal_answer(const struct signal_asked *asked, int rc)
{
	const struct warden_signal *r = &asked->request;

	if (asked->cb)
		asked->cb(asked->context, asked->session,
			  (struct process_id){.pid = r->pid, .birth = r->birth}, rc);
}

/* connection: goes along; -1: none does. */
static int signal_ask(const struct signal_asked *what, enum warden_operation operation,
		      int connection, warden_cb cb)
{
	struct signal_asked *asked = malloc(sizeof(*asked));

	if (!asked)
		return -ENOMEM;
	*asked = *what;
	const struct warden_question question = {.operation = operation,
						 .owner = asked->request.uid,
						 .request = &asked->request,
						 .size = sizeof(asked->request),
						 .fds = {connection},
						 .fd_count = connection >= 0};
	if (warden_link_ask(&asked->privileges->warden, &question, cb, free, asked))
		return 0;
	free(asked);
	return -ENOMEM;
}

static void on_signalled(void *context, int rc, const void *answer, int *fd)
{
	struct signal_asked *asked = context;

	signal_answer(asked, rc);
	free(asked);
}

/* The warden found no proof, or its child came to no end. */
static bool is_unproved(int rc)
{
	return rc == -EACCES || rc == -ETIMEDOUT || rc == -ECHILD;
}

/* A process that hides from the warden that it is in a slice is ended if it uses a GPU. */
static void on_slice_signalled(void *context, int rc, const void *answer, int *fd)
{
	struct signal_asked *asked = context;

	if (!is_unproved(rc) || signal_ask(asked, WARDEN_SIGNAL_ON_GPU, -1, on_signalled) < 0)
		signal_answer(asked, rc);
	free(asked);
}

static void on_peer_signalled(void *context, int rc, const void *answer, int *fd)
{
	struct signal_asked *asked = context;

	if (!is_unproved(rc) || signal_ask(asked, WARDEN_SIGNAL, -1, on_slice_signalled) < 0)
		signal_answer(asked, rc);
	free(asked);
}

void privileges_signal_peer(struct privileges *p, uid_t uid, const char *session,
			    struct process_id process, int connection, int signal, signal_cb cb,
			    void *context)
{
	struct signal_asked asked = {.privileges = p,
				     .request = {.pid = process.pid,
						 .birth = process.birth,
						 .uid = uid,
						 .signal = signal},
				     .cb = cb,
				     .context = context};
	bool guarded = privileges_guarded(p);

	snprintf(asked.session, sizeof(asked.session), "%s", session);
	int rc = !guarded ? signal_send(process, signal)
		 : connection < 0
			 ? signal_ask(&asked, WARDEN_SIGNAL, -1, on_slice_signalled)
			 : signal_ask(&asked, WARDEN_SIGNAL_PEER, connection, on_peer_signalled);
	if (rc < 0 || !guarded)
		signal_answer(&asked, rc);
}

void privileges_signal(struct privileges *p, uid_t uid, const char *session,
		       struct process_id process, int signal, signal_cb cb, void *context)
{
	privileges_signal_peer(p, uid, session, process, -1, signal, cb, context);
}

/* ---- mount namespaces --------------------------------------------------------------------- */

struct namespace_asked {
	namespace_cb cb;
	void *context;
	bool hold;
};

struct namespace_seen privileges_namespace_look(struct process_id process)
{
	struct namespace_seen seen = {.fd = process_mount_namespace(process)};
	struct stat st;

	seen.rc = seen.fd < 0 ? seen.fd : fstat(seen.fd, &st) < 0 ? -errno : 0;
	if (seen.rc < 0)
		close_fd(&seen.fd);
	else
		seen.id = (struct warden_namespace){.device = st.st_dev, .inode = st.st_ino};
	return seen;
}

static void on_seen(void *context, int rc, const void *answer, int *fd)
{
	struct namespace_asked *asked = context;
	struct namespace_seen seen = {.rc = rc, .fd = -1};

	if (rc == 0)
		seen.id = *(const struct warden_namespace *)answer;
	if (rc == 0 && asked->hold && (seen.fd = steal_fd(fd)) < 0)
		seen.rc = -EMFILE; /* this process has no room for it */
	asked->cb(asked->context, &seen);
	close_fd(&seen.fd);
	free(asked);
}

uint64_t privileges_namespace_ask(struct privileges *p, uid_t owner, struct process_id process,
				  bool hold, namespace_cb cb, void *context)
{
	struct warden_process request = {.pid = process.pid, .birth = process.birth};
	struct namespace_asked *asked = malloc(sizeof(*asked));

	if (!asked)
		return 0;
	*asked = (struct namespace_asked){.cb = cb, .context = context, .hold = hold};
	uint64_t number = warden_link_ask(
		&p->warden,
		&(struct warden_question){.operation = hold ? WARDEN_NAMESPACE_HOLD
							    : WARDEN_NAMESPACE_LOOK,
					  .owner = owner,
					  .request = &request,
					  .size = sizeof(request),
					  .answer_size = sizeof(struct warden_namespace)},
		on_seen, free, asked);
	if (!number)
		free(asked);
	return number;
}

/* ---- root of the host --------------------------------------------------------------------- */

#define ROOT_PATIENCE_NS 2000000000ull

struct root_asked {
	root_cb cb;
	void *context;
};

static void on_root_seen(void *context, int rc, const void *answer, int *fd)
{
	struct root_asked *asked = context;

	asked->cb(asked->context, rc);
	free(asked);
}

uint64_t privileges_root_ask(struct privileges *p, struct process_id process, root_cb cb,
			     void *context)
{
	struct warden_process request = {.pid = process.pid, .birth = process.birth};
	struct root_asked *asked = malloc(sizeof(*asked));

	if (!asked)
		return 0;
	*asked = (struct root_asked){.cb = cb, .context = context};
	uint64_t number =
		warden_link_ask(&p->warden,
				&(struct warden_question){.operation = WARDEN_ROOT_LOOK,
							  .request = &request,
							  .size = sizeof(request),
							  .patience_ns = ROOT_PATIENCE_NS},
				on_root_seen, free, asked);
	if (!number)
		free(asked);
	return number;
}

void privileges_forget(struct privileges *p, uint64_t number)
{
	warden_link_forget(&p->warden, number);
}

bool privileges_try_again(int error)
{
	return error == -EAGAIN || error == -EMFILE || error == -ENFILE || error == -ENOMEM ||
	       error == -EPIPE;
}
