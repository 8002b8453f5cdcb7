/* The jobs that have not ended. Each job is found by its ID, and stands among the jobs of its user
 * and of its array in the order in which they came. It is in one list at a time: pending, ready,
 * waiting for other jobs or a time, running, or ending. Ready jobs that are alike share a bucket,
 * because where the first of them finds no room the others find none either. So a decision looks at
 * kinds of jobs, and not at each job of a long array.
 *
 * Users choose the names of queues and the sizes of requests, so tables of them are hashed with a
 * random seed. A queue's name, an array, a bucket and a request live as long as some job has them.
 * A job leaves a list by job_move() or job_free() alone, and both see to that. The loop's thread
 * alone uses the table. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/fnv.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "daemon/queue/job_events.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"

/* The most jobs of an array that are looked at for one in the list: some may run, or have ended. */
#define NEIGHBOURS 64u
/* For a job whose reason is a queue's. */
#define LOOKS_MAX 1000u

/* ---- texts ------------------------------------------------------------------------------- */

void job_figures_clear(struct job_record *record)
{
	record->session[0] = '\0';
	record->started = 0;
	record->peak_bytes = record->gpu_ns = record->rss_bytes = 0;
}

void job_text_set(const char **field, const char *text)
{
	char *copy = *text ? strdup(text) : NULL;

	if (*field && **field)
		free((char *)*field);
	*field = copy ? copy : "";
}

/* ---- queues' names ----------------------------------------------------------------------- */

/* By the upper bits, to which all bits of the seed come. */
static unsigned table_place(uint64_t hash)
{
	return (unsigned)((hash >> 32) % JOBS_TABLE_BUCKETS);
}

static unsigned name_bucket(const struct queues *q, const char *name)
{
	return table_place(fnv_add(q->jobs->seed, name, strlen(name)));
}

struct queue_name *queue_name_find(const struct queues *q, const char *name)
{
	struct queue_name *n = q->jobs->names[name_bucket(q, name)];

	while (n && strcmp(n->text, name) != 0)
		n = n->next;
	return n;
}

const char *queue_name_intern(struct queues *q, const char *name)
{
	struct queue_name *n = queue_name_find(q, name),
			  **at = &q->jobs->names[name_bucket(q, name)];

	if (n)
		return n->text;
	n = calloc(1, sizeof(*n));
	if (!n)
		return NULL;
	snprintf(n->text, sizeof(n->text), "%s", name);
	n->next = *at;
	*at = n;
	return n->text;
}

static struct queue_name *name_of(const char *interned)
{
	return (struct queue_name *)(interned - offsetof(struct queue_name, text));
}

static void name_drop(struct queues *q, struct queue_name *name)
{
	struct queue_name **at = &q->jobs->names[name_bucket(q, name->text)];

	if (name->waiting || name->running)
		return;
	while (*at != name)
		at = &(*at)->next;
	*at = name->next;
	free(name);
}

static uint32_t *name_count(const struct job *job)
{
	struct queue_name *name = name_of(job->record.queue);
	bool waits = job->record.state == JOB_QUEUED || job->record.state == JOB_HELD;

	return waits ? &name->waiting : &name->running;
}

void job_queue_set(struct job *job, const char *queue)
{
	struct queue_name *before = name_of(job->record.queue);

	--*name_count(job);
	job->record.queue = queue;
	++*name_count(job);
	name_drop(job->queues, before);
}

void job_state_put(struct job *job, enum job_state state)
{
	--*name_count(job);
	job->record.state = state;
	++*name_count(job);
}

/* ---- lists ------------------------------------------------------------------------------- */

static void list_remove(struct job *job)
{
	struct job_list *list = job->list;

	if (!list)
		return;
	*(job->previous ? &job->previous->next : &list->first) = job->next;
	*(job->next ? &job->next->previous : &list->last) = job->previous;
	list->count--;
	job->list = NULL;
	job->next = job->previous = NULL;
}

/* One of the jobs of its array around it that is in the list: where its place is looked for. */
static struct job *neighbour(const struct job_list *list, const struct job *job)
{
	struct job *next = job->next_of, *previous = job->previous_of;

