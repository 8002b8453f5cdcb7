/* Jobs that wait for others to end, or for a time. The jobs of one request wait as one, so an array
 * of 100,000 jobs has one entry at the job that it comes after. job_settle() puts a job where it
 * belongs: among the ready ones, among those that wait, or, where the event cannot come any more,
 * it reports that the job never starts.
 *
 * When a job or an array ends, the requests that wait for it are told, and are looked at in parts.
 * How an array ended is counted in the database, which takes long, so the last counts are kept. A
 * change that would make a job come after itself is found by job_comes_round(). */

#include <stdio.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/host/fair.h"
#include "daemon/queue/job_ender.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_waits.h"
#include "daemon/queue/queue_context.h"

/* ---- the order of jobs ------------------------------------------------------------------- */

enum after_answer { AFTER_COMES, AFTER_CAME, AFTER_NEVER };

/* To count the rows of a long array takes tens of milliseconds: it is done once. */
static int counts_get(struct queues *q, const struct job_after *after, struct job_counts *ret)
{
	for (size_t i = 0; i < JOBS_KNOWN && after->index < 0; i++)
		if (q->jobs->known[i].array == after->job) {
			*ret = q->jobs->known[i].counts;
			return 0;
		}
	int rc = job_store_count(q->store, after->job, after->index, ret);
	/* Not while it is written. */
	if (rc == 0 && ret->all && ret->ended == ret->all && after->index < 0)
		q->jobs->known[q->jobs->known_next++ % JOBS_KNOWN] =
			(struct job_known){after->job, *ret};
	return rc;
}

static enum after_answer after_look(struct queues *q, const struct job_after *after)
{
	struct job_counts count;

	if (job_meant(q, after->job, after->index))
		return AFTER_COMES;
	if (counts_get(q, after, &count) < 0 || !count.all)
		return AFTER_NEVER;
	switch (after->kind) {
	case JOB_AFTER_OK:
		return count.done == count.all ? AFTER_CAME : AFTER_NEVER;
	case JOB_AFTER_NOTOK:
		return count.done < count.all ? AFTER_CAME : AFTER_NEVER;
	case JOB_AFTER_ANY:
		break;
	}
	return AFTER_CAME;
}

static enum after_answer after_all(struct queues *q, const struct job_spec *spec,
				   const struct job_after **ret)
{
	enum after_answer answer = AFTER_CAME;

	for (unsigned i = 0; i < spec->after_count; i++) {
		enum after_answer one = after_look(q, &spec->after[i]);

		if (one == AFTER_CAME)
			continue;
		answer = one;
		*ret = &spec->after[i];
		if (one == AFTER_NEVER)
			break;
	}
	return answer;
}

static void never_comes(struct job *job, const struct job_after *after)
{
	static const char *const kinds[] = {"did not succeed", "is not known", "did not fail"};
	char reason[JOB_REASON_SIZE], id[JOB_ID_TEXT];

	snprintf(reason, sizeof(reason), "job %s, which it comes after, %s",
		 job_after_text(after, id), kinds[after->kind]);
	job->queues->report->never(job, reason);
}

/* ---- jobs that would come after themselves ------------------------------------------------ */

/* Jobs that one call looks at. */
#define ROUND_LOOKS 10000u

struct round_look {
	struct queues *q;
	struct job_spec *next; /* linked by `look_next` */
	unsigned looks;
};

static bool means(const struct job_after *after, const struct job_record *record)
{
	return after->job == (record->array ? record->array : record->id) &&
	       (after->index < 0 || after->index == record->index);
}

static void round_look_at(struct round_look *look, const struct job *job)
{
	look->looks++;
	if (!job || job->spec->looked == look->q->jobs->looks)
		return;
	job->spec->looked = look->q->jobs->looks;
	job->spec->look_next = look->next;
	look->next = job->spec;
}

/* Those of an array have one request, but for those that were changed by themselves. */
static void round_look_after(struct round_look *look, const struct job_after *after)
{
	const struct job_array *array =
		after->index < 0 ? job_array_find(look->q, after->job) : NULL;

	if (!array) {
		round_look_at(look, job_meant(look->q, after->job, after->index));
		return;
	}
	for (const struct job *job = array->jobs; job && look->looks < ROUND_LOOKS;
	     job = job->next_of) {
		round_look_at(look, job);
		if (job->spec->uses >= array->living)
			break;
	}
}

static bool comes_to(struct round_look *look, const struct job_after *after,
		     const struct job_record *record)
{
	bool found = means(after, record);

	round_look_after(look, after);
	while (look->next && !found && look->looks < ROUND_LOOKS) {
		const struct job_spec *spec = look->next;

		look->next = spec->look_next;
		for (unsigned i = 0; i < spec->after_count && !found; i++) {
			found = means(&spec->after[i], record);
			round_look_after(look, &spec->after[i]);
		}
	}
	return found;
}

const struct job_after *job_comes_round(const struct job *job, const struct job_spec *spec,
					bool *ret_known)
{
	struct round_look look = {.q = job->queues};

	job->queues->jobs->looks++;
	for (unsigned i = 0; i < spec->after_count; i++) {
		*ret_known = comes_to(&look, &spec->after[i], &job->record);
		if (*ret_known || look.looks >= ROUND_LOOKS)
			return &spec->after[i];
	}
	return NULL;
}

