/* Holders, which keep an ephemeral session alive: its commands, and processes whose slots nobody
 * can read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_hooks.h"
#include "daemon/session/sessions.h"

uint32_t session_holders_unread(const struct session *s)
{
	uint32_t count = 0;

	for (const struct holder *h = s->holders; h; h = h->next)
		count += h->unread;
	return count;
}

enum session_ledger session_ledger(const struct session *s)
{
	if (books_exist(&s->books))
		return SESSION_LEDGER_OPEN;
	return session_holders_unread(s) ? SESSION_LEDGER_LOST : SESSION_LEDGER_NONE;
}

/* It is in no list any more. Gives back what it took of its user's budget. */
static void holder_free(struct holder *holder)
{
	process_watch_stop(holder->watch);
	close_fd(&holder->mount_fd);
	budget_leave_many(&holder->session->sessions->watched, holder->owner, HOLDER_DESCRIPTORS);
	free(holder);
}

void session_holders_free(struct session *s)
{
	while (s->holders) {
		struct holder *holder = s->holders;

		s->holders = holder->next;
		holder_free(holder);
	}
}

/* The last command that ended stays in the store: most sessions end next, and all of theirs goes
 * with them. A daemon that reads it meanwhile finds no such process. */
static void command_leave(struct session *s, const struct process_id *process)
{
	if (s->command_left.pid)
		(void)store_command_remove(s->sessions->store, s->record.id, &s->command_left);
	s->command_left = *process;
}

static void on_holder_ended(void *arg)
{
	struct holder *holder = arg, **at;
	struct session *s = holder->session;

	for (at = &s->holders; *at != holder; at = &(*at)->next)
		;
	*at = holder->next;
	if (holder->unread)
		log_event(LOG_INFO, "process.ended id=%s pid=%d", s->record.id,
			  (int)holder->process.pid);
	if (holder->command)
		command_leave(s, &holder->process);
	s->sessions->hooks->namespace_left(holder);
	holder_free(holder);
	if (s->state != SESSION_ACTIVE)
		session_continue_end(s);
	else
		session_check_held(s);
}

/* NULL: the process holds nothing. */
static struct holder *holder_find(const struct session *s, const struct process_id *process)
{
	struct holder *holder = s->holders;

	while (holder && !process_same(holder->process, *process))
		holder = holder->next;
	return holder;
}

/* The holder of that process, made if need be. 0 or -errno. */
static int holder_get(struct session *s, const struct process_id *process, struct holder **ret)
{
	struct holder *holder = holder_find(s, process);

	*ret = holder;
	if (holder)
		return 0;
	holder = calloc(1, sizeof(*holder));
	if (!holder)
		return -ENOMEM;
	if (!budget_enter_many(&s->sessions->watched, s->record.uid, HOLDER_DESCRIPTORS,
			       &holder->owner)) {
		free(holder);
		return -EMFILE;
	}
	holder->session = s;
	holder->mount_fd = -1;
	holder->process = *process;
	int rc = process_watch_start(s->sessions->loop, *process, on_holder_ended, holder,
				     &holder->watch);
	if (rc < 0) {
		holder_free(holder);
		return rc;
	}
	holder->next = s->holders;
	s->holders = holder;
	*ret = holder;
	return 0;
}

int session_holder_add(struct session *s, const struct process_id *process)
{
	struct holder *holder;

	return holder_get(s, process, &holder);
}

int session_owner_set(struct session *s, const struct process_id *process)
{
	int rc = session_holder_add(s, process);

	return rc < 0 ? rc : store_holder_add(s->sessions->store, s->record.id, process);
}

void session_unread_let_go(struct session *s, const struct process_id *process)
{
	struct holder *holder = holder_find(s, process);

	if (holder && holder->unread)
		on_holder_ended(holder);
}

void session_holder_leave(struct session *s, const struct process_id *process)
{
	struct holder **at = &s->holders;

	while (*at && !process_same((*at)->process, *process))
		at = &(*at)->next;
	struct holder *holder = *at;
	if (!holder || holder->command || holder->unread)
		return;
	*at = holder->next;
	holder_free(holder);
}

/* The number of a namespace; 0: it is none. */
static uint64_t namespace_number(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 ? st.st_ino : 0;
}

