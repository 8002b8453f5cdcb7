#include "daemon/api/api_recorded.h"

#include <errno.h>
#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_session.h"
#include "daemon/api/http.h"
#include "daemon/node.h"
#include "daemon/session/session.h"

/* Others may be shown the text on a terminal, so it has no control characters. */
static int text_read(const json_t *root, struct store_recorded *ret, struct error *err)
{
	const char *text = json_string_value(json_object_get(root, "command"));

	if (!text || !*text || strlen(text) >= sizeof(ret->text))
		return error_set(err, EXIT_CODE_USAGE,
				 "'command' takes a text of at most %zu bytes",
				 sizeof(ret->text) - 1);
	snprintf(ret->text, sizeof(ret->text), "%s", text);
	for (char *c = ret->text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return 0;
}

static void reply_unrecorded(struct call *call, int rc)
{
	answer_failed(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, EXIT_CODE_FAILED,
		      "the command cannot be recorded: %s", strerrordesc_np(-rc));
}

void api_post_recorded(struct call *call, const char *id)
{
	struct store_recorded recorded = {.uid = call->peer.uid, .began = now_realtime_ns()};
	struct error err = {0};
	json_t *root = answer_body(call, &err);
	const char *named = json_string_value(json_object_get(root, "session"));
	int rc = root ? text_read(root, &recorded, &err) : -1;

	if (rc >= 0 && !named)
		rc = error_set(&err, EXIT_CODE_USAGE, "'session' takes a session's ID");
	snprintf(recorded.session, sizeof(recorded.session), "%s", named ? named : "");
	json_decref(root);
	if (rc < 0) {
		call_reply_error(call, HTTP_STATUS_BAD_REQUEST, &err);
		return;
	}
	if (!api_session_or_reply(call, recorded.session))
		return;
	rc = store_recorded_add(call->node->store, &recorded);
	if (rc < 0)
		reply_unrecorded(call, rc);
	else
		call_reply(call, HTTP_STATUS_CREATED,
			   json_pack("{s:I}", "number", (json_int_t)recorded.number));
}

static int end_read(const json_t *root, struct store_recorded *ret, struct error *err)
{
	const json_t *code = json_object_get(root, "exit_code");
	json_int_t value = json_integer_value(code);

	if (!json_is_integer(code) || value < 0 || value > 255)
		return error_set(err, EXIT_CODE_USAGE,
				 "'exit_code' takes the exit status of a command, 0 to 255");
	ret->exit_code = (int32_t)value;
	ret->ended = now_realtime_ns();
	return 0;
}

/* The command of `number`, if it is the caller's and has not ended. 0, or -ENOENT. */
static int own_find(const struct call *call, const char *number, struct store_recorded *ret)
{
	int64_t value;

	if (!answer_number_take(&number, '\0', &value) ||
	    store_recorded_find(call->node->store, value, ret) < 0 || ret->uid != call->peer.uid ||
	    ret->ended)
		return -ENOENT;
	return 0;
}

void api_patch_recorded(struct call *call, const char *number)
{
	struct store_recorded recorded;
	struct error err = {0};
	json_t *root = answer_body(call, &err);
	int rc = root && own_find(call, number, &recorded) == 0 ? end_read(root, &recorded, &err)
								: -ENOENT;

	json_decref(root);
	if (err.code) {
		call_reply_error(call, HTTP_STATUS_BAD_REQUEST, &err);
		return;
	}
	if (rc < 0) {
		answer_failed(call, HTTP_STATUS_NOT_FOUND, EXIT_CODE_FAILED,
			      "no command of yours that goes on is recorded as %.32s", number);
		return;
	}
	rc = store_recorded_end(call->node->store, &recorded);
	if (rc < 0)
		reply_unrecorded(call, rc);
	else
		call_reply(call, HTTP_STATUS_OK,
			   json_pack("{s:I}", "number", (json_int_t)recorded.number));
}
