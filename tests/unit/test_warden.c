/* The warden: its table of operations, owners' turns, child processes, and a worker that is broken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "base/socket.h"
#include "proto/warden_limits.h"
#include "warden/child.h"
#include "warden/message.h"
#include "warden/operations.h"
#include "warden/turns.h"
#include "warden/warden.h"

#define ALICE 60101u
#define MALLORY 60103u

static struct warden_message *request_of(uint32_t owner, enum warden_operation operation,
					 uint64_t number)
{
	struct warden_message *m = warden_message_new();

	m->head = (struct warden_head){.magic = WARDEN_MAGIC,
				       .version = WARDEN_VERSION,
				       .operation = (uint16_t)operation,
				       .number = number,
				       .owner = owner};
	return m;
}

static struct warden_message *look_at(uint32_t owner, pid_t pid, uint64_t number)
{
	struct warden_message *m = request_of(owner, WARDEN_NAMESPACE_LOOK, number);
	struct warden_process *r = (void *)m->data;
	struct process_id id;

	assert_int_equal(process_identify(pid, &id), 0);
	*r = (struct warden_process){.pid = id.pid, .birth = id.birth};
	m->head.size = sizeof(*r);
	return m;
}

/* ---- turns -------------------------------------------------------------------------------- */

static bool any(void *arg, const struct warden_message *request)
{
	return true;
}

static bool but_operation(void *arg, const struct warden_message *request)
{
	return request->head.operation != *(const uint16_t *)arg;
}

static uint64_t next_number(struct warden_turns *turns, uint16_t but)
{
	struct warden_message *m = warden_turns_next(turns, but ? but_operation : any, &but);
	uint64_t number = m ? m->head.number : 0;

	warden_message_free(m);
	return number;
}

static void test_an_owner_waits_for_one_request_of_another(void **state)
{
	struct warden_turns turns = {0};

	for (unsigned i = 1; i <= 20; i++)
		assert_int_equal(
			warden_turns_add(&turns, request_of(MALLORY, WARDEN_LIMIT_PROBE, i)), 0);
	assert_int_equal(warden_turns_add(&turns, request_of(ALICE, WARDEN_LIMIT_PROBE, 100)), 0);
	assert_int_equal(next_number(&turns, 0), 1);
	assert_int_equal(next_number(&turns, 0), 100);
	for (unsigned i = 2; i <= 20; i++)
		assert_int_equal(next_number(&turns, 0), i);
	assert_int_equal(next_number(&turns, 0), 0);
}

static void test_an_owners_requests_that_wait_are_bounded(void **state)
{
	struct warden_turns turns = {0};
	struct warden_message *more = request_of(MALLORY, WARDEN_LIMIT_PROBE, 1);

	for (unsigned i = 0; i < WARDEN_WAITING_OWNER; i++)
		assert_int_equal(
			warden_turns_add(&turns, request_of(MALLORY, WARDEN_LIMIT_PROBE, i)), 0);
	assert_int_equal(warden_turns_add(&turns, more), -EAGAIN);
	assert_int_equal(warden_turns_add(&turns, request_of(ALICE, WARDEN_LIMIT_PROBE, 1)), 0);
	warden_message_free(more);
	warden_turns_clear(&turns);
	assert_int_equal(turns.total, 0);
}

static void test_owners_that_a_broken_worker_makes_up_are_bounded(void **state)
{
	struct warden_turns turns = {0};
	struct warden_message *more = request_of(7, WARDEN_LIMIT_PROBE, 1);

	for (unsigned i = 0; i < WARDEN_WAITING_ALL; i++)
		assert_int_equal(
			warden_turns_add(&turns, request_of(1000 + i, WARDEN_LIMIT_PROBE, i)), 0);
	assert_int_equal(warden_turns_add(&turns, more), -EAGAIN);
	warden_message_free(more);
	warden_turns_clear(&turns);
}

