/* The register of rights: what was let run is not let run again, over restarts and in holes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "warden/rights.h"

/* Rights of one page of the file. */
#define PAGE_RIGHTS 2048u

static char top[] = "/tmp/carve-rights-XXXXXX";
static int dir = -1;
static struct rights rights;

static void register_open(bool expect_fresh)
{
	bool fresh;

	assert_int_equal(rights_open(&rights, dir, &fresh), 0);
	assert_int_equal(fresh, expect_fresh);
}

static int begin(void **state)
{
	snprintf(top, sizeof(top), "/tmp/carve-rights-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	register_open(true);
	return 0;
}

static int end(void **state)
{
	char command[64];

	close_fd(&rights.fd);
	close_fd(&dir);
	snprintf(command, sizeof(command), "rm -r %s", top);
	return system(command); // NOLINT(concurrency-mt-unsafe,cert-env33-c): one thread
}

static void restart(void)
{
	close_fd(&rights.fd);
	register_open(false);
}

static uint64_t issue(uint32_t count)
{
	uint64_t first;

	assert_int_equal(rights_issue(&rights, count, &first), 0);
	return first;
}

static void sync_all(void)
{
	rights_syncing(&rights);
	assert_int_equal(fdatasync(rights.fd), 0);
	rights_synced(&rights, 0);
}

static void let(uint64_t number, uint32_t attempt)
{
	assert_int_equal(rights_spend(&rights, number, attempt), 0);
	sync_all();
	assert_int_equal(rights_let(&rights, number, attempt), 0);
}

static void an_attempt_is_spent_once(void **state)
{
	uint64_t one = issue(1), other = issue(1);

	assert_int_equal(rights_check(&rights, one, 1, false), 0);
	assert_int_equal(rights_spend(&rights, one, 1), 0);
	assert_int_equal(rights_check(&rights, one, 1, false), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, one, 1, true), 0);
	assert_int_equal(rights_check(&rights, other, 1, false), 0);
	assert_int_equal(rights_spend(&rights, one, 3), 0);
	for (uint32_t attempt = 0; attempt <= 2; attempt++)
		assert_int_equal(rights_check(&rights, one, attempt, true), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, one, RIGHTS_ATTEMPTS_MAX + 1, false), -EKEYEXPIRED);
	assert_int_equal(rights_end(&rights, one), 0);
	assert_int_equal(rights_check(&rights, one, 4, true), -EKEYEXPIRED);
	assert_int_equal(rights_spend(&rights, one, 4), -EKEYEXPIRED);
	assert_int_equal(rights_end(&rights, one), 0);
}

static void a_restart_forgets_nothing_and_gives_no_number_twice(void **state)
{
	uint64_t spent = issue(1), ended = issue(1), fresh = issue(1);

	let(spent, 2);
	assert_int_equal(rights_end(&rights, ended), 0);
	restart();
	assert_int_equal(rights_check(&rights, spent, 2, false), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, spent, 3, false), 0);
	assert_int_equal(rights_check(&rights, ended, 1, false), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, fresh, 1, false), 0);
	assert_true(issue(1) > fresh);
}

static void a_number_that_nobody_was_given_is_no_right(void **state)
{
	uint64_t last = issue(5) + 4;

	assert_int_equal(rights_check(&rights, last, 1, false), 0);
	assert_int_equal(rights_check(&rights, last + 1, 1, false), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, UINT64_MAX, 1, false), -EKEYEXPIRED);
	assert_int_equal(rights_end(&rights, UINT64_MAX), -EKEYEXPIRED);
}

/* They are reserved ahead. A sync that fails covers none. */
static void numbers_wait_for_the_disk(void **state)
{
	uint64_t first = 0, last = 0;
	int rc = 0;

	for (unsigned i = 0; i < 64 && (rc = rights_issue(&rights, 1u << 20, &first)) == 0; i++)
		last = first + (1u << 20);
	assert_int_equal(rc, -EAGAIN);
	assert_true(rights.dirty);
	rights_syncing(&rights);
	rights_synced(&rights, -EIO);
	assert_true(rights.dirty);
	assert_int_equal(rights_issue(&rights, 1u << 20, &first), -EAGAIN);
	assert_int_equal(rights_check(&rights, last, 1, false), -EKEYEXPIRED);
	sync_all();
	assert_false(rights.dirty);
	assert_true(issue(1u << 20) >= last);
}

/* A page becomes a hole once a sync that began later is done. */
static void a_page_that_is_over_stays_until_the_disk_has_noted_it(void **state)
{
	uint64_t first = issue(2 * PAGE_RIGHTS);

	for (uint64_t i = first; i < first + PAGE_RIGHTS; i++)
		assert_int_equal(rights_end(&rights, i), 0);
	rights_syncing(&rights);
	for (uint64_t i = first + PAGE_RIGHTS; i < first + 2 * PAGE_RIGHTS; i++)
		assert_int_equal(rights_end(&rights, i), 0);
	assert_int_equal(rights.over_count, 2);
	rights_synced(&rights, 0);
	assert_int_equal(rights.over_count, 1);
	sync_all();
	assert_int_equal(rights.over_count, 0);
	assert_int_equal(rights_check(&rights, first, 1, false), -EKEYEXPIRED);
}

