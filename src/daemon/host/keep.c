#include "daemon/host/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"

#define FLUSH_MS 200

struct kept {
	struct kept *next;
	char name[SUPERVISOR_NAME_SIZE];
	int fd; /* -1: the supervisor's alone */
};

struct keep_sending {
	struct keep_sending *next;
	char text[SUPERVISOR_NAME_SIZE + 64];
	int fd; /* its own; -1: none goes along */
};

static void name_make(char ret[static SUPERVISOR_NAME_SIZE], const char *owner, const char *part)
{
	snprintf(ret, SUPERVISOR_NAME_SIZE, "%s.%s", owner, part);
}

/* ---- lists of names ----------------------------------------------------------------------- */

static struct kept *list_add(struct kept **list, const char *name, int fd)
{
	struct kept *kept = calloc(1, sizeof(*kept));

	if (!kept)
		return NULL;
	snprintf(kept->name, sizeof(kept->name), "%s", name);
	kept->fd = fd;
	kept->next = *list;
	*list = kept;
	return kept;
}

/* The place in the list that leads to this name, or to the end. */
static struct kept **list_find(struct kept **list, const char *name)
{
	while (*list && strcmp((*list)->name, name) != 0)
		list = &(*list)->next;
	return list;
}

/* Takes the first one out: its descriptor. */
static int list_remove(struct kept **at)
{
	struct kept *kept = *at;
	int fd = kept->fd;

	*at = kept->next;
	free(kept);
	return fd;
}

/* ---- sending ------------------------------------------------------------------------------ */

/* The supervisor has too much to do, or too many descriptors are under way. */
static bool is_busy(int rc)
{
	return rc == -EAGAIN || rc == -ETOOMANYREFS || rc == -ENOBUFS;
}

static void sending_free_first(struct keep *keep)
{
	struct keep_sending *s = keep->first;

	keep->first = s->next;
	if (!keep->first)
		keep->last = &keep->first;
	close_fd(&s->fd);
	free(s);
}

static void send_failed(const char *text, int rc)
{
	log_event(LOG_WARNING, "ledger.not_kept message=\"%s\" error=\"%s\"", text,
		  strerrordesc_np(-rc));
}

static void on_writable(uv_poll_t *poll, int status, int events);

static void queue_send(struct keep *keep)
{
	while (keep->first) {
		int rc = supervisor_tell_with(keep->first->text, keep->first->fd);

		if (is_busy(rc))
			break;
		if (rc < 0)
			send_failed(keep->first->text, rc);
		sending_free_first(keep);
	}
	if (keep->poll && keep->first)
		uv_poll_start(keep->poll, UV_WRITABLE, on_writable);
	else if (keep->poll)
		uv_poll_stop(keep->poll);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
	queue_send(poll->data);
}

/* Behind the messages that the supervisor has not taken yet. */
static void text_send(struct keep *keep, const char *text, int fd)
{
	struct keep_sending *s = calloc(1, sizeof(*s));

	if (!s)
		return;
	snprintf(s->text, sizeof(s->text), "%s", text);
	int rc = keep->first ? -EAGAIN : supervisor_tell_with(s->text, fd);
	if (!is_busy(rc)) {
		if (rc < 0)
			send_failed(s->text, rc);
		free(s);
		return;
	}
	s->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	*keep->last = s;
	keep->last = &s->next;
	queue_send(keep);
}

static void message_send(struct keep *keep, const char *what, const char *name, int fd)
{
	char text[sizeof(((struct keep_sending *)0)->text)];

	snprintf(text, sizeof(text), "%s\nFDNAME=%s", what, name);
	text_send(keep, text, fd);
}

void keep_tell(struct keep *keep, const char *state)
{
	if (supervisor_fd() >= 0)
		text_send(keep, state, -1);
}

static void name_forget(struct keep *keep, const char *name)
{
	struct kept **at = list_find(&keep->sent, name);

	if (!*at)
		return;
	(void)list_remove(at);
	keep->bytes -= strlen(name) + 1;
	message_send(keep, "FDSTOREREMOVE=1", name, -1);
}

/* ---- the whole ---------------------------------------------------------------------------- */

/* Sockets have names without a dot. */
static void found_add(void *arg, const char *name, int fd)
{
	struct keep *keep = arg;

	if (!strchr(name, '.') || strlen(name) >= SUPERVISOR_NAME_SIZE)
		return;
	if (!list_add(&keep->found, name, fd)) {
		close(fd);
		return;
	}
	if (list_add(&keep->sent, name, -1))
		keep->bytes += strlen(name) + 1;
}

void keep_begin(struct keep *keep)
{
	*keep = (struct keep){0};
	keep->last = &keep->first;
	supervisor_descriptors(found_add, keep);
}

int keep_start(struct keep *keep, uv_loop_t *loop)
{
	uv_poll_t *poll = calloc(1, sizeof(*poll));
	int rc = poll ? uv_poll_init(loop, poll, supervisor_fd()) : -ENOMEM;

	if (rc < 0) {
		free(poll);
		return rc;
	}
	poll->data = keep;
	keep->poll = poll;
	queue_send(keep);
	return 0;
}

int keep_take(struct keep *keep, const char *owner, const char *part)
{
	char name[SUPERVISOR_NAME_SIZE];

	name_make(name, owner, part);
	struct kept **at = list_find(&keep->found, name);
	return *at ? list_remove(at) : -1;
}

void keep_taken(struct keep *keep)
{
	char name[SUPERVISOR_NAME_SIZE];

	while (keep->found) {
		snprintf(name, sizeof(name), "%s", keep->found->name);
		close(list_remove(&keep->found));
		name_forget(keep, name);
	}
}

void keep_put(struct keep *keep, const char *owner, const char *part, int fd)
{
	char name[SUPERVISOR_NAME_SIZE];
	size_t bytes;

	if (fd < 0)
		return;
	name_make(name, owner, part);
	bytes = strlen(name) + 1;
	/* systemd would keep both. */
	name_forget(keep, name);
	if (keep->bytes + bytes > SUPERVISOR_NAMES_MAX) {
		send_failed(name, -ENOSPC);
		return;
	}
	if (!list_add(&keep->sent, name, -1))
		return;
	keep->bytes += bytes;
	/* FDPOLL=0: a descriptor that hangs up stays. */
	message_send(keep, "FDSTORE=1\nFDPOLL=0", name, fd);
}

void keep_drop(struct keep *keep, const char *owner, const char *part)
{
	char name[SUPERVISOR_NAME_SIZE];

	name_make(name, owner, part);
	name_forget(keep, name);
}

void keep_flush(struct keep *keep)
{
	struct pollfd writable = {.fd = supervisor_fd(), .events = POLLOUT};

	while (keep->first && poll(&writable, 1, FLUSH_MS) > 0)
		queue_send(keep);
}

static void handle_free(uv_handle_t *handle)
{
	free(handle);
}

void keep_restart(struct keep *keep, const char *why, bool renews)
{
	log_event(LOG_WARNING, "carved.restarts reason=\"%s\"", why);
	keep_flush(keep);
	_exit(renews ? SUPERVISOR_RENEW : EXIT_CODE_FAILED);
}

void keep_stop(struct keep *keep)
{
	keep_flush(keep);
	while (keep->found)
		close(list_remove(&keep->found));
	while (keep->sent)
		(void)list_remove(&keep->sent);
	while (keep->first)
		sending_free_first(keep);
	if (keep->poll)
		uv_close((uv_handle_t *)steal_ptr(&keep->poll), handle_free);
}
