/* A link to a process with rights: requests in their owners' turns, and answers that come later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/file.h"
#include "base/socket.h"
#include "daemon/host/link.h"

#define ALICE 60101
#define MALLORY 60103
#define MAGIC 0x4b4e494cu

struct message {
	union {
		struct link_request request;
		struct link_reply reply;
	};
	char name; /* the request's, and the answer's */
	char rest[31];
};

static uv_loop_t loop;
static struct link a_link;
static int far_end;
static int ended; /* -errno; 0: it has not */
static char heard[128];

static int reply_check(const void *reply, size_t size)
{
	const struct link_reply *head = reply;

	return size == sizeof(struct message) && head->magic == MAGIC ? 0 : -EPROTO;
}

static void on_ended(void *context, int rc)
{
	ended = rc;
}

static const struct link_kind kind = {
	.magic = MAGIC,
	.version = 1,
	.size = sizeof(struct message),
	.reply_check = reply_check,
	.on_ended = on_ended,
};

static int setup(void **state)
{
	int ends[2];

	ended = 0;
	heard[0] = '\0';
	if (uv_loop_init(&loop) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -1;
	far_end = ends[1];
	link_begin(&a_link, &kind, NULL, &loop);
	return link_open(&a_link, ends[0]);
}

static int teardown(void **state)
{
	link_end(&a_link);
	close_fd(&far_end);
	uv_run(&loop, UV_RUN_DEFAULT);
	return uv_loop_close(&loop);
}

static void pass(void)
{
	uv_run(&loop, UV_RUN_NOWAIT);
	uv_run(&loop, UV_RUN_NOWAIT);
}

/* "a" for an answer, "a!110" for a failure of a request of that name. */
static void on_answer(void *arg, int rc, const void *reply, int *fd)
{
	size_t used = strlen(heard);
	const char *name = arg;

	if (rc == 0)
		assert_int_equal(((const struct message *)reply)->name, *name);
	snprintf(heard + used, sizeof(heard) - used, rc ? "%c!%d " : "%c ", *name, -rc);
}

static struct link_asked *ask_for(uid_t owner, const char *name, uint64_t patience_ns)
{
	struct message message = {.request = {.op = 1}, .name = *name};
	const struct link_ask ask = {.owner = owner,
				     .request = &message,
				     .patience_ns = patience_ns,
				     .cb = on_answer,
				     .arg = (void *)name};
	struct link_asked *asked;

	assert_int_equal(link_ask(&a_link, &ask, &asked), 0);
	return asked;
}

/* The next request that the other side has. ' ': there is none. */
static char request_take(struct message *ret)
{
	int none;

	pass();
	ssize_t n = descriptor_receive(far_end, ret, sizeof(*ret), &none);
	assert_int_equal(none, -1);
	return n == sizeof(*ret) ? ret->name : ' ';
}

static void answer(const struct message *request, int error)
{
	struct message reply = {.reply = {.magic = MAGIC,
					  .version = 1,
					  .number = request->request.number,
					  .error = error},
				.name = request->name};

	assert_int_equal(descriptors_send(far_end, &reply, sizeof(reply), NULL, 0), 0);
	pass();
}

static void test_an_answer_comes_from_the_loop_and_by_its_number(void **state)
{
	struct message first, second;

	ask_for(ALICE, "a", 0);
	ask_for(MALLORY, "m", 0);
	assert_int_equal(request_take(&first), 'a');
	assert_int_equal(request_take(&second), 'm');
	assert_string_equal(heard, "");
	answer(&second, EPERM);
	answer(&first, 0);
	answer(&first, 0); /* nobody's */
	assert_string_equal(heard, "m!1 a ");
}

static void test_a_request_waits_for_one_of_each_other_owner(void **state)
{
	static const char *const many[] = {"1", "2", "3", "4"};
	struct message message;

	for (int i = 0; i < 4; i++)
		ask_for(MALLORY, many[i], 0);
	assert_int_equal(request_take(&message), '1');
	assert_int_equal(request_take(&message), ' ');
	ask_for(ALICE, "a", 0);
	/* The other side has Mallory's first, and nothing else of Mallory's. */
	struct message alices;
	assert_int_equal(request_take(&alices), 'a');
	answer(&message, 0);
	assert_int_equal(request_take(&message), '2');
	answer(&alices, 0);
	assert_string_equal(heard, "1 a ");
}

static void test_an_owners_requests_are_bounded(void **state)
{
	struct message message = {.request = {.op = 1}};
	const struct link_ask ask = {.owner = MALLORY, .request = &message};

	for (unsigned i = 0; i < LINK_OWNER_MAX; i++)
		assert_int_equal(link_ask(&a_link, &ask, NULL), 0);
	assert_int_equal(link_ask(&a_link, &ask, NULL), -EAGAIN);
	ask_for(ALICE, "a", 0);
	request_take(&message);
	assert_int_equal(request_take(&message), 'a');
	answer(&message, 0);
	assert_string_equal(heard, "a ");
}

/* Those hold descriptors of this process's open. */
static void test_fewer_requests_of_an_owner_have_descriptors(void **state)
{
	struct message message = {.request = {.op = 1}};
	int null = STDIN_FILENO;
	struct link_ask ask = {.owner = MALLORY, .request = &message, .fds = &null, .fd_count = 1};

	for (unsigned i = 0; i < LINK_OWNER_FDS_MAX; i++)
		assert_int_equal(link_ask(&a_link, &ask, NULL), 0);
	assert_int_equal(link_ask(&a_link, &ask, NULL), -EAGAIN);
	ask.fd_count = 0;
	assert_int_equal(link_ask(&a_link, &ask, NULL), 0);
	ask.fd_count = 1;
	ask.owner = ALICE;
	assert_int_equal(link_ask(&a_link, &ask, NULL), 0);
}

static void test_a_forgotten_request_is_not_answered(void **state)
{
	struct link_asked *sent = ask_for(ALICE, "a", 0);
	struct message message;

	assert_int_equal(request_take(&message), 'a');
	link_forget(&a_link, ask_for(ALICE, "b", 0));
	link_forget(&a_link, sent);
	answer(&message, 0);
	assert_int_equal(request_take(&message), ' ');
	assert_string_equal(heard, "");
}

static void test_a_request_fails_when_its_time_is_over_and_its_owners_next_waits(void **state)
{
	struct message message;

	ask_for(ALICE, "a", 1);
	ask_for(ALICE, "b", 1);
	ask_for(ALICE, "c", 0);
	assert_int_equal(request_take(&message), 'a');
	link_tick(&a_link);
	assert_string_equal(heard, "a!110 b!110 ");
	assert_true(link_silent_ns(&a_link) > 0);
	assert_int_equal(request_take(&(struct message){0}), ' ');
	answer(&message, 0);
	assert_int_equal(request_take(&message), 'c');
	answer(&message, 0);
	assert_string_equal(heard, "a!110 b!110 c ");
	assert_int_equal(link_silent_ns(&a_link), 0);
}

static void test_what_was_not_sent_outlives_the_other_side(void **state)
{
	struct message message;
	int ends[2];

	ask_for(ALICE, "a", 0);
	assert_int_equal(request_take(&message), 'a');
	ask_for(ALICE, "b", 0);
	close_fd(&far_end);
	pass();
	assert_int_equal(ended, -EPIPE);
	assert_string_equal(heard, "a!32 ");
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	far_end = ends[1];
	assert_int_equal(link_open(&a_link, ends[0]), 0);
	assert_int_equal(request_take(&message), 'b');
	answer(&message, 0);
	assert_string_equal(heard, "a!32 b ");
}

static void test_requests_fail_where_no_other_side_comes(void **state)
{
	link_end(&a_link);
	pass();
	ask_for(ALICE, "a", 0);
	ask_for(MALLORY, "m", 0);
	link_fail(&a_link, -ENOTCONN);
	assert_string_equal(heard, "a!107 m!107 ");
}

/* What is no answer ends the link: the other side is broken. */
static void test_a_wrong_answer_ends_the_link(void **state)
{
	struct message wrong = {0};

	assert_int_equal(descriptors_send(far_end, &wrong, sizeof(wrong), NULL, 0), 0);
	pass();
	assert_true(ended < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_an_answer_comes_from_the_loop_and_by_its_number, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_request_waits_for_one_of_each_other_owner,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_owners_requests_are_bounded, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_fewer_requests_of_an_owner_have_descriptors,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_forgotten_request_is_not_answered, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_a_request_fails_when_its_time_is_over_and_its_owners_next_waits, setup,
			teardown),
		cmocka_unit_test_setup_teardown(test_what_was_not_sent_outlives_the_other_side,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_requests_fail_where_no_other_side_comes, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_wrong_answer_ends_the_link, setup, teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
