/* Counts the time of living sessions, and the events of sessions, jobs and requests. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/gpu/pool.h"
#include "daemon/lease/leases.h"
#include "daemon/report/report.h"
#include "daemon/report/report_owner.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"

/* How far a session is counted. */
struct report_mark {
	uint64_t until_ns;              /* CLOCK_MONOTONIC */
	uint64_t busy_ns;               /* its leases up to then */
	uint64_t watched_ns, worked_ns; /* likewise what looks at it told (daemon/idle) */
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
	uint64_t left = time.ns, measured = time.measured_ns, busy = time.used_ns;

	for (int days = 0; left && days <= TALLY_DAYS; days++) {
		struct tally_time part = time;

		part.ns = tally_day_take(&end, left, &key->day);
		part.measured_ns = MIN(measured, part.ns);
		measured -= part.measured_ns;
		part.used_ns = MIN(busy, part.measured_ns);
		busy -= part.used_ns;
		left -= part.ns;
		key->tally = (struct tally){0};
		tally_add_time(&key->tally, &part);
		report_add(report, key);
	}
}

/* The part of a GPU that a slice is, in millionths. */
static uint32_t part_of(const struct session *s, uint32_t i)
{
	int gpu = s->pool_gpu[i];

	return tally_part(s->record.gpu[i].bytes,
			  gpu < 0 ? 0 : s->sessions->pool->gpu[gpu].info.total,
			  is_sliced(s, i) ? s->record.compute : 0);
}

uint64_t report_not_counted(const struct session *s)
{
	uint64_t now = now_monotonic_ns(), sum = 0;
	uint64_t passed = s->counted && now > s->counted->until_ns ? now - s->counted->until_ns : 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		sum += (uint64_t)((double)passed * part_of(s, i) / SHARE_ONE);
	return sum;
}

/* Figures of leases begin anew if a ledger does. */
static uint64_t rise(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

static void looks_note(struct report_mark *mark, const struct session *s)
{
	mark->watched_ns = s->idle.watched_ns;
	mark->worked_ns = s->idle.worked_ns;
}

/* Where a session was counted before, it is counted from there up to now. */
static void session_count(struct report *report, const struct session *s)
{
	struct report_mark *mark = s->counted;
	uint64_t now = now_monotonic_ns(), busy;
	uint64_t passed = now > mark->until_ns ? now - mark->until_ns : 0;
	bool known = leases_of(s, &busy);
	/* Where time is sliced, leases tell, and elsewhere the looks at the session. */
	uint64_t turns = rise(busy, mark->busy_ns),
		 worked = rise(s->idle.worked_ns, mark->worked_ns);
	uint64_t watched = rise(s->idle.watched_ns, mark->watched_ns);

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		struct store_tally key = key_of(s, i, mark->name);
		bool sliced = is_sliced(s, i);

		slice_add(report, &key,
			  (struct tally_time){
				  .ns = passed,
				  .part_ppm = part_of(s, i),
				  .bytes = s->record.gpu[i].bytes,
				  .peak_bytes = session_peak(s, i),
				  .measured_ns = !sliced ? watched
						 : known ? passed
							 : 0,
				  .used_ns = sliced ? turns : worked,
			  });
	}
	mark->until_ns = now;
	mark->busy_ns = busy;
	looks_note(mark, s);
}

static struct report_mark *mark_new(struct session *s, uint64_t until, const char *name)
{
	struct report_mark *mark = calloc(1, sizeof(*mark));

	if (!mark)
		return NULL;
	mark->until_ns = until;
	(void)leases_of(s, &mark->busy_ns);
	looks_note(mark, s);
	snprintf(mark->name, sizeof(mark->name), "%s", name);
	s->counted = mark;
	return mark;
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
	report_renew(report);
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
	if (report->round.next == s)
		report->round.next = s->next;
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

/* ---- living sessions --------------------------------------------------------------------- */

/* A session of the daemon before: it was counted up to the moment in the database. */
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

void report_named(struct report *report, struct session *s, const char *name)
{
	if (!s->counted)
		session_resume(report, s);
	if (s->counted)
		snprintf(s->counted->name, sizeof(s->counted->name), "%s", name);
}