static void test_requests_of_one_kind_keep_their_order(void **state)
{
	struct warden_turns turns = {0};

	assert_int_equal(warden_turns_add(&turns, request_of(ALICE, WARDEN_LIMIT_PROBE, 1)), 0);
	assert_int_equal(warden_turns_add(&turns, request_of(ALICE, WARDEN_LIMIT_PUT, 2)), 0);
	assert_int_equal(warden_turns_add(&turns, request_of(ALICE, WARDEN_LIMIT_PROBE, 3)), 0);
	/* No request of the first one's kind may begin now: neither does the third. */
	assert_int_equal(next_number(&turns, WARDEN_LIMIT_PROBE), 2);
	assert_int_equal(next_number(&turns, WARDEN_LIMIT_PROBE), 0);
	assert_int_equal(next_number(&turns, 0), 1);
	assert_int_equal(next_number(&turns, 0), 3);
}

/* ---- the table ---------------------------------------------------------------------------- */

static int checked(struct warden_message *m)
{
	int rc = warden_operation_check(m);

	warden_message_free(m);
	return rc;
}

static struct warden_message *signal_of(int32_t pid, uint64_t birth, int32_t number, uint32_t uid)
{
	struct warden_message *m = request_of(ALICE, WARDEN_SIGNAL, 1);
	struct warden_signal *r = (void *)m->data;

	*r = (struct warden_signal){.pid = pid, .birth = birth, .signal = number, .uid = uid};
	m->head.size = sizeof(*r);
	return m;
}

static void test_only_what_the_table_has_is_done(void **state)
{
	assert_int_equal(checked(request_of(ALICE, 0, 1)), -EOPNOTSUPP);
	assert_int_equal(checked(request_of(ALICE, 60000, 1)), -EOPNOTSUPP);
	struct warden_message *later = request_of(ALICE, WARDEN_LIMIT_PROBE, 1);
	later->head.version++;
	assert_int_equal(checked(later), -EOPNOTSUPP);
	struct warden_message *longer = request_of(ALICE, WARDEN_LIMIT_PROBE, 1);
	longer->head.size = 8;
	assert_int_equal(checked(longer), -EINVAL);
	struct warden_message *shorter = look_at(ALICE, getpid(), 1);
	shorter->head.size--;
	assert_int_equal(checked(shorter), -EINVAL);
	struct warden_message *with_descriptor = request_of(ALICE, WARDEN_LIMIT_PROBE, 1);
	with_descriptor->fd[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(checked(with_descriptor), -EINVAL);
	assert_int_equal(checked(request_of(ALICE, WARDEN_LIMIT_PROBE, 1)), 0);
}

static void test_a_signal_ends_one_process_and_nothing_else(void **state)
{
	assert_int_equal(checked(signal_of(4321, 99, SIGTERM, ALICE)), 0);
	assert_int_equal(checked(signal_of(4321, 99, SIGKILL, 0)), 0);
	assert_int_equal(checked(signal_of(4321, 99, SIGSTOP, ALICE)), -EINVAL);
	assert_int_equal(checked(signal_of(4321, 99, 0, ALICE)), -EINVAL);
	assert_int_equal(checked(signal_of(1, 99, SIGKILL, 0)), -EINVAL);
	assert_int_equal(checked(signal_of(0, 99, SIGKILL, 0)), -EINVAL);
	assert_int_equal(checked(signal_of(-4321, 99, SIGKILL, ALICE)), -EINVAL);
	assert_int_equal(checked(signal_of(1 << 23, 99, SIGKILL, ALICE)), -EINVAL);
	assert_int_equal(checked(signal_of(4321, 0, SIGKILL, ALICE)), -EINVAL);
	assert_int_equal(checked(signal_of(4321, 99, SIGKILL, UINT32_MAX)), -EINVAL);
}

static int entered(const char *session, size_t size)
{
	struct warden_message *m = request_of(ALICE, WARDEN_LIMIT_ENTER, 1);
	struct warden_limit_entry *r = (void *)m->data;

	*r = (struct warden_limit_entry){.pid = 4321, .birth = 99};
	memcpy(r->session, session, size);
	m->head.size = sizeof(*r);
	return checked(m);
}

#define ENTERED(session) entered(session, sizeof(session) - 1)

static void test_a_sessions_cgroup_is_named_by_letters_and_digits(void **state)
{
	assert_int_equal(ENTERED("s-abc123"), 0);
	assert_int_equal(ENTERED("s-abcdefghijklm"), 0);
	assert_int_equal(ENTERED("s-abcdefghijklmn"), -EINVAL); /* it has no end */
	assert_int_equal(ENTERED("s-"), -EINVAL);
	assert_int_equal(ENTERED(""), -EINVAL);
	assert_int_equal(ENTERED("abcdef"), -EINVAL);
	assert_int_equal(ENTERED("s-../../etc"), -EINVAL);
	assert_int_equal(ENTERED("s-a/b"), -EINVAL);
	assert_int_equal(ENTERED("s-abc\0/x"), -EINVAL);
}

static void test_a_limit_names_a_cgroup_and_a_gpu(void **state)
{
	struct warden_message *m = request_of(ALICE, WARDEN_LIMIT_PUT, 1);
	struct warden_limit *r = (void *)m->data;

	m->head.size = sizeof(*r);
	*r = (struct warden_limit){.cgroup = 77, .gpu = 3, .bytes = 1};
	assert_int_equal(warden_operation_check(m), 0);
	r->gpu = 256;
	assert_int_equal(warden_operation_check(m), -EINVAL);
	*r = (struct warden_limit){.gpu = 3};
	assert_int_equal(checked(m), -EINVAL);
}

/* ---- children ----------------------------------------------------------------------------- */

static const struct warden_room room = {.name = "test-room",
					.capabilities = 1u << CAP_SYS_PTRACE,
					.most = 2,
					.most_of_owner = 1,
					.patience_s = 60};

static struct warden_message *child_answer(struct warden_child *child)
{
	struct pollfd readable = {.fd = child->fd, .events = POLLIN};

	assert_int_equal(poll(&readable, 1, 30000), 1);
	return warden_child_take(child, true);
}

static struct warden_place place_here(void)
{
	return (struct warden_place){.dir_fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC)};
}