/* Half a million jobs, one of which goes on: the file keeps that one's page. */
static void rights_that_are_over_take_no_room(void **state)
{
	uint64_t first = issue(200 * PAGE_RIGHTS), living = first + 100 * PAGE_RIGHTS + 7;
	struct stat st;

	for (uint64_t i = first; i < first + 200 * PAGE_RIGHTS; i++)
		if (i != living)
			assert_int_equal(rights_end(&rights, i), 0);
	sync_all();
	let(living, 1);
	restart();
	assert_int_equal(fstat(rights.fd, &st), 0);
	assert_true(st.st_blocks * 512 <= 64 * 1024);
	assert_int_equal(rights_check(&rights, living, 2, false), 0);
	assert_int_equal(rights_check(&rights, living, 1, false), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, first, 1, false), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, living + 1, 1, true), -EKEYEXPIRED);
}

static void a_removed_register_is_put_back_with_all_that_is_spent(void **state)
{
	uint64_t first = issue(3 * PAGE_RIGHTS);
	char path[64];

	for (uint64_t i = first; i < first + PAGE_RIGHTS; i++)
		assert_int_equal(rights_end(&rights, i), 0);
	let(first + 2 * PAGE_RIGHTS, 9);
	snprintf(path, sizeof(path), "%s/rights", top);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rights_keep(&rights, dir), 0);
	restart();
	assert_int_equal(rights_check(&rights, first, 1, false), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, first + 2 * PAGE_RIGHTS, 9, false), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, first + 2 * PAGE_RIGHTS, 10, false), 0);
}

/* The process ended between the note and the word. */
static void an_attempt_that_was_not_let_run_is_taken_back(void **state)
{
	uint64_t one = issue(1), other = issue(1), over = issue(1);

	assert_int_equal(rights_spend(&rights, one, 1), 0);
	assert_int_equal(rights_check(&rights, one, 1, false), -EKEYEXPIRED);
	let(other, 3);
	assert_int_equal(rights_spend(&rights, other, 4), 0);
	assert_int_equal(rights_spend(&rights, over, 1), 0);
	assert_int_equal(rights_end(&rights, over), 0);
	restart();
	assert_int_equal(rights_check(&rights, one, 1, false), 0);
	assert_int_equal(rights_check(&rights, other, 3, false), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, other, 4, false), 0);
	assert_int_equal(rights_check(&rights, over, 1, false), -EKEYEXPIRED);
	let(one, 1);
	restart();
	assert_int_equal(rights_check(&rights, one, 1, false), -EKEYEXPIRED);
}

/* That of a pod, which is let run once more. */
static void an_attempt_that_was_let_run_before_is_not_taken_back(void **state)
{
	uint64_t one = issue(1);

	let(one, 2);
	assert_int_equal(rights_spend(&rights, one, 2), 0);
	restart();
	assert_int_equal(rights_check(&rights, one, 2, false), -EKEYEXPIRED);
}

/* What was in the kernel's memory is lost with the boot. */
static void an_attempt_of_another_boot_is_not_taken_back(void **state)
{
	uint64_t one = issue(1);
	const char boot[] = "another";

	assert_int_equal(rights_spend(&rights, one, 1), 0);
	assert_int_equal(pwrite(rights.fd, boot, sizeof(boot), 16), sizeof(boot));
	restart();
	assert_int_equal(rights_check(&rights, one, 1, false), -EKEYEXPIRED);
	restart();
	assert_int_equal(rights_check(&rights, one, 1, false), -EKEYEXPIRED);
	assert_int_equal(rights_check(&rights, one, 2, false), 0);
}

/* Else an attempt could be taken back that the other process lets run. */
static void nobody_else_opens_a_register_that_is_open(void **state)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/rights", top);
	for (int kept = 0; kept < 2; kept++) {
		int fd = open(path, O_RDWR | O_CLOEXEC);

		assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), -1);
		assert_int_equal(errno, EWOULDBLOCK);
		close_fd(&fd);
		assert_int_equal(unlink(path), 0);
		assert_int_equal(rights_keep(&rights, dir), 0);
	}
}

static void a_register_that_others_may_write_is_none(void **state)
{
	struct rights other;
	char path[64];
	bool fresh;

	snprintf(path, sizeof(path), "%s/rights", top);
	assert_int_equal(chmod(path, 0660), 0);
	close_fd(&rights.fd);
	assert_int_equal(rights_open(&other, dir, &fresh), -EPERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_attempt_is_spent_once, begin, end),
		cmocka_unit_test_setup_teardown(a_restart_forgets_nothing_and_gives_no_number_twice,
						begin, end),
		cmocka_unit_test_setup_teardown(a_number_that_nobody_was_given_is_no_right, begin,
						end),
		cmocka_unit_test_setup_teardown(numbers_wait_for_the_disk, begin, end),
		cmocka_unit_test_setup_teardown(
			a_page_that_is_over_stays_until_the_disk_has_noted_it, begin, end),
		cmocka_unit_test_setup_teardown(rights_that_are_over_take_no_room, begin, end),
		cmocka_unit_test_setup_teardown(
			a_removed_register_is_put_back_with_all_that_is_spent, begin, end),
		cmocka_unit_test_setup_teardown(an_attempt_that_was_not_let_run_is_taken_back,
						begin, end),
		cmocka_unit_test_setup_teardown(
			an_attempt_that_was_let_run_before_is_not_taken_back, begin, end),
		cmocka_unit_test_setup_teardown(an_attempt_of_another_boot_is_not_taken_back, begin,
						end),
		cmocka_unit_test_setup_teardown(nobody_else_opens_a_register_that_is_open, begin,
						end),
		cmocka_unit_test_setup_teardown(a_register_that_others_may_write_is_none, begin,
						end),
	};

	return cmocka_run_group_tests_name("rights", tests, NULL, NULL);
}