	for (unsigned i = 0; i < NEIGHBOURS && previous && previous->list != list; i++)
		previous = previous->previous_of;
	if (previous && previous->list == list)
		return previous;
	for (unsigned i = 0; i < NEIGHBOURS && next && next->list != list; i++)
		next = next->next_of;
	return next && next->list == list ? next : list->last;
}

/* By coming: most come last, and one that is tried again among its array's. */
static struct job *place_find(const struct job_list *list, const struct job *job)
{
	struct job *before = neighbour(list, job);
	int64_t rank = job_id_rank(job->record.id);

	while (before && job_id_rank(before->record.id) > rank)
		before = before->previous;
	while (before && before->next && job_id_rank(before->next->record.id) < rank)
		before = before->next;
	return before;
}

static void list_insert(struct job_list *list, struct job *job)
{
	struct job *before = list->as_they_come ? list->last : place_find(list, job);

	job->previous = before;
	job->next = before ? before->next : list->first;
	*(before ? &before->next : &list->first) = job;
	*(job->next ? &job->next->previous : &list->last) = job;
	list->count++;
	job->list = list;
}

static bool same_request(const struct job_spec *a, const struct job_spec *b)
{
	const struct place_request *x = &a->request, *y = &b->request;

	return a->sized == b->sized && a->limit_ns == b->limit_ns &&
	       (!a->sized || (x->kind == y->kind && x->bytes == y->bytes && x->share == y->share &&
			      x->compute == y->compute && x->count == y->count));
}

/* A user may have more kinds of jobs than the loop has time to go through. */
static unsigned kind_place(const struct queue_use *user, const char *queue, int priority,
			   const struct job_spec *spec)
{
	const struct place_request *request = &spec->request;
	uint64_t hash = fnv_add(user->queues->jobs->seed, &user->uid, sizeof(user->uid));

	hash = fnv_add(hash, queue, strlen(queue));
	hash = fnv_add(hash, &priority, sizeof(priority));
	hash = fnv_add(hash, &spec->limit_ns, sizeof(spec->limit_ns));
	if (spec->sized) {
		hash = fnv_add(hash, &request->bytes, sizeof(request->bytes));
		hash = fnv_add(hash, &request->share, sizeof(request->share));
		hash = fnv_add(hash, &request->compute, sizeof(request->compute));
		hash = fnv_add(hash, &request->count, sizeof(request->count));
	}
	return table_place(hash);
}

static struct queue_bucket **place_of(struct queues *q, const struct queue_bucket *bucket)
{
	return &q->jobs->bucket_of[kind_place(bucket->user, bucket->queue, bucket->priority,
					      bucket->like)];
}

static void bucket_drop(struct queues *q, struct queue_bucket *bucket)
{
	struct queue_use *user = bucket->user;
	struct queue_bucket **at = place_of(q, bucket);

	while (*at != bucket)
		at = &(*at)->next_of_table;
	*at = bucket->next_of_table;

	*(bucket->previous ? &bucket->previous->next : &user->buckets) = bucket->next;
	*(bucket->next ? &bucket->next->previous : &user->last_bucket) = bucket->previous;
	q->jobs->buckets--;
	job_spec_unref((struct job_spec *)bucket->like);
	free(bucket);
}

/* Ends the waits of a request whose last waiting job has left the list. */
static void waits_end(struct queues *q, struct job_spec *spec)
{
	for (unsigned i = 0; i < spec->after_count && !spec->after_list.count; i++)
		queue_wait_end(&spec->after[i].wait);
	if (!spec->begin_list.count)
		queue_time_end(&q->jobs->waits, &spec->begin_wait);
	if (!spec->after_list.count && !spec->begin_list.count)
		queue_wait_end(&spec->group);
}

void job_move(struct job *job, struct job_list *list)
{
	struct queue_bucket *bucket = job->list ? job->list->bucket : NULL;

	if (list && job->list == list)
		return;
	list_remove(job);
	if (list)
		list_insert(list, job);
	if (bucket && !bucket->list.count)
		bucket_drop(job->queues, bucket);
	waits_end(job->queues, job->spec);
}

