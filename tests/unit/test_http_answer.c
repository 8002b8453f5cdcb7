/* Answers of the daemon as they come in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "client/http_answer.h"

#define BODY_MAX 100

static enum http_progress parse(const char *text, bool ended, struct http_parsed *ret)
{
	return http_answer_parse(text, strlen(text), ended, BODY_MAX, ret);
}

static void body_is(const char *text, bool ended, int status, const char *body)
{
	struct http_parsed parsed;

	assert_int_equal(parse(text, ended, &parsed), HTTP_COMPLETE);
	assert_int_equal(parsed.status, status);
	assert_int_equal(parsed.size, strlen(body));
	assert_memory_equal(text + parsed.body, body, parsed.size);
}

static void bodies(void **state)
{
	body_is("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", false, 200, "[]");
	body_is("HTTP/1.1 200 OK\ncontent-length:\t 2 \n\n[]x", false, 200, "[]");
	body_is("HTTP/1.1 200\r\nX: y\r\nContent-Length: 0\r\n\r\n", false, 200, "");
	body_is("HTTP/1.0 503 Service Unavailable\r\n\r\n{}", true, 503, "{}");
	body_is("HTTP/1.1 204 No Content\r\n\r\n", false, 204, "");
	body_is("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\n1",
		false, 201, "1");
}

/* Each beginning of an answer is waited for, and an end there is one in the middle. */
static void pieces(void **state)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"
				   "Content-Length: 5\r\nA: b\r\n\r\n12345";
	struct http_parsed parsed;

	for (size_t size = 0; size < sizeof(text) - 1; size++) {
		assert_int_equal(http_answer_parse(text, size, false, BODY_MAX, &parsed),
				 HTTP_MORE);
		assert_int_equal(http_answer_parse(text, size, true, BODY_MAX, &parsed),
				 HTTP_ENDED);
	}
	body_is(text, false, 200, "12345");
}

static void no_answers_of_a_daemon(void **state)
{
	static const char *const texts[] = {
		"SSH-2.0-OpenSSH\r\n",
		"HTTP/2",
		"HTTP/1.1 99 Low\r\n\r\n",
		"HTTP/1.1 600 High\r\n\r\n",
		"HTTP/1.1 20 Short\r\n\r\n",
		"HTTP/1.1 2000 Long\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12",
		"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	};
	struct http_parsed parsed;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (parse(texts[i], false, &parsed) != HTTP_FOREIGN)
			fail_msg("taken for an answer: %s", texts[i]);
}

static void heads_and_bodies_have_a_bound(void **state)
{
	static char text[HTTP_HEAD_MAX + 64] = "HTTP/1.1 200 OK\r\nA: ";
	struct http_parsed parsed;
	size_t used = strlen(text);

	memset(text + used, 'a', sizeof(text) - used);
	assert_int_equal(http_answer_parse(text, HTTP_HEAD_MAX, false, BODY_MAX, &parsed),
			 HTTP_MORE);
	assert_int_equal(http_answer_parse(text, sizeof(text), false, BODY_MAX, &parsed),
			 HTTP_FOREIGN);
	memcpy(text + used, "\r\n\r\n", 4);
	assert_int_equal(http_answer_parse(text, used + 4 + BODY_MAX, false, BODY_MAX, &parsed),
			 HTTP_MORE);
	assert_int_equal(http_answer_parse(text, used + 4 + BODY_MAX + 1, false, BODY_MAX, &parsed),
			 HTTP_FOREIGN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bodies),
		cmocka_unit_test(pieces),
		cmocka_unit_test(no_answers_of_a_daemon),
		cmocka_unit_test(heads_and_bodies_have_a_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
