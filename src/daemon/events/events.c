/* The event log. An event gets the next number, a line in the daemon's log and a row in the
 * database. The row is written at once and on the loop: it takes some 50 us, as any row of the
 * store does.
 *
 * Numbers are never given twice, because readers keep the number up to which they have read. The
 * database is synced only now and then, so a power cut can take the last rows away. Therefore the
 * first event of each life of the host skips EVENT_SKIP numbers, which is more than the log of the
 * database can hold. Settings of administrators are synced with their events. */
#include "daemon/events/events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clean_text.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/events/events_private.h"
#include "daemon/events/notice.h"
#include "daemon/host/owner.h"
#include "daemon/host/peer.h"

/* The processes above the one that asked: a shell, its terminal, ... */
#define PARENTS 4u
#define EVENT_SKIP (1 << 20)
#define EVENT_LIFE_NS (INT64_C(366) * 86400 * 1000000000)
/* Seconds between two looks for events that are too old. Each look removes at most 64. */
#define EXPIRE_SECONDS 600u

int events_start(struct store *store, struct events **ret)
{
	struct events *events = calloc(1, sizeof(*events));

	if (!events)
		return -ENOMEM;
	*ret = events;
	events->store = store;
	int rc = store_event_log(store, &events->log);
	if (rc == 0)
		rc = store_events_count(store, &events->of_users, &events->of_node);
	if (rc == 0)
		rc = notice_load(events);
	if (rc < 0)
		return rc == -ENOENT ? -EUCLEAN : rc;
	const char *boot = store_boot_id(store);
	events->boot_due = !*boot || strcmp(events->log.boot, boot) != 0;
	if (events->boot_due && events->log.last)
		events->log.last += EVENT_SKIP;
	return 0;
}

void events_stop(struct events *events)
{
	if (events)
		listeners_free(&events->listeners);
	free(events);
}

/* ---- adding -------------------------------------------------------------------------------- */

/* The user who logged in, whoever that user has become since; -1: not known. */
static int64_t login_of(pid_t pid)
{
	char path[64], text[32];

	snprintf(path, sizeof(path), "/proc/%d/loginuid", (int)pid);
	ssize_t n = file_read(path, text, sizeof(text));
	uint32_t uid = n > 0 ? (uint32_t)strtoul(text, NULL, 10) : UINT32_MAX;
	return uid == UINT32_MAX ? -1 : (int64_t)uid;
}

/* False: the process is gone. */
static bool name_read(pid_t pid, char *ret, size_t size)
{
	char path[64], name[64];

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	if (file_read(path, name, sizeof(name)) <= 0)
		return false;
	name[strcspn(name, "\n")] = '\0';
	clean_text(name, ret, size);
	return true;
}

/* A command of `carve` says little: the shell, the script or the service above it says more. */
static void parents_fill(struct store_event *row, struct process_id process)
{
	char name[64];
	size_t used = 0;

	for (unsigned i = 0; i < PARENTS && process_parent_find(process, &process); i++) {
		if (process.pid <= 1 || !name_read(process.pid, name, sizeof(name)))
			return;
		int n = snprintf(row->parents + used, sizeof(row->parents) - used, "%s%s %d",
				 used ? ", " : "", name, (int)process.pid);
		if (n < 0 || (size_t)n >= sizeof(row->parents) - used) {
			row->parents[used] = '\0';
			return;
		}
		used += (size_t)n;
	}
}

static void actor_fill(struct store_event *row, const struct peer *actor)
{
	struct process_id now;
	char name[sizeof(row->process)];

	row->uid = actor->uid;
	row->pid = actor->process.pid;
	bool there = name_read(actor->process.pid, name, sizeof(name));
	int64_t login = login_of(actor->process.pid);
	/* Another process may have the number by now. */
	if (!there || process_identify(actor->process.pid, &now) < 0 ||
	    !process_same(now, actor->process))
		return;
	memcpy(row->process, name, sizeof(row->process));
	row->login = login;
	parents_fill(row, actor->process);
}

static void row_make(struct store_event *row, const struct event *event)
{
	const struct event_kind_row *kind = event_kind_row(event->kind);

	*row = (struct store_event){.at = now_realtime_ns(),
				    .uid = -1,
				    .login = -1,
				    .pid = -1,
				    .owner = -1,
				    .charged = -1};
	snprintf(row->kind, sizeof(row->kind), "%s", kind->word);
	if (event->actor)
		actor_fill(row, event->actor);
	if (event->owner)
		row->owner = *event->owner;
	if (kind->by_users && event->owner)
		row->charged = owner_of(*event->owner);
	clean_text(event->subject, row->subject, sizeof(row->subject));
	clean_text(event->before, row->before, sizeof(row->before));
	clean_text(event->after, row->after, sizeof(row->after));
	clean_text(event->text, row->text, sizeof(row->text));
}

