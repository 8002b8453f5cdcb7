/* Requests and answers as they come in, whole and in pieces. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/macros.h"
#include "http/http_ask.h"
#include "http/http_reader.h"
#include "http/http_target.h"

#define BODY_MAX 100
#define TARGET_MAX 64u

/* What a reader makes of a text, one step after the other, as words. */
struct told {
	char text[4096];
	size_t size;
};

static void tell(struct told *told, const struct http_reader *r, enum http_step step)
{
	char *at = told->text + told->size;
	size_t room = sizeof(told->text) - told->size;

	if (step == HTTP_STEP_HEAD)
		told->size += (size_t)snprintf(
			at, room, "[%s %.*s%s%s]", http_method_str(r->parser.method),
			(int)r->target_size, r->target, r->continues ? " continues" : "",
			http_should_keep_alive(&r->parser) ? "" : " last");
	else if (step == HTTP_STEP_BODY)
		told->size += (size_t)snprintf(at, room, "%.*s", (int)r->part_size, r->part);
	else if (step == HTTP_STEP_END)
		told->size += (size_t)snprintf(at, room, "!");
	else if (step == HTTP_STEP_WRONG)
		told->size += (size_t)snprintf(at, room, "%u", r->status);
}

/* The text comes in by so many bytes. */
static void requests_read(const char *text, size_t by, struct told *ret)
{
	struct http_reader r;
	enum http_step step = HTTP_STEP_MORE;

	*ret = (struct told){0};
	http_reader_begin(&r, HTTP_REQUEST, TARGET_MAX);
	for (size_t at = 0; text[at] && step != HTTP_STEP_WRONG; at += MIN(by, strlen(text + at))) {
		const char *data = text + at;
		size_t size = MIN(by, strlen(data));

		while (size && step != HTTP_STEP_WRONG) {
			step = http_reader_take(&r, &data, &size);
			tell(ret, &r, step);
			if (step == HTTP_STEP_END)
				http_reader_next(&r);
		}
	}
	http_reader_free(&r);
}

static void requests_are(const char *text, const char *steps)
{
	struct told told;

	for (size_t by = 1; by <= strlen(text); by++) {
		requests_read(text, by, &told);
		if (strcmp(told.text, steps) != 0)
			fail_msg("by %zu bytes: %s, not %s, of %s", by, told.text, steps, text);
	}
}

