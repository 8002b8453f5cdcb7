/* Changes of jobs' states, and who waits for them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/queue/queue_private.h"

/* The most events of one answer. */
#define EVENTS_PART 256u

uint64_t queue_events_last(const struct queues *q)
{
	return q->events;
}

json_t *queue_event_json(const struct queue_event *event)
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
	uint64_t first = q->events > QUEUE_EVENTS ? q->events - QUEUE_EVENTS : 0, i;

	for (i = MAX(first, from) + 1; i <= q->events && json_array_size(list) < EVENTS_PART; i++) {
		const struct queue_event *e = &q->event[i % QUEUE_EVENTS];

		if (peer_permitted(viewer, e->uid))
			json_array_append_new(list, queue_event_json(e));
	}
	*ret_next = MIN(i - 1, q->events);
	return list;
}

int queue_listen(struct queues *q, job_event_cb cb, void *arg)
{
	struct queue_listener *listener = malloc(sizeof(*listener));

	if (!listener)
		return -ENOMEM;
	*listener = (struct queue_listener){q->listeners, cb, arg};
	q->listeners = listener;
	return 0;
}

void queue_unlisten(struct queues *q, void *arg)
{
	for (struct queue_listener **at = &q->listeners; *at;) {
		struct queue_listener *listener = *at;

		if (listener->arg != arg) {
			at = &listener->next;
			continue;
		}
		*at = listener->next;
		free(listener);
	}
}
