#include "host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "host/shared_page.h"

/* Progress that nobody announced to wait for is published so late at most. */
#define PUBLISH_NS 200000u
/* Events kept of each kind; room is taken as they come. */
#define TRACE_EVENTS (1u << 19)

/* ---- calls of the engines ---- */

static struct process_queue *queue_owner(struct engine_queue *q)
{
	return q->owner;
}

void process_queue_soil(struct process_queue *q)
{
	if (!q->dirty)
		list_append(&q->process->host->dirty, &q->dirty_node);
	q->dirty = true;
}

static void stamp(struct process_queue *q, uint16_t index, uint64_t at)
{
	if (index)
		atomic_store_explicit(&q->process->progress->stamp[index], at,
				      memory_order_relaxed);
}

static void on_item_started(struct engine_queue *queue, const struct engine_item *item, uint64_t at)
{
	struct process_queue *q = queue_owner(queue);

	stamp(q, item->stamp_start, at);
	if (item->flags & WIRE_ITEM_LAUNCH)
		q->place->launches++;
	process_queue_soil(q);
}

static void on_item_done(struct engine_queue *queue, const struct engine_item *item, uint64_t at)
{
	struct process_queue *q = queue_owner(queue);

	stamp(q, item->stamp_done, at);
	q->done_at = at;
	q->sure_until = engine_queue_sure_until(queue);
	q->place->lag_ns += item->lag_ns;
	if (item->flags & WIRE_ITEM_COPY) {
		q->place->copies++;
		q->place->copied_bytes[item->engine] += item->bytes;
	}
	process_queue_soil(q);
}

static void on_turn(struct engine_client *client, uint64_t from, uint64_t to)
{
	const struct process_part *place = client->owner;

	trace_add(place->part->host->work_trace, &(struct trace_event){
							 .at = from + place->part->engine.shift,
							 .shift = place->part->engine.shift,
							 .value = (int64_t)(to - from),
							 .process = place->process->number,
							 .pid = place->process->pid,
							 .device = place->part->device,
							 .kind = TRACE_TURN,
						 });
}

static void on_copy(struct engine_queue *queue, const struct engine_item *item, uint64_t from,
		    uint64_t to)
{
	const struct process_queue *q = queue_owner(queue);

	trace_add(q->process->host->work_trace, &(struct trace_event){
							.at = from + q->place->part->engine.shift,
							.shift = q->place->part->engine.shift,
							.value = (int64_t)(to - from),
							.process = q->process->number,
							.pid = q->process->pid,
							.device = q->place->part->device,
							.kind = TRACE_COPY,
							.detail = item->engine,
						});
}

static const struct engine_events engine_events = {
	.item_started = on_item_started,
	.item_done = on_item_done,
	.turn = on_turn,
	.copy = on_copy,
};

/* ---- calls of the books ---- */

uint64_t host_gpu_used(const struct host *h, uint32_t gpu)
{
	uint64_t used = 0;

	list_for_each (node, &h->gpu[gpu].parts)
		used += list_entry(node, struct part, node)->own_space.used;
	return used;
}

static void on_memory(void *context, const struct book_holder *holder,
		      const struct book_block *block, int64_t delta)
{
	struct host *h = context;
	uint32_t gpu = block->space->gpu;
	uint64_t used = host_gpu_used(h, gpu);
	struct trace_event event = {.at = h->now, .device = block->space->device};

	if (holder) {
		const struct process *p = holder->owner;

		event.process = p->number;
		event.pid = p->pid;
		event.kind = TRACE_MEMORY;
		event.detail = (uint16_t)block->kind;
		event.value = (int64_t)book_account_find(holder, block->space)->bytes;
		trace_add(h->memory_trace, &event);
	}
	h->gpu[gpu].peak = MAX(h->gpu[gpu].peak, used);
	atomic_store(&h->page->gpu[gpu].memory_used, used);
	event = (struct trace_event){
		.at = h->now, .device = gpu, .kind = TRACE_DEVICE, .value = (int64_t)used};
	trace_add(h->memory_trace, &event);
}

/* ---- the host ---- */

