#include "daemon/answer.h"

#include <microhttpd.h>
#include <stdarg.h>

#include "base/error.h"
#include "daemon/http.h"

void answer_failed(struct call *call, unsigned status, int code, const char *format, ...)
{
	struct error err = {0};
	va_list args;

	va_start(args, format);
	error_set_va(&err, code, format, args);
	va_end(args);
	call_reply_error(call, status, &err);
}

unsigned answer_status(const struct error *err)
{
	switch (err->code) {
	case EXIT_CODE_USAGE:
		return MHD_HTTP_BAD_REQUEST;
	case EXIT_CODE_NOT_PERMITTED:
		return MHD_HTTP_FORBIDDEN;
	default:
		return MHD_HTTP_CONFLICT;
	}
}

json_t *answer_body(struct call *call, struct error *err)
{
	json_error_t where;
	json_t *root = json_loadb(call->body, call->body_size, JSON_REJECT_DUPLICATES, &where);

	if (!root)
		error_set(err, EXIT_CODE_USAGE, "the body is not JSON: line %d: %.128s", where.line,
			  where.text);
	return root;
}
