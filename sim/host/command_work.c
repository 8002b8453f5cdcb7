#include <errno.h>
#include <stdlib.h>

#include "host/command.h"
#include "host/host.h"

/* The queue, made for this device when it has none yet. NULL: no such device, or another one's. */
static struct process_queue *queue_get(struct host *h, struct process *p, uint16_t number,
				       wire_device device)
{
	struct process_queue *q = p->queue[number];

	if (q)
		return q->place->part->device == device ? q : NULL;
	struct part *part = host_part_find(h, device);
	struct process_part *place = part ? process_part_get(p, part) : NULL;
	q = place ? calloc(1, sizeof(*q)) : NULL;
	if (!q)
		return NULL;
	q->process = p;
	q->place = place;
	q->number = number;
	list_init(&q->dirty_node);
	list_append(&p->queues, &q->node);
	engine_queue_init(&q->queue, &place->client, q);
	p->queue[number] = q;
	return q;
}

static int item_submit(struct host *h, struct process *p, const struct wire_item *item)
{
	if (item->queue >= WIRE_QUEUES_MAX || item->engine >= WIRE_ENGINES ||
	    item->ns > ENGINE_ITEM_NS_MAX)
		return -EPROTO;
	struct process_queue *q = queue_get(h, p, item->queue, item->device);
	if (!q)
		return -EPROTO;
	int status = engine_submit(&q->queue, &(struct engine_item){
						      .ns = item->ns,
						      .bytes = item->bytes,
						      .lag_ns = item->lag_ns,
						      .fill = item->fill,
						      .stamp_start = item->stamp_start,
						      .stamp_done = item->stamp_done,
						      .engine = item->engine,
						      .flags = item->flags,
					      });
	return status < 0 ? -EPROTO : 0;
}

static int work_submit(struct host *h, struct exchange *x)
{
	const struct wire_submit *request = x->request;

	if (request->count > WIRE_SUBMIT_MAX ||
	    x->size != sizeof(*request) + request->count * sizeof(request->item[0]))
		return -EPROTO;
	for (uint32_t i = 0; i < request->count; i++) {
		int status = item_submit(h, x->process, &request->item[i]);
		if (status < 0)
			return status;
	}
	return 0;
}

static int work_wait(struct host *h, struct exchange *x)
{
	const struct wire_wait_request *request = x->request;

	if (request->queue >= WIRE_QUEUES_MAX || request->what > WIRE_WAIT_STARTED)
		return -EPROTO;
	struct process_queue *q = x->process->queue[request->queue];
	if (q) {
		engine_wait(&q->queue, request->what, request->count);
		process_queue_soil(q); /* it may be fulfilled already */
	}
	return 0;
}

static int work_cancel(struct host *h, struct exchange *x)
{
	const struct wire_cancel *request = x->request;

	if (request->queue >= WIRE_QUEUES_MAX)
		return -EPROTO;
	struct process_queue *q = x->process->queue[request->queue];
	if (q)
		process_queue_free(q);
	struct wire_queue *state = &x->process->progress->queue[request->queue];
	atomic_store(&state->started, 0);
	atomic_store(&state->done, 0);
	return 0;
}

const struct command commands_work[] = {
	{.type = WIRE_WORK_SUBMIT,
	 .size = sizeof(struct wire_submit),
	 .variable = true,
	 .roles = COMMAND_ROLE_CUDA,
	 .run = work_submit},
	{.type = WIRE_WORK_WAIT,
	 .size = sizeof(struct wire_wait_request),
	 .roles = COMMAND_ROLE_CUDA,
	 .run = work_wait},
	{.type = WIRE_WORK_CANCEL,
	 .size = sizeof(struct wire_cancel),
	 .roles = COMMAND_ROLE_CUDA,
	 .reply_size = sizeof(struct wire_head),
	 .run = work_cancel},
	{0},
};