static bool belongs(const struct queue_bucket *bucket, const struct job *job,
		    const struct job_array *array)
{
	return bucket->user == job->user && bucket->queue == job->record.queue &&
	       bucket->priority == job->record.priority && bucket->array == array &&
	       same_request(bucket->like, job->spec);
}

struct job_list *job_ready_list(struct job *job)
{
	struct queues *q = job->queues;
	struct job_array *array = job->array && job->array->most ? job->array : NULL;
	struct queue_use *user = job->user;
	struct queue_bucket **at = &q->jobs->bucket_of[kind_place(user, job->record.queue,
								  job->record.priority, job->spec)],
			    *bucket = *at;

	while (bucket && !belongs(bucket, job, array))
		bucket = bucket->next_of_table;
	if (bucket)
		return &bucket->list;
	bucket = calloc(1, sizeof(*bucket));
	if (!bucket)
		return NULL;
	bucket->queue = job->record.queue;
	bucket->user = user;
	bucket->priority = job->record.priority;
	bucket->like = job->spec;
	job->spec->uses++;
	bucket->array = array;
	bucket->list.bucket = bucket;
	bucket->next_of_table = *at;
	*at = bucket;
	bucket->previous = user->last_bucket;
	*(user->last_bucket ? &user->last_bucket->next : &user->buckets) = bucket;
	user->last_bucket = bucket;
	q->jobs->buckets++;
	return &bucket->list;
}

/* ---- arrays ------------------------------------------------------------------------------ */

static struct job_array *array_get(struct queues *q, const struct job_record *record,
				   const struct job_spec *spec)
{
	struct job_array *array = record->array ? job_array_find(q, record->array) : NULL;
	struct job_array **at = &q->jobs->arrays[(uint64_t)record->array % JOBS_TABLE_BUCKETS];

	if (array || !record->array)
		return array;
	array = calloc(1, sizeof(*array));
	if (!array)
		return NULL;
	array->id = record->array;
	array->most = spec->array_most;
	array->next = *at;
	*at = array;
	return array;
}

static void array_enter(struct job_array *array, struct job *job)
{
	job->array = array;
	job->previous_of = array->last;
	*(array->last ? &array->last->next_of : &array->jobs) = job;
	array->last = job;
	array->living++;
}

static void array_leave(struct queues *q, struct job *job)
{
	struct job_array *array = job->array, **at;

	if (!array)
		return;
	*(job->previous_of ? &job->previous_of->next_of : &array->jobs) = job->next_of;
	*(job->next_of ? &job->next_of->previous_of : &array->last) = job->previous_of;
	if (--array->living)
		return;
	queue_target_ended(&q->jobs->waits, &array->ended);
	at = &q->jobs->arrays[(uint64_t)array->id % JOBS_TABLE_BUCKETS];
	while (*at != array)
		at = &(*at)->next;
	*at = array->next;
	free(array);
}

struct job_array *job_array_find(const struct queues *q, int64_t id)
{
	struct job_array *array = q->jobs->arrays[(uint64_t)id % JOBS_TABLE_BUCKETS];

	while (array && array->id != id)
		array = array->next;
	return array;
}

/* ---- users ------------------------------------------------------------------------------- */

static void user_enter(struct queues *q, struct queue_use *user, struct job *job)
{
	job->user = user;
	job->came = ++q->jobs->came;
	job->previous_of_user = user->last_job;
	*(user->last_job ? &user->last_job->next_of_user : &user->jobs) = job;
	user->last_job = job;
	user->job_count++;
}

static void user_leave(struct job *job)
{
	struct queue_use *user = job->user;

	*(job->previous_of_user ? &job->previous_of_user->next_of_user : &user->jobs) =
		job->next_of_user;
	*(job->next_of_user ? &job->next_of_user->previous_of_user : &user->last_job) =
		job->previous_of_user;
	user->job_count--;
}

/* ---- by ID ------------------------------------------------------------------------------- */

struct job *job_find(const struct queues *q, int64_t id)
{
	struct job *job = q->jobs->by_id[(uint64_t)id % JOBS_ID_BUCKETS];

	while (job && job->record.id != id)
		job = job->next_id;
	return job;
}