static void test_requests_come_in_pieces(void **state)
{
	requests_are("GET /v1/gpus HTTP/1.1\r\nHost: x\r\n\r\n", "[GET /v1/gpus]!");
	requests_are("GET /v1/gpus HTTP/1.1\nHost: x\n\n", "[GET /v1/gpus]!");
	requests_are("GET / HTTP/1.0\r\n\r\n", "[GET / last]!");
	requests_are("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "[GET /]!");
	requests_are("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "[GET / last]!");
	requests_are("POST /a?b=c HTTP/1.1\r\nContent-Length: 5\r\n\r\n12345",
		     "[POST /a?b=c]12345!");
	requests_are("POST /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "[POST /a]!");
	requests_are("\r\nHEAD /a HTTP/1.1\r\n\r\n", "[HEAD /a]!");
}

static void test_chunks(void **state)
{
	requests_are("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
		     "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nExpect: 100-continue\r\n\r\n",
		     "[POST /]abcde!");
	requests_are("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "[POST /]400");
	requests_are("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "[POST /]400");
	requests_are("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
		     "400");
}

static void test_requests_follow_each_other(void **state)
{
	requests_are("PUT /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"
		     "GET /b HTTP/1.1\r\n\r\nDELETE /c HTTP/1.1\r\n\r\n",
		     "[PUT /a]ab![GET /b]![DELETE /c]!");
}

static void test_a_client_may_wait_before_its_body(void **state)
{
	requests_are("POST / HTTP/1.1\r\nexpect: 100-Continue\r\nContent-Length: 1\r\n\r\na",
		     "[POST / continues]a!");
	requests_are("POST / HTTP/1.1\r\nExpect: 100-continue-or-so\r\nContent-Length: 1\r\n\r\na",
		     "[POST /]a!");
	requests_are("POST / HTTP/1.1\r\nExpecting: 100-continue\r\nContent-Length: 1\r\n\r\na",
		     "[POST /]a!");
	requests_are("POST / HTTP/1.1\r\nExpect: 100-continue\r\nEXPECT: 100-continue\r\n\r\n",
		     "400");
	requests_are("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na",
		     "[POST / last]a!");
}

/* What asks for another protocol is answered in this one. */
static void test_other_protocols_are_not_taken_up(void **state)
{
	requests_are("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
		     "GET /b HTTP/1.1\r\n\r\n",
		     "[GET /]![GET /b]!");
	requests_are("POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
		     "Content-Length: 1\r\n\r\na",
		     "[POST /]a!");
	requests_are("CONNECT a:1 HTTP/1.1\r\n\r\n", "[CONNECT a:1]!");
}

static void test_faults_have_a_status(void **state)
{
	static char fields[100000] = "GET / HTTP/1.1\r\nA: ";
	struct told told;

	requests_are("FOO / HTTP/1.1\r\n\r\n", "501");
	requests_are("\x16\x03\x01", "501");
	requests_are("GET / HTTP/2.0\r\n\r\n", "505");
	requests_are("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400");
	requests_are("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400");
	requests_are("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", "400");
	requests_are("GET / HTTP/1.1\r\nContent-Length : 1\r\n\r\na", "400");
	requests_are("GET / HTTP/1.1\r\nA b: c\r\n\r\n", "400");
	requests_are("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA : b\r\n\r\n",
		     "[GET /]400");
	memset(fields + strlen(fields), 'a', sizeof(fields) - strlen(fields) - 1);
	requests_read(fields, 1000, &told);
	assert_string_equal(told.text, "431");
}

static void test_a_long_target_is_counted(void **state)
{
	char text[256] = "GET /";
	const char *data = text;
	struct http_reader r;

	memset(text + 5, 'a', 99);
	strcat(text, " HTTP/1.1\r\n\r\n");
	size_t size = strlen(text), whole = size;
	http_reader_begin(&r, HTTP_REQUEST, TARGET_MAX);
	assert_int_equal(http_reader_take(&r, &data, &size), HTTP_STEP_HEAD);
	assert_int_equal(r.target_size, 100);
	assert_int_equal(http_reader_take(&r, &data, &size), HTTP_STEP_END);
	assert_int_equal(r.head_size + 1, whole);
	http_reader_free(&r);
}

/* A connection may end between two messages, and nowhere else. */
static void test_a_request_that_is_cut_off(void **state)
{
	static const char text[] = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n12345";

	for (size_t length = 0; length < sizeof(text); length++) {
		const char *data = text;
		size_t size = length;
		struct http_reader r;

		http_reader_begin(&r, HTTP_REQUEST, TARGET_MAX);
		while (size && http_reader_take(&r, &data, &size) != HTTP_STEP_END)
			;
		bool whole = length == 0 || length == sizeof(text) - 1;
		assert_int_equal(http_reader_close(&r), whole ? HTTP_STEP_MORE : HTTP_STEP_WRONG);
		assert_int_equal(http_reader_is_cut(&r), !whole);
		http_reader_free(&r);
	}
}

/* ---- targets ----------------------------------------------------------------------------- */

static void test_targets(void **state)
{
	struct http_target t = {0};
	static const struct {
		const char *target, *path, *value; /* of the argument `a` */
	} known[] = {
		{"/v1/jobs", "/v1/jobs", NULL},
		{"/v1/jobs?", "/v1/jobs", NULL},
		{"/a%20b+c%2", "/a b+c%2", NULL},
		{"/?a=x%26y+z&b=1", "/", "x&y z"},
		{"/?b=a&a", "/", ""},
		{"/?a=&a=2", "/", ""},
		{"/?aa=1&&b&a=2=3", "/", "2=3"},
		{"/?a%3d=1&%61=2", "/", "2"},
		{"http://localhost/v1/gpus?a=1", "/v1/gpus", "1"},
		{"http://localhost", "/", NULL},
		{"*", "*", NULL},
	};

	assert_string_equal(http_target_path(&t), "");
	assert_null(http_target_argument(&t, "a"));
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		assert_int_equal(http_target_parse(known[i].target, strlen(known[i].target), &t),
				 0);
		assert_string_equal(http_target_path(&t), known[i].path);
		if (known[i].value)
			assert_string_equal(http_target_argument(&t, "a"), known[i].value);
		else
			assert_null(http_target_argument(&t, "a"));
		http_target_free(&t);
	}
	assert_true(http_target_parse("/a%00b", 6, &t) < 0);
	assert_true(http_target_parse("/?a=%00", 7, &t) < 0);
	assert_true(http_target_parse("localhost:1", 11, &t) < 0);
}

/* ---- answers ----------------------------------------------------------------------------- */

static enum http_ask_progress answer_read(const char *text, size_t by, bool ended,
					  struct http_ask *ask)
{
	enum http_ask_progress progress = HTTP_ASK_MORE;
	size_t size = strlen(text);

	http_ask_begin(ask, BODY_MAX);
	for (size_t at = 0; at < size && progress == HTTP_ASK_MORE; at += by)
		progress = http_ask_take(ask, text + at, MIN(by, size - at));
	return progress == HTTP_ASK_MORE && ended ? http_ask_take(ask, NULL, 0) : progress;
}

static void answer_is(const char *text, bool ended, int status, const char *body)
{
	struct http_ask ask;

	for (size_t by = 1; by <= strlen(text); by++) {
		assert_int_equal(answer_read(text, by, ended, &ask), HTTP_ASK_ANSWERED);
		assert_int_equal(ask.status, status);
		assert_int_equal(ask.size, strlen(body));
		if (ask.size)
			assert_memory_equal(ask.body, body, ask.size);
		http_ask_free(&ask);
	}
}

static void test_answers(void **state)
{
	answer_is("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", false, 200, "[]");
	answer_is("HTTP/1.1 200 OK\ncontent-length:\t 2 \n\n[]x", false, 200, "[]");
	answer_is("HTTP/1.1 200\r\nX: y\r\nContent-Length: 0\r\n\r\n", false, 200, "");
	answer_is("HTTP/1.0 503 Service Unavailable\r\n\r\n{}", true, 503, "{}");
	answer_is("HTTP/1.1 204 No Content\r\n\r\n", false, 204, "");
	answer_is("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\n1",
		  false, 201, "1");
	answer_is("HTTP/1.1 200 OK\r\nTransfer-Encoding: "
		  "chunked\r\n\r\n2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n",
		  false, 200, "[1]");
}

/* Each beginning of an answer is waited for, and an end there is one in the middle. */
static void test_answers_that_are_cut_off(void **state)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"
				   "Content-Length: 5\r\nA: b\r\n\r\n12345";

	for (size_t size = 0; size < sizeof(text) - 1; size++) {
		char *part = strndup(text, size);
		struct http_ask ask;

		assert_int_equal(answer_read(part, size + 1, false, &ask), HTTP_ASK_MORE);
		http_ask_free(&ask);
		assert_int_equal(answer_read(part, size + 1, true, &ask), HTTP_ASK_ENDED);
		http_ask_free(&ask);
		free(part);
	}
	answer_is(text, false, 200, "12345");
}

static void test_other_protocols_are_no_answer(void **state)
{
	static const char *const texts[] = {
		"SSH-2.0-OpenSSH\r\n",
		"HTTP/2 200\r\n",
		"HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.1 99 Low\r\n\r\n",
		"HTTP/1.1 600 High\r\n\r\n",
		"HTTP/1.1 20 Short\r\n\r\n",
		"HTTP/1.1 2000 Long\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12",
		"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
	};
	struct http_ask ask;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (answer_read(texts[i], 1000, false, &ask) != HTTP_ASK_FOREIGN)
			fail_msg("taken for an answer: %s", texts[i]);
		http_ask_free(&ask);
	}
}

static void test_heads_and_bodies_have_a_bound(void **state)
{
	static char text[HTTP_ASK_HEAD_MAX + 64] = "HTTP/1.1 200 OK\r\nA: ";
	size_t used = strlen(text);
	struct http_ask ask;

	memset(text + used, 'a', sizeof(text) - used - 1);
	text[HTTP_ASK_HEAD_MAX] = '\0';
	assert_int_equal(answer_read(text, 1000, false, &ask), HTTP_ASK_MORE);
	http_ask_free(&ask);
	text[HTTP_ASK_HEAD_MAX] = 'a';
	assert_int_equal(answer_read(text, 1000, false, &ask), HTTP_ASK_FOREIGN);
	http_ask_free(&ask);
	memcpy(text + used, "\r\n\r\n", 4);
	text[used + 4 + BODY_MAX] = '\0';
	assert_int_equal(answer_read(text, 7, false, &ask), HTTP_ASK_MORE);
	http_ask_free(&ask);
	text[used + 4 + BODY_MAX] = 'a';
	assert_int_equal(answer_read(text, 7, false, &ask), HTTP_ASK_FOREIGN);
	http_ask_free(&ask);
}

/* Interim answers without end. */
static void test_interim_answers_have_a_bound(void **state)
{
	static const char text[] = "HTTP/1.1 102 Processing\r\n\r\n";
	enum http_ask_progress progress = HTTP_ASK_MORE;
	struct http_ask ask;
	size_t taken = 0;

	http_ask_begin(&ask, BODY_MAX);
	for (; progress == HTTP_ASK_MORE && taken < 2u * HTTP_ASK_HEAD_MAX;
	     taken += sizeof(text) - 1)
		progress = http_ask_take(&ask, text, sizeof(text) - 1);
	assert_int_equal(progress, HTTP_ASK_FOREIGN);
	assert_true(taken <= HTTP_ASK_HEAD_MAX + 10000);
	http_ask_free(&ask);
}

static void test_the_head_of_a_request(void **state)
{
	char head[256];

	assert_true(http_ask_head(head, sizeof(head), "GET", "/v1/gpus", 0) > 0);
	requests_are(head, "[GET /v1/gpus last]!");
	assert_true(http_ask_head(head, sizeof(head), "POST", "/v1/jobs", 2) > 0);
	strcat(head, "{}");
	requests_are(head, "[POST /v1/jobs last]{}!");
	for (size_t size = 1; size < 150; size++) {
		size_t n = http_ask_head(head, size, "POST", "/v1/jobs", 1);

		assert_true(n == 0 || n == strlen(head));
	}
	assert_int_equal(http_ask_head(head, 20, "POST", "/v1/jobs", 1), 0);
}

/* A server with too many connections answers and hangs up before it reads. SIGPIPE would end the
 * caller. */
static void test_an_answer_before_the_request_is_read(void **state)
{
	static const char answer[] = "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n{}";
	struct http_ask ask;
	int ends[2];

	for (int answers = 0; answers < 2; answers++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
		if (answers)
			assert_int_equal(send(ends[1], answer, strlen(answer), 0), strlen(answer));
		close(ends[1]);
		http_ask_begin(&ask, BODY_MAX);
		assert_int_equal(http_ask_call(&ask, ends[0], "POST", "/v1/sessions", "{}"),
				 answers ? 0 : -ECONNRESET);
		assert_int_equal(ask.status, answers ? 503 : 0);
		http_ask_free(&ask);
		close(ends[0]);
	}
}

/* Whatever pieces the head comes in. */
static void fields_of_the_head_are_kept(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost:  localhost:8080 \r\nOrigin:\r\n"
				   "Sec-Fetch-Site-Not: x\r\nsec-FETCH-site: same-origin\r\n\r\n";
	struct http_reader r;

	for (size_t by = 1; by <= strlen(text); by++) {
		http_reader_begin(&r, HTTP_REQUEST, TARGET_MAX);
		for (size_t at = 0; text[at]; at += MIN(by, strlen(text + at))) {
			const char *data = text + at;
			size_t size = MIN(by, strlen(data));

			while (size)
				assert_int_not_equal(http_reader_take(&r, &data, &size),
						     HTTP_STEP_WRONG);
		}
		assert_string_equal(http_reader_field(&r, HTTP_FIELD_HOST), "localhost:8080");
		assert_string_equal(http_reader_field(&r, HTTP_FIELD_ORIGIN), "");
		assert_string_equal(http_reader_field(&r, HTTP_FIELD_SITE), "same-origin");
		assert_null(http_reader_field(&r, HTTP_FIELD_EXPECT));
		http_reader_free(&r);
	}
}

static void long_value_of_a_field_is_cut(void **state)
{
	char text[512];
	const char *data = text;
	struct http_reader r;

	snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %0300d\r\n\r\n", 0);
	size_t size = strlen(text);
	http_reader_begin(&r, HTTP_REQUEST, TARGET_MAX);
	assert_int_equal(http_reader_take(&r, &data, &size), HTTP_STEP_HEAD);
	assert_int_equal(strlen(http_reader_field(&r, HTTP_FIELD_HOST)), HTTP_FIELD_SIZE - 1);
	http_reader_free(&r);
}

/* The value, as it is kept, of a request with this one, in pieces of `by` bytes. */
static size_t cookies_kept(const char *value, size_t by)
{
	static char text[3 * HTTP_COOKIE_MAX];
	const char *data = text;
	struct http_reader r;

	snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nCookie: %s\r\nHost: a\r\n\r\n", value);
	http_reader_begin(&r, HTTP_REQUEST, TARGET_MAX);
	for (size_t left = strlen(text); left;) {
		size_t size = MIN(by, left), before = size;

		assert_int_not_equal(http_reader_take(&r, &data, &size), HTTP_STEP_WRONG);
		left -= before - size;
	}
	const char *kept = http_reader_field(&r, HTTP_FIELD_COOKIE);
	size_t length = strlen(kept);
	assert_memory_equal(kept, value, length);
	assert_string_equal(http_reader_field(&r, HTTP_FIELD_HOST), "a");
	http_reader_next(&r);
	assert_null(http_reader_field(&r, HTTP_FIELD_COOKIE));
	http_reader_free(&r);
	return length;
}

static void cookies_are_kept_whole_up_to_their_room(void **state)
{
	static char value[2 * HTTP_COOKIE_MAX];

	assert_int_equal(cookies_kept("", 1), 0);
	for (size_t by = 1; by < 8; by++)
		assert_int_equal(cookies_kept("a=1; carve-host=abc; b=2", by), 24);
	memset(value, 'x', sizeof(value) - 1);
	assert_int_equal(cookies_kept(value, 1000), HTTP_COOKIE_MAX);
	value[HTTP_COOKIE_MAX] = '\0';
	assert_int_equal(cookies_kept(value, 333), HTTP_COOKIE_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_of_the_head_are_kept),
		cmocka_unit_test(long_value_of_a_field_is_cut),
		cmocka_unit_test(cookies_are_kept_whole_up_to_their_room),
		cmocka_unit_test(test_requests_come_in_pieces),
		cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_requests_follow_each_other),
		cmocka_unit_test(test_a_client_may_wait_before_its_body),
		cmocka_unit_test(test_other_protocols_are_not_taken_up),
		cmocka_unit_test(test_faults_have_a_status),
		cmocka_unit_test(test_a_long_target_is_counted),
		cmocka_unit_test(test_a_request_that_is_cut_off),
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_answers_that_are_cut_off),
		cmocka_unit_test(test_other_protocols_are_no_answer),
		cmocka_unit_test(test_heads_and_bodies_have_a_bound),
		cmocka_unit_test(test_interim_answers_have_a_bound),
		cmocka_unit_test(test_the_head_of_a_request),
		cmocka_unit_test(test_an_answer_before_the_request_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