static void children_end(struct warden_children *children)
{
	warden_children_leave(children);
	/* They are this process's to wait for. */
	while (wait(NULL) > 0)
		;
}

static void test_a_child_answers_and_is_used_again(void **state)
{
	struct warden_children children = {0};
	struct warden_place place = place_here();
	struct warden_child *first = &children.slot[0];

	for (uint64_t number = 1; number <= 3; number++) {
		assert_true(warden_children_may(&children, &room, ALICE));
		assert_int_equal(warden_children_begin(&children, &place, &room,
						       look_at(ALICE, getpid(), number)),
				 0);
		assert_false(warden_children_may(&children, &room, ALICE));
		pid_t pid = first->pid;
		struct warden_message *answer = child_answer(first);
		assert_int_equal(answer->head.number, number);
		assert_int_equal(answer->head.error, EINVAL); /* this process's own namespace */
		warden_message_free(answer);
		assert_int_equal(first->state, WARDEN_CHILD_IDLE);
		assert_int_equal(first->pid, pid);
	}
	assert_int_equal(children.slot[1].state, WARDEN_CHILD_NONE);
	assert_true(warden_children_tend(&children) > 0);
	children_end(&children);
	assert_int_equal(first->state, WARDEN_CHILD_NONE);
	close(place.dir_fd);
}

static void test_children_of_a_room_and_of_an_owner_are_bounded(void **state)
{
	struct warden_children children = {0};
	struct warden_place place = place_here();

	assert_int_equal(
		warden_children_begin(&children, &place, &room, look_at(ALICE, getpid(), 1)), 0);
	assert_true(warden_children_may(&children, &room, MALLORY));
	assert_int_equal(
		warden_children_begin(&children, &place, &room, look_at(MALLORY, getpid(), 2)), 0);
	assert_false(warden_children_may(&children, &room, 7));
	for (unsigned i = 0; i < 2; i++)
		warden_message_free(child_answer(&children.slot[i]));
	assert_true(warden_children_may(&children, &room, 7));
	children_end(&children);
	close(place.dir_fd);
}

