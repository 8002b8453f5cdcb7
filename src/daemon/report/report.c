#include "daemon/report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/lease/leases.h"
#include "daemon/report/report_owner.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"

#define WALK_EVERY_NS 60000000000ull
/* Rows in one transaction: some 0.5 ms. */
#define WRITE_ROWS 64u
/* Rows of each kind that are forgotten after a write. */
#define TRIM_ROWS 64u
/* Sessions that are counted between two looks at the clock. */
#define WALK_LOOK 32u

/* How far a session is counted. */
struct report_mark {
	uint64_t until_ns; /* CLOCK_MONOTONIC */
	uint64_t busy_ns;  /* its leases up to then */
	char name[STORE_NAME_SIZE];
};

/* ---- one session ------------------------------------------------------------------------- */

/* The time of its leases; false: nobody measures that. */
static bool leases_of(const struct session *s, uint64_t *ret)
{
	struct lease_standing standing;

	*ret = 0;
	if (!s->lease)
		return !books_exist(&s->books);
	leases_standing(s->sessions->leases, s->lease, &standing);
	*ret = standing.stat.held_ns;
	return true;
}

static bool is_sliced(const struct session *s, uint32_t i)
{
	return s->pool_gpu[i] >= 0 && s->sessions->pool->gpu[s->pool_gpu[i]].mode != COMPUTE_OFF;
}

static struct store_tally key_of(const struct session *s, uint32_t i, const char *name)
{
	struct store_tally key = {.uid = s->record.uid, .gid = s->record.gid};

	if (i < s->record.gpu_count)
		snprintf(key.gpu, sizeof(key.gpu), "%s", s->record.gpu[i].uuid_text);
	snprintf(key.name, sizeof(key.name), "%s", name);
	return key;
}

/* Adds a slice's time, which ended just now, to the days in which it lies. */
static void slice_add(struct report *report, struct store_tally *key, struct tally_time time)
{
	int64_t end = now_realtime_ns();
	uint64_t left = time.ns, busy = time.used_ns;

	for (int days = 0; left && days <= TALLY_DAYS; days++) {
		struct tally_time part = time;

		part.ns = tally_day_take(&end, left, &key->day);
		part.used_ns = MIN(busy, part.ns);
		busy -= part.used_ns;
		left -= part.ns;
		key->tally = (struct tally){0};
		tally_add_time(&key->tally, &part);
		report_add(report, key);
	}
}

/* Where a session was counted before, it is counted from there up to now. */
static void session_count(struct report *report, const struct session *s)
{
	struct report_mark *mark = s->counted;
	uint64_t now = now_monotonic_ns(), busy;
	uint64_t passed = now > mark->until_ns ? now - mark->until_ns : 0;
	bool known = leases_of(s, &busy);

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		struct store_tally key = key_of(s, i, mark->name);
		int gpu = s->pool_gpu[i];
		bool sliced = is_sliced(s, i);
		uint64_t total = gpu < 0 ? 0 : s->sessions->pool->gpu[gpu].info.total;

		slice_add(report, &key,
			  (struct tally_time){
				  .ns = passed,
				  .part_ppm = tally_part(s->record.gpu[i].bytes, total,
							 sliced ? s->record.compute : 0),
				  .bytes = s->record.gpu[i].bytes,
				  .peak_bytes = session_peak(s, i),
				  .measured = known && sliced,
				  .used_ns = busy > mark->busy_ns ? busy - mark->busy_ns : 0,
			  });
	}
	mark->until_ns = now;
	mark->busy_ns = busy;
}

static struct report_mark *mark_new(struct session *s, uint64_t until, const char *name)
{
	struct report_mark *mark = calloc(1, sizeof(*mark));

	if (!mark)
		return NULL;
	mark->until_ns = until;
	(void)leases_of(s, &mark->busy_ns);
	snprintf(mark->name, sizeof(mark->name), "%s", name);
	s->counted = mark;
	return mark;
}

/* 0 or -errno. */
static int rows_write(struct report *report, const struct store_tally *rows, uint32_t count)
{
	uint64_t now = now_monotonic_ns();
	const struct store_tally_state state = {
		.until = now, .until_realtime = now_realtime_ns(), .began = report->at.began};
	int rc = store_tally_put(report->store, rows, count, &state);

	if (rc == 0)
		report->written_ns = now;
	return rc;
}

/* Nothing is written while nobody has a session. So the moment in the database may be an old one
 * when a session begins. The daemon may be killed before its next write, and somebody may set the
 * clock back. Then the next daemon takes the session to have begun at that moment, which therefore
 * has to be near. */
static void moment_renew(struct report *report)
{
	if (now_monotonic_ns() - report->written_ns > 2 * WALK_EVERY_NS)
		(void)rows_write(report, NULL, 0);
}

