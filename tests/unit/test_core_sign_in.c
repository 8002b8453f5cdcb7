/* The table of secrets by which browsers are signed in. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/sign_in.h"

#define MOST 3u
#define LASTS 100u

static struct sign_in_table table;

struct digest {
	unsigned char byte[SIGN_IN_DIGEST_SIZE];
};

/* Digests differ in their last bytes alone. */
static struct digest digest_of(unsigned number)
{
	struct digest digest = {{7}};

	memcpy(digest.byte + sizeof(digest.byte) - sizeof(number), &number, sizeof(number));
	return digest;
}

static int add(unsigned number, uid_t uid, uint64_t now)
{
	return sign_in_add(&table, digest_of(number).byte, uid, uid, now);
}

static int find(unsigned number, uint64_t now)
{
	return sign_in_find(&table, digest_of(number).byte, now);
}

static int begin(void **state)
{
	sign_in_begin(&table, MOST, LASTS);
	return 0;
}

static void test_a_secret_leads_to_its_user_until_it_ends(void **state)
{
	int place = add(1, 1000, 5);

	assert_in_range(place, 0, SIGN_IN_ROOM - 1);
	assert_int_equal(find(1, 5), place);
	assert_int_equal(find(1, 5 + LASTS - 1), place);
	assert_int_equal(table.entry[place].uid, 1000);
	assert_int_equal(find(1, 5 + LASTS), -ENOENT);
	assert_int_equal(find(2, 5), -ENOENT);
}

static void test_an_empty_table_knows_no_digest_not_even_of_zeros(void **state)
{
	struct digest zeros = {{0}};

	assert_int_equal(sign_in_find(&table, zeros.byte, 0), -ENOENT);
	assert_int_equal(sign_in_find(&table, zeros.byte, 1), -ENOENT);
}

static void test_a_removed_secret_is_known_no_more(void **state)
{
	int place = add(1, 1000, 0);

	add(2, 1000, 0);
	sign_in_remove(&table, place);
	assert_int_equal(find(1, 0), -ENOENT);
	assert_true(find(2, 0) >= 0);
}

static void test_one_more_takes_the_place_of_the_users_oldest_alone(void **state)
{
	add(100, 2000, 0);
	for (unsigned i = 0; i < MOST + 2; i++)
		assert_true(add(i, 1000, i) >= 0);
	for (unsigned i = 0; i < MOST + 2; i++)
		assert_int_equal(find(i, MOST + 2) >= 0, i >= 2);
	assert_true(find(100, MOST + 2) >= 0);
}

static void test_users_of_one_owner_count_as_one(void **state)
{
	for (unsigned i = 0; i < MOST + 1; i++)
		sign_in_add(&table, digest_of(i).byte, 100000 + i, 1000, i);
	assert_int_equal(find(0, MOST), -ENOENT);
	assert_true(find(1, MOST) >= 0);
}

static void test_a_full_table_takes_nothing_from_other_users(void **state)
{
	for (unsigned i = 0; i < SIGN_IN_ROOM; i++)
		assert_true(add(i, 1000 + i / MOST, 0) >= 0);
	assert_int_equal(add(SIGN_IN_ROOM, 7, 1), -ENOSPC);
	for (unsigned i = 0; i < SIGN_IN_ROOM; i++)
		assert_true(find(i, 1) >= 0);
	/* A user that has secrets has its oldest replaced, and ended ones make room. */
	assert_true(add(SIGN_IN_ROOM + 1, 1000, 1) >= 0);
	assert_int_equal(find(0, 1), -ENOENT);
	assert_true(add(SIGN_IN_ROOM, 7, LASTS) >= 0);
}

static void test_a_sign_out_ends_all_of_the_user_and_of_nobody_else(void **state)
{
	add(1, 1000, 0);
	add(2, 1000, 50);
	add(3, 2000, 50);
	assert_int_equal(sign_in_remove_user(&table, 1000, LASTS), 1);
	assert_int_equal(find(2, LASTS), -ENOENT);
	assert_true(find(3, LASTS) >= 0);
	assert_int_equal(sign_in_remove_user(&table, 1000, LASTS), 0);
}

#define TEST(name) cmocka_unit_test_setup(test_##name, begin)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_secret_leads_to_its_user_until_it_ends),
		TEST(an_empty_table_knows_no_digest_not_even_of_zeros),
		TEST(a_removed_secret_is_known_no_more),
		TEST(one_more_takes_the_place_of_the_users_oldest_alone),
		TEST(users_of_one_owner_count_as_one),
		TEST(a_full_table_takes_nothing_from_other_users),
		TEST(a_sign_out_ends_all_of_the_user_and_of_nobody_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
