/* Calls: requests that are answered.
 *
 * http.c hands over each part of a request as it comes in. This file checks the head and the body
 * against their bounds, and counts large bodies against their user. A complete request goes to the
 * server's handler in its user's turn. A handler replies at once, or defers its call: then the
 * connection waits, and on_gone() tells the handler if the client goes first. A reply becomes the
 * connection's answer, which http.c sends. Large answers count against their user until they are
 * sent. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/api/http_private.h"
#include "daemon/host/names.h"
#include "daemon/host/owner.h"
#include "daemon/node.h"

/* Answers up to this size (bytes) are not counted. */
#define ANSWER_SMALL 16384u
/* Bodies up to this size (bytes) are not counted. */
#define BODY_SMALL 4096u
#define BODY_GROWTH 4096u
/* A body that is too large is read to its end all the same, as many clients look for an answer only
 * then. A client that sends more than this is cut off. */
#define BODY_DISCARD_MAX ((size_t)1 << 28)

/* ---- waiting for an answer --------------------------------------------------------------- */

int call_socket(const struct call *call)
{
	return ((const struct http_connection *)call)->fd;
}

void http_call_abort(struct http_connection *c, const char *why)
{
	struct error err = {0};

	c->wait.on_gone(&c->call);
	error_set(&err, EXIT_CODE_UNREACHABLE, "%s", why);
	call_reply_error(&c->call, HTTP_STATUS_SERVICE_UNAVAILABLE, &err);
}

/* A handler may defer a call again, with another on_gone(), when it waits for something else. */
void call_defer(struct call *call, void (*on_gone)(struct call *call))
{
	struct http_connection *c = http_connection_of(call);

	c->wait.on_gone = on_gone;
	c->wait.deferred = true;
	http_watch(c, HTTP_WATCH_END);
}

/* ---- users' turns ------------------------------------------------------------------------ */

static void on_gone_from_line(struct call *call)
{
	struct http_connection *c = http_connection_of(call);

	fair_withdraw(&c->turn);
	free(steal_ptr(&c->wait.arg));
}

static void on_turn(struct fair_work *turn)
{
	struct http_connection *c = CONTAINER_OF(turn, struct http_connection, turn);
	/* The handler may put the call into a line again, with another argument. */
	void *arg = steal_ptr(&c->wait.arg);

	c->wait.answer(&c->call, arg);
	free(arg);
}

void call_fairly(struct call *call, call_answer answer, void *arg)
{
	struct http_connection *c = http_connection_of(call);

	c->wait.answer = answer;
	c->wait.arg = arg;
	c->turn.run = on_turn;
	if (!fair_do(&call->node->turns, owner_of(call->peer.uid), &c->turn))
		call_defer(call, on_gone_from_line);
}

/* ---- answers ----------------------------------------------------------------------------- */

const char *call_field(const struct call *call, enum http_field field)
{
	return http_reader_field(&((const struct http_connection *)call)->reader, field);
}

const char *call_argument(struct call *call, const char *name)
{
	return http_target_argument(&http_connection_of(call)->target, name);
}

/* Large answers that a user does not read count against that user. NULL: there are too many of
 * them; the text is freed. */
static char *answer_count(struct http_connection *c, char *text)
{
	size_t size = strlen(text);
	unsigned kib = (unsigned)MIN(size / 1024 + 1, UINT_MAX);

	if (size <= ANSWER_SMALL)
		return text;
	if (budget_enter_many(&c->server->answers, c->call.peer.uid, kib, &c->answer.owner)) {
		c->answer.kib = kib;
		return text;
	}
	free(text);
	return NULL;
}

char *call_text(json_t *body)
{
	char *text = body ? json_dumps(body, JSON_COMPACT | JSON_PRESERVE_ORDER |
						     JSON_REAL_PRECISION(SHARE_DIGITS))
			  : NULL;

	json_decref(body);
	return text;
}

void call_reply(struct call *call, unsigned status, json_t *body)
{
	call_reply_text(call, status, call_text(body));
}

const struct call_form http_json = {"application/json", ""};