struct job *job_new(struct queues *q, const struct job_record *record, struct job_spec *spec)
{
	struct queue_use *user = queue_use_get(q, record->uid, true);
	struct job *job = user ? calloc(1, sizeof(*job)) : NULL;
	const char *queue = job ? queue_name_intern(q, record->queue) : NULL;

	if (!queue) {
		free(job);
		return NULL;
	}
	job->queues = q;
	job->record = *record;
	job->record.queue = queue;
	++*name_count(job);
	user_enter(q, user, job);
	job->record.place = job->record.ending = job->record.reason = "";
	job_text_set(&job->record.place, record->place);
	job_text_set(&job->record.ending, record->ending);
	job_text_set(&job->record.reason, record->reason);
	job->record.boot = strcmp(record->boot, q->boot) == 0 ? q->boot : "";
	job->record.name = spec->name;
	job->spec = spec;
	spec->uses++;
	struct job_array *array = array_get(q, record, spec);
	if (array)
		array_enter(array, job);
	struct job **at = &q->jobs->by_id[(uint64_t)record->id % JOBS_ID_BUCKETS];
	job->next_id = *at;
	*at = job;
	return job;
}

void job_start_forget(struct job *job)
{
	if (job->starting)
		job->user->owner->starting--;
	job->starting = false;
}

void job_free(struct job *job)
{
	struct queues *q = job->queues;
	struct job **at = &q->jobs->by_id[(uint64_t)job->record.id % JOBS_ID_BUCKETS];

	while (*at != job)
		at = &(*at)->next_id;
	*at = job->next_id;
	launcher_forget(q->host.launcher, job->asked);
	job_start_forget(job);
	job_move(job, NULL);
	queue_target_ended(&q->jobs->waits, &job->ended);
	process_watch_stop(job->watch);
	array_leave(q, job);
	user_leave(job);
	--*name_count(job);
	name_drop(q, name_of(job->record.queue));
	job_text_set(&job->record.place, "");
	job_text_set(&job->record.ending, "");
	job_text_set(&job->record.reason, "");
	if (job->spec->budget)
		budget_leave(job->spec->budget, job->spec->owner);
	job_spec_unref(job->spec);
	free(job->grants);
	free(job);
}

uint64_t job_position(const struct job *job)
{
	const struct job_record *record = &job->record;

	return record->array ? (uint64_t)(record->id % JOB_ARRAY_PLACES) : 0;
}

/* The jobs of an array have IDs that follow each other, in the order of its indexes, which most
 * often follow each other, too. With gaps the database says which one it is. */
static struct job *element_find(const struct queues *q, const struct job_array *array,
				int32_t index)
{
	const struct job *first = array->jobs;
	struct job *job = job_find(q, first->record.id + index - first->record.index);
	int64_t id;

	if (job && job->array == array && job->record.index == index)
		return job;
	if (job_store_element(q->store, array->id, index, &id) < 0)
		return NULL;
	job = job_find(q, id);
	return job && job->array == array ? job : NULL;
}

struct job *job_meant(const struct queues *q, int64_t id, int32_t index)
{
	const struct job_array *array = job_array_find(q, id);
	struct job *job;

	if (array)
		return index < 0 ? array->jobs : element_find(q, array, index);
	job = job_find(q, id);
	return job && index < 0 && !job->record.array ? job : NULL;
}

const struct job *jobs_from(const struct queue_use *user, int64_t id)
{
	const struct job *job = job_find(user->queues, id);

	return job && job->user == user ? job : user->jobs;
}

/* The first of its jobs that wait for others or for a time. */
static const struct job *group_first(const struct queue_link *link)
{
	const struct job_spec *spec = CONTAINER_OF(link, struct job_spec, group.link);

	return spec->after_list.first ? spec->after_list.first : spec->begin_list.first;
}

const struct job *queue_first_waiting(const struct queues *q, const struct queue_name *name)
{
	const struct queue_link *groups = &q->jobs->groups.waits;
	unsigned looks = 0;

	for (const struct queue_use *user = q->jobs->uses; user; user = user->next)
		for (const struct queue_bucket *b = user->buckets; b; b = b->next)
			if (b->queue == name->text)
				return b->list.first;
			else if (++looks == LOOKS_MAX)
				return NULL;
	for (const struct job *job = q->jobs->pending.first; job && looks < LOOKS_MAX;
	     job = job->next, looks++)
		if (job->record.queue == name->text)
			return job;
	for (const struct queue_link *at = groups->next; at && at != groups && looks < LOOKS_MAX;
	     at = at->next, looks++)
		if (group_first(at)->record.queue == name->text)
			return group_first(at);
	return NULL;
}

