#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "core/settle.h"

#define CONTEXT 3

/* ---- whether a reading can be used --------------------------------------------------------- */

static struct settle_calls calls_of(const uint32_t number[6], uint32_t start)
{
	return (struct settle_calls){
		.sampled = true,
		.asks = number[5] & 1,
		.seen_begun = start + number[0],
		.begun = start + number[1],
		.seen_done = start + number[2],
		.seen_release_pending = number[3],
		.release_pending = number[4],
	};
}

/* All combinations of small counts, also where the counters wrap round. */
static void a_process_is_quiescent_if_only_calls_that_wait_are_under_way(void **state)
{
	const uint32_t starts[] = {0, 5, UINT32_MAX - 1};
	unsigned quiescent = 0;

	for (uint32_t code = 0; code < 4096; code++)
		for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
			uint32_t n[6], rest = code;

			for (int digit = 0; digit < 6; digit++, rest /= 4)
				n[digit] = rest % 4;
			if (n[0] < n[2] || n[1] < n[0] || n[5] > 1)
				continue; /* no such counters */
			struct settle_calls calls = calls_of(n, starts[i]);
			bool none_began = n[1] == n[0];
			bool none_is_answered = n[4] >= n[3];
			uint32_t waiting = n[3] ? n[3] : n[5];
			bool others_were_under_way = n[0] - n[2] > waiting;

			assert_int_equal(settle_is_quiescent(&calls),
					 none_began && none_is_answered && !others_were_under_way);
			quiescent += settle_is_quiescent(&calls);
			calls.sampled = false;
			assert_false(settle_is_quiescent(&calls));
		}
	assert_true(quiescent > 100); /* both answers were met */
}

/* ---- what is posted ------------------------------------------------------------------------ */

static void check_aim(const struct settle_reading *r)
{
	int64_t aim = 1000, floor = 1000;
	int64_t own = r->used - r->managed_unlisted - r->release_pending;
	int64_t beyond = (int64_t)r->figure - own - r->twins;

	if (!settle_aim(r, &aim, &floor)) {
		assert_true(r->failed || r->figure == 0);
		assert_int_equal(aim, 1000);
		assert_int_equal(floor, 1000);
		return;
	}
	assert_false(r->failed);
	assert_true(r->figure || own <= r->maybe_freed);
	/* The driver is right upwards: all that it lists is charged. */
	assert_true(aim >= beyond);
	/* Downwards only as far as the floor, and what the process need not hold. */
	assert_true(floor <= 0);
	assert_true(aim >= floor - r->maybe_freed || aim == r->posted);
	if (!r->asks)
		assert_int_equal(floor, r->floor);
	else if (r->asks_exact && !r->managed)
		assert_true(floor >= -r->context);
	else
		assert_true(floor >= r->floor);
	/* Memory that no figure shows keeps what is posted from falling. */
	if (r->managed)
		assert_true(aim >= r->posted);
	/* Nothing is posted for no reason. */
	assert_true(aim == beyond || aim == floor - r->maybe_freed ||
		    (r->managed && aim == r->posted));
	assert_true(aim == beyond || beyond < aim);
}

static void an_aim_is_the_drivers_upwards_and_bounded_downwards(void **state)
{
	for (uint32_t code = 0; code < 1u << 18; code++) {
		struct settle_reading r = {
			.figure = code & 7,
			.used = code >> 3 & 7,
			.managed_unlisted = MIN(code >> 6 & 1, code >> 3 & 7),
			.release_pending = code >> 7 & 1,
			.twins = (code >> 8 & 1) * 2,
			.maybe_freed = code >> 9 & 1,
			.context = CONTEXT,
			.posted = (int64_t)(code >> 10 & 7) - 3,
			.floor = -(int64_t)(code >> 13 & 1) * 2,
			.asks = code >> 14 & 1,
			.asks_exact = code >> 15 & 1,
			.managed = code >> 16 & 1,
			.failed = code >> 17 & 1,
		};

		check_aim(&r);
	}
}

static void a_context_that_costs_less_than_learned_is_lowered_when_the_process_asks(void **state)
{
	struct settle_reading r = {
		.figure = 11, .used = 13, .context = CONTEXT, .posted = 0, .asks_exact = true};
	int64_t aim, floor;

	assert_true(settle_aim(&r, &aim, &floor));
	assert_int_equal(aim, 0); /* nobody asked */
	r.asks = true;
	assert_true(settle_aim(&r, &aim, &floor));
	assert_int_equal(aim, -2);
	assert_int_equal(floor, -2);
	r.figure = 1; /* no context costs so little */
	assert_true(settle_aim(&r, &aim, &floor));
	assert_int_equal(aim, -CONTEXT);
	r.asks = false;
	r.floor = floor;
	r.figure = 20; /* what it took round the front */
	assert_true(settle_aim(&r, &aim, &floor));
	assert_int_equal(aim, 7);
	assert_int_equal(floor, -CONTEXT);
}

static void more_is_charged_than_held_only_where_figures_can_tell(void **state)
{
	struct settle_reading r = {.figure = 5, .release_pending = 1, .managed_unlisted = 2};

	assert_int_equal(settle_over(&r, 10), 2);
	assert_int_equal(settle_over(&r, 8), 0);
	assert_int_equal(settle_over(&r, 0), 0); /* and not 2^64 - 8 */
	r.managed = true;
	assert_int_equal(settle_over(&r, 10), 0);
	r.managed = false;
	r.twins = 1;
	assert_int_equal(settle_over(&r, 10), 0);
	r.twins = 0;
	r.failed = true;
	assert_int_equal(settle_over(&r, 10), 0);
}