size_t http_answer_head(char *buf, size_t room, unsigned status, const struct call_form *form,
			size_t size, const char *connection)
{
	time_t now = time(NULL);
	struct tm at;
	char date[64] = "";

	if (gmtime_r(&now, &at))
		(void)strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &at);
	int n = snprintf(buf, room,
			 "HTTP/1.1 %u %s\r\nDate: %s\r\nContent-Type: %s\r\n"
			 "Content-Length: %zu\r\n%s%s%s%s\r\n",
			 status, http_status_str(status), date, form->type, size, form->fields,
			 connection ? "Connection: " : "", connection ? connection : "",
			 connection ? "\r\n" : "");
	return MIN((size_t)MAX(n, 0), room - 1);
}

void call_reply_text(struct call *call, unsigned status, char *text)
{
	call_reply_as(call, status, &http_json, text);
}

void call_reply_as(struct call *call, unsigned status, const struct call_form *form, char *text)
{
	struct http_connection *c = http_connection_of(call);
	struct http_answer *answer = &c->answer;

	if (status == HTTP_STATUS_FORBIDDEN)
		c->server->refused++;
	if (text && !(text = answer_count(c, text))) {
		status = HTTP_STATUS_TOO_MANY_REQUESTS;
		form = &http_json;
		text = strdup("{\"error\":{\"code\":1,\"message\":\"you have too many answers of "
			      "carved that you do not read\",\"hint\":\"read them, or close their "
			      "connections\"}}");
	}
	if (!text) {
		status = HTTP_STATUS_INTERNAL_SERVER_ERROR;
		form = &http_json;
		text = strdup(
			"{\"error\":{\"code\":1,\"message\":\"out of memory\",\"hint\":\"\"}}");
	}
	size_t size = text ? strlen(text) : 0;
	const char *connection = c->last                            ? "close"
				 : c->reader.parser.http_minor == 0 ? "keep-alive"
								    : NULL;

	answer->head_size = http_answer_head(answer->head, sizeof(answer->head), status, form, size,
					     connection);
	answer->text = text;
	answer->size = c->headless ? 0 : size;
	answer->sent = 0;
	c->wait.deferred = false;
	http_answered(c);
}

json_t *call_words(const char *words)
{
	char plain[MAX(sizeof(((struct error *)0)->message), sizeof(((struct error *)0)->hint))];
	json_t *json = json_string(words);
	size_t size = strlen(words);

	/* A character that was cut is the last one, and has 4 bytes at most. */
	for (int i = 0; !json && i < 3 && size && words[size - 1] & 0x80; i++)
		json = json_stringn(words, --size);
	if (json)
		return json;
	size = 0;
	for (; words[size] && size < sizeof(plain); size++)
		plain[size] = (char)(words[size] & 0x80 ? '?' : words[size]);
	return json_stringn(plain, size);
}

void call_reply_error(struct call *call, unsigned status, const struct error *err)
{
	call_reply(call, status,
		   json_pack("{s:{s:i, s:o, s:o}}", "error", "code", err->code, "message",
			     call_words(err->message), "hint", call_words(err->hint)));
}

/* ---- requests ---------------------------------------------------------------------------- */

static bool head_is_too_long(const struct http_connection *c)
{
	return c->reader.head_size > HTTP_HEAD_BYTES_MAX;
}

bool http_call_begin(struct http_connection *c)
{
	const char *method = http_method_str(c->reader.parser.method);

	c->last = !http_should_keep_alive(&c->reader.parser);
	c->headless = c->reader.parser.method == HTTP_HEAD;
	c->call.method = c->headless ? "GET" : method;
	if (peer_identify(c->fd, &c->call.peer) < 0)
		return false;
	(void)names_of(NAMES_OF_USERS, c->call.peer.uid); /* has it looked for where need be */
	if (!head_is_too_long(c) &&
	    http_target_parse(c->reader.target, c->reader.target_size, &c->target) == -ENOMEM)
		return false;
	/* A request may wait for long, and needs its target once. */
	http_reader_drop_target(&c->reader);
	c->call.path = http_target_path(&c->target);
	c->call.looks = false;
	return true;
}

static size_t body_max(const struct http_connection *c)
{
	return !strcmp(c->call.path, HTTP_JOBS_PATH) ? HTTP_BODY_JOB_MAX : HTTP_BODY_MAX;
}

void http_call_drop_body(struct http_connection *c)
{
	if (c->body.kib)
		budget_leave_many(&c->server->bodies, c->body.owner, c->body.kib);
	c->body.kib = 0;
	c->body.room = 0;
	free(steal_ptr(&c->body.data));
}