int session_command_restore(struct session *s, const struct process_id *process, int mount_fd)
{
	struct holder *holder;
	int rc = holder_get(s, process, &holder);

	if (rc < 0) {
		close_fd(&mount_fd);
		return rc;
	}
	holder->command = true;
	close_fd(&holder->mount_fd);
	holder->mount_fd = mount_fd;
	s->sessions->hooks->namespace_made(holder);
	return 0;
}

/* NULL: it is none of its commands. */
static const struct holder *command_find(const struct session *s, const struct process_id *process)
{
	const struct holder *holder = holder_find(s, process);

	return holder && holder->command ? holder : NULL;
}

/* It said so before: nothing is written, however often it is repeated. */
static bool command_is_known(const struct session *s, const struct process_id *process,
			     int mount_fd)
{
	const struct holder *holder = command_find(s, process);

	return holder && namespace_number(holder->mount_fd) == namespace_number(mount_fd);
}

int session_command_add(struct session *s, const struct process_id *process, int mount_fd)
{
	if (command_is_known(s, process, mount_fd)) {
		close_fd(&mount_fd);
		return 0;
	}
	int rc = store_command_put(s->sessions->store, s->record.id, process,
				   namespace_number(mount_fd));

	/* Others go on for as long as somebody has them, whether the next daemon knows or not. */
	if (rc < 0 && s->record.ephemeral) {
		close_fd(&mount_fd);
		return rc;
	}
	if (rc < 0)
		log_event(LOG_WARNING, "session.command_unrecorded id=%s pid=%d error=\"%s\"",
			  s->record.id, (int)process->pid, strerrordesc_np(-rc));
	return session_command_restore(s, process, mount_fd);
}

void session_command_remove(struct session *s, const struct process_id *process)
{
	struct holder **at = &s->holders;

	while (*at && !process_same((*at)->process, *process))
		at = &(*at)->next;
	struct holder *holder = *at;
	if (s->record.ephemeral || s->state != SESSION_ACTIVE || !holder || !holder->command ||
	    holder->unread)
		return;
	(void)store_command_remove(s->sessions->store, s->record.id, process);
	*at = holder->next;
	s->sessions->hooks->namespace_left(holder);
	holder_free(holder);
}

void session_holder_unread(struct session *s, const struct process_id *process)
{
	struct holder *holder;
	int rc = holder_get(s, process, &holder);

	if (rc == 0)
		holder->unread = true;
}

bool session_has_attached(const struct session *s, pid_t pid)
{
	const struct process *p = s->processes;

	while (p && (process_is_dead(p) || p->id.pid != pid))
		p = p->next;
	return p;
}

static bool has_namespaces(const struct session *s)
{
	for (const struct holder *h = s->holders; h; h = h->next)
		if (h->mount_fd >= 0)
			return true;
	return false;
}

static bool has_namespace(const struct session *s, const struct warden_namespace *its)
{
	struct stat one;

	for (const struct holder *h = s->holders; h; h = h->next)
		if (h->mount_fd >= 0 && fstat(h->mount_fd, &one) == 0 &&
		    one.st_dev == its->device && one.st_ino == its->inode)
			return true;
	return false;
}

static const struct session *others_with_namespaces(const struct session *s)
{
	const struct session *other = s->sessions->first;

	while (other && (other == s || !has_namespaces(other)))
		other = other->next;
	return other;
}

bool session_asks_namespace(const struct session *s, bool root)
{
	return root ? others_with_namespaces(s) != NULL : s->record.uid == 0 && has_namespaces(s);
}

int session_admits(const struct session *s, const struct namespace_seen *seen)
{
	if (s->record.uid != 0 || !has_namespaces(s))
		return -EPERM;
	if (seen->rc == 0 && has_namespace(s, &seen->id))
		return 0;
	return privileges_try_again(seen->rc) ? -EAGAIN : -EPERM;
}

int session_shut_in(const struct session *s, const struct namespace_seen *seen)
{
	const struct session *other = others_with_namespaces(s);

	if (!other || seen->rc == -EINVAL)
		return 0; /* -EINVAL: the host's, or the daemon's own */
	if (seen->rc < 0)
		return privileges_try_again(seen->rc) ? -EAGAIN : -EPERM;
	if (has_namespace(s, &seen->id))
		return 0;
	for (; other; other = other->next)
		if (other != s && has_namespace(other, &seen->id))
			return -EPERM;
	return 0;
}

void session_check_held(struct session *s)
{
	if (s->record.ephemeral && s->state == SESSION_ACTIVE && !s->holders && !s->processes)
		session_end_unused(s, STORE_END_OWNER, "its command ended");
}
