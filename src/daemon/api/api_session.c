#include "daemon/api/api_session.h"

#include <errno.h>
#include <http_parser.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "daemon/api/answer.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/node.h"
#include "daemon/request/request.h"
#include "daemon/request/request_again.h"
#include "daemon/session/session.h"
#include "daemon/waiting/waiting.h"

/* Sessions and requests that the text of a call may mean, several only where an administrator gives
 * a name that several users gave. */
struct meant {
	struct session *session;
	struct waiter *waiter;
	unsigned count;
	char ids[160]; /* "s-7k2m9q of alice, s-4b8hwz of bob", as many as there is room for */
};

static void meant_add(struct meant *to, const char *id, uid_t uid)
{
	size_t used = strlen(to->ids);

	to->count++;
	if (used + STORE_ID_SIZE + sizeof(", more") < sizeof(to->ids))
		snprintf(to->ids + used, sizeof(to->ids) - used, "%s%s of %s", used ? ", " : "", id,
			 view_user(uid));
}

/* Those of all users that have this name. */
static void namesakes_find(const struct node *node, const char *name, struct meant *ret)
{
	for (struct session *s = node->sessions.first; s; s = s->next)
		if (!strcmp(s->record.name, name)) {
			ret->session = s;
			meant_add(ret, s->record.id, s->record.uid);
		}
	for (struct waiter *w = node->waiting.first; w; w = w->next)
		if (!strcmp(w->request.name, name)) {
			ret->waiter = w;
			meant_add(ret, w->id, w->peer.uid);
		}
	if (ret->count > 1) {
		ret->session = NULL;
		ret->waiter = NULL;
	}
}

/* By its ID, or of the caller's own by its name, or the caller's current one, which is the request
 * for it while that waits. An administrator sees the names of all, and the own ones first. */
static struct meant meant_find(const struct call *call, const char *id)
{
	const struct node *node = call->node;
	struct meant meant = {0};

	if (!strcmp(id, REQUEST_CURRENT)) {
		meant.session = session_current(&node->sessions, call->peer.uid);
		if (!meant.session)
			meant.waiter = waiting_for_current(&node->waiting, call->peer.uid, NULL);
		return meant;
	}
	meant.session = session_find(&node->sessions, id);
	meant.waiter = waiting_find(&node->waiting, id);
	if (!meant.session && !meant.waiter)
		meant.session = session_named(&node->sessions, call->peer.uid, id);
	if (!meant.session && !meant.waiter)
		meant.waiter = waiting_named(&node->waiting, call->peer.uid, id);
	if (!meant.session && !meant.waiter && call->peer.admin && *id)
		namesakes_find(node, id, &meant);
	return meant;
}

struct waiter *api_session_waiter(const struct call *call, const char *id)
{
	return meant_find(call, id).waiter;
}

/* Likewise of those that ended. */
static bool ended_meant(const struct call *call, const char *id, struct store_session *ret)
{
	return strcmp(id, REQUEST_CURRENT) != 0 &&
	       (store_session_find(call->node->store, id, ret) == 0 ||
		store_session_named(call->node->store, call->peer.uid, id, ret) == 0);
}

/* When and why a session ended; and to its owner, how it can be had again where something else
 * ended it. */
static void ended_explain(const struct call *call, const struct store_session *record,
			  const char *before, struct error *err)
{
	char time[UNITS_TEXT_SIZE], again[REQUEST_AGAIN_SIZE];
	bool may_ask = view_may_ask_again(record, &call->peer);

	error_set(err, EXIT_CODE_FAILED, "%s%ssession %s ended at %s%s%s", before,
		  may_ask ? "your " : "", record->id,
		  units_format_time(record->ended, UNITS_MILLISECONDS, time),
		  record->ended_by == STORE_END_TIME ? " because " : ": ", record->reason);
	if (may_ask)
		error_hint(err, "request a new one: %s", request_again(record, again));
	else
		error_hint(err, "`carve session list` shows those that have not ended");
}

/* Says why there is no such session. One that has ended says when and why, to those who may see
 * it. */
static void none_explain(const struct call *call, const char *id, struct error *err)
{
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session record = {.gpu = gpus};

	if (ended_meant(call, id, &record) && record.ended &&
	    peer_permitted(&call->peer, record.uid)) {
		ended_explain(call, &record, "", err);
		return;
	}
	error_set(err, EXIT_CODE_FAILED, "there is no session %.64s%s", id,
		  call->peer.admin ? " here" : " of yours");
	error_hint(err, "`carve session list` shows those that have not ended");
}

/* The name of one of the user's living sessions that have one; NULL: none has. */
static const char *named_example(const struct call *call)
{
	for (const struct session *s = call->node->sessions.first; s; s = s->next)
		if (s->record.uid == call->peer.uid && s->record.name[0] && !s->record.ephemeral)
			return s->record.name;
	return NULL;
}

/* Where the user did not end the last one, the time or the policy that ended it is the reason. */
static void none_current_explain(const struct call *call, struct error *err)
{
	const char *named = named_example(call);
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session last = {.gpu = gpus};

	if (store_session_last_current(call->node->store, call->peer.uid, &last) == 0 &&
	    view_may_ask_again(&last, &call->peer)) {
		ended_explain(call, &last, "you have no current session: ", err);
		return;
	}
	error_set(err, EXIT_CODE_FAILED, "you have no current session");
	if (named)
		error_hint(err,
			   "name the one that you mean, such as %s: `carve session list` shows "
			   "yours",
			   named);
	else
		error_hint(err, "request one: carve session request --vram 4");
}

