#include "daemon/api/answer.h"

#include <errno.h>
#include <http_parser.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/error.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"

void answer_failed(struct call *call, unsigned status, int code, const char *format, ...)
{
	struct error err = {0};
	va_list args;

	va_start(args, format);
	error_set_va(&err, code, format, args);
	va_end(args);
	call_reply_error(call, status, &err);
}

bool answer_uid_argument(struct call *call, uid_t *ret)
{
	const char *text = call_argument(call, "uid");
	int64_t uid;

	*ret = (uid_t)-1;
	if (!text)
		return true;
	if (!answer_number_take(&text, '\0', &uid) || uid < 0 || uid >= (uid_t)-1) {
		answer_failed(call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
			      "uid: takes the number of a user");
		return false;
	}
	if (!peer_permitted(&call->peer, (uid_t)uid)) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "user %s: only root and members of group carve may see and change "
			      "what other users have",
			      view_user((uid_t)uid));
		return false;
	}
	*ret = (uid_t)uid;
	return true;
}

unsigned answer_status(const struct error *err)
{
	switch (err->code) {
	case EXIT_CODE_USAGE:
		return HTTP_STATUS_BAD_REQUEST;
	case EXIT_CODE_NOT_PERMITTED:
		return HTTP_STATUS_FORBIDDEN;
	default:
		return HTTP_STATUS_CONFLICT;
	}
}

static const char *fault_text(enum json_error_code code)
{
	switch (code) {
	case json_error_premature_end_of_input:
		return "it ends too early";
	case json_error_end_of_input_expected:
		return "something follows its end";
	case json_error_null_character:
	case json_error_null_byte_in_key:
		return "a text has the character \\u0000";
	case json_error_invalid_utf8:
		return "a text is not UTF-8";
	case json_error_duplicate_key:
		return "a field is there twice";
	case json_error_numeric_overflow:
		return "a number is too large";
	case json_error_stack_overflow:
		return "it is nested too deeply";
	case json_error_out_of_memory:
		return "there is no memory for it";
	default:
		return "it is not well-formed";
	}
}

json_t *answer_body(struct call *call, struct error *err)
{
	json_error_t where;
	json_t *root = json_loadb(call->body, call->body_size,
				  JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);

	if (!root)
		error_set(err, EXIT_CODE_USAGE,
			  "the body is not JSON that carved takes: line %d: %s", where.line,
			  fault_text(json_error_code(&where)));
	return root;
}

bool answer_number_take(const char **at, char end, int64_t *ret)
{
	char *behind;

	errno = 0;
	*ret = strtoll(*at, &behind, 10);
	if (behind == *at || errno || *behind != end)
		return false;
	*at = behind + (end != '\0');
	return true;
}