/* Counts what is no time: sessions, jobs, waits. */
static void events_add(struct report *report, struct store_tally *key, struct tally events)
{
	key->day = tally_day(now_realtime_ns());
	key->tally = events;
	report_add(report, key);
}

void report_began(struct report *report, struct session *s, const char *name)
{
	if (!report->store || s->counted || !mark_new(s, now_monotonic_ns(), name))
		return;
	moment_renew(report);
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		struct store_tally key = key_of(s, i, name);

		events_add(report, &key, (struct tally){.sessions = i == 0, .slices = 1});
	}
}

void report_job(struct report *report, struct session *s, const char *name, uint64_t waited_ns)
{
	struct store_tally key = key_of(s, 0, name);

	if (!report->store)
		return;
	report_began(report, s, name);
	events_add(report, &key,
		   (struct tally){.jobs = 1, .waits = waited_ns > 0, .wait_ns = waited_ns});
}

void report_forget(struct report *report, struct session *s)
{
	if (report->next == s)
		report->next = s->next;
	free(s->counted);
	s->counted = NULL;
}

static struct store_tally key_of_peer(const struct peer *peer, const char *gpu, const char *name)
{
	struct store_tally key = {.uid = peer->uid, .gid = peer->gid};

	snprintf(key.gpu, sizeof(key.gpu), "%s", gpu);
	snprintf(key.name, sizeof(key.name), "%s", name);
	return key;
}

void report_waited(struct report *report, const struct peer *peer, const char *gpu,
		   const char *name, uint64_t ns)
{
	struct store_tally key = key_of_peer(peer, gpu, name);

	if (report->store)
		events_add(report, &key, (struct tally){.waits = 1, .wait_ns = ns});
}

void report_refused(struct report *report, const struct peer *peer, const char *name)
{
	struct store_tally key = key_of_peer(peer, "", name);

	if (report->store)
		events_add(report, &key, (struct tally){.refusals = 1});
}

/* ---- walking and writing ----------------------------------------------------------------- */

/* A session of the daemon before: it was counted up to the moment in the database. Its job's name
 * is not known any more, so that it counts by its own. */
static void session_resume(struct report *report, struct session *s)
{
	uint64_t now = now_monotonic_ns();
	uint64_t until = report->at.until
				 ? tally_resume(report->at.until, report->at.until_realtime,
						s->record.created, now)
				 : now;

	(void)mark_new(s, until, s->record.name);
}

void report_count(struct report *report, struct session *s)
{
	if (!report->store)
		return;
	if (!s->counted)
		session_resume(report, s);
	if (s->counted)
		session_count(report, s);
}

/* Goes on with the walk. False: there is more to do. */
static bool walk_part(struct report *report)
{
	uint64_t began = now_monotonic_ns();

	for (unsigned n = 1; report->next; n++) {
		struct session *s = report->next;

		report->next = s->next;
		report_count(report, s);
		if (n % WALK_LOOK == 0 && now_monotonic_ns() - began >= FAIR_STEP_NS)
			return !report->next;
	}
	return true;
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
	if (!report->work.line)
		(void)fair_line_up(report->turns, 0, &report->work);
}

static void on_turn(struct fair_work *work)
{
	struct report *report = (struct report *)((char *)work - offsetof(struct report, work));

	if (report->walking) {
		report->walking = !walk_part(report);
		report->writing = !report->walking;
		/* All sessions of the daemon before have been taken up. */
		if (report->writing)
			report->at.until = 0;
		line_up(report);
		return;
	}
	/* A full disk: the rows stay, and are written with those of the next minute. */
	report->writing = write_part(report) == 0 && report->first;
	if (report->writing)
		line_up(report);
	else
		trim(report);
}

static void walk_begin(struct report *report)
{
	report->due_ns = now_monotonic_ns() + WALK_EVERY_NS;
	report->next = report->sessions->first;
	report->walking = true;
	line_up(report);
}

void report_tick(struct report *report)
{
	if (report->store && !report->walking && !report->writing &&
	    now_monotonic_ns() >= report->due_ns)
		walk_begin(report);
}

int report_start(struct report *report)
{
	int rc = store_tally_state(report->store, &report->at);

	report->work.run = on_turn;
	if (rc == -ENOENT) {
		report->at = (struct store_tally_state){.began = tally_day(now_realtime_ns())};
		rc = 0;
	}
	report->due_ns = now_monotonic_ns() + WALK_EVERY_NS;
	return rc < 0 ? rc : report_month_load(report, tally_day(now_realtime_ns()));
}

void report_stop(struct report *report)
{
	if (!report->store || !report->work.run)
		return;
	fair_withdraw(&report->work);
	for (struct session *s = report->sessions->first; s; s = s->next)
		report_count(report, s);
	while (report->first && write_part(report) == 0)
		;
	report_owners_free(report);
}
