/* The end of a session: its processes are signalled, then it is recorded, then it is forgotten. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/events/events.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_hooks.h"
#include "daemon/session/session_private.h"
#include "daemon/session/sessions.h"

static void listeners_call(struct session *s)
{
	while (s->listeners) {
		struct session_listener *listener = s->listeners;

		s->listeners = listener->next;
		listener->cb(listener->arg, s->record.id);
		free(listener);
	}
}

/* The end is on disk before anybody hears of it: who comes after a daemon that died has to know it.
 * Negative: it cannot be kept; the session goes on ending, and this is tried again. */
static int end_record(struct session *s)
{
	struct store *store = s->sessions->store;
	int rc = store_session_end(store, &s->record);

	if (rc == 0)
		return 0;
	if (!s->record_at_ns)
		log_event(LOG_ERROR, "store.failed id=%s error=\"%s\"", s->record.id,
			  strerrordesc_np(-rc));
	int kept = store_session_end_later(store, &s->record);
	/* A damaged database is not read again: there is nobody who would take it for living. */
	if (kept == 0 || rc == -EUCLEAN)
		return 0;
	s->record_at_ns = now_monotonic_ns() + SESSION_RECORD_EVERY_NS;
	return rc;
}

static void session_finish(struct session *s)
{
	struct sessions *sessions = s->sessions;

	s->record.ended = now_realtime_ns();
	s->record.received = sessions->hooks->received(s);
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		s->record.gpu[i].peak = session_peak(s, i);
	if (end_record(s) < 0)
		return;
	log_event(LOG_INFO, "session.ended id=%s uid=%u reason=\"%s\"", s->record.id, s->record.uid,
		  s->record.reason);
	sessions->hooks->recorded(s);
	sessions_remove(sessions, s);
	budget_leave(&sessions->living, s->owner);
	session_promises_drop(s);
	sessions->hooks->instances_left(s);
	listeners_call(s);
	session_free(s);
	sessions->hooks->ended(sessions->context);
}

static struct process *living_find(const struct session *s, struct process_id id)
{
	struct process *p = s->processes;

	while (p && (process_is_dead(p) || !process_same(p->id, id)))
		p = p->next;
	return p;
}

/* A process that attached once has no ledger now, and no GPU. It lives on, and is none of the
 * session's. It may have several slots, and the session may end with any of them. */
static void process_let_go(struct sessions *sessions, const char *id, struct process_id process)
{
	struct session *s;
	struct process *p;

	log_event(LOG_WARNING, "session.let_go id=%s pid=%d", id, (int)process.pid);
	while ((s = session_find(sessions, id)) && (p = living_find(s, process))) {
		if (p->connection) {
			sessions->hooks->unconnected(p->connection);
			process_disconnected(p);
		}
		process_ended(p);
	}
	if (s)
		session_unread_let_go(s, &process);
}

/* A process of it is another user's by now, as by a set-user-ID program. The session goes on ending
 * until that one ends by itself, and those that wait for its end hear of it. */
static void on_signalled(void *context, const char *session, struct process_id process, int rc)
{
	struct sessions *sessions = context;
	struct session *s = rc == -EPERM || rc == -EACCES ? session_find(sessions, session) : NULL;

	if (!s || s->state != SESSION_KILLING)
		return;
	if (rc == -EACCES) {
		process_let_go(sessions, session, process);
		return;
	}
	log_event(LOG_WARNING, "session.not_ended id=%s uid=%u pid=%d", s->record.id, s->record.uid,
		  (int)process.pid);
	s->refused_pid = process.pid;
	listeners_call(s);
}

_Static_assert(STORE_ID_SIZE <= PRIVILEGES_SESSION_SIZE, "a session ID does not fit");

static void session_signal(const struct session *s, struct process_id process,
			   const struct attach_connection *connection, int signal)
{
	privileges_signal_peer(s->sessions->privileges, s->record.uid, s->record.id, process,
			       connection ? s->sessions->hooks->descriptor(connection) : -1, signal,
			       signal == SIGKILL ? on_signalled : NULL, s->sessions);
}

static void signal_all(const struct session *s, int signal)
{
	for (const struct process *p = s->processes; p; p = p->next)
		if (!process_is_dead(p))
			session_signal(s, p->id, p->connection, signal);
	for (const struct holder *h = s->holders; h; h = h->next)
		if (h->unread)
			session_signal(s, h->process, NULL, signal);
}

