/* Processes of a host: from the connection to what is remembered after its end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "host/host.h"
#include "host/shared_page.h"

static void process_note(const struct process *p, enum trace_kind kind)
{
	trace_add(p->host->memory_trace,
		  &(struct trace_event){
			  .at = p->host->now, .process = p->number, .pid = p->pid, .kind = kind});
}

struct process *host_process_add(struct host *h, pid_t pid, uid_t uid)
{
	struct process *p = calloc(1, sizeof(*p));
	char path[64];

	if (!p)
		return NULL;
	p->host = h;
	p->number = h->next_process++;
	p->pid = pid;
	p->uid = uid;
	p->progress_fd = -1;
	process_start_time(pid, &p->start_time);
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	if (file_read(path, p->command, sizeof(p->command)) < 0)
		p->command[0] = '\0';
	p->command[strcspn(p->command, "\n")] = '\0';
	book_holder_init(&p->memory, p);
	list_init(&p->parts);
	list_init(&p->queues);
	p->started = h->now;
	list_append(&h->processes, &p->node);
	return p;
}

void host_process_enlist(struct process *p)
{
	process_note(p, TRACE_START);
}

bool process_summarize(const struct process *p, uint32_t gpu, struct ended *ret)
{
	bool used = false;

	*ret = (struct ended){.process = p->number,
			      .pid = p->pid,
			      .gpu = gpu,
			      .started = p->started,
			      .ended = p->host->now,
			      .unsupported = p->unsupported_calls};
	memcpy(ret->command, p->command, sizeof(ret->command));
	list_for_each (node, &p->memory.accounts) {
		const struct book_account *a = list_entry(node, struct book_account, node);

		if (a->space->gpu != gpu)
			continue;
		ret->memory_peak += a->peak;
		used = true;
	}
	list_for_each (node, &p->parts) {
		const struct process_part *place = list_entry(node, struct process_part, node);

		if (wire_device_gpu(place->part->device) != gpu)
			continue;
		ret->busy_ns += place->client.busy_ns;
		ret->launches += place->launches;
		ret->copies += place->copies;
		ret->lag_ns += place->lag_ns;
		used = true;
	}
	return used;
}

static void process_remember(const struct process *p)
{
	struct host *h = p->host;
	struct ended summary;

	if (p->role != WIRE_ROLE_CUDA)
		return;
	process_note(p, TRACE_END);
	for (uint32_t gpu = 0; gpu < h->gpu_count; gpu++) {
		if (process_summarize(p, gpu, &summary))
			h->ended[h->ended_count++ % ENDED_MAX] = summary;
	}
}

void process_queue_free(struct process_queue *q)
{
	engine_queue_finish(&q->queue);
	list_remove(&q->node);
	list_remove(&q->dirty_node);
	q->process->queue[q->number] = NULL;
	free(q);
}

void host_process_remove(struct process *p)
{
	struct host *h = p->host;

	list_for_each_safe (node, &p->queues)
		process_queue_free(list_entry(node, struct process_queue, node));
	process_remember(p);
	list_for_each_safe (node, &p->parts) {
		struct process_part *place = list_entry(node, struct process_part, node);

		engine_client_finish(&place->client);
		place->part->users--;
		list_remove(node);
		free(place);
	}
	book_holder_finish(&h->books, &p->memory);
	if (p->progress)
		shared_page_free(p->progress, sizeof(*p->progress), &p->progress_fd);
	list_remove(&p->node);
	free(p);
}

struct process_part *process_part_get(struct process *p, struct part *part)
{
	list_for_each (node, &p->parts) {
		struct process_part *place = list_entry(node, struct process_part, node);
		if (place->part == part)
			return place;
	}
	struct process_part *place = calloc(1, sizeof(*place));
	if (!place)
		return NULL;
	place->part = part;
	place->process = p;
	engine_client_init(&place->client, &part->engine, place);
	list_append(&p->parts, &place->node);
	part->users++;
	return place;
}

void host_anchor_remove(struct host *h, struct host_anchor *anchor)
{
	book_holder_finish(&h->books, &anchor->memory);
	list_remove(&anchor->node);
	close_fd(&anchor->fd);
	free(anchor);
}