/* ---- where jobs wait ----------------------------------------------------------------------- */

static struct queue_target *target_of(struct queues *q, const struct job_after *after)
{
	struct job_array *array = after->index < 0 ? job_array_find(q, after->job) : NULL;
	struct job *job = job_meant(q, after->job, after->index);

	return array ? &array->ended : job ? &job->ended : NULL;
}

static void group_enter(struct queues *q, struct job_spec *spec)
{
	if (!spec->group.link.next)
		queue_wait_for(&spec->group, &q->jobs->groups);
}

static struct job_list *after_list(struct queues *q, struct job_spec *spec)
{
	group_enter(q, spec);
	for (unsigned i = 0; i < spec->after_count && !spec->after_list.count; i++) {
		struct queue_target *target = target_of(q, &spec->after[i]);

		spec->after[i].spec = spec;
		if (target)
			queue_wait_for(&spec->after[i].wait, target);
	}
	return &spec->after_list;
}

static struct job_list *begin_list(struct queues *q, struct job_spec *spec)
{
	if (!spec->begin_wait.place &&
	    queue_time_wait(&q->jobs->waits, &spec->begin_wait, spec->begin) < 0)
		return NULL;
	group_enter(q, spec);
	return &spec->begin_list;
}

static struct job_list *list_for(struct job *job, enum after_answer answer)
{
	struct queues *q = job->queues;

	if (answer == AFTER_COMES)
		return after_list(q, job->spec);
	if (job->record.state == JOB_HELD)
		return &q->jobs->pending;
	if (job->spec->begin > now_realtime_ns())
		return begin_list(q, job->spec);
	return job_ready_list(job);
}

static void settle_as(struct job *job, enum after_answer answer, const struct job_after *after)
{
	struct queues *q = job->queues;

	if (answer == AFTER_NEVER) {
		never_comes(job, after);
		return;
	}
	q->dirty = true;
	job->wait = answer == AFTER_COMES ? JOB_WAITS_AFTER : JOB_WAITS_BEGIN;
	struct job_list *list = list_for(job, answer);
	q->jobs->unplaced |= !list;
	job_move(job, list ? list : &q->jobs->pending);
}

void job_settle(struct job *job)
{
	const struct job_after *after = NULL;
	/* An event that others of the request wait for is not looked for again. */
	enum after_answer answer = job->spec->after_list.count
					   ? AFTER_COMES
					   : after_all(job->queues, job->spec, &after);

	settle_as(job, answer, after);
}

/* ---- the end of a wait --------------------------------------------------------------------- */

static bool told_look(struct queues *q, uint64_t end)
{
	struct queue_after *wait = queue_waits_told(&q->jobs->waits);
	const struct job_after *after = NULL;

	if (!wait)
		return false;
	struct job_spec *spec = CONTAINER_OF(wait, struct job_after, wait)->spec;
	enum after_answer answer = after_all(q, spec, &after);
	if (answer == AFTER_COMES) {
		queue_wait_end(wait);
		return true;
	}
	spec->uses++; /* the last of its jobs may end here */
	do
		settle_as(spec->after_list.first, answer, after);
	while (spec->after_list.first && now_monotonic_ns() < end);
	job_spec_unref(spec);
	return true;
}

static bool due_look(struct queues *q, int64_t now, uint64_t end)
{
	struct queue_time *time = queue_waits_due(&q->jobs->waits, now);

	if (!time)
		return false;
	struct job_spec *spec = CONTAINER_OF(time, struct job_spec, begin_wait);
	spec->uses++;
	/* If the clock is set back meanwhile, it stays in the list. */
	do
		job_settle(spec->begin_list.first);
	while (spec->begin_list.first && now_monotonic_ns() < end);
	job_spec_unref(spec);
	return true;
}

bool queue_waits_owner(const struct queues *q, uid_t *ret)
{
	const struct queue_after *wait = queue_waits_told(&q->jobs->waits);
	const struct queue_time *time =
		wait ? NULL : queue_waits_due(&q->jobs->waits, now_realtime_ns());

	if (wait)
		*ret = CONTAINER_OF(wait, struct job_after, wait)->spec->owner;
	else if (time)
		*ret = CONTAINER_OF(time, struct job_spec, begin_wait)->owner;
	return wait || time;
}

void queue_waits_part(struct queues *q)
{
	uint64_t end = now_monotonic_ns() + FAIR_STEP_NS;
	int64_t now = now_realtime_ns();

	while (now_monotonic_ns() < end && (told_look(q, end) || due_look(q, now, end)))
		;
}

void queue_waits_retry(struct queues *q)
{
	if (!q->jobs->unplaced || job_store_holds(q->store))
		return;
	q->jobs->unplaced = false;
	for (struct job *job = q->jobs->pending.first, *next; job; job = next) {
		next = job->next;
		if (job->record.state == JOB_QUEUED && job->wait == JOB_WAITS_BEGIN)
			job_settle(job);
	}
}
