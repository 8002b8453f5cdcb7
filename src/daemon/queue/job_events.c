/* Changes of jobs' states, the ends among them, and the requests that wait for changes.
 *
 * All changes are in memory: a ring has the last ones, and a restart begins a new ring. The ends
 * are on the disk as well. Each end gets the next number, which is written with the job in the same
 * step. A client that keeps a number misses no end, whatever restarts. For this, no number may be
 * told before it is on the disk. Else a power cut could take the number back, the daemon would give
 * it to another end, and the client would not ask for that end. So each second the ends so far are
 * synced, and requests see only ends that are. Loop thread only. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/queue/job_events.h"
#include "daemon/queue/queue_context.h"

/* The most events of one answer. */
#define EVENTS_PART 256u
/* The most ends that one request reads from the disk, most of which may be other users'. */
#define ENDS_PART 64u

uint64_t queue_events_last(const struct queues *q)
{
	return q->events->last;
}

static json_t *event_json(const struct queue_event *event)
{
	struct job_record record = {.id = event->id, .array = event->array, .index = event->index};
	char id[JOB_ID_TEXT];

	return json_pack("{s:I, s:s, s:s, s:s, s:I, s:i}", "number", (json_int_t)event->number,
			 "id", job_id_text(&record, id), "queue", event->queue, "state",
			 job_state_text(event->state), "at_ns", (json_int_t)event->at, "attempt",
			 (int)event->attempt);
}

json_t *queue_events(const struct queues *q, uint64_t from, const struct peer *viewer,
		     uint64_t *ret_next)
{
	json_t *list = json_array();
	uint64_t first = q->events->last > QUEUE_EVENTS ? q->events->last - QUEUE_EVENTS : 0, i;

	for (i = MAX(first, from) + 1; i <= q->events->last && json_array_size(list) < EVENTS_PART;
	     i++) {
		const struct queue_event *e = &q->events->event[i % QUEUE_EVENTS];

		if (peer_permitted(viewer, e->uid))
			json_array_append_new(list, event_json(e));
	}
	*ret_next = MIN(i - 1, q->events->last);
	return list;
}

/* ---- ends ---------------------------------------------------------------------------------- */

int queue_end_load(struct queues *q)
{
	struct queue_end_numbers *numbers = &q->events->ends;
	int rc = job_store_id(q->store, numbers->database);

	if (rc == 0)
		rc = job_store_change_last(q->store, &numbers->last);
	/* The store has synced what the last daemon committed. */
	numbers->durable = numbers->last;
	return rc;
}

int64_t queue_end_number_take(struct queues *q)
{
	return ++q->events->ends.last;
}

static void on_durable(struct disk_waiter *waiter, int rc)
{
	struct job_events *events = CONTAINER_OF(waiter, struct job_events, ends.waiter);

	if (rc == 0) {
		events->ends.durable = events->ends.syncing;
		events->told = true;
	}
	events->ends.syncing = 0;
}

void queue_end_sync(struct queues *q)
{
	struct queue_end_numbers *numbers = &q->events->ends;

	if (numbers->syncing || numbers->durable == numbers->last)
		return;
	numbers->syncing = numbers->last;
	numbers->waiter.cb = on_durable;
	job_store_await(q->store, &numbers->waiter);
}

uint64_t queue_end_next(const struct queues *q)
{
	return (uint64_t)q->events->ends.durable + 1;
}

bool queue_end_is_awaited(const struct queues *q, uint64_t number)
{
	return number >= queue_end_next(q) && number <= (uint64_t)q->events->ends.last + 1;
}

struct end_reading {
	const struct peer *viewer;
	json_t *list;
	int64_t durable;
	int64_t seen; /* the last number that was looked at */
	uint32_t count;
};

static int end_read_one(void *arg, const struct job_record *record)
{
	struct end_reading *reading = arg;
	struct queue_event event = {
		.number = (uint64_t)record->change,
		.id = record->id,
		.array = record->array,
		.index = record->index,
		.uid = record->uid,
		.state = record->state,
		.at = record->ended,
		.attempt = record->attempt,
	};

	if (record->change > reading->durable)
		return 0;
	reading->count++;
	reading->seen = record->change;
	snprintf(event.queue, sizeof(event.queue), "%s", record->queue);
	if (peer_permitted(reading->viewer, record->uid))
		json_array_append_new(reading->list, event_json(&event));
	return 0;
}

int queue_end_read(const struct queues *q, uint64_t from, const struct peer *viewer,
		   struct queue_end_part *ret)
{
	const struct queue_end_numbers *numbers = &q->events->ends;
	struct end_reading reading = {
		.viewer = viewer, .list = json_array(), .durable = numbers->durable};
	uint64_t first = MIN(MAX(from, 1), (uint64_t)numbers->last + 1);
	int rc = job_store_each_changed(q->store, (int64_t)first - 1, ENDS_PART, end_read_one,
					&reading);

	if (rc < 0) {
		json_decref(reading.list);
		return rc;
	}
	/* Numbers of jobs that were forgotten are passed over. */
	*ret = (struct queue_end_part){
		.ends = reading.list,
		.database = numbers->database,
		.next = reading.count == ENDS_PART ? (uint64_t)reading.seen + 1
						   : MAX(first, queue_end_next(q)),
	};
	return 0;
}

/* ---- waiting ------------------------------------------------------------------------------- */

int queue_listen(struct queues *q, listener_cb cb, void *arg)
{
	return listeners_add(&q->events->listeners, cb, arg);
}

void queue_unlisten(struct queues *q, const void *arg)
{
	listeners_remove(&q->events->listeners, arg);
}

void queue_event_add(struct queues *q, const struct job_record *record, enum job_state state)
{
	struct queue_event *event = &q->events->event[++q->events->last % QUEUE_EVENTS];

	*event = (struct queue_event){
		.number = q->events->last,
		.id = record->id,
		.array = record->array,
		.index = record->index,
		.uid = record->uid,
		.state = state,
		.at = now_realtime_ns(),
		.attempt = record->attempt,
	};
	snprintf(event->queue, sizeof(event->queue), "%s", record->queue);
	q->events->told = true;
}

void queue_events_tell(struct queues *q)
{
	if (!q->events->told)
		return;
	q->events->told = false;
	listeners_tell(&q->events->listeners);
}
