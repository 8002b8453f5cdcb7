/* The notice over HTTP. */
#include <http_parser.h>
#include <jansson.h>
#include <string.h>

#include "base/error.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_events.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/events/events.h"
#include "daemon/events/notice.h"
#include "daemon/node.h"

/* The lines of the text, as a terminal shows them. */
static json_t *lines_json(const char *text)
{
	json_t *lines = json_array();

	while (*text) {
		size_t length = strcspn(text, "\n");

		json_array_append_new(lines, json_stringn(text, length));
		text += length + (text[length] == '\n');
	}
	return lines;
}

/* `due`: the caller's user has not been shown it. */
void api_get_notice(struct call *call, const char *id)
{
	const struct store_notice *notice = notice_get(call->node->events);
	bool due = notice_is_due(call->node->events, &call->peer);

	call_reply(call, HTTP_STATUS_OK,
		   json_pack("{s:o, s:o, s:o, s:o, s:o, s:b}", "number",
			     notice ? json_integer(notice->number) : json_null(), "at",
			     notice ? view_time(notice->at) : json_null(), "user",
			     notice ? json_string(view_user(notice->uid)) : json_null(), "text",
			     notice ? json_string(notice->text) : json_null(), "lines",
			     lines_json(notice ? notice->text : ""), "due", due));
}

static bool admin_or_answer(struct call *call)
{
	if (events_admin(&call->peer))
		return true;
	answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
		      "the notice is set by root and members of group carve");
	return false;
}

static void set(struct call *call, const char *text)
{
	struct error err = {0};

	if (notice_set(call->node->events, text, &call->peer, &err) < 0)
		call_reply_error(call, answer_status(&err), &err);
	else
		api_get_notice(call, "");
}

void api_put_notice(struct call *call, const char *id)
{
	struct error err = {0};

	if (!admin_or_answer(call))
		return;
	json_t *root = answer_body(call, &err);
	const char *text = json_string_value(json_object_get(root, "text"));
	if (!root)
		call_reply_error(call, answer_status(&err), &err);
	else if (!text || json_object_size(root) != 1 || !text[strspn(text, " \n\t")])
		answer_failed(call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
			      "the body takes {\"text\": TEXT} with a text that is not empty");
	else
		set(call, text);
	json_decref(root);
}

void api_delete_notice(struct call *call, const char *id)
{
	if (!admin_or_answer(call))
		return;
	if (notice_get(call->node->events))
		set(call, "");
	else
		api_get_notice(call, id);
}

void api_post_notice(struct call *call, const char *id)
{
	struct error err = {0};
	json_t *root = answer_body(call, &err);
	const json_t *seen = json_object_get(root, "seen");

	if (!root)
		call_reply_error(call, answer_status(&err), &err);
	else if (!json_is_integer(seen) || json_object_size(root) != 1)
		answer_failed(call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
			      "the body takes {\"seen\": NUMBER} with the number of the notice");
	else if (notice_see(call->node->events, &call->peer, json_integer_value(seen)) < 0)
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
			      "it cannot be recorded that the notice was shown");
	else
		api_get_notice(call, id);
	json_decref(root);
}
