#include "daemon/api/api_release.h"

#include <http_parser.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_events.h"
#include "daemon/api/api_session.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/node.h"
#include "daemon/queue/job_table.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/waiting/waiting.h"

static void reply_released(struct call *call, const char *id)
{
	call_reply(call, HTTP_STATUS_OK, json_pack("{s:s, s:s}", "id", id, "state", "released"));
}

/* One that nobody is in ends at once, unless its end cannot be kept. */
static void reply_if_released(struct call *call, const char *id)
{
	struct error err = {0};

	if (!session_find(&call->node->sessions, id)) {
		reply_released(call, id);
		return;
	}
	error_set(&err, EXIT_CODE_FAILED,
		  "session %s is not released yet: its end cannot be written, the disk of carved's "
		  "database is full or cannot be written",
		  id);
	error_hint(&err, "make room there: carved tries again each second, and lists the session "
			 "until then");
	call_reply_error(call, HTTP_STATUS_CONFLICT, &err);
}

static void on_session_ended(void *arg, const char *id)
{
	struct call *call = arg;
	const struct session *s = session_find(&call->node->sessions, id);
	struct error err = {0};

	if (!s) {
		reply_released(call, id);
		return;
	}
	error_set(&err, EXIT_CODE_FAILED,
		  "session %s is not released yet: process %d of it is another user's now, and "
		  "carve may not end it",
		  id, (int)s->refused_pid);
	error_hint(&err, "have that user or root end it: the session ends with it");
	call_reply_error(call, HTTP_STATUS_CONFLICT, &err);
}

static void on_releaser_gone(struct call *call)
{
	session_unlisten(&call->node->sessions, call);
}

/* A command of `carve run` that may use the GPU yet, though it has not so far. A caller from within
 * it knows of it. */
static bool is_command_of_others(const struct holder *h, const struct call *call)
{
	return h->command && !process_descends_from(call->peer.process, h->process);
}

static void pid_add(char *buf, size_t size, pid_t pid)
{
	size_t used = strlen(buf);

	if (used + 16 < size)
		(void)snprintf(buf + used, size - used, "%s%d", used ? ", " : "", (int)pid);
}

/* The processes that a release would leave without a GPU: "4711, 4712"; empty: none. */
static void pids_text(const struct session *s, const struct call *call, char *buf, size_t size)
{
	buf[0] = '\0';
	for (const struct process *p = s->processes; p; p = p->next)
		if (!process_is_dead(p))
			pid_add(buf, size, p->id.pid);
	for (const struct holder *h = s->holders; h; h = h->next)
		if ((h->unread || is_command_of_others(h, call)) &&
		    !session_has_attached(s, h->process.pid))
			pid_add(buf, size, h->process.pid);
}

static void record(struct call *call, const struct session *s, bool forced)
{
	char held[API_HELD_TEXT_SIZE];

	api_deed_record(call->node, &call->peer,
			&(struct api_deed){
				.kind = EVENT_SESSION_RELEASED,
				.what = "session",
				.id = s->record.id,
				.owner = s->record.uid,
				.before = api_held_text(s, held),
				.after = forced ? "released by force" : "released",
			});
}

static void release(struct call *call, struct session *s, bool forced)
{
	bool owner = call->peer.uid == s->record.uid;
	enum store_end by = owner ? STORE_END_OWNER : STORE_END_ADMINISTRATOR;
	char id[STORE_ID_SIZE], reason[STORE_REASON_SIZE];

	snprintf(id, sizeof(id), "%s", s->record.id);
	snprintf(reason, sizeof(reason), "released%s%s%.20s%s", forced ? " by force" : "",
		 owner ? "" : " by ", owner ? "" : view_user(call->peer.uid),
		 owner ? "" : ", an administrator");
	record(call, s, forced);
	if (!session_live(s)) {
		session_end_unused(s, by, reason);
		reply_if_released(call, id);
		return;
	}
	if (session_listen(s, on_session_ended, call) < 0) {
		call_reply(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, NULL);
		return;
	}
	call_defer(call, on_releaser_gone);
	session_end(s, by, reason);
}

static void delete_waiter(struct call *call, struct waiter *w)
{
	char id[STORE_ID_SIZE];

	if (!peer_permitted(&call->peer, w->peer.uid)) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "request %s is another user's", w->id);
		return;
	}
	snprintf(id, sizeof(id), "%s", w->id);
	api_deed_record(call->node, &call->peer,
			&(struct api_deed){EVENT_SESSION_RELEASED, "request", w->id, w->peer.uid,
					   "waiting", "withdrawn"});
	waiting_release(&call->node->waiting, w);
	reply_released(call, id);
}

static void refuse_used(struct call *call, const char *id, const char *pids)
{
	const struct job *job = job_of_session(call->node->queues, id);
	char name[JOB_ID_TEXT];
	struct error err = {0};

	if (pids[0])
		error_set(&err, EXIT_CODE_FAILED, "session %s has processes inside: %s", id, pids);
	else
		error_set(&err, EXIT_CODE_FAILED, "session %s is of a job that begins", id);
	if (job)
		error_hint(&err, "it is job %s's: `carve job cancel %s` ends that job",
			   job_id_text(&job->record, name), name);
	else
		error_hint(&err, "end them first, or let carve end them: say it with --force");
	call_reply_error(call, HTTP_STATUS_CONFLICT, &err);
}

void api_delete_session(struct call *call, const char *id)
{
	struct waiter *w = api_session_waiter(call, id);
	const char *force = call_argument(call, "force");
	char pids[256];

	if (w) {
		delete_waiter(call, w);
		return;
	}
	struct session *s = api_session_or_reply(call, id);
	if (!s)
		return;
	pids_text(s, call, pids, sizeof(pids));
	bool forced = force && strcmp(force, "0") != 0;
	/* A job's command registers when it is in its slice, a moment after the job is running. */
	if (!pids[0] && (forced || !job_of_session(call->node->queues, s->record.id))) {
		release(call, s, false);
		return;
	}
	if (forced) {
		session_commands_end(s, &call->peer.process);
		release(call, s, true);
		return;
	}
	refuse_used(call, s->record.id, pids);
}