static void uuid_make(struct wire_gpu *gpu)
{
	uint8_t *u = gpu->uuid;

	if (getrandom(u, sizeof(gpu->uuid), 0) != sizeof(gpu->uuid))
		abort(); /* only before the kernel's pool is ready */
	u[6] = (u[6] & 0x0f) | 0x40;
	u[8] = (u[8] & 0x3f) | 0x80;
	snprintf(gpu->uuid_text, sizeof(gpu->uuid_text),
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
		 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
		 u[14], u[15]);
	snprintf(gpu->serial, sizeof(gpu->serial), "165%010" PRIu32,
		 (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3]);
}

static int gpu_init(struct host *h, uint32_t index, const struct spec_gpu *spec)
{
	struct wire_gpu *gpu = &h->page->gpu[index];
	const struct sim_model *model = spec->model;

	snprintf(gpu->model, sizeof(gpu->model), "%s", model->key);
	uuid_make(gpu);
	gpu->pci_bus = 1 + 3 * index;
	gpu->minor = index;
	gpu->memory_total = model->memory_total;
	gpu->memory_reserved = model->memory_reserved;
	atomic_store(&gpu->flags, spec->mig ? WIRE_GPU_MIG | WIRE_GPU_MIG_PENDING : 0);
	h->gpu[index].model = model;
	list_init(&h->gpu[index].parts);
	if (!host_part_add(h, index, model->memory_total - model->memory_reserved, NULL))
		return -ENOMEM;
	h->gpu_count++;
	return 0;
}

int host_init(struct host *h, const struct spec *spec, const struct spec_driver *driver,
	      uint64_t now)
{
	*h = (struct host){.page_fd = -1, .next_process = 1, .now = now};
	list_init(&h->processes);
	list_init(&h->anchors);
	list_init(&h->dirty);
	books_init(&h->books);
	partitions_init(&h->partitions);
	h->books.changed = on_memory;
	h->books.context = h;
	h->work_trace = trace_new(TRACE_EVENTS);
	h->memory_trace = trace_new(TRACE_EVENTS);
	if (!h->work_trace || !h->memory_trace)
		return -ENOMEM;
	h->page = shared_page_new("simgpu-host", sizeof(*h->page), &h->page_fd);
	if (!h->page)
		return -errno;
	h->page->magic = WIRE_MAGIC;
	h->page->version = WIRE_VERSION;
	h->page->gpu_count = spec->gpu_count;
	h->page->driver_branch = driver->branch;
	snprintf(h->page->driver_version, sizeof(h->page->driver_version), "%s", driver->version);
	h->page->cuda_driver_version = driver->cuda_version;
	h->page->started = now;
	for (uint32_t i = 0; i < spec->gpu_count; i++) {
		int status = gpu_init(h, i, &spec->gpu[i]);
		if (status < 0)
			return status;
	}
	return 0;
}

void host_finish(struct host *h)
{
	list_for_each_safe (node, &h->processes)
		host_process_remove(list_entry(node, struct process, node));
	list_for_each_safe (node, &h->anchors)
		host_anchor_remove(h, list_entry(node, struct host_anchor, node));
	for (uint32_t i = 0; i < h->gpu_count; i++) {
		list_for_each_safe (node, &h->gpu[i].parts)
			free(list_entry(node, struct part, node));
	}
	books_finish(&h->books);
	trace_free(h->work_trace);
	trace_free(h->memory_trace);
	shared_page_free(h->page, sizeof(*h->page), &h->page_fd);
}

/* ---- parts ---- */

struct part *host_part_find(const struct host *h, wire_device device)
{
	uint32_t gpu = wire_device_gpu(device);

	if (gpu >= h->gpu_count)
		return NULL;
	list_for_each (node, &h->gpu[gpu].parts) {
		struct part *part = list_entry(node, struct part, node);
		if (part->device == device)
			return part;
	}
	return NULL;
}

struct part *host_part_add(struct host *h, wire_device device, uint64_t capacity, struct part *of)
{
	uint32_t gpu = wire_device_gpu(device);
	struct part *part = calloc(1, sizeof(*part));

	if (!part)
		return NULL;
	part->host = h;
	part->device = device;
	part->model = h->gpu[gpu].model;
	part->own_space =
		(struct book_space){.capacity = of ? 0 : capacity, .gpu = gpu, .device = device};
	part->space = of ? of->space : &part->own_space;
	engine_init(&part->engine, &engine_events, h->now);
	list_append(&h->gpu[gpu].parts, &part->node);
	return part;
}

