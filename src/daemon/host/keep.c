#include "daemon/host/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/keep_keeper.h"
#include "daemon/host/log.h"
#include "daemon/host/supervisor.h"

/* A keeper that ends again and again is started this often at most. */
#define START_PAUSE_NS 1000000000ull

struct kept {
	struct kept *next;
	char name[KEEP_NAME_SIZE];
	int fd;
};

struct keep_sending {
	struct keep_sending *next;
	struct keep_message message;
	int fd; /* its own; -1: none goes along */
};

static void name_make(char ret[static KEEP_NAME_SIZE], const char *session, const char *part)
{
	snprintf(ret, KEEP_NAME_SIZE, "%s.%s", session, part);
}

/* ---- descriptors that were kept ---------------------------------------------------------- */

static void found_add(void *arg, const char *name, int fd)
{
	struct keep *keep = arg;
	struct kept *kept = calloc(1, sizeof(*kept));

	if (!kept) {
		close(fd);
		return;
	}
	snprintf(kept->name, sizeof(kept->name), "%s", name);
	kept->fd = fd;
	kept->next = keep->found;
	keep->found = kept;
}

/* Its sockets have other names. */
static void supervised_add(void *arg, const char *name, int fd)
{
	if (strchr(name, '.') && strlen(name) < KEEP_NAME_SIZE)
		found_add(arg, name, fd);
}

int keep_take(struct keep *keep, const char *session, const char *part)
{
	char name[KEEP_NAME_SIZE];

	name_make(name, session, part);
	for (struct kept **at = &keep->found; *at; at = &(*at)->next) {
		struct kept *kept = *at;
		int fd = kept->fd;

		if (strcmp(kept->name, name) != 0)
			continue;
		*at = kept->next;
		free(kept);
		return fd;
	}
	return -1;
}

/* ---- sending ----------------------------------------------------------------------------- */

/* In the supervisor's words. */
static int supervisor_send(const struct keep_message *message, int fd)
{
	char text[KEEP_NAME_SIZE + 64];

	snprintf(text, sizeof(text), "%s=1\nFDNAME=%s%s",
		 message->op == KEEP_PUT ? "FDSTORE" : "FDSTOREREMOVE", message->name,
		 message->op == KEEP_PUT ? "\nFDPOLL=0" : "");
	return supervisor_tell_with(text, fd);
}

static int send_now(const struct keep *keep, const struct keep_message *message, int fd)
{
	return keep->state == KEEP_SUPERVISED ? supervisor_send(message, fd)
					      : keeper_send(keep->fd, message, fd);
}

/* The other side has too much to do, or too many descriptors are under way. */
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

static void queue_clear(struct keep *keep)
{
	while (keep->first)
		sending_free_first(keep);
}

static void events_want(struct keep *keep);

static void queue_send(struct keep *keep)
{
	while (keep->first) {
		int rc = send_now(keep, &keep->first->message, keep->first->fd);

		if (is_busy(rc))
			break;
		if (rc < 0)
			log_event(LOG_WARNING, "ledger.not_kept name=%s error=\"%s\"",
				  keep->first->message.name, strerrordesc_np(-rc));
		sending_free_first(keep);
	}
	events_want(keep);
}

static void queue_add(struct keep *keep, const struct keep_message *message, int fd)
{
	struct keep_sending *s = calloc(1, sizeof(*s));

	if (!s)
		return;
	s->message = *message;
	s->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	*keep->last = s;
	keep->last = &s->next;
	events_want(keep);
}

static void message_send(struct keep *keep, const struct keep_message *message, int fd)
{
	int rc = keep->first ? -EAGAIN : send_now(keep, message, fd);

	if (is_busy(rc))
		queue_add(keep, message, fd);
	else if (rc < 0 && rc != -EPIPE && rc != -ECONNRESET)
		log_event(LOG_WARNING, "ledger.not_kept name=%s error=\"%s\"", message->name,
			  strerrordesc_np(-rc));
}

/* ---- the keeper -------------------------------------------------------------------------- */

static void handle_free(uv_handle_t *handle)
{
	free(handle);
}

static void disconnect(struct keep *keep)
{
	if (keep->poll)
		uv_close((uv_handle_t *)steal_ptr(&keep->poll), handle_free);
	close_fd(&keep->fd);
	queue_clear(keep);
}

/* Whether the next daemon would find the keeper. */
static bool can_be_found(const struct keep *keep)
{
	return keep->socket && keeper_socket(keep->dir) == keep->socket;
}

static void put_all_again(struct keep *keep)
{
	keep->state = KEEP_NONE;
	keep->put_all(keep->arg);
}

static bool may_start(const struct keep *keep)
{
	return !keep->started_ns || now_monotonic_ns() - keep->started_ns >= START_PAUSE_NS;
}

static void on_keeper(uv_poll_t *poll, int status, int events)
{
	struct keep *keep = poll->data;
	struct keep_message message;
	int fd = -1, rc = keeper_receive(keep->fd, &message, &fd);

	close_fd(&fd);
	if (rc == 0 && message.op == KEEP_REFUSED)
		log_event(LOG_WARNING, "ledger.not_kept name=%s error=\"%s\"", message.name,
			  strerrordesc_np(message.error));
	if (rc == 0 || rc == -EAGAIN) {
		queue_send(keep);
		return;
	}
	log_event(LOG_WARNING, "keeper.ended");
	keep->removed |= !can_be_found(keep);
	disconnect(keep);
	keep->state = KEEP_LOST;
	if (may_start(keep))
		put_all_again(keep);
}

