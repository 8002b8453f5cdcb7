/* The record of owners' conduct (src/core/lease_conduct.h), and what is charged by the driver's
 * measurements (src/core/lease_measure.h), in imagined time. */
#include "base/macros.h"
#include "core/lease_conduct.h"
#include "core/lease_measure.h"
#include "test_core_lease.h"

#define MALLORY 7
#define ALICE 8

static void a_gate_opened_again_and_again_suspends(void **state)
{
	struct lease_conduct c = {0};

	assert_true(lease_conduct_is_clean(&c, 0));
	for (unsigned i = 1; i < CONDUCT_STRIKES; i++) {
		assert_false(lease_conduct_note(&c, CONDUCT_FORGED, i * SEC));
		assert_int_equal(c.state, CONDUCT_WATCHED);
	}
	assert_true(lease_conduct_note(&c, CONDUCT_FORGED, 3 * SEC));
	assert_true(lease_conduct_suspended(&c));
	assert_false(lease_conduct_pass(&c, 3 * SEC + CONDUCT_FIRST_NS - 1));
	assert_true(lease_conduct_pass(&c, 3 * SEC + CONDUCT_FIRST_NS));
	/* The next one is enough, and counts twice. */
	assert_true(lease_conduct_note(&c, CONDUCT_FORGED, 20 * SEC));
	assert_false(lease_conduct_pass(&c, 20 * SEC + CONDUCT_FIRST_NS));
	assert_true(lease_conduct_pass(&c, 20 * SEC + 2 * CONDUCT_FIRST_NS));
}

static void a_user_who_goes_on_while_suspended_stays_suspended(void **state)
{
	struct lease_conduct c = {0};

	assert_true(lease_conduct_note(&c, CONDUCT_UNFRONTED, 0));
	for (uint64_t at = 1; at < 100; at++) {
		assert_true(lease_conduct_note(&c, CONDUCT_UNFRONTED, at * SEC));
		assert_false(lease_conduct_pass(&c, at * SEC));
	}
	assert_int_equal(c.suspensions, 1);
	assert_true(lease_conduct_suspended(&c));
}

static void suspensions_are_forgotten_in_time(void **state)
{
	struct lease_conduct c = {0};
	uint64_t now = 0, least = 0;

	for (unsigned i = 0; i < 40; i++) {
		assert_true(lease_conduct_note(&c, CONDUCT_UNFRONTED, now));
		assert_true(c.until - now >= least && c.until - now <= CONDUCT_MOST_NS);
		least = c.until - now;
		now = c.until;
		assert_true(lease_conduct_pass(&c, now));
	}
	assert_int_equal(least, CONDUCT_MOST_NS);
	assert_true(lease_conduct_pass(&c, now + CONDUCT_WATCH_NS));
	assert_true(lease_conduct_is_clean(&c, now + CONDUCT_WATCH_NS));
}

static void patience_is_spent_and_comes_back(void **state)
{
	struct lease_conduct c = {0};
	uint64_t patience = lease_patience(500000);

	assert_true(lease_patience(0) == UINT64_MAX);
	/* Within the window others have their part all the same, but for 1.5 points. */
	for (uint32_t others = 10000; others <= LEASE_PPM; others += 10000) {
		uint64_t rest = LEASE_PPM - others + 15000;

		assert_true(lease_patience(others) <=
			    MAX(CONDUCT_WINDOW_NS / LEASE_PPM * rest, 250 * MS));
		assert_true(lease_patience(others) > 0);
	}
	lease_conduct_spend(&c, patience / 2, 0);
	assert_int_equal(lease_conduct_left(&c, patience, 0), patience - patience / 2);
	lease_conduct_spend(&c, patience, 1 * SEC);
	assert_int_equal(lease_conduct_left(&c, patience, 1 * SEC), 0);
	assert_int_equal(lease_conduct_left(&c, patience, 2000 * SEC), patience);
	/* No figure of a client overflows. */
	lease_conduct_spend(&c, UINT64_MAX, 2000 * SEC);
	assert_int_equal(lease_conduct_left(&c, patience, 4000 * SEC), patience);
}