void session_commands_end(const struct session *s, const struct process_id *but)
{
	for (const struct holder *h = s->holders; h; h = h->next)
		if (h->command && !(but && process_descends_from(*but, h->process)))
			session_signal(s, h->process, NULL, SIGTERM);
}

static void state_move(struct session *s, enum session_event event)
{
	enum session_state from = s->state;

	if (!session_state_next(from, event, &s->state))
		log_event(LOG_ERROR, "session.impossible id=%s state=%d event=%d", s->record.id,
			  (int)from, (int)event);
}

void session_end(struct session *s, enum store_end by, const char *reason)
{
	bool begins = s->state == SESSION_ACTIVE;

	state_move(s, session_live(s) ? SESSION_EVENT_END : SESSION_EVENT_EMPTY);
	if (!begins) {
		if (s->state == SESSION_KILLING)
			signal_all(s, SIGKILL); /* the last one was in vain */
		return;
	}
	sessions_set_timed(s);
	s->record.ended_by = by;
	snprintf(s->record.reason, sizeof(s->record.reason), "%s", reason);
	/* Nothing more is granted from here on. */
	for (uint32_t i = 0; books_exist(&s->books) && i < s->record.gpu_count; i++)
		s->books.limits->gpu[i].limit_bytes = 0;
	if (s->state == SESSION_TERMINATING) {
		s->kill_at_ns = now_monotonic_ns() + SESSION_KILL_AFTER_NS;
		signal_all(s, SIGTERM);
		return;
	}
	session_finish(s);
}

void session_continue_end(struct session *s)
{
	uint64_t now = s->state == SESSION_ACTIVE ? 0 : now_monotonic_ns();

	if (!now)
		return;
	if (!session_live(s)) {
		state_move(s, SESSION_EVENT_EMPTY);
		if (now >= s->record_at_ns)
			session_finish(s);
	} else if (s->state == SESSION_TERMINATING && now >= s->kill_at_ns) {
		state_move(s, SESSION_EVENT_DEADLINE);
		signal_all(s, SIGKILL);
	}
}

int session_listen(struct session *s, session_end_cb cb, void *arg)
{
	struct session_listener *listener = malloc(sizeof(*listener));

	if (!listener)
		return -ENOMEM;
	*listener = (struct session_listener){.next = s->listeners, .cb = cb, .arg = arg};
	s->listeners = listener;
	return 0;
}

void session_unlisten(struct sessions *sessions, void *arg)
{
	for (struct session *s = sessions->first; s; s = s->next)
		for (struct session_listener **at = &s->listeners; *at;) {
			struct session_listener *listener = *at;

			if (listener->arg != arg) {
				at = &listener->next;
				continue;
			}
			*at = listener->next;
			free(listener);
		}
}

void session_end_unused(struct session *s, enum store_end by, const char *reason)
{
	char held[UNITS_TEXT_SIZE], why[STORE_REASON_SIZE];

	if (s->record.ephemeral && s->slicing_killed) {
		session_end(s, STORE_END_POLICY,
			    "ended by slicing_policy: its program opened the gate, or used the GPU "
			    "without carve's front");
	} else if (s->record.ephemeral && s->over_ended) {
		snprintf(why, sizeof(why), "ended by over_policy: %s held beyond the slice",
			 units_format_bytes(s->record.over_killed_bytes, held));
		session_end(s, STORE_END_POLICY, why);
	} else {
		session_end(s, by, reason);
	}
}

static void killed_record(const struct session *s, enum event_kind kind, const char *text)
{
	char subject[STORE_ID_SIZE + 16];

	snprintf(subject, sizeof(subject), "session %s", s->record.id);
	events_add(s->sessions->events, &(struct event){.kind = kind,
							.owner = &s->record.uid,
							.subject = subject,
							.text = text});
}

void session_slicing_killed(struct session *s, pid_t pid)
{
	char text[128];

	s->slicing_killed++;
	snprintf(text, sizeof(text),
		 "slicing_policy ended process %d: it opened the gate, or used the GPU without "
		 "carve's front",
		 (int)pid);
	killed_record(s, EVENT_SLICING_KILLED, text);
}

void session_over_killed(struct session *s, pid_t pid)
{
	char text[128], held[UNITS_TEXT_SIZE];

	s->record.over_killed++;
	s->record.over_killed_bytes = MAX(s->record.over_killed_bytes, s->over_bytes);
	snprintf(text, sizeof(text), "over_policy ended process %d: %s held beyond the slice",
		 (int)pid, units_format_bytes(s->over_bytes, held));
	killed_record(s, EVENT_OVER_KILLED, text);
}
