#include "daemon/api/api_explain.h"

#include <errno.h>
#include <http_parser.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_session.h"
#include "daemon/api/fresh.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/node.h"
#include "daemon/request/request.h"
#include "daemon/waiting/waiting.h"

static void explain_reply(struct call *call, const struct waiter *w,
			  const struct slice_request *request, const struct place_result *result,
			  int rc, const struct error *err)
{
	json_t *json = view_explain(call->node, request, result, err, &call->peer);

	json_object_set_new(json, "possible", json_boolean(rc == 0 || rc == -EAGAIN));
	json_object_set_new(json, "ahead",
			    view_ahead(call->node, w, request->priority, &call->peer));
	call_reply(call, HTTP_STATUS_OK, json);
}

static void answer_explain(struct call *call, void *arg)
{
	struct slice_request *request = arg;
	struct place_result result = {0};
	struct error err = {0};

	/* GPUs that there are not: the request is wrong, not refused. */
	if (request_resolve(request, &call->node->pool, &err) < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	int rc = waiting_would(&call->node->waiting, request, &call->peer, &result, &err);
	explain_reply(call, NULL, request, &result, rc, &err);
}

void api_post_explain(struct call *call, const char *id)
{
	struct slice_request *request = calloc(1, sizeof(*request));
	struct error err = {0};
	json_t *root = answer_body(call, &err);
	int rc = root && request ? request_parse(root, request, &err) : -1;

	if (root && !request)
		error_set(&err, EXIT_CODE_FAILED, "out of memory");
	json_decref(root);
	if (rc == 0) {
		fresh_defer(call, answer_explain, request);
		return;
	}
	free(request);
	call_reply_error(call, answer_status(&err), &err);
}

/* A request that waits. It may have been decided while the sample was taken. */
static void answer_explain_waiter(struct call *call, void *id)
{
	struct waiter *w = waiting_find(&call->node->waiting, id);
	struct place_result result = {0};
	struct error err = {0};

	if (!w) {
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
			      "%s does not wait any more", (const char *)id);
		return;
	}
	int rc = request_resolve(&w->request, &call->node->pool, &err);
	if (rc == 0)
		rc = waiting_explain(&call->node->waiting, w, &result, &err);
	explain_reply(call, w, &w->request, &result, rc, &err);
}

void api_get_explain(struct call *call, const char *id)
{
	const struct waiter *w = waiting_find(&call->node->waiting, id);

	if (!w && api_session_or_reply(call, id))
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
			      "session %s does not wait", id);
	else if (w && peer_permitted(&call->peer, w->peer.uid))
		fresh_defer(call, answer_explain_waiter, strdup(id));
	else if (w)
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "request %s is another user's", id);
}