static void test_a_child_that_dies_has_answered_with_an_error(void **state)
{
	struct warden_children children = {0};
	struct warden_place place = place_here();

	assert_int_equal(
		warden_children_begin(&children, &place, &room, look_at(ALICE, getpid(), 1)), 0);
	warden_message_free(child_answer(&children.slot[0]));
	kill(children.slot[0].pid, SIGSTOP);
	assert_int_equal(
		warden_children_begin(&children, &place, &room, look_at(ALICE, getpid(), 2)), 0);
	kill(children.slot[0].pid, SIGKILL);
	struct warden_message *answer = child_answer(&children.slot[0]);
	assert_int_equal(answer->head.number, 2);
	assert_int_equal(answer->head.error, ECHILD);
	assert_int_equal(answer->head.size, 0);
	warden_message_free(answer);
	children_end(&children);
	close(place.dir_fd);
}

static struct warden_message *overdue_answer(struct warden_child *child)
{
	struct warden_message *answer = NULL;

	while (!(answer = warden_child_take(child, false)))
		(void)poll(NULL, 0, 10);
	return answer;
}

/* A stopped child is as one in a driver that hangs: it cannot be ended. */
static void test_a_child_that_cannot_be_ended_keeps_its_place_and_no_request(void **state)
{
	static const struct warden_room hasty = {
		.name = "test-room", .most = 2, .most_of_owner = 1, .patience_s = 1};
	struct warden_children children = {0};
	struct warden_place place = place_here();
	struct warden_message *later = look_at(ALICE, getpid(), 3);

	assert_int_equal(
		warden_children_begin(&children, &place, &hasty, look_at(ALICE, getpid(), 1)), 0);
	warden_message_free(child_answer(&children.slot[0]));
	kill(children.slot[0].pid, SIGSTOP);
	assert_int_equal(
		warden_children_begin(&children, &place, &hasty, look_at(ALICE, getpid(), 2)), 0);
	assert_true(warden_children_tend(&children) > 0);
	struct warden_message *answer = overdue_answer(&children.slot[0]);
	assert_int_equal(answer->head.number, 2);
	assert_int_equal(answer->head.error, ETIMEDOUT);
	warden_message_free(answer);
	/* Its owner hears so at once, and others have their places. */
	assert_true(warden_children_may(&children, &hasty, ALICE));
	assert_int_equal(warden_children_begin(&children, &place, &hasty, later), -ETIMEDOUT);
	assert_int_equal(
		warden_children_begin(&children, &place, &hasty, look_at(MALLORY, getpid(), 4)), 0);
	warden_message_free(child_answer(&children.slot[1]));
	kill(children.slot[0].pid, SIGCONT);
	assert_null(child_answer(&children.slot[0]));
	warden_message_free(later);
	children_end(&children);
	close(place.dir_fd);
}

/* ---- the loop ----------------------------------------------------------------------------- */

struct served {
	struct warden *warden;
	int fd; /* the worker's end */
};

