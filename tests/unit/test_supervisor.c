/* The parts of the supervisor that decide: what a notice says, what is kept, and when a worker is
 * started again. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/supervisor/hoard.h"
#include "daemon/supervisor/notice.h"
#include "daemon/supervisor/pace.h"

#define SECOND 1000000000ull

static bool read_text(const char *text, struct notice *ret)
{
	return notice_read(text, strlen(text), ret);
}

static void test_a_notice_says_what_its_lines_say(void **state)
{
	struct notice notice;

	assert_true(read_text("READY=1\nSTATUS=serves\nUNKNOWN=1", &notice));
	assert_true(notice.ready && !notice.stopping && !notice.stores);
	assert_string_equal(notice.status, "serves");
	assert_true(read_text("FDSTORE=1\nFDPOLL=0\nFDNAME=s-abcdef.limits", &notice));
	assert_true(notice.stores && !notice.removes);
	assert_string_equal(notice.name, "s-abcdef.limits");
	assert_true(read_text("READY=0", &notice) && !notice.ready);
	assert_true(read_text("", &notice));
}

static void test_a_name_that_is_no_plain_one_makes_the_notice_wrong(void **state)
{
	static const char *const wrong[] = {"FDSTORE=1\nFDNAME=../x.y",   "FDSTORE=1\nFDNAME=nodot",
					    "FDSTORE=1\nFDNAME=A.b",      "FDSTORE=1",
					    "FDSTOREREMOVE=1\nFDNAME=:.", "FDSTORE=1\nFDNAME="};
	struct notice notice;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_false(read_text(wrong[i], &notice));
	assert_false(notice_read("FDSTORE=1\nFDNAME=a.\0b", 22, &notice));
}

static void test_the_hoard_has_one_descriptor_a_name_and_a_bound(void **state)
{
	struct hoard hoard = {.most = 2};
	int first = open("/dev/null", O_RDONLY), second = open("/dev/null", O_RDONLY);
	int third = open("/dev/null", O_RDONLY), fourth = open("/dev/null", O_RDONLY);

	assert_int_equal(hoard_put(&hoard, "a.x", first), 0);
	assert_int_equal(hoard_put(&hoard, "a.x", second), 0);
	assert_int_equal(fcntl(first, F_GETFD), -1);
	assert_int_equal(hoard_put(&hoard, "claim.y", third), 0);
	assert_int_equal(hoard_put(&hoard, "b.z", fourth), -ENOSPC);
	assert_int_equal(hoard.count, 2);
	hoard_drop_of(&hoard, "claim");
	assert_int_equal(hoard.count, 1);
	assert_int_equal(hoard.bytes, sizeof("a.x"));
	assert_int_equal(hoard_put(&hoard, "b.z", fourth), 0);
	hoard_drop(&hoard, "none.at-all");
	hoard_free(&hoard);
	assert_int_equal(fcntl(fourth, F_GETFD), -1);
}

static void test_names_are_bounded_so_that_a_program_can_be_started_with_them(void **state)
{
	struct hoard hoard = {.most = 1u << 20};
	char name[SUPERVISOR_NAME_SIZE];
	int fd = open("/dev/null", O_RDONLY), rc = 0;
	unsigned count = 0;

	while (rc == 0) {
		snprintf(name, sizeof(name), "s-%040u.x", count++);
		rc = hoard_put(&hoard, name, fd);
	}
	assert_int_equal(rc, -ENOSPC);
	assert_true(hoard.bytes <= SUPERVISOR_NAMES_MAX && hoard.bytes > SUPERVISOR_NAMES_MAX / 2);
	hoard.count = 0; /* all of them are one descriptor */
	hoard_free(&hoard);
	close(fd);
}

static void test_a_worker_is_started_again_at_once_and_then_ever_later(void **state)
{
	struct pace pace = {0};
	uint64_t wait = 0;

	for (int i = 0; i < PACE_AT_ONCE; i++)
		assert_int_equal(pace_ended(&pace, SECOND / 100, false), 0);
	for (int i = 0; i < 20; i++) {
		uint64_t next = pace_ended(&pace, SECOND / 100, false);

		assert_true(next >= wait && next >= PACE_FIRST_NS && next <= PACE_FAILED_NS);
		wait = next;
	}
	assert_int_equal(wait, PACE_FAILED_NS);
	/* A worker that served is not waited for so long. */
	assert_int_equal(pace_ended(&pace, SECOND / 100, true), PACE_SERVED_NS);
	assert_int_equal(pace_ended(&pace, 2 * SECOND, false), PACE_FAILED_NS);
	assert_int_equal(pace_ended(&pace, 2 * SECOND, true), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_notice_says_what_its_lines_say),
		cmocka_unit_test(test_a_name_that_is_no_plain_one_makes_the_notice_wrong),
		cmocka_unit_test(test_the_hoard_has_one_descriptor_a_name_and_a_bound),
		cmocka_unit_test(test_names_are_bounded_so_that_a_program_can_be_started_with_them),
		cmocka_unit_test(test_a_worker_is_started_again_at_once_and_then_ever_later),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
