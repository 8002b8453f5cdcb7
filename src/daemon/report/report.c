#include "daemon/report/report.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/report/report_owner.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"

#define WALK_EVERY_NS 60000000000ull
/* Rows in one transaction: some 0.5 ms. */
#define WRITE_ROWS 64u
#define COST_PART 20
/* Rows of each kind that are forgotten after a write. */
#define TRIM_ROWS 64u
/* Sessions that are counted between two looks at the clock. */
#define WALK_LOOK 32u

/* ---- walking and writing ----------------------------------------------------------------- */

/* Goes on with the walk. False: there is more to do. */
static bool walk_part(struct report *report)
{
	uint64_t began = now_monotonic_ns();

	for (unsigned n = 1; report->round.next; n++) {
		struct session *s = report->round.next;

		report->round.next = s->next;
		report_count(report, s);
		if (n % WALK_LOOK == 0 && now_monotonic_ns() - began >= FAIR_STEP_NS)
			return !report->round.next;
	}
	return true;
}

/* 0 or -errno. */
static int rows_write(struct report *report, const struct store_tally *rows, uint32_t count)
{
	uint64_t now = now_monotonic_ns();
	const struct store_tally_state state = {
		.until = now, .until_realtime = now_realtime_ns(), .began = report->at.began};
	int rc = store_tally_put(report->store, rows, count, &state);

	if (rc == 0)
		report->round.written_ns = now;
	return rc;
}

/* Nothing is written while nobody has a session. So the moment in the database may be an old one
 * when a session begins. The daemon may be killed before its next write, and somebody may set the
 * clock back. Then the next daemon takes the session to have begun at that moment, which therefore
 * has to be near. */
void report_renew(struct report *report)
{
	if (now_monotonic_ns() - report->round.written_ns > 2 * WALK_EVERY_NS)
		(void)rows_write(report, NULL, 0);
}

/* Writes some rows. 0 or -errno. */
static int write_part(struct report *report)
{
	struct report_row *taken[WRITE_ROWS];
	struct store_tally rows[WRITE_ROWS];
	uint32_t count = report_rows_take(report, taken, WRITE_ROWS);

	for (uint32_t i = 0; i < count; i++)
		rows[i] = taken[i]->stored;
	int rc = count ? rows_write(report, rows, count) : 0;
	if (rc < 0) {
		report_rows_return(report, taken, count);
		return rc;
	}
	for (uint32_t i = 0; i < count; i++)
		free(taken[i]);
	return 0;
}

static void trim(struct report *report)
{
	int64_t today = tally_day(now_realtime_ns()), first = today - TALLY_DAYS;

	if (store_tally_trim(report->store, first, today, TRIM_ROWS) > 0)
		report->at.began = MAX(report->at.began, first);
	if (tally_month(today) != report->month)
		(void)report_month_load(report, today);
}

static void line_up(struct report *report)
{
	if (!report->round.work.line)
		(void)fair_line_up(report->turns, 0, &report->round.work);
}

static void round_end(struct report *report)
{
	report->round.written = report->round.number;
	report->round.ended_ns = now_monotonic_ns();
	trim(report);
	report_asks_go_on(report);
}

static void round_part(struct report *report)
{
	struct report_round *round = &report->round;

	if (round->walking) {
		round->walking = !walk_part(report);
		round->writing = !round->walking;
		/* All sessions of the daemon before have been taken up. */
		if (round->writing)
			report->at.until = 0;
	} else {
		/* A full disk: the rows stay, and are written with those of the next minute. */
		round->writing = write_part(report) == 0 && report->first;
	}
}

static void on_turn(struct fair_work *work)
{
	struct report *report =
		(struct report *)((char *)work - offsetof(struct report, round.work));
	uint64_t began = now_monotonic_ns();

	round_part(report);
	report->round.spent_ns += now_monotonic_ns() - began;
	if (report->round.walking || report->round.writing)
		line_up(report);
	else
		round_end(report);
}

static void round_begin(struct report *report, uint64_t now)
{
	struct report_round *round = &report->round;

	round->due_ns = now + WALK_EVERY_NS;
	round->next = report->sessions->first;
	round->walking = true;
	round->number++;
	round->spent_ns = 0;
	line_up(report);
}

/* Reports that are asked for again and again take one part in COST_PART of the time at most. */
static void round_look(struct report *report)
{
	const struct report_round *round = &report->round;
	uint64_t now = now_monotonic_ns();
	bool paid = now - round->ended_ns >= COST_PART * round->spent_ns;

	if (!round->walking && !round->writing &&
	    (now >= round->due_ns || (round->wanted > round->number && paid)))
		round_begin(report, now);
}

void report_tick(struct report *report)
{
	if (report->store)
		round_look(report);
}

uint64_t report_freshen(struct report *report)
{
	uint64_t number = report->round.number + 1;

	report->round.wanted = number;
	round_look(report);
	return number;
}

int report_start(struct report *report)
{
	int rc = store_tally_state(report->store, &report->at);

	report->round.work.run = on_turn;
	budget_begin_any(&report->asks.budget, REPORT_ASKS_MAX);
	if (rc == -ENOENT) {
		report->at = (struct store_tally_state){.began = tally_day(now_realtime_ns())};
		rc = 0;
	}
	report->round.due_ns = now_monotonic_ns() + WALK_EVERY_NS;
	return rc < 0 ? rc : report_month_load(report, tally_day(now_realtime_ns()));
}

void report_stop(struct report *report)
{
	if (!report->store || !report->round.work.run)
		return;
	fair_withdraw(&report->round.work);
	report_asks_stop(report);
	for (struct session *s = report->sessions->first; s; s = s->next)
		report_count(report, s);
	while (report->first && write_part(report) == 0)
		;
	report_owners_free(report);
}
