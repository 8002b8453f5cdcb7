/* Resets of GPUs and reboots: what is left of processes, memory and MIG afterwards. */
#include "host/host.h"
#include "host/mig.h"

static bool process_uses(const struct process *p, uint32_t gpu)
{
	list_for_each (node, &p->parts) {
		const struct process_part *place = list_entry(node, struct process_part, node);

		if (wire_device_gpu(place->part->device) == gpu)
			return true;
	}
	list_for_each (node, &p->memory.accounts) {
		const struct book_account *a = list_entry(node, struct book_account, node);

		if (a->space->gpu == gpu && a->bytes)
			return true;
	}
	return false;
}

static void process_end(struct process *p)
{
	struct host *h = p->host;

	if (h->process_end)
		h->process_end(h->watch_context, p);
	else
		host_process_remove(p);
}

/* Memory that only a descriptor holds; the anchor itself goes with the descriptor. */
static void anchors_empty(struct host *h, uint32_t gpu)
{
	list_for_each (node, &h->anchors) {
		struct host_anchor *a = list_entry(node, struct host_anchor, node);

		if (a->block && a->block->space->gpu == gpu) {
			book_holder_finish(&h->books, &a->memory);
			a->block = NULL;
		}
	}
}

/* Compute instances first: their memory is their GPU instances'. */
static void instances_remove(struct host *h, uint32_t gpu)
{
	for (int compute = 1; compute >= 0; compute--) {
		list_for_each_safe (node, &h->gpu[gpu].parts) {
			struct part *part = list_entry(node, struct part, node);
			bool is_compute = part->space != &part->own_space;

			if (wire_device_is_mig(part->device) && is_compute == (compute != 0))
				host_part_remove(h, part);
		}
	}
	h->gpu[gpu].mig = (struct mig_state){0};
	h->gpu[gpu].mig_busy_until = 0;
	atomic_fetch_add(&h->page->gpu[gpu].mig_generation, 1);
}

/* Ampere keeps the mode in the board; later ones forget it when the driver is loaded anew. */
static void mode_settle(struct host *h, uint32_t gpu, bool reboot)
{
	uint32_t flags = atomic_load(&h->page->gpu[gpu].flags);
	bool on = flags & WIRE_GPU_MIG_PENDING;

	if (reboot && h->gpu[gpu].model->arch != SIM_ARCH_AMPERE)
		on = false;
	flags &= ~(uint32_t)(WIRE_GPU_MIG | WIRE_GPU_MIG_PENDING);
	atomic_store(&h->page->gpu[gpu].flags,
		     flags | (on ? WIRE_GPU_MIG | WIRE_GPU_MIG_PENDING : 0));
}

void host_gpu_reset(struct host *h, uint32_t gpu, bool reboot)
{
	list_for_each_safe (node, &h->processes) {
		struct process *p = list_entry(node, struct process, node);

		if (reboot ? p->role == WIRE_ROLE_CUDA : process_uses(p, gpu))
			process_end(p);
	}
	anchors_empty(h, gpu);
	instances_remove(h, gpu);
	mode_settle(h, gpu, reboot);
}