static void line_write(const struct store_event *row, enum log_level level)
{
	if (row->uid < 0)
		log_event(level,
			  "%s event=%" PRIu64 " owner=%" PRId64
			  " subject=\"%s\" before=\"%s\" after=\"%s\" text=\"%s\"",
			  row->kind, row->number, row->owner, row->subject, row->before, row->after,
			  row->text);
	else
		log_event(level,
			  "%s event=%" PRIu64 " uid=%" PRId64 " pid=%" PRId64
			  " process=\"%s\" parents=\"%s\" login=%" PRId64 " owner=%" PRId64
			  " subject=\"%s\" before=\"%s\" after=\"%s\" text=\"%s\"",
			  row->kind, row->number, row->uid, row->pid, row->process, row->parents,
			  row->login, row->owner, row->subject, row->before, row->after, row->text);
}

/* Makes room for one more. */
static void trim(struct events *events, int64_t charged)
{
	unsigned removed;

	if (charged >= 0 &&
	    store_events_trim_user(events->store, charged, EVENTS_OF_USER - 1, &removed) == 0)
		events->of_users -= removed;
	if (charged >= 0 && events->of_users >= EVENTS_OF_USERS &&
	    store_event_trim(events->store, true) == 0)
		events->of_users--;
	if (charged < 0 && events->of_node >= EVENTS_OF_NODE &&
	    store_event_trim(events->store, false) == 0)
		events->of_node--;
}

static int row_write(struct events *events, const struct store_event *row, bool synced)
{
	trim(events, row->charged);
	int rc = store_event_add(events->store, row, synced);
	if (rc < 0)
		return rc;
	events->log.last = (int64_t)row->number;
	if (row->charged >= 0)
		events->of_users++;
	else
		events->of_node++;
	/* Behind the event: else a number could come twice. */
	if (events->boot_due && store_event_boot(events->store, store_boot_id(events->store)) == 0)
		events->boot_due = false;
	return 0;
}

void events_add(struct events *events, const struct event *event)
{
	const struct event_kind_row *kind = event_kind_row(event->kind);
	struct store_event row;

	row_make(&row, event);
	row.number = events ? events_next(events) : 0;
	line_write(&row, kind->level);
	if (!events)
		return;
	int rc = row_write(events, &row, kind->synced);
	if (rc < 0)
		log_event(LOG_ERROR, "event.unrecorded event=%" PRIu64 " error=\"%s\"", row.number,
			  strerrordesc_np(-rc));
	events->told = true;
}

void events_tick(struct events *events)
{
	int64_t before = now_realtime_ns() - EVENT_LIFE_NS;
	unsigned removed;

	if (++events->seconds % EXPIRE_SECONDS)
		return;
	if (store_events_expire(events->store, before, &removed) == 0 && removed)
		(void)store_events_count(events->store, &events->of_users, &events->of_node);
}

/* ---- reading ------------------------------------------------------------------------------- */

const char *events_database(const struct events *events)
{
	return events->log.id;
}

uint64_t events_next(const struct events *events)
{
	return (uint64_t)events->log.last + 1;
}

int events_since(const struct events *events, int64_t at, uint64_t *ret)
{
	int rc = store_event_since(events->store, at, ret);

	if (rc == -ENOENT)
		*ret = events_next(events);
	return rc == -ENOENT ? 0 : rc;
}

struct reading {
	store_event_cb cb;
	void *arg;
	uint32_t count;
	bool ended; /* by the callback */
	uint64_t next;
};

static int read_one(void *arg, const struct store_event *event)
{
	struct reading *reading = arg;

	reading->count++;
	reading->next = event->number + 1;
	int rc = reading->cb(reading->arg, event);
	reading->ended = rc > 0;
	return rc;
}

int events_each(const struct events *events, uint64_t from, store_event_cb cb, void *arg,
		uint64_t *ret_next)
{
	struct reading reading = {.cb = cb, .arg = arg};
	uint64_t first = MIN(MAX(from, 1), events_next(events));
	int rc = store_events_each(events->store, first, EVENTS_PART, read_one, &reading);

	*ret_next =
		reading.ended || reading.count == EVENTS_PART ? reading.next : events_next(events);
	return rc;
}

bool events_admin(const struct peer *viewer)
{
	/* A user's own daemon is administered by that user. */
	return viewer->admin || viewer->uid == geteuid();
}

bool events_visible(const struct store_event *event, const struct peer *viewer)
{
	enum event_kind kind = event_kind_find(event->kind);

	if (events_admin(viewer))
		return true;
	if (kind == EVENT_KINDS)
		return false;
	switch (event_kind_row(kind)->audience) {
	case EVENT_FOR_ALL:
		return true;
	case EVENT_FOR_OWNER:
		return event->owner >= 0 && (uid_t)event->owner == viewer->uid;
	case EVENT_FOR_ADMINS:
		break;
	}
	return false;
}

/* ---- waiting ------------------------------------------------------------------------------- */

int events_listen(struct events *events, events_cb cb, void *arg)
{
	return listeners_add(&events->listeners, cb, arg);
}

void events_unlisten(struct events *events, const void *arg)
{
	listeners_remove(&events->listeners, arg);
}

void events_round(struct events *events)
{
	if (!events->told)
		return;
	events->told = false;
	listeners_tell(&events->listeners);
}