/* Large bodies count against their user from their first bytes on, as a client decides how long the
 * rest takes. False: there is no room for this one, and what was kept of it is freed. */
static bool body_count(struct http_connection *c)
{
	struct budget *bodies = &c->server->bodies;
	unsigned kib = (unsigned)(c->body.received / 1024 + 1);

	if (c->body.received <= BODY_SMALL || kib == c->body.kib)
		return true;
	if (c->body.kib)
		budget_leave_many(bodies, c->body.owner, c->body.kib);
	c->body.kib = 0;
	if (budget_enter_many(bodies, c->call.peer.uid, kib, &c->body.owner)) {
		c->body.kib = kib;
		return true;
	}
	c->body.refused = true;
	http_call_drop_body(c);
	return false;
}

static bool body_append(struct http_body *body, const char *data, size_t size)
{
	if (body->received > body->room) {
		size_t room = ALIGN_UP(body->received, BODY_GROWTH);
		char *grown = realloc(body->data, room);

		if (!grown)
			return false;
		body->data = grown;
		body->room = room;
	}
	memcpy(body->data + body->received - size, data, size);
	return true;
}

bool http_call_body(struct http_connection *c, const char *data, size_t size)
{
	c->body.received += size;
	if (c->body.received > body_max(c))
		http_call_drop_body(c);
	if (c->body.received > body_max(c) || c->body.refused || !body_count(c))
		return c->body.received <= BODY_DISCARD_MAX;
	return body_append(&c->body, data, size);
}

static void too_large_reply(struct http_connection *c)
{
	struct error err = {0};

	error_set(&err, EXIT_CODE_USAGE, "the body is larger than %zu bytes", body_max(c));
	if (body_max(c) == HTTP_BODY_JOB_MAX)
		error_hint(&err, "a job's command and environment have 512 KiB: `carve enqueue "
				 "--export NAME,NAME` leaves out other variables");
	call_reply_error(&c->call, HTTP_STATUS_PAYLOAD_TOO_LARGE, &err);
}

static void head_reply(struct http_connection *c)
{
	struct error err = {0};
	const struct http_reader *r = &c->reader;

	error_set(&err, EXIT_CODE_USAGE, "the request's head is larger than %u bytes",
		  HTTP_HEAD_BYTES_MAX);
	call_reply_error(&c->call,
			 r->target_size > r->head_size / 2
				 ? HTTP_STATUS_URI_TOO_LONG
				 : HTTP_STATUS_REQUEST_HEADER_FIELDS_TOO_LARGE,
			 &err);
}

void http_call_take(struct http_connection *c)
{
	struct error err = {0};

	c->state = HTTP_CALLS;
	c->call.node->busy_ns = now_monotonic_ns();
	c->call.body = c->body.data ? c->body.data : "";
	c->call.body_size = c->body.received;
	c->call.proving = 0;
	if (head_is_too_long(c)) {
		head_reply(c);
	} else if (!c->target.text) {
		error_set(&err, EXIT_CODE_USAGE, "the request's target is no path");
		call_reply_error(&c->call, HTTP_STATUS_BAD_REQUEST, &err);
	} else if (c->body.received > body_max(c)) {
		too_large_reply(c);
	} else if (c->body.refused) {
		error_set(&err, EXIT_CODE_USAGE,
			  "you have too much in requests to carved that are not answered");
		error_hint(&err, "send fewer of them at once");
		call_reply_error(&c->call, HTTP_STATUS_TOO_MANY_REQUESTS, &err);
	} else {
		call_fairly(&c->call, c->server->answer, NULL);
	}
}

void http_call_wrong(struct http_connection *c)
{
	struct error err = {0};

	c->last = true;
	error_set(&err, EXIT_CODE_USAGE, "this is no request that carved takes: %s",
		  c->reader.fault);
	call_reply_error(&c->call, c->reader.status, &err);
}

void http_call_end(struct http_connection *c)
{
	if (c->answer.kib)
		budget_leave_many(&c->server->answers, c->answer.owner, c->answer.kib);
	c->answer.kib = 0;
	free(steal_ptr(&c->answer.text));
	http_call_drop_body(c);
	c->body = (struct http_body){0};
	http_target_free(&c->target);
	c->call.path = "";
	c->headless = false;
}
