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
#include "daemon/session/session.h"
#include "daemon/waiting/waiting.h"

/* By its ID, or of the caller's own by its name; an administrator sees the names of all. */
static struct session *session_meant(const struct call *call, const char *id)
{
	struct session *s = session_find(&call->node->sessions, id);

	if (!s)
		s = session_named(&call->node->sessions, call->peer.uid, id);
	return !s && call->peer.admin ? session_named_once(&call->node->sessions, id) : s;
}

struct waiter *api_session_waiter(const struct call *call, const char *id)
{
	struct waiter *w = waiting_find(&call->node->waiting, id);

	return w ? w : waiting_named(&call->node->waiting, call->peer.uid, id);
}

/* Likewise of those that ended. */
static bool ended_meant(const struct call *call, const char *id, struct store_session *ret)
{
	return store_session_find(call->node->store, id, ret) == 0 ||
	       store_session_named(call->node->store, call->peer.uid, id, ret) == 0;
}

/* One that has ended says when and why, to those who may see it. */
static void reply_no_session(struct call *call, const char *id)
{
	struct store_gpu gpus[PLACE_GPUS_MAX];
	struct store_session record = {.gpu = gpus};
	struct error err = {0};
	char time[UNITS_TEXT_SIZE];

	if (ended_meant(call, id, &record) && record.ended &&
	    peer_permitted(&call->peer, record.uid))
		error_set(&err, EXIT_CODE_FAILED, "session %s ended at %s: %s", record.id,
			  units_format_time(record.ended, UNITS_MILLISECONDS, time), record.reason);
	else
		error_set(&err, EXIT_CODE_FAILED, "there is no session %.64s of yours", id);
	error_hint(&err, "`carve session list` shows those that have not ended");
	call_reply_error(call, HTTP_STATUS_NOT_FOUND, &err);
}

struct session *api_session_or_reply(struct call *call, const char *id)
{
	struct session *s = session_meant(call, id);

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
	const struct waiter *w = api_session_waiter(call, id);
	const struct session *s = session_meant(call, id);

	if (w && peer_permitted(&call->peer, w->peer.uid)) {
		call_reply(call, HTTP_STATUS_OK,
			   view_waiter(w, waiting_position(&call->node->waiting, w), &call->peer));
	} else if (!s && ended_meant(call, id, &record) &&
		   peer_permitted(&call->peer, record.uid)) {
		call_reply(call, HTTP_STATUS_OK, view_ended(&record, &call->peer));
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
