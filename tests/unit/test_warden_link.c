/* The worker's side of its warden: numbers, owners' turns, threads that wait, and a warden that is
 * slow, broken or gone. The test is the warden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "base/file.h"
#include "daemon/host/warden_link.h"
#include "warden/message.h"

#define ALICE 60101u
#define MALLORY 60103u

static uv_loop_t loop;
static struct warden_link link_of;
static int far = -1;
static unsigned ended, answered, dropped;
static int last_rc;
static uint64_t last_inode;

static void on_ended(void *context)
{
	ended++;
}

static int begin(void **state)
{
	int ends[2];

	ended = answered = dropped = 0;
	uv_loop_init(&loop);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -1;
	far = ends[1];
	warden_link_init(&link_of, ends[0]);
	return warden_link_start(&link_of, &loop, on_ended, NULL);
}

static int end(void **state)
{
	warden_link_stop(&link_of);
	uv_run(&loop, UV_RUN_DEFAULT);
	warden_link_close(&link_of);
	close_fd(&far);
	return uv_loop_close(&loop);
}

static void on_answer(void *context, int rc, const void *answer, int *fd)
{
	answered++;
	last_rc = rc;
	last_inode = rc == 0 ? ((const struct warden_namespace *)answer)->inode : 0;
}

static void on_dropped(void *context)
{
	dropped++;
}

static uint64_t ask(uint32_t owner)
{
	static const struct warden_process request = {.pid = 2, .birth = 1};

	return warden_link_ask(
		&link_of,
		&(struct warden_question){.operation = WARDEN_NAMESPACE_LOOK,
					  .owner = owner,
					  .request = &request,
					  .size = sizeof(request),
					  .answer_size = sizeof(struct warden_namespace)},
		on_answer, on_dropped, NULL);
}

/* The next request that the warden has, or 0. */
static uint64_t taken(uint32_t *ret_owner)
{
	struct warden_message *m = warden_message_new();
	uint64_t number = warden_message_receive(far, m) == 0 ? m->head.number : 0;

	*ret_owner = m->head.owner;
	warden_message_free(m);
	return number;
}

static void reply(uint64_t number, int error, uint64_t inode)
{
	struct warden_message *m = warden_message_new();
	struct warden_namespace found = {.inode = inode};

	m->head = (struct warden_head){.magic = WARDEN_MAGIC,
				       .version = WARDEN_VERSION,
				       .operation = WARDEN_NAMESPACE_LOOK,
				       .number = number};
	warden_message_answer(m, -error, &found, sizeof(found), -1);
	assert_int_equal(warden_message_send(far, m), 0);
	warden_message_free(m);
	uv_run(&loop, UV_RUN_NOWAIT);
}

static void test_answers_come_in_any_order(void **state)
{
	uint64_t first = ask(ALICE), second = ask(ALICE);
	uint32_t owner;

	assert_int_equal(taken(&owner), first);
	assert_int_equal(taken(&owner), second);
	reply(second, 0, 22);
	assert_int_equal(answered, 1);
	assert_int_equal(last_inode, 22);
	reply(first, ESRCH, 0);
	assert_int_equal(answered, 2);
	assert_int_equal(last_rc, -ESRCH);
	/* Nobody asked for that. */
	reply(second, 0, 22);
	assert_int_equal(answered, 2);
	assert_int_equal(ended, 0);
}

static void test_an_owner_with_many_requests_leaves_room_for_others(void **state)
{
	uint32_t owner;
	uint64_t first = 0, number;
	unsigned had = 0;

	for (unsigned i = 0; i < WARDEN_WAITING_OWNER + 8; i++)
		first = i ? (ask(MALLORY), first) : ask(MALLORY);
	uint64_t other = ask(ALICE);
	while ((number = taken(&owner)) && owner == MALLORY)
		had++;
	assert_int_equal(had, WARDEN_WAITING_OWNER);
	assert_int_equal(number, other);
	assert_int_equal(taken(&owner), 0);
	reply(first, 0, 1);
	assert_true(taken(&owner) > first);
	assert_int_equal(owner, MALLORY);
	assert_int_equal(taken(&owner), 0);
}