/* ---- by measurement ---------------------------------------------------------------------- */

/* A GPU in strict mode with a client of each, half of it each; Alice holds it all the time. */
static struct lease_table *table_new(void)
{
	struct lease_setting setting = {COMPUTE_STRICT, 100 * MS, 100000};
	struct lease_table *t = lease_table_new();

	assert_non_null(t);
	lease_set(t, 0, &setting, 1 * SEC);
	assert_int_equal(lease_client_add(t, 1, ALICE, 1, 500000, 1 * SEC), 0);
	assert_int_equal(lease_client_add(t, 2, MALLORY, 1, 500000, 1 * SEC), 0);
	return t;
}

/* Does what is decided until then, at once; both always have work. */
static uint64_t table_run(struct lease_table *t, uint64_t now, uint64_t until)
{
	while (now < until) {
		uint64_t next;
		struct lease_action a = lease_next(t, now, &next);

		if (a.kind == LEASE_GRANT)
			lease_opened(t, a.id, now);
		else if (a.kind == LEASE_REVOKE)
			lease_closed(t, a.id, now);
		else if (a.kind == LEASE_NONE)
			now = MIN(next, until);
	}
	return now;
}

/* What is measured of Mallory beside his turns. */
struct beside {
	uint32_t ppm;   /* of the GPU's time */
	uint64_t id;    /* the client whose process it is; 0: it is attached nowhere */
	uint64_t apart; /* the GPU's clock goes on by so much less in each second; ns */
	bool barred;    /* he has no turns */
	bool goes_on;   /* by his own word work of his is on the GPU all the time */
};

/* `seconds` measurements. Returns in how many of them the time beside his turns was unfronted. */
static unsigned measured(struct lease_table *t, const struct beside *b, unsigned seconds)
{
	uint64_t now = 1 * SEC, own = now;
	unsigned unfronted = 0;

	lease_wants(t, 1, true, now);
	lease_wants(t, 2, true, now);
	lease_client_bar(t, 2, b->barred, now);
	lease_goes_on(t, 2, b->goes_on);
	lease_measure_mark(t, 0, now, own);
	for (unsigned i = 0; i < seconds; i++) {
		struct lease_client_stat alice, mallory, a, m;

		lease_client_stat(t, 1, now, &alice);
		lease_client_stat(t, 2, now, &mallory);
		now = table_run(t, now, now + SEC);
		own += SEC - b->apart;
		lease_measure_mark(t, 0, now, own);
		lease_client_stat(t, 1, now, &a);
		lease_client_stat(t, 2, now, &m);
		struct lease_use uses[] = {
			{ALICE, 1, (uint32_t)((a.held_ns - alice.held_ns) / 1000)},
			{MALLORY, 2, (uint32_t)((m.held_ns - mallory.held_ns) / 1000)},
			{MALLORY, b->id, b->ppm},
		};
		uses[0].ppm -= MIN(uses[0].ppm, b->ppm);
		bool judged = lease_measure(t, 0, uses, 3, LEASE_PPM, now);
		assert_int_equal(judged, b->apart <= 20 * MS);
		assert_false(uses[0].unfronted);
		unfronted += uses[2].unfronted;
	}
	return unfronted;
}

static uint64_t charged_to(const struct lease_table *t, uint64_t id)
{
	uint64_t charged, returned;

	lease_measured(t, id, &charged, &returned);
	return charged;
}

static void turns_alone_leave_accounts_empty(void **state)
{
	struct lease_table *t = table_new();

	assert_int_equal(measured(t, &(struct beside){.id = 2}, 60), 0);
	assert_int_equal(charged_to(t, 2), 0);
	lease_table_free(t);
}

