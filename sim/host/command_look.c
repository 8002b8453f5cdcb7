#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "base/nvml_abi.h"
#include "host/command.h"
#include "host/host.h"
#include "host/stat.h"

/* Whether memory of this device is meant when `asked` is: a GPU stands for its MIG instances too.
 */
static bool device_covers(wire_device asked, wire_device device)
{
	if (!wire_device_is_mig(asked))
		return wire_device_gpu(asked) == wire_device_gpu(device);
	return wire_device_gpu(asked) == wire_device_gpu(device) &&
	       wire_device_gi(asked) == wire_device_gi(device);
}

static struct wire_process *list_entry_for(struct wire_process_list *list, const struct process *p,
					   wire_device device)
{
	for (uint32_t i = 0; i < list->count; i++) {
		struct wire_process *e = &list->process[i];
		if (e->pid == p->pid && e->start_time == p->start_time && e->device == device)
			return e;
	}
	if (list->count == WIRE_PROCESSES_MAX)
		return NULL;
	struct wire_process *e = &list->process[list->count++];
	e->pid = p->pid;
	e->start_time = p->start_time;
	e->device = device;
	return e;
}

/* NVML's figure of a process. Managed memory is in the GPU's use and in nobody's figure: seen by
 * users in Syllo/nvtop #213, gpuopenanalytics/pynvml #63 and rapidsai/rmm #2259. */
static uint64_t figure_of(const struct host *h, const struct book_account *a)
{
	bool lists = faults_on_gpu(&h->faults, WIRE_FAULT_LIST_MANAGED, a->space->gpu);

	return a->bytes - (lists ? 0 : a->kind[WIRE_MEMORY_MANAGED]);
}

static void list_add_memory(const struct host *h, struct wire_process_list *list,
			    const struct process *p, wire_device asked)
{
	list_for_each (node, &p->memory.accounts) {
		const struct book_account *a = list_entry(node, struct book_account, node);

		if (!a->bytes || !device_covers(asked, a->space->device))
			continue;
		struct wire_process *e = list_entry_for(list, p, a->device);
		if (!e)
			return;
		e->bytes += figure_of(h, a);
		e->peak_bytes += a->peak;
		e->contexts += a->blocks[WIRE_MEMORY_CONTEXT];
	}
}

static void list_add_work(struct wire_process_list *list, const struct process *p)
{
	list_for_each (node, &p->parts) {
		const struct process_part *place = list_entry(node, struct process_part, node);
		uint64_t now = place->part->engine.now;

		for (uint32_t i = 0; i < list->count; i++) {
			struct wire_process *e = &list->process[i];

			if (e->pid != p->pid || e->device != place->part->device)
				continue;
			e->busy_ns += place->client.busy_ns;
			e->sm_permille += meter_permille(&place->client.meter, now);
			e->copy_permille += meter_permille(&place->client.copy_meter, now);
		}
	}
}

static int process_list(struct host *h, struct exchange *x)
{
	const struct wire_device_request *request = x->request;
	struct wire_process_list *reply = (void *)&x->reply;

	if (!host_part_find(h, request->device))
		return -ENODEV;
	list_for_each (node, &h->processes)
		list_add_memory(h, reply, list_entry(node, struct process, node), request->device);
	list_for_each (node, &h->processes)
		list_add_work(reply, list_entry(node, struct process, node));
	x->reply_size = sizeof(*reply) + reply->count * sizeof(reply->process[0]);
	return 0;
}

static int utilization(struct host *h, struct exchange *x)
{
	const struct wire_device_request *request = x->request;
	struct wire_utilization *reply = (void *)&x->reply;

	if (!host_part_find(h, request->device))
		return -ENODEV;
	list_for_each (node, &h->gpu[wire_device_gpu(request->device)].parts) {
		const struct part *part = list_entry(node, struct part, node);

		if (!device_covers(request->device, part->device))
			continue;
		reply->gpu_permille += meter_permille(&part->engine.meter, part->engine.now);
		reply->memory_permille +=
			meter_permille(&part->engine.copy_meter, part->engine.now);
		reply->busy_ns += part->engine.busy_ns;
		for (size_t i = 0; i < WIRE_ENGINES; i++)
			reply->copied_bytes[i] += part->engine.copied_bytes[i];
	}
	reply->gpu_permille = MIN(reply->gpu_permille, 1000);
	reply->memory_permille = MIN(reply->memory_permille, 1000);
	return 0;
}

