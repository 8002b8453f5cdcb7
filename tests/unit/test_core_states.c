#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "core/process_life.h"
#include "core/session_state.h"

/* ---- processes --------------------------------------------------------------------------- */

static bool has_connection(enum process_life life)
{
	return life == PROCESS_LIFE_CONNECTED || life == PROCESS_LIFE_INHERITED;
}

/* A process has ended or not, and its connection is open or not: an event changes one of these two
 * facts, and is impossible where the fact is so already. */
static void a_process_event_changes_the_fact_that_it_names(void **state)
{
	for (int life = 0; life < PROCESS_LIVES; life++)
		for (int event = 0; event < PROCESS_EVENTS; event++) {
			enum process_life from = (enum process_life)life, to = PROCESS_LIVES;
			bool over = process_life_is_over(from);
			bool open = has_connection(from);
			bool possible = process_life_next(from, (enum process_event)event, &to);

			switch ((enum process_event)event) {
			case PROCESS_EVENT_CONNECT:
				assert_int_equal(possible, !open);
				open = true;
				break;
			case PROCESS_EVENT_DISCONNECT:
				assert_int_equal(possible, open);
				open = false;
				break;
			case PROCESS_EVENT_END:
				assert_int_equal(possible, !over);
				over = true;
				break;
			case PROCESS_EVENTS:
				fail();
			}
			if (!possible) {
				assert_int_equal(to, PROCESS_LIVES); /* nothing was set */
				continue;
			}
			assert_int_equal(process_life_is_over(to), over);
			assert_int_equal(has_connection(to), open);
		}
}

static void a_process_that_ended_never_lives_again(void **state)
{
	enum process_life over[] = {PROCESS_LIFE_INHERITED, PROCESS_LIFE_RELEASING};

	for (size_t i = 0; i < ARRAY_SIZE(over); i++)
		for (int event = 0; event < PROCESS_EVENTS; event++) {
			enum process_life to = over[i];

			(void)process_life_next(over[i], (enum process_event)event, &to);
			assert_true(process_life_is_over(to));
		}
}

static void memory_is_released_when_process_and_connection_have_ended(void **state)
{
	enum process_event orders[][2] = {
		{PROCESS_EVENT_END, PROCESS_EVENT_DISCONNECT},
		{PROCESS_EVENT_DISCONNECT, PROCESS_EVENT_END},
	};

	for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
		enum process_life life = PROCESS_LIFE_CONNECTED;

		assert_true(process_life_next(life, orders[i][0], &life));
		assert_int_not_equal(life, PROCESS_LIFE_RELEASING);
		assert_true(process_life_next(life, orders[i][1], &life));
		assert_int_equal(life, PROCESS_LIFE_RELEASING);
	}
}

/* ---- sessions ---------------------------------------------------------------------------- */

static void a_session_that_ends_is_never_active_again(void **state)
{
	for (int from = SESSION_ACTIVE; from < SESSION_STATES; from++)
		for (int event = 0; event < SESSION_EVENTS; event++) {
			enum session_state to = SESSION_STATES;

			if (session_state_next((enum session_state)from, (enum session_event)event,
					       &to)) {
				assert_true(to > SESSION_ACTIVE && to < SESSION_STATES);
				assert_true((int)to >= from); /* and only ever goes on */
			} else {
				assert_int_equal(to, SESSION_STATES);
			}
		}
}

static void a_session_without_processes_is_recorded_in_every_state(void **state)
{
	for (int from = SESSION_ACTIVE; from < SESSION_STATES; from++) {
		enum session_state to = SESSION_STATES;

		assert_true(session_state_next((enum session_state)from, SESSION_EVENT_EMPTY, &to));
		assert_int_equal(to, SESSION_RECORDING);
	}
}

static void processes_are_killed_after_the_deadline_of_the_first_signal_alone(void **state)
{
	for (int from = SESSION_ACTIVE; from < SESSION_STATES; from++) {
		enum session_state to = SESSION_STATES;
		bool possible =
			session_state_next((enum session_state)from, SESSION_EVENT_DEADLINE, &to);

		assert_int_equal(possible, from == SESSION_TERMINATING);
		assert_int_equal(to, possible ? SESSION_KILLING : SESSION_STATES);
	}
}

static void ending_a_session_again_does_not_begin_anew(void **state)
{
	for (int from = SESSION_TERMINATING; from < SESSION_STATES; from++) {
		enum session_state to = SESSION_STATES;

		assert_true(session_state_next((enum session_state)from, SESSION_EVENT_END, &to));
		assert_int_equal(to, from);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_event_changes_the_fact_that_it_names),
		cmocka_unit_test(a_process_that_ended_never_lives_again),
		cmocka_unit_test(memory_is_released_when_process_and_connection_have_ended),
		cmocka_unit_test(a_session_that_ends_is_never_active_again),
		cmocka_unit_test(a_session_without_processes_is_recorded_in_every_state),
		cmocka_unit_test(processes_are_killed_after_the_deadline_of_the_first_signal_alone),
		cmocka_unit_test(ending_a_session_again_does_not_begin_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