static void test_a_request_that_nobody_waits_for_any_more_is_dropped(void **state)
{
	uint64_t number = ask(ALICE);
	uint32_t owner;

	warden_link_forget(&link_of, number);
	assert_int_equal(dropped, 1);
	assert_int_equal(taken(&owner), number);
	reply(number, 0, 1);
	assert_int_equal(answered, 0);
}

static void test_an_answer_of_another_size_is_an_error(void **state)
{
	struct warden_message *m = warden_message_new();
	uint64_t number = ask(ALICE);

	m->head = (struct warden_head){
		.magic = WARDEN_MAGIC, .version = WARDEN_VERSION, .number = number, .size = 8};
	assert_int_equal(warden_message_send(far, m), 0);
	warden_message_free(m);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(answered, 1);
	assert_int_equal(last_rc, -EPROTO);
}

static void test_all_that_wait_are_told_that_the_warden_is_gone(void **state)
{
	for (unsigned i = 0; i < WARDEN_WAITING_OWNER + 8; i++)
		(void)ask(MALLORY);
	close_fd(&far);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(answered, WARDEN_WAITING_OWNER + 8);
	assert_int_equal(last_rc, -EPIPE);
	assert_int_equal(ended, 1);
	assert_int_equal(ask(ALICE), 0);
	assert_false(warden_link_there(&link_of));
}

static void test_a_warden_that_sends_what_is_no_answer_is_gone(void **state)
{
	(void)ask(ALICE);
	assert_int_equal(send(far, "what", 4, MSG_NOSIGNAL), 4);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(ended, 1);
	assert_int_equal(last_rc, -EPIPE);
}

/* ---- threads ------------------------------------------------------------------------------ */

static void *call(void *arg)
{
	static const struct warden_process request = {.pid = 2, .birth = 1};
	struct warden_namespace found = {0};
	int rc = warden_link_call(&link_of,
				  &(struct warden_question){.operation = WARDEN_NAMESPACE_LOOK,
							    .owner = ALICE,
							    .request = &request,
							    .size = sizeof(request),
							    .answer_size = sizeof(found)},
				  &found);

	*(int *)arg = rc < 0 ? rc : (int)found.inode;
	return NULL;
}

static void test_a_thread_waits_for_its_answer(void **state)
{
	pthread_t thread;
	uint32_t owner;
	uint64_t number;
	int got = 0;

	assert_int_equal(pthread_create(&thread, NULL, call, &got), 0);
	while (!(number = taken(&owner)))
		uv_run(&loop, UV_RUN_ONCE);
	reply(number, 0, 33);
	pthread_join(thread, NULL);
	assert_int_equal(got, 33);
}

static void test_a_thread_does_not_outwait_the_loop(void **state)
{
	pthread_t thread;
	uint32_t owner;
	int got = 0;

	assert_int_equal(pthread_create(&thread, NULL, call, &got), 0);
	while (!taken(&owner))
		uv_run(&loop, UV_RUN_ONCE);
	warden_link_stop(&link_of);
	pthread_join(thread, NULL);
	assert_int_equal(got, -EPIPE);
	/* Nor does one that calls later wait for ever. */
	call(&got);
	assert_int_equal(got, -EPIPE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_answers_come_in_any_order, begin, end),
		cmocka_unit_test_setup_teardown(
			test_an_owner_with_many_requests_leaves_room_for_others, begin, end),
		cmocka_unit_test_setup_teardown(
			test_a_request_that_nobody_waits_for_any_more_is_dropped, begin, end),
		cmocka_unit_test_setup_teardown(test_an_answer_of_another_size_is_an_error, begin,
						end),
		cmocka_unit_test_setup_teardown(test_all_that_wait_are_told_that_the_warden_is_gone,
						begin, end),
		cmocka_unit_test_setup_teardown(test_a_warden_that_sends_what_is_no_answer_is_gone,
						begin, end),
		cmocka_unit_test_setup_teardown(test_a_thread_waits_for_its_answer, begin, end),
		cmocka_unit_test_setup_teardown(test_a_thread_does_not_outwait_the_loop, begin,
						end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
