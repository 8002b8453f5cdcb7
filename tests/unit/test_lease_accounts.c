/* The accounts of leases in their memfd (src/daemon/lease/lease_accounts.h): what a killed writer
 * leaves is whole or recognised. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "daemon/lease/lease_accounts.h"

#define ENTRIES 4u
#define KILLS 300

static void entry_write(struct lease_entry *e, const char *name, int64_t number)
{
	lease_entry_begin(e);
	snprintf(e->name, sizeof(e->name), "%s", name);
	e->count = LEASE_LEFT_MAX;
	e->stalls = e->reopened = (uint64_t)number;
	for (uint32_t i = 0; i < LEASE_LEFT_MAX; i++)
		e->numbers[i] = number;
	lease_entry_end(e);
}

static void write_for_ever(struct lease_accounts *a)
{
	for (int64_t number = 1;; number++) {
		char name[16];

		snprintf(name, sizeof(name), "s-%u", (unsigned)(number % ENTRIES));
		entry_write(&a->session[number % ENTRIES], name, number);
	}
}

static bool is_whole(const struct lease_entry *e)
{
	for (uint32_t i = 0; i < LEASE_LEFT_MAX; i++)
		if (e->numbers[i] != (int64_t)e->stalls)
			return false;
	return e->count == LEASE_LEFT_MAX && e->stalls == e->reopened;
}

static void a_killed_writer_costs_one_entry_at_most(void **state)
{
	cleanup_close int fd = lease_accounts_new();
	struct lease_accounts *a;
	unsigned torn = 0;

	assert_int_equal(lease_accounts_map(fd, &a), 0);
	for (uint32_t i = 0; i < ENTRIES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "s-%u", i);
		entry_write(&a->session[i], name, i);
	}
	for (int round = 0; round < KILLS; round++) {
		uint64_t before = a->session[0].sequence;
		pid_t pid = fork();
		unsigned lost = 0;

		assert_true(pid >= 0);
		if (!pid)
			write_for_ever(a);
		/* Killed anywhere in some hundred writes. */
		while (atomic_load(&a->session[0].sequence) < before + 2 + (unsigned)(round % 50))
			;
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		for (uint32_t i = 0; i < ENTRIES; i++) {
			char name[16];

			snprintf(name, sizeof(name), "s-%u", i);
			const struct lease_entry *e = lease_entry_find(a->session, ENTRIES, name);
			assert_true(!e || is_whole(e));
			lost += !e;
		}
		assert_true(lost <= 1);
		torn += lost;
		/* The one that is lost can be had anew. */
		if (lost)
			assert_non_null(lease_entry_free(a->session, ENTRIES));
	}
	print_message("# %u of %d kills left an entry half written\n", torn, KILLS);
	assert_true(torn > 0);
	munmap(a, sizeof(*a));
}

static void entries_are_found_by_name_and_dropped(void **state)
{
	cleanup_close int fd = lease_accounts_new();
	struct lease_accounts *a;

	assert_int_equal(lease_accounts_map(fd, &a), 0);
	assert_null(lease_entry_find(a->session, ENTRIES, "s-1"));
	for (uint32_t i = 0; i < ENTRIES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "s-%u", i);
		struct lease_entry *e = lease_entry_free(a->session, ENTRIES);
		assert_ptr_equal(e, &a->session[i]);
		entry_write(e, name, i);
	}
	assert_null(lease_entry_free(a->session, ENTRIES));
	assert_int_equal(lease_entry_find(a->session, ENTRIES, "s-2")->stalls, 2);
	lease_entry_drop(&a->session[2]);
	assert_null(lease_entry_find(a->session, ENTRIES, "s-2"));
	assert_ptr_equal(lease_entry_free(a->session, ENTRIES), &a->session[2]);
	a->session[3].count = LEASE_LEFT_MAX + 1;
	assert_null(lease_entry_find(a->session, ENTRIES, "s-3"));
	munmap(a, sizeof(*a));
}

/* Another program may have been given the place of the keeper. */
static void a_file_that_is_no_account_is_refused(void **state)
{
	cleanup_close int fd = lease_accounts_new(), other = memfd_create("other", MFD_CLOEXEC);
	cleanup_close int unsealed = memfd_create("unsealed", MFD_CLOEXEC);
	struct lease_accounts *a, *none;

	assert_int_equal(lease_accounts_map(other, &none), -EPROTO);
	assert_int_equal(ftruncate(unsealed, sizeof(*a)), 0);
	assert_int_equal(lease_accounts_map(unsealed, &none), -EPROTO);
	assert_true(ftruncate(fd, 0) < 0);
	assert_int_equal(lease_accounts_map(fd, &a), 0);
	a->head.version++;
	assert_int_equal(lease_accounts_map(fd, &none), -EPROTO);
	a->head.version--;
	a->head.entry_size--;
	assert_int_equal(lease_accounts_map(fd, &none), -EPROTO);
	munmap(a, sizeof(*a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_writer_costs_one_entry_at_most),
		cmocka_unit_test(entries_are_found_by_name_and_dropped),
		cmocka_unit_test(a_file_that_is_no_account_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