/* Whether it takes more is an event while something is to be sent. The supervisor's are tried again
 * by the clock. */
static void events_want(struct keep *keep)
{
	if (keep->poll)
		uv_poll_start(keep->poll, UV_READABLE | (keep->first ? UV_WRITABLE : 0), on_keeper);
}

/* The descriptor becomes the keep's. */
static bool connected(struct keep *keep, int fd)
{
	uv_poll_t *poll = calloc(1, sizeof(*poll));

	if (!poll || uv_poll_init(keep->loop, poll, fd) < 0) {
		free(poll);
		close(fd);
		return false;
	}
	poll->data = keep;
	keep->poll = poll;
	keep->fd = fd;
	keep->socket = keeper_socket(keep->dir);
	keep->state = KEEP_CONNECTED;
	events_want(keep);
	return true;
}

/* Whether there is somebody to send to; starts a keeper if need be. */
static bool is_reachable(struct keep *keep)
{
	if (keep->state == KEEP_SUPERVISED || keep->state == KEEP_CONNECTED)
		return true;
	if (!may_start(keep)) {
		keep->state = KEEP_LOST;
		return false;
	}
	keep->started_ns = now_monotonic_ns();
	int fd = keeper_spawn(keep->loop, keep->dir);
	if (fd >= 0 && connected(keep, fd))
		return true;
	log_event(LOG_WARNING, "keeper.failed dir=%s error=\"%s\"", keep->dir,
		  strerrordesc_np(fd < 0 ? -fd : ENOMEM));
	keep->state = KEEP_LOST;
	return false;
}

/* ---- the whole --------------------------------------------------------------------------- */

void keep_start(struct keep *keep, uv_loop_t *loop, const char *runtime_dir, bool anew,
		void (*put_all)(void *arg), void *arg)
{
	*keep = (struct keep){.state = KEEP_NONE, .loop = loop, .fd = -1};
	keep->last = &keep->first;
	keep->put_all = put_all;
	keep->arg = arg;
	snprintf(keep->dir, sizeof(keep->dir), "%s/" KEEP_DIR, runtime_dir);
	if (supervisor_keeps()) {
		keep->state = KEEP_SUPERVISED;
		if (anew)
			supervisor_descriptors(supervised_add, keep);
		return;
	}
	int fd = keeper_connect(keep->dir);
	int rc = fd >= 0 && anew ? keeper_list(fd, found_add, keep) : 0;
	if (rc < 0) {
		log_event(LOG_ERROR, "keeper.silent dir=%s error=\"%s\"", keep->dir,
			  strerrordesc_np(-rc));
		close_fd(&fd);
	}
	if (fd >= 0)
		(void)connected(keep, fd);
}

void keep_put(struct keep *keep, const char *session, const char *part, int fd)
{
	char name[KEEP_NAME_SIZE];

	if (fd < 0 || !is_reachable(keep))
		return;
	name_make(name, session, part);
	struct keep_message message = keep_message_make(KEEP_PUT, name);
	message_send(keep, &message, fd);
}

static void drop_name(struct keep *keep, const char *name)
{
	struct keep_message message = keep_message_make(KEEP_DROP, name);

	if (keep->state == KEEP_SUPERVISED || keep->state == KEEP_CONNECTED)
		message_send(keep, &message, -1);
}

void keep_drop(struct keep *keep, const char *session, const char *part)
{
	char name[KEEP_NAME_SIZE];

	name_make(name, session, part);
	drop_name(keep, name);
}

void keep_taken(struct keep *keep)
{
	while (keep->found) {
		struct kept *kept = keep->found;

		keep->found = kept->next;
		drop_name(keep, kept->name);
		close(kept->fd);
		free(kept);
	}
}

void keep_tick(struct keep *keep)
{
	if (keep->state == KEEP_LOST && may_start(keep))
		put_all_again(keep);
	if (keep->first)
		queue_send(keep);
}

/* A removed socket is there again: it is told once. */
static bool removed_once(struct keep *keep)
{
	bool removed = keep->removed;

	keep->removed = false;
	return removed;
}

int keep_look(struct keep *keep)
{
	if (keep->state != KEEP_CONNECTED)
		return 0;
	if (can_be_found(keep))
		return removed_once(keep);
	keep->removed = true;
	/* It is done with the next look. */
	if (!may_start(keep))
		return 0;
	/* The keeper that was stays until the other one is there. */
	int rc = keeper_dir_make(keep->dir);
	if (rc < 0)
		return rc;
	disconnect(keep);
	keep->state = KEEP_NONE;
	if (!is_reachable(keep))
		return -EIO;
	keep->put_all(keep->arg);
	return can_be_found(keep) ? removed_once(keep) : 0;
}

void keep_stop(struct keep *keep)
{
	while (keep->found) {
		struct kept *kept = keep->found;

		keep->found = kept->next;
		close(kept->fd);
		free(kept);
	}
	disconnect(keep);
}
