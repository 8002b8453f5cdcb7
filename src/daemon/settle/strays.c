#include "daemon/settle/strays.h"

#include <signal.h>
#include <stdlib.h>

#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/settle/settling.h"

/* The session that this process is a command of, or takes part in. */
static struct session *session_of(const struct settling *settling, struct process_id id)
{
	for (struct session *s = settling->sessions->first; s; s = s->next) {
		for (const struct holder *h = s->holders; h; h = h->next)
			if ((h->command || h->unread) && process_same(h->process, id))
				return s;
		for (const struct process *p = s->processes; p; p = p->next)
			if (process_same(p->id, id))
				return s;
	}
	return NULL;
}

/* The session of the nearest ancestor that has one. */
static struct session *session_of_ancestors(const struct settling *settling, struct process_id id)
{
	struct session *s = session_of(settling, id);

	for (int i = 0; !s && i < PROCESS_ANCESTORS_MAX; i++) {
		if (!process_parent_find(id, &id))
			return NULL;
		s = session_of(settling, id);
	}
	return s;
}

static struct stray *stray_find(const struct settling *settling, pid_t pid)
{
	struct stray *stray = settling->strays;

	while (stray && stray->id.pid != pid)
		stray = stray->next;
	return stray;
}

/* Strays were all that a session without a ledger had. */
static void not_over(struct session *s)
{
	if (!s || books_exist(&s->books))
		return;
	s->over_bytes = s->over_since_ns = 0;
	s->over = SESSION_OVER_UNREPORTED;
}

/* One that ended, or attached after all, is none any more. */
static void drop_former(struct settling *settling)
{
	for (struct stray **at = &settling->strays, *stray; (stray = *at);) {
		if (process_alive(stray->id) &&
		    !process_is_attached(settling->sessions, stray->id)) {
			at = &stray->next;
			continue;
		}
		*at = stray->next;
		not_over(stray->session);
		free(stray);
	}
}

/* One that attached to the daemon before this one, and could not be looked into: its memory counts
 * as a stray's, which it is none of. */
static bool is_unread(const struct session *s, struct process_id id)
{
	for (const struct holder *h = s->holders; h; h = h->next)
		if (h->unread && process_same(h->process, id))
			return true;
	return false;
}

static void look_at(struct settling *settling, const struct gpu_process *process)
{
	struct stray *stray = stray_find(settling, process->pid);
	struct process_id id;

	if (!stray && process_identify(process->pid, &id) == 0 &&
	    !process_is_attached(settling->sessions, id)) {
		stray = calloc(1, sizeof(*stray));
		if (!stray)
			return;
		stray->id = id;
		stray->session = session_of_ancestors(settling, id);
		stray->next = settling->strays;
		settling->strays = stray;
	}
	if (!stray || !stray->session || !process->bytes || stray->logged ||
	    is_unread(stray->session, stray->id))
		return;
	stray->logged = true;
	log_event(LOG_WARNING, "session.stray id=%s uid=%u pid=%d", stray->session->record.id,
		  stray->session->record.uid, (int)stray->id.pid);
}

void strays_sampled(struct settling *settling)
{
	const struct pool *pool = settling->pool;

	drop_former(settling);
	for (uint32_t i = 0; settling->sessions->first && i < pool->count; i++) {
		const struct gpu_sample *sample = &pool->gpu[i].sample;

		if (!(pool->mask >> i & 1) || sample->error || !pool_gpu_is_ours(&pool->gpu[i]))
			continue;
		for (size_t p = 0; p < sample->process_count; p++)
			look_at(settling, &sample->processes[p]);
	}
}

uint64_t strays_held(const struct session *s, const struct gpu_sample *sample, const uint8_t *uuid)
{
	uint64_t held = 0;

	for (const struct stray *stray = s->sessions->settling->strays; stray; stray = stray->next)
		if (stray->session == s)
			held += uuid ? gpu_sample_part_bytes(sample, stray->id.pid, uuid)
				     : gpu_sample_process_bytes(sample, stray->id.pid);
	return held;
}

bool strays_has(const struct settling *settling, pid_t pid)
{
	const struct stray *stray = stray_find(settling, pid);

	return stray && stray->session && stray->logged;
}

void strays_claim(struct settling *settling, struct process_id process, struct session *session)
{
	struct stray *stray = stray_find(settling, process.pid);

	if (stray && process_same(stray->id, process) && !stray->session)
		stray->session = session;
}

bool strays_any(const struct settling *settling)
{
	const struct stray *stray = settling->strays;

	while (stray && !stray->session)
		stray = stray->next;
	return stray != NULL;
}

static void on_killed(void *context, const char *session, struct process_id process, int rc)
{
	struct settling *settling = context;
	struct session *s = session_find(settling->sessions, session);
	struct stray *stray = stray_find(settling, process.pid);

	if (rc == 0 && s)
		session_over_killed(s, process.pid);
	else if (rc < 0 && stray && process_same(stray->id, process))
		stray->refused = true;
}

bool strays_kill(struct session *s)
{
	bool any = false;

	for (const struct stray *stray = s->sessions->settling->strays; stray;
	     stray = stray->next) {
		if (stray->session != s || !stray->logged || stray->refused)
			continue;
		privileges_signal(s->sessions->privileges, s->record.uid, s->record.id, stray->id,
				  SIGKILL, on_killed, s->sessions->settling);
		any = true;
	}
	return any;
}

void strays_forget(struct session *s)
{
	/* A living one holds memory that is nobody's from now on. */
	for (struct stray *stray = s->sessions->settling->strays; stray; stray = stray->next)
		if (stray->session == s)
			stray->session = NULL;
}

void strays_free(struct settling *settling)
{
	while (settling->strays) {
		struct stray *stray = settling->strays;

		settling->strays = stray->next;
		free(stray);
	}
}