/* As the process of a client, or of none: it is the owner's. */
static void time_beyond_turns_is_charged_to_its_owner(void **state)
{
	for (uint32_t id = 0; id <= 2; id += 2) {
		struct lease_table *t = table_new();
		struct lease_client_stat alice, mallory;

		(void)measured(t, &(struct beside){250000, id}, 20);
		assert_true(charged_to(t, 2) > 2 * SEC);
		/* Turns make up for it: the other one has more of them. */
		lease_client_stat(t, 1, 21 * SEC, &alice);
		lease_client_stat(t, 2, 21 * SEC, &mallory);
		assert_true(alice.held_ns > mallory.held_ns + 4 * SEC);
		lease_table_free(t);
	}
}

/* A neighbour can make the GPU stand still while the clock of leases goes on. */
static void nothing_is_judged_while_the_clocks_disagree(void **state)
{
	for (uint32_t id = 0; id <= 2; id += 2) {
		struct lease_table *t = table_new();
		const struct beside b = {900000, id, .apart = 21 * MS, .barred = true};

		assert_int_equal(measured(t, &b, 20), 0);
		assert_int_equal(charged_to(t, 2), 0);
		lease_table_free(t);
	}
}

/* A neighbour's work makes the work of a client longer than its turns, however much. */
static void a_client_with_turns_is_charged_and_no_more(void **state)
{
	struct lease_table *t = table_new();

	assert_int_equal(measured(t, &(struct beside){500000, 2}, 3), 0);
	lease_table_free(t);
}

static void use_without_a_front_is_told_from_use_beyond_turns(void **state)
{
	const struct {
		struct beside b;
		bool unfronted;
	} cases[] = {
		{{400000, 0}, true},
		{{400000, 2, .barred = true}, true},
		/* As coarse as the driver is, that is nothing. */
		{{90000, 0}, false},
		{{90000, 2, .barred = true}, false},
		/* By its own word work goes on that its turn left behind. */
		{{400000, 2, .barred = true, .goes_on = true}, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct lease_table *t = table_new();
		unsigned seen = measured(t, &cases[i].b, 10);

		/* Of a client it takes some measurements without turns before. */
		assert_true(cases[i].unfronted ? seen >= 6 : !seen);
		lease_table_free(t);
	}
}

static void one_who_is_barred_has_no_turn(void **state)
{
	struct lease_table *t = table_new();
	struct lease_client_stat before, after;

	lease_wants(t, 1, true, 1 * SEC);
	lease_wants(t, 2, true, 1 * SEC);
	uint64_t now = table_run(t, 1 * SEC, 3 * SEC);
	lease_client_bar(t, 2, true, now);
	now = table_run(t, now, now + 1 * SEC);
	lease_client_stat(t, 2, now, &before);
	now = table_run(t, now, now + 10 * SEC);
	lease_client_stat(t, 2, now, &after);
	assert_int_equal(after.held_ns, before.held_ns);
	lease_client_bar(t, 2, false, now);
	now = table_run(t, now, now + 2 * SEC);
	lease_client_stat(t, 2, now, &after);
	assert_true(after.held_ns > before.held_ns);
	lease_table_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_gate_opened_again_and_again_suspends),
		cmocka_unit_test(a_user_who_goes_on_while_suspended_stays_suspended),
		cmocka_unit_test(suspensions_are_forgotten_in_time),
		cmocka_unit_test(patience_is_spent_and_comes_back),
		cmocka_unit_test(turns_alone_leave_accounts_empty),
		cmocka_unit_test(time_beyond_turns_is_charged_to_its_owner),
		cmocka_unit_test(nothing_is_judged_while_the_clocks_disagree),
		cmocka_unit_test(a_client_with_turns_is_charged_and_no_more),
		cmocka_unit_test(use_without_a_front_is_told_from_use_beyond_turns),
		cmocka_unit_test(one_who_is_barred_has_no_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