/* ---- processes that never stand still ------------------------------------------------------ */

/* It holds `hidden` bytes that it never charged, and has one block in flight at any moment. */
static void memory_hidden_by_a_restless_process_is_found_and_never_overstated(void **state)
{
	for (int64_t hidden = 0; hidden < 4; hidden++)
		for (unsigned blocks = 0; blocks < 27; blocks++) {
			int64_t before = blocks % 3, meanwhile = blocks / 3 % 3, after = blocks / 9;
			int64_t found = settle_beyond((uint64_t)(hidden + meanwhile), before, after,
						      0, 0, 0);

			if (meanwhile <= MAX(before, after))
				assert_true(found <= hidden);
			if (before == meanwhile && after == meanwhile)
				assert_int_equal(found, hidden);
		}
	assert_int_equal(settle_beyond(10, 8, 8, 3, 1, 2), 1);
}

static void the_least_of_a_fixed_number_of_comparisons_counts(void **state)
{
	int64_t least = -5; /* of an earlier row */
	unsigned count = 0;

	for (; !settle_is_enough(count); count++)
		least = settle_least(count, least, 100 - (int64_t)count);
	assert_int_equal(count + 1, SETTLE_MOVING_COMPARISONS);
	assert_int_equal(settle_least(count, least, 200), 100 - (int64_t)count + 1);
}

static void a_restless_process_has_less_only_below_what_is_posted_and_may_fall(void **state)
{
	for (int64_t beyond = -4; beyond <= 4; beyond++)
		for (int64_t posted = -4; posted <= 4; posted++)
			for (int64_t floor = -2; floor <= 0; floor++)
				for (int64_t freed = 0; freed <= 2; freed++)
					assert_int_equal(
						settle_may_have_less(beyond, posted, floor, freed),
						beyond < posted && posted + freed > 0);
}

/* ---- sessions ------------------------------------------------------------------------------ */

static void nobody_is_lowered_whose_memory_another_may_have(void **state)
{
	for (unsigned code = 0; code < 16; code++) {
		struct settle_session s = {
			.exported = code & 1,
			.quiescent = code >> 1 & 1,
			.has_less = code >> 2 & 1,
			.may_have_less = code >> 3 & 1,
		};

		switch (settle_decide(&s)) {
		case SETTLE_LOWER:
			assert_true(s.has_less || s.may_have_less);
			assert_true(!s.exported || s.quiescent);
			break;
		case SETTLE_DEFER:
			assert_true(s.exported && !s.quiescent && (s.has_less || s.may_have_less));
			break;
		case SETTLE_NOTHING:
			assert_false(s.has_less);
			assert_false(s.exported && s.may_have_less);
		}
	}
}

/* ---- making a session stand still ---------------------------------------------------------- */

static void a_session_is_held_for_a_bounded_time_and_ever_less_often(void **state)
{
	const uint64_t step = 1000000;
	struct settle_quiesce q = {0};
	uint64_t held = 0, longest = 0, run = 0, total = 20000000000ull;

	for (uint64_t now = step; now < total; now += step) {
		settle_quiesce_next(&q, true, now);
		run = q.state == SETTLE_HELD ? run + step : 0;
		held += q.state == SETTLE_HELD ? step : 0;
		longest = MAX(longest, run);
		assert_int_equal(settle_quiesce_until(&q) != 0, q.state == SETTLE_HELD);
		if (q.state == SETTLE_HELD)
			assert_true(settle_quiesce_until(&q) > now);
		assert_true(q.pause_ns <= SETTLE_PAUSE_MAX_NS);
	}
	assert_true(longest <= SETTLE_HOLD_NS + 2 * step);
	assert_int_equal(q.pause_ns, SETTLE_PAUSE_MAX_NS);
	assert_true(held > 0 && held < total / 8);
}

static void a_session_is_free_at_once_when_no_look_is_wanted(void **state)
{
	struct settle_quiesce q = {0};

	for (uint64_t now = 1; now < 3 * SETTLE_HOLD_NS; now += SETTLE_HOLD_NS / 7) {
		settle_quiesce_next(&q, true, now);
		struct settle_quiesce after = q;
		settle_quiesce_next(&after, false, 0);
		assert_int_equal(after.state, SETTLE_FREE);
		assert_int_equal(after.pause_ns, 0); /* the next pause is the shortest again */
		assert_int_equal(settle_quiesce_until(&after), 0);
		settle_quiesce_next(&after, true, now);
		assert_int_equal(after.state, SETTLE_HELD);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_is_quiescent_if_only_calls_that_wait_are_under_way),
		cmocka_unit_test(an_aim_is_the_drivers_upwards_and_bounded_downwards),
		cmocka_unit_test(
			a_context_that_costs_less_than_learned_is_lowered_when_the_process_asks),
		cmocka_unit_test(more_is_charged_than_held_only_where_figures_can_tell),
		cmocka_unit_test(memory_hidden_by_a_restless_process_is_found_and_never_overstated),
		cmocka_unit_test(the_least_of_a_fixed_number_of_comparisons_counts),
		cmocka_unit_test(
			a_restless_process_has_less_only_below_what_is_posted_and_may_fall),
		cmocka_unit_test(nobody_is_lowered_whose_memory_another_may_have),
		cmocka_unit_test(a_session_is_held_for_a_bounded_time_and_ever_less_often),
		cmocka_unit_test(a_session_is_free_at_once_when_no_look_is_wanted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