static void served_begin(struct served *s)
{
	struct warden_place place = place_here();
	int ends[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	assert_int_equal(warden_open(&place, &s->warden), 0);
	warden_link(s->warden, ends[0]);
	s->fd = ends[1];
}

static void served_end(struct served *s)
{
	close_fd(&s->fd);
	warden_close(s->warden);
}

static void pass(struct served *s)
{
	struct pollfd fds[WARDEN_POLLS_MAX];
	int timeout_ms = 0;
	unsigned count = warden_poll_fill(s->warden, fds, &timeout_ms);

	assert_true(count <= WARDEN_POLLS_MAX);
	assert_true(poll(fds, count, timeout_ms) >= 0);
	warden_poll_run(s->warden, fds, count);
}

static void ask(const struct served *s, struct warden_message *m)
{
	assert_int_equal(warden_message_send(s->fd, m), 0);
	warden_message_free(m);
}

static struct warden_message *answer_of(struct served *s)
{
	struct warden_message *m = warden_message_new();
	int rc = -EAGAIN;

	for (unsigned i = 0; i < 1000 && (rc = warden_message_receive(s->fd, m)) == -EAGAIN; i++)
		pass(s);
	assert_int_equal(rc, 0);
	return m;
}

static void expect_error(struct served *s, uint64_t number, int error)
{
	struct warden_message *m = answer_of(s);

	assert_int_equal(m->head.number, number);
	assert_int_equal(m->head.error, error);
	assert_int_equal(m->head.size, 0);
	warden_message_free(m);
}

static void test_each_request_has_an_answer_with_its_number(void **state)
{
	struct served s;

	served_begin(&s);
	ask(&s, look_at(ALICE, getpid(), 11));
	expect_error(&s, 11, EINVAL);
	ask(&s, request_of(ALICE, 99, 12));
	expect_error(&s, 12, EOPNOTSUPP);
	ask(&s, signal_of(1, 1, SIGKILL, 0));
	expect_error(&s, 1, EINVAL);
	assert_true(warden_is_linked(s.warden));
	served_end(&s);
}

/* `false`: as long as it says, but of another magic. */
static void broken_message_ends_the_link(bool longer)
{
	struct served s;
	struct warden_head head = {.magic = WARDEN_MAGIC + !longer,
				   .version = WARDEN_VERSION,
				   .operation = WARDEN_LIMIT_PROBE,
				   .size = longer ? 16 : 0};

	served_begin(&s);
	assert_int_equal(descriptors_send(s.fd, &head, sizeof(head), NULL, 0), 0);
	pass(&s);
	assert_false(warden_is_linked(s.warden));
	served_end(&s);
}

static void test_a_worker_that_is_broken_is_forgotten(void **state)
{
	broken_message_ends_the_link(false);
	broken_message_ends_the_link(true);
}

static void test_a_worker_that_hangs_up_is_forgotten_and_another_served(void **state)
{
	struct served s;
	int ends[2];

	served_begin(&s);
	ask(&s, look_at(ALICE, getpid(), 1));
	close_fd(&s.fd);
	pass(&s);
	assert_false(warden_is_linked(s.warden));
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	warden_link(s.warden, ends[0]);
	s.fd = ends[1];
	ask(&s, look_at(ALICE, getpid(), 2));
	expect_error(&s, 2, EINVAL);
	served_end(&s);
}

static void test_a_worker_that_reads_no_answers_makes_the_warden_hold_no_more(void **state)
{
	struct served s;
	unsigned sent = 0, answered = 0;
	struct warden_message *m = look_at(ALICE, getpid(), 1);

	served_begin(&s);
	/* Until the sockets are full in both directions. */
	for (unsigned quiet = 0; quiet < 10;) {
		bool full = warden_message_send(s.fd, m) == -EAGAIN;

		sent += !full;
		quiet = full ? quiet + 1 : 0;
		pass(&s);
		assert_true(sent < 100000);
	}
	assert_true(warden_is_linked(s.warden));
	while (answered < sent) {
		warden_message_free(answer_of(&s));
		answered++;
	}
	warden_message_free(m);
	served_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_owner_waits_for_one_request_of_another),
		cmocka_unit_test(test_an_owners_requests_that_wait_are_bounded),
		cmocka_unit_test(test_owners_that_a_broken_worker_makes_up_are_bounded),
		cmocka_unit_test(test_requests_of_one_kind_keep_their_order),
		cmocka_unit_test(test_only_what_the_table_has_is_done),
		cmocka_unit_test(test_a_signal_ends_one_process_and_nothing_else),
		cmocka_unit_test(test_a_sessions_cgroup_is_named_by_letters_and_digits),
		cmocka_unit_test(test_a_limit_names_a_cgroup_and_a_gpu),
		cmocka_unit_test(test_a_child_answers_and_is_used_again),
		cmocka_unit_test(test_children_of_a_room_and_of_an_owner_are_bounded),
		cmocka_unit_test(test_a_child_that_dies_has_answered_with_an_error),
		cmocka_unit_test(test_a_child_that_cannot_be_ended_keeps_its_place_and_no_request),
		cmocka_unit_test(test_each_request_has_an_answer_with_its_number),
		cmocka_unit_test(test_a_worker_that_is_broken_is_forgotten),
		cmocka_unit_test(test_a_worker_that_hangs_up_is_forgotten_and_another_served),
		cmocka_unit_test(test_a_worker_that_reads_no_answers_makes_the_warden_hold_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