const struct job *job_of_session(const struct queues *q, const char *session)
{
	const struct job *job = q ? q->jobs->running.first : NULL;

	while (job && strcmp(job->record.session, session) != 0)
		job = job->next;
	return job;
}

/* ---- states and changes ------------------------------------------------------------------ */

void job_state_set(struct job *job, enum job_state state)
{
	struct queues *q = job->queues;

	if (job->record.state != state && !job_state_may(job->record.state, state))
		log_event(LOG_ERROR, "job.state id=%lld from=%s to=%s", (long long)job->record.id,
			  job_state_text(job->record.state), job_state_text(state));
	job_state_put(job, state);
	queue_event_add(q, &job->record, state);
}

int job_record_save(struct job *job)
{
	struct queues *q = job->queues;
	int rc = job_store_begin(q->store);

	if (rc < 0)
		return rc;
	rc = job_store_put(q->store, &job->record);
	if (rc == 0)
		return job_store_commit(q->store);
	job_store_rollback(q->store);
	return rc;
}

/* ---- from disk --------------------------------------------------------------------------- */

/* Budgets of jobs that have not ended are in units of this many bytes, as one job takes; a request
 * takes more, and its text room on the disk, too. */
#define QUEUE_UNIT 400u

unsigned queue_request_units(const char *text)
{
	size_t bytes = sizeof(struct job_spec) + sizeof(struct warrant) + strlen(text);

	return (unsigned)(bytes / QUEUE_UNIT + 1);
}

struct loading {
	struct queues *q;
	struct job_spec *last; /* jobs of an array come one after the other */
};

static struct job_spec *spec_load(struct queues *q, int64_t id, uid_t uid)
{
	struct job_spec *spec = calloc(1, sizeof(*spec));
	cleanup_free char *text = NULL;
	struct warrant *warrant = NULL;

	if (!spec || job_store_spec_get(q->store, id, &text, &warrant) < 0 ||
	    job_spec_load(text, spec) < 0) {
		free(warrant);
		free(spec);
		return NULL;
	}
	spec->warrant = warrant;
	spec->id = id;
	spec->budget = &q->jobs->budget;
	spec->units = queue_request_units(text);
	spec->owner = budget_add_many(&q->jobs->budget, uid, spec->units);
	return spec;
}

static int load_one(void *arg, const struct job_record *record)
{
	struct loading *loading = arg;

	if (!loading->last || loading->last->id != record->spec) {
		job_spec_unref(loading->last);
		loading->last = spec_load(loading->q, record->spec, record->uid);
		if (!loading->last) {
			log_event(LOG_ERROR, "job.unreadable id=%lld", (long long)record->id);
			return 0;
		}
		loading->last->uses = 1;
	}
	struct job *job = job_new(loading->q, record, loading->last);
	if (!job)
		return -ENOMEM;
	(void)budget_add(&loading->q->jobs->budget, record->uid);
	list_insert(&loading->q->jobs->pending, job);
	return 0;
}

int job_table_load(struct queues *q)
{
	struct loading loading = {.q = q};
	int rc = job_store_each_living(q->store, load_one, &loading);

	job_spec_unref(loading.last);
	return rc;
}

int job_table_new(uint32_t living, struct job_table **ret)
{
	struct job_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	(void)!getrandom(&table->seed, sizeof(table->seed), GRND_NONBLOCK);
	budget_begin_any(&table->budget, living);
	table->pending.as_they_come = true;
	queue_waits_begin(&table->waits);
	*ret = table;
	return 0;
}

void job_table_free(struct job_table *table)
{
	if (!table)
		return;
	while (table->uses) {
		struct queue_use *use = table->uses;

		table->uses = use->next;
		free(use);
	}
	queue_waits_free(&table->waits);
	budget_free(&table->budget);
	free(table);
}
