/* The event log: its bounds, its numbers over lives of the host, and texts that users wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clean_text.h"
#include "base/error.h"
#include "base/macros.h"
#include "daemon/events/events.h"
#include "daemon/host/peer.h"

#define USERS_FIRST 60101

static char dir[] = "/tmp/carve-test-events-XXXXXX";

struct log {
	struct store *store;
	struct events *events;
};

static int setup(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[PATH_MAX];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static struct log log_open(const char *name, const char *boot)
{
	struct store_boot life = {.began = 1};
	struct log log = {0};
	struct error err;
	char path[PATH_MAX];
	unsigned ended;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(life.id, sizeof(life.id), "%s", boot);
	assert_int_equal(store_open(&log.store, path, false, &err), 0);
	assert_int_equal(store_boot(log.store, &life, &ended), 0);
	assert_int_equal(events_start(log.store, &log.events), 0);
	return log;
}

static void log_close(struct log *log)
{
	events_stop(log->events);
	store_close(log->store);
}

static void user_event(struct log *log, uid_t uid, const char *subject)
{
	events_add(log->events,
		   &(struct event){.kind = EVENT_OVER_KILLED, .owner = &uid, .subject = subject});
}

static void node_event(struct log *log, const char *text)
{
	events_add(log->events, &(struct event){.kind = EVENT_CONFIG_READ, .text = text});
}

struct found {
	unsigned of_user[8], of_node;
	struct store_event last, first;
	unsigned count;
};

static int found_add(void *arg, const struct store_event *event)
{
	struct found *found = arg;

	if (event->owner >= USERS_FIRST)
		found->of_user[event->owner - USERS_FIRST]++;
	else
		found->of_node++;
	if (!found->count++)
		found->first = *event;
	found->last = *event;
	return 0;
}

static struct found all(struct log *log)
{
	struct found found = {0};
	uint64_t from = 0, next = 0;

	do {
		from = next;
		assert_int_equal(events_each(log->events, from, found_add, &found, &next), 0);
	} while (next != from);
	return found;
}

static void a_user_pushes_out_own_events_alone(void **state)
{
	struct log log = log_open("flood.db", "boot");

	node_event(&log, "an administrator's");
	user_event(&log, USERS_FIRST + 1, "bob's");
	for (unsigned i = 0; i < EVENTS_OF_USER + 500; i++)
		user_event(&log, USERS_FIRST, "a flood");
	struct found found = all(&log);
	assert_int_equal(found.of_user[0], EVENTS_OF_USER);
	assert_int_equal(found.of_user[1], 1);
	assert_int_equal(found.of_node, 1);
	assert_string_equal(found.first.text, "an administrator's");
	assert_int_equal(found.last.number, EVENTS_OF_USER + 502);
	log_close(&log);
	log = log_open("flood.db", "boot");
	user_event(&log, USERS_FIRST, "after a restart");
	found = all(&log);
	assert_int_equal(found.of_user[0], EVENTS_OF_USER);
	assert_int_equal(found.last.number, EVENTS_OF_USER + 503);
	log_close(&log);
}

static void numbers_of_another_life_of_the_host_are_not_given_again(void **state)
{
	struct log log = log_open("boot.db", "first");

	node_event(&log, "one");
	node_event(&log, "two");
	uint64_t told = events_next(log.events);
	assert_int_equal(told, 3);
	log_close(&log);
	/* The rows of the last seconds may be gone with the power. */
	log = log_open("boot.db", "second");
	assert_true(events_next(log.events) > told + 100000);
	node_event(&log, "three");
	uint64_t next = events_next(log.events);
	log_close(&log);
	log = log_open("boot.db", "second");
	assert_int_equal(events_next(log.events), next);
	assert_int_equal(all(&log).count, 3);
	log_close(&log);
}

static void numbers_that_no_event_has_end_at_the_next_one(void **state)
{
	static const uint64_t froms[] = {2, 3, 1u << 30, INT64_MAX, UINT64_MAX};
	struct log log = log_open("cursor.db", "boot");
	struct found found = {0};
	uint64_t next;

	node_event(&log, "one");
	for (size_t i = 0; i < ARRAY_SIZE(froms); i++) {
		assert_int_equal(events_each(log.events, froms[i], found_add, &found, &next), 0);
		assert_int_equal(next, 2);
	}
	assert_int_equal(found.count, 0);
	assert_int_equal(events_since(log.events, INT64_MAX, &next), 0);
	assert_int_equal(next, 2);
	log_close(&log);
}

static void texts_have_no_control_characters_and_are_cut_between_characters(void **state)
{
	struct log log = log_open("text.db", "boot");
	char longest[4096];

	for (size_t i = 0; i < sizeof(longest) - 4; i += 3)
		memcpy(longest + i, "\xe2\x82\xac", 4);
	user_event(&log, USERS_FIRST,
		   "a\nb\x1b[31m\xc2\x9b"
		   "c\xff\xe2\x80\xae"
		   "d\xed\xa0\x80\xc0\x80");
	struct store_event event = all(&log).last;
	assert_string_equal(event.subject, "a?b?[31m?c??d?????");
	user_event(&log, USERS_FIRST, longest);
	event = all(&log).last;
	assert_true(strlen(event.subject) % 3 == 0 && strlen(event.subject) > 100);
	log_close(&log);
}

static void others_see_what_concerns_them_alone(void **state)
{
	struct peer alice = {.uid = USERS_FIRST}, admin = {.uid = USERS_FIRST + 7, .admin = true};
	struct store_event event = {.owner = USERS_FIRST, .kind = "session.over_killed"};

	assert_true(events_visible(&event, &alice));
	assert_true(events_visible(&event, &admin));
	event.owner = USERS_FIRST + 1;
	assert_false(events_visible(&event, &alice));
	assert_true(events_visible(&event, &admin));
	snprintf(event.kind, sizeof(event.kind), "config.read");
	event.owner = USERS_FIRST;
	assert_false(events_visible(&event, &alice));
	snprintf(event.kind, sizeof(event.kind), "gpu.lost");
	event.owner = -1;
	assert_true(events_visible(&event, &alice));
	snprintf(event.kind, sizeof(event.kind), "of.another_version");
	assert_false(events_visible(&event, &alice));
	assert_true(events_visible(&event, &admin));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_user_pushes_out_own_events_alone),
		cmocka_unit_test(numbers_of_another_life_of_the_host_are_not_given_again),
		cmocka_unit_test(numbers_that_no_event_has_end_at_the_next_one),
		cmocka_unit_test(texts_have_no_control_characters_and_are_cut_between_characters),
		cmocka_unit_test(others_see_what_concerns_them_alone),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