static void reply_no_session(struct call *call, const char *id)
{
	const struct meant meant = meant_find(call, id);
	unsigned status = HTTP_STATUS_NOT_FOUND;
	struct error err = {0};

	if (meant.count > 1) {
		status = HTTP_STATUS_CONFLICT;
		error_set(&err, EXIT_CODE_FAILED, "%u sessions are called %.64s: %s", meant.count,
			  id, meant.ids);
		error_hint(&err, "name the one that you mean by its ID");
	} else if (!strcmp(id, REQUEST_CURRENT)) {
		none_current_explain(call, &err);
	} else {
		none_explain(call, id, &err);
	}
	call_reply_error(call, status, &err);
}

struct session *api_session_or_reply(struct call *call, const char *id)
{
	struct session *s = meant_find(call, id).session;

	if (!s) {
		reply_no_session(call, id);
		return NULL;
	}
	if (!peer_permitted(&call->peer, s->record.uid)) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "session %s is another user's", id);
		return NULL;
	}
	return s;
}

void api_get_session(struct call *call, const char *id)
{
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session record = {.gpu = gpus};
	const struct meant meant = meant_find(call, id);
	const struct waiter *w = meant.waiter;
	const struct session *s = meant.session;

	if (w && peer_permitted(&call->peer, w->peer.uid)) {
		call_reply(call, HTTP_STATUS_OK,
			   view_waiter(call->node, w, waiting_position(&call->node->waiting, w),
				       &call->peer));
	} else if (!s && !meant.count && ended_meant(call, id, &record) &&
		   peer_permitted(&call->peer, record.uid)) {
		call_reply(call, HTTP_STATUS_OK,
			   view_ended(call->node->store, &record, &call->peer));
	} else if ((s = api_session_or_reply(call, id)) != NULL) {
		call_reply(call, HTTP_STATUS_OK, view_session(s, &call->peer));
	}
}

/* ---- asking ------------------------------------------------------------------------------ */

void api_session_reply(struct call *call, unsigned status, const struct session *session,
		       const struct error *err)
{
	if (session)
		call_reply(call, status, view_session(session, &call->peer));
	else
		call_reply_error(call, answer_status(err), err);
}

static void on_decided(void *arg, struct session *session, const struct error *err)
{
	api_session_reply(arg, HTTP_STATUS_CREATED, session, err);
}

/* A caller that asks again with the same ID (its first answer was lost with a daemon) gets the
 * session that it got then. True: answered. */
static bool answer_asked_before(struct call *call, const struct slice_request *request)
{
	struct session *session =
		request->id[0] ? session_find(&call->node->sessions, request->id) : NULL;

	if (!session)
		return false;
	if (session->record.uid == call->peer.uid)
		call_reply(call, HTTP_STATUS_CREATED, view_session(session, &call->peer));
	else
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
			      "another session has the ID %s", request->id);
	return true;
}

/* The session that is to come back has ended, and was the caller's. False: answered. */
static bool again_or_reply(struct call *call, const struct slice_request *request)
{
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session record = {.gpu = gpus};

	if (store_session_find(call->node->store, request->id, &record) == 0 && record.ended &&
	    record.ephemeral && record.uid == call->peer.uid)
		return true;
	answer_failed(call, HTTP_STATUS_NOT_FOUND, EXIT_CODE_FAILED,
		      "no session %s of yours has ended", request->id);
	return false;
}

void api_session_asker_gone(struct call *call)
{
	waiting_cancel(&call->node->waiting, call);
}

void api_post_session(struct call *call, const char *id)
{
	struct slice_request request;
	struct error err = {0};
	json_t *root = answer_body(call, &err);
	int rc = root ? request_parse(root, &request, &err) : -1;

	json_decref(root);
	if (rc == 0 && request.priority > 0 && !call->peer.admin)
		rc = error_set(&err, EXIT_CODE_NOT_PERMITTED,
			       "--priority: above 0 is for root and members of group carve");
	if (rc == 0 && request.kept && !call->peer.admin)
		rc = error_set(&err, EXIT_CODE_NOT_PERMITTED,
			       "kept: such sessions are for root and members of group carve");
	if (rc == 0 && request.wait_ns && call->body_size > WAITING_BODY_MAX)
		rc = error_set(&err, EXIT_CODE_USAGE,
			       "a request that waits has at most %u bytes, and this one has %zu",
			       WAITING_BODY_MAX, call->body_size);
	if (rc < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	if (answer_asked_before(call, &request) ||
	    (request.again && !again_or_reply(call, &request)))
		return;
	/* The answer is due, and the call has its body until then. */
	rc = waiting_add(&call->node->waiting, &request, &call->peer,
			 &(struct waiter_ask){.cb = on_decided,
					      .arg = call,
					      .body = call->body,
					      .body_size = call->body_size});
	if (rc == -EMFILE)
		answer_failed(call, HTTP_STATUS_TOO_MANY_REQUESTS, EXIT_CODE_FAILED,
			      "you have too many requests that wait; let some end first");
	else if (rc < 0)
		answer_failed(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, EXIT_CODE_FAILED, "%s",
			      strerrordesc_np(-rc));
	else
		call_defer(call, api_session_asker_gone);
}