int host_part_remove(struct host *h, struct part *part)
{
	if (part->users || part->own_space.used)
		return -EBUSY;
	/* Accounts of live processes may still name the space. */
	list_for_each (node, &h->processes) {
		struct process *p = list_entry(node, struct process, node);
		book_account_forget(&p->memory, &part->own_space);
	}
	list_remove(&part->node);
	free(part);
	return 0;
}

/* ---- time ---- */

/* Faults show on the host's page, where clients see them without asking. */
static void faults_show(struct host *h)
{
	h->faults.changed = false;
	for (uint32_t i = 0; i < h->gpu_count; i++) {
		struct wire_gpu *gpu = &h->page->gpu[i];
		uint32_t old = atomic_load(&gpu->flags);
		uint32_t flags = old & ~(uint32_t)(WIRE_GPU_LOST | WIRE_GPU_ECC_ERROR);

		if (faults_on_gpu(&h->faults, WIRE_FAULT_LOST, i))
			flags |= WIRE_GPU_LOST;
		if (faults_on_gpu(&h->faults, WIRE_FAULT_ECC, i))
			flags |= WIRE_GPU_ECC_ERROR;
		if (flags & ~old & WIRE_GPU_ECC_ERROR)
			atomic_fetch_add(&gpu->ecc_errors, 1);
		atomic_store(&gpu->flags, flags);
	}
	atomic_store(&h->page->faults, faults_armed(&h->faults));
}

static void clock_show(struct wire_gpu *gpu, const struct engine *e)
{
	atomic_store_explicit(&gpu->clock_shift, e->shift, memory_order_relaxed);
	atomic_store_explicit(&gpu->clock_still, e->still ? e->now : 0, memory_order_relaxed);
}

void host_tick(struct host *h, uint64_t now)
{
	h->now = MAX(h->now, now);
	for (uint32_t i = 0; i < h->gpu_count; i++) {
		list_for_each (node, &h->gpu[i].parts)
			engine_advance(&list_entry(node, struct part, node)->engine, h->now);
		clock_show(&h->page->gpu[i],
			   &list_entry(h->gpu[i].parts.next, struct part, node)->engine);
	}
	faults_expire(&h->faults, h->now);
	if (h->faults.changed)
		faults_show(h);
}

static void queue_publish(struct process_queue *q)
{
	struct wire_queue *state = &q->process->progress->queue[q->number];

	atomic_store_explicit(&state->started, q->queue.started, memory_order_relaxed);
	atomic_store_explicit(&state->done_at, q->done_at, memory_order_relaxed);
	atomic_store_explicit(&state->sure_until, q->sure_until, memory_order_relaxed);
	atomic_store_explicit(&state->done, q->queue.done, memory_order_release);
	atomic_fetch_add_explicit(&state->wake, 1, memory_order_release);
	if (engine_wait_fulfil(&q->queue))
		syscall(SYS_futex, &state->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void host_publish(struct host *h)
{
	list_for_each_safe (node, &h->dirty) {
		struct process_queue *q = list_entry(node, struct process_queue, dirty_node);

		queue_publish(q);
		list_remove(node);
		q->dirty = false;
	}
	h->published = h->now;
}

/* When something on the GPU is done: late by the time within which progress is published. */
static uint64_t gpu_wake(const struct host *h, const struct host_gpu *gpu)
{
	uint64_t wake = UINT64_MAX;

	list_for_each (node, &gpu->parts) {
		uint64_t done = engine_next_done(&list_entry(node, struct part, node)->engine);

		if (done != UINT64_MAX)
			wake = MIN(wake, MAX(done, h->published + PUBLISH_NS));
	}
	return wake;
}

/* When something that the process waits for is done. */
static uint64_t process_wake(const struct process *p)
{
	uint64_t wake = UINT64_MAX;

	list_for_each (node, &p->queues) {
		const struct process_queue *q = list_entry(node, struct process_queue, node);
		wake = MIN(wake, engine_queue_wake(&q->queue));
	}
	return wake;
}

uint64_t host_wake(const struct host *h)
{
	uint64_t wake = faults_wake(&h->faults);

	for (uint32_t i = 0; i < h->gpu_count; i++)
		wake = MIN(wake, gpu_wake(h, &h->gpu[i]));
	list_for_each (node, &h->processes)
		wake = MIN(wake, process_wake(list_entry(node, struct process, node)));
	return wake;
}