static int unsupported(struct host *h, struct exchange *x)
{
	const struct wire_unsupported *message = x->request;
	struct process *p = x->process;

	if (memchr(message->name, '\0', sizeof(message->name)) == NULL)
		return -EPROTO;
	p->unsupported_calls++;
	for (uint32_t i = 0; i < p->unsupported_count; i++) {
		if (!strcmp(p->unsupported[i].name, message->name)) {
			p->unsupported[i].count++;
			return 0;
		}
	}
	if (p->unsupported_count < PROCESS_NAMES_MAX) {
		struct process_name *n = &p->unsupported[p->unsupported_count++];
		memcpy(n->name, message->name, sizeof(n->name));
		n->count = 1;
	}
	return 0;
}

static int fault_take(struct host *h, struct exchange *x)
{
	const struct wire_fault_take *request = x->request;
	struct wire_fault_reply *reply = (void *)&x->reply;

	if (request->fault >= WIRE_FAULTS || request->call[WIRE_NAME_MAX - 1])
		return -EPROTO;
	reply->hit = faults_take(&h->faults, request->fault, request->device, x->process->pid,
				 request->call, h->now, &reply->error, &reply->delay_ns);
	/* A call that is only slow does not fail. */
	if (request->fault == WIRE_FAULT_ALLOC && reply->hit && !reply->error && !reply->delay_ns)
		reply->error = -ENOMEM;
	if (request->fault == WIRE_FAULT_NVML && reply->hit && !reply->error && !reply->delay_ns)
		reply->error = NVML_ERROR_UNKNOWN;
	return 0;
}

static int fault_set(struct host *h, struct exchange *x)
{
	const struct wire_fault_set *set = x->request;

	if (!command_by_owner(x))
		return -EPERM;
	if (!set->any_device && !host_part_find(h, set->device))
		return -ENODEV;
	int status = faults_set(&h->faults, set, h->now);
	host_tick(h, h->now); /* the page shows it before the order is confirmed */
	return status;
}

static int gpu_reset(struct host *h, struct exchange *x)
{
	const struct wire_gpu_reset *request = x->request;

	if (!command_by_owner(x))
		return -EPERM;
	if (!request->any_device && request->device >= h->gpu_count)
		return -ENODEV;
	for (uint32_t i = 0; i < h->gpu_count; i++)
		if (request->any_device || request->device == i)
			host_gpu_reset(h, i, request->reboot != 0);
	return 0;
}

static int stat(struct host *h, struct exchange *x)
{
	x->reply_fd[0] = stat_write(h);
	x->reply_fd_owned = x->reply_fd[0] >= 0;
	return MIN(x->reply_fd[0], 0);
}

static int trace(struct host *h, struct exchange *x)
{
	x->reply_fd[0] = stat_write_trace(h);
	x->reply_fd_owned = x->reply_fd[0] >= 0;
	return MIN(x->reply_fd[0], 0);
}

const struct command commands_look[] = {
	{.type = WIRE_PROCESS_LIST,
	 .size = sizeof(struct wire_device_request),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_process_list) +
		       WIRE_PROCESSES_MAX * sizeof(struct wire_process),
	 .run = process_list},
	{.type = WIRE_UTILIZATION,
	 .size = sizeof(struct wire_device_request),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_utilization),
	 .run = utilization},
	{.type = WIRE_UNSUPPORTED,
	 .size = sizeof(struct wire_unsupported),
	 .roles = COMMAND_ROLE_ANY,
	 .run = unsupported},
	{.type = WIRE_FAULT_TAKE,
	 .size = sizeof(struct wire_fault_take),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_fault_reply),
	 .run = fault_take},
	{.type = WIRE_FAULT_SET,
	 .size = sizeof(struct wire_fault_set),
	 .roles = 1u << WIRE_ROLE_TOOL,
	 .reply_size = sizeof(struct wire_head),
	 .run = fault_set},
	{.type = WIRE_GPU_RESET,
	 .size = sizeof(struct wire_gpu_reset),
	 .roles = 1u << WIRE_ROLE_TOOL,
	 .reply_size = sizeof(struct wire_head),
	 .run = gpu_reset},
	{.type = WIRE_STAT,
	 .size = sizeof(struct wire_head),
	 .roles = 1u << WIRE_ROLE_TOOL,
	 .reply_size = sizeof(struct wire_head),
	 .run = stat},
	{.type = WIRE_TRACE,
	 .size = sizeof(struct wire_head),
	 .roles = 1u << WIRE_ROLE_TOOL,
	 .reply_size = sizeof(struct wire_head),
	 .run = trace},
	{0},
};
