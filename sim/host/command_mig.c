/* MIG: mode, GPU instances, compute instances. The rules are in mig.c; here are the state, who may
 * change it, and the parts of the host that come and go with it. */
#include <errno.h>

#include "base/macros.h"
#include "host/command.h"
#include "host/host.h"
#include "host/mig.h"
#include "host/mig_wire.h"

/* A GPU that is asked for something to do with MIG. */
struct target {
	struct wire_gpu *page;
	struct mig_board board;
	struct mig_state *state;
};

/* `changes`: what is asked for changes something. */
static int target_get(struct host *h, wire_device device, bool changes, struct target *ret)
{
	uint32_t gpu = wire_device_gpu(device);

	if (gpu >= h->gpu_count)
		return -ENODEV;
	ret->page = &h->page->gpu[gpu];
	ret->state = &h->gpu[gpu].mig;
	if (atomic_load(&ret->page->flags) & WIRE_GPU_LOST)
		return -EIO;
	/* The host has the management of a virtual machine's GPU. */
	if (changes && faults_on_gpu(&h->faults, WIRE_FAULT_VGPU, gpu))
		return -ENOTSUP;
	return mig_board_find(h->gpu[gpu].model, h->page->driver_branch, &ret->board) ? 0
										      : -ENOTSUP;
}

/* MIG mode must be on. */
static int target_get_on(struct host *h, wire_device device, bool changes, struct target *ret)
{
	int r = target_get(h, device, changes, ret);

	if (r < 0)
		return r;
	return atomic_load(&ret->page->flags) & WIRE_GPU_MIG ? 0 : -ENOTSUP;
}

static int may_change(const struct exchange *x)
{
	return command_by_owner(x) ? 0 : -EPERM;
}

static bool state_empty(const struct mig_state *s)
{
	for (size_t i = 0; i < MIG_GI_MAX; i++)
		if (s->gi[i].used)
			return false;
	return true;
}

static bool gpu_in_use(const struct host *h, uint32_t gpu)
{
	return host_part_find(h, gpu)->users > 0 || host_gpu_used(h, gpu) > 0;
}

/* The GPU instance that a device is, or is in. */
static wire_device gi_of(wire_device device)
{
	return WIRE_DEVICE_MIG(wire_device_gpu(device), wire_device_gi(device), WIRE_NO_INSTANCE);
}

static int state_get(struct host *h, struct exchange *x)
{
	const struct wire_device_request *request = x->request;
	struct wire_mig_state_reply *reply = (void *)&x->reply;
	uint32_t gpu = wire_device_gpu(request->device);
	struct target t;
	int r = target_get_on(h, request->device, false, &t);

	if (r < 0)
		return r;
	reply->generation = atomic_load(&t.page->mig_generation);
	reply->state = *t.state;
	for (size_t i = 0; i < MIG_GI_MAX; i++) {
		const struct part *part = host_part_find(
			h, WIRE_DEVICE_MIG(gpu, t.state->gi[i].id, WIRE_NO_INSTANCE));

		if (t.state->gi[i].used && part)
			reply->used[i] = part->own_space.used;
	}
	return 0;
}

/* ---- the mode ---- */

/* Somebody has a handle, as far as that process still lives. */
static bool is_held(const struct host *h, wire_device device)
{
	int32_t holder;

	if (!faults_state(&h->faults, WIRE_FAULT_MIG_HOLD, device, &holder))
		return false;
	if (!holder)
		return true;
	list_for_each (node, &h->processes)
		if (list_entry(node, struct process, node)->pid == holder)
			return true;
	return false;
}

/* Other processes have the driver open, and that is not allowed. */
static bool others_are_in_the_way(const struct host *h, const struct exchange *x, uint32_t gpu)
{
	if (!faults_on_gpu(&h->faults, WIRE_FAULT_MIG_CLIENTS, gpu))
		return false;
	list_for_each (node, &h->processes) {
		const struct process *p = list_entry(node, struct process, node);

		if (p->pid != x->process->pid &&
		    (p->role == WIRE_ROLE_CUDA || p->role == WIRE_ROLE_NVML))
			return true;
	}
	return false;
}

/* The mode changes at once on an idle GPU without instances. With instances it cannot change; with
 * processes it stays pending until asked again. */
static int set_mode(struct host *h, struct exchange *x)
{
	const struct wire_mig_set_mode *request = x->request;
	uint32_t wanted = request->enable ? WIRE_GPU_MIG | WIRE_GPU_MIG_PENDING : 0;
	uint32_t gpu = wire_device_gpu(request->device);
	struct target t;
	int r = may_change(x);

	if (r == 0)
		r = target_get(h, request->device, true, &t);
	if (r < 0)
		return r;
	if (!state_empty(t.state) && !request->enable)
		return -EBUSY;
	uint32_t now = atomic_load(&t.page->flags);
	bool busy = gpu_in_use(h, gpu) || is_held(h, gpu) || others_are_in_the_way(h, x, gpu);
	bool needs_reset = faults_on_gpu(&h->faults, WIRE_FAULT_MIG_MODE, gpu);
	bool same = !(now & WIRE_GPU_MIG) == !request->enable;
	uint32_t kept = now & ~(uint32_t)(WIRE_GPU_MIG | WIRE_GPU_MIG_PENDING);

	if ((busy || needs_reset) && !same) {
		atomic_store(&t.page->flags,
			     kept | (now & WIRE_GPU_MIG) | (wanted & WIRE_GPU_MIG_PENDING));
		return busy ? -EBUSY : -EAGAIN;
	}
	atomic_store(&t.page->flags, kept | wanted);
	return 0;
}

/* ---- instances ---- */

/* A change of instances under way. */
struct change {
	struct target target;
	uint32_t gpu;
	const char *call;             /* NVML's */
	struct wire_fault_set failed; /* with `fails` */
	bool fails;
};

static int fault_status(const struct wire_fault_set *set, int usual)
{
	return set->error ? WIRE_STATUS_NVML - set->error : usual;
}

/* May this client make or destroy instances there, and does the fault let it? 0; or what to answer.
 */
static int change_begin(struct host *h, struct exchange *x, enum wire_fault fault,
			wire_device device, const char *call, struct change *ret)
{
	struct wire_mig_reply *reply = (void *)&x->reply;
	int usual = fault == WIRE_FAULT_MIG_DESTROY ? -EBUSY : -ENOSPC;
	int r = may_change(x);

	if (r == 0)
		r = target_get_on(h, device, true, &ret->target);
	if (r < 0)
		return r;
	ret->gpu = wire_device_gpu(device);
	ret->call = call;
	ret->fails =
		faults_hit(&h->faults, fault, device, x->process->pid, call, h->now, &ret->failed);
	if (!ret->fails)
		return 0;
	reply->delay_ns = ret->failed.delay_ns;
	return ret->failed.after ? 0 : fault_status(&ret->failed, usual);
}

/* How long it takes: changes of one GPU wait for each other. */
static uint64_t change_time(struct host *h, const struct exchange *x, const struct change *c,
			    uint64_t real_ns)
{
	uint64_t *until = &h->gpu[c->gpu].mig_busy_until;
	struct wire_fault_set set;

	if (!faults_hit(&h->faults, WIRE_FAULT_MIG_TIME, c->gpu, x->process->pid, c->call, h->now,
			&set))
		return 0;
	*until = MAX(*until, h->now) + (set.delay_ns ? set.delay_ns : real_ns);
	return *until - h->now;
}

/* It was done. The answer says so, or what the fault wants. */
static int change_end(struct host *h, struct exchange *x, const struct change *c, uint64_t real_ns)
{
	struct wire_mig_reply *reply = (void *)&x->reply;

	atomic_fetch_add(&c->target.page->mig_generation, 1);
	reply->delay_ns += change_time(h, x, c, real_ns);
	return c->fails ? fault_status(&c->failed, -EIO) : 0;
}

static uint64_t gi_capacity(const struct mig_board *b, const struct mig_gi *gi)
{
	const struct mig_profile *p = mig_profile_by_id(b, gi->profile_id);

	/* An integrated GPU's instances all have the processor's memory. */
	if (b->family->memory_shared)
		return b->model->memory_total - b->model->memory_reserved;
	return MIB(mig_gi_memory_mib(b, gi)) - mig_reserved_bytes(b, p);
}

/* As seen on some boards: the IDs of one size count from the other end. */
static void gi_rename(const struct mig_board *b, struct mig_state *s, uint8_t *id)
{
	struct mig_gi *gi = mig_gi_find(s, *id);
	uint8_t first = (uint8_t)(b->die->memory_units / gi->size - 1);
	uint8_t other = (uint8_t)(2 * first - (*id - first));

	if (mig_gi_find(s, other))
		return;
	gi->id = other;
	*id = other;
}

static int gi_create(struct host *h, struct exchange *x)
{
	const struct wire_mig_create *request = x->request;
	struct wire_mig_reply *reply = (void *)&x->reply;
	struct change c;
	int r = change_begin(h, x, WIRE_FAULT_MIG_CREATE, request->device,
			     "nvmlDeviceCreateGpuInstance", &c);
	const struct target *t = &c.target;
	uint8_t id;

	if (r < 0)
		return r;
	if (request->start > MIG_ANYWHERE)
		return -EINVAL;
	/* The first instance is what really switches the GPU. */
	if (state_empty(t->state) && is_held(h, c.gpu))
		return -EBUSY;
	r = mig_gi_create(&t->board, t->state, request->profile_id, (uint8_t)request->start, &id);
	if (r < 0)
		return r;
	if (faults_on_gpu(&h->faults, WIRE_FAULT_MIG_IDS, c.gpu))
		gi_rename(&t->board, t->state, &id);
	if (!host_part_add(h, WIRE_DEVICE_MIG(c.gpu, id, WIRE_NO_INSTANCE),
			   gi_capacity(&t->board, mig_gi_find(t->state, id)), NULL)) {
		mig_gi_destroy(t->state, id);
		return -ENOMEM;
	}
	reply->id = id;
	return change_end(
		h, x, &c,
		mig_change_ns(&t->board,
			      mig_profile_by_id(&t->board, request->profile_id)->compute_slices,
			      true, false));
}

static int gi_destroy(struct host *h, struct exchange *x)
{
	const struct wire_device_request *request = x->request;
	uint8_t id = (uint8_t)wire_device_gi(request->device);
	struct mig_state after;
	struct change c;
	int r = change_begin(h, x, WIRE_FAULT_MIG_DESTROY, request->device,
			     "nvmlGpuInstanceDestroy", &c);
	const struct target *t = &c.target;

	if (r < 0)
		return r;
	const struct mig_gi *gi = mig_gi_find(t->state, id);
	if (!gi || request->device != gi_of(request->device))
		return -ENOENT;
	uint8_t slices = mig_profile_by_id(&t->board, gi->profile_id)->compute_slices;
	if (is_held(h, request->device))
		return -EBUSY;
	after = *t->state;
	r = mig_gi_destroy(&after, id);
	if (r == 0)
		r = host_part_remove(h, host_part_find(h, request->device));
	if (r < 0)
		return r;
	*t->state = after;
	return change_end(h, x, &c, mig_change_ns(&t->board, slices, false, false));
}

static int ci_create(struct host *h, struct exchange *x)
{
	const struct wire_mig_create *request = x->request;
	struct wire_mig_reply *reply = (void *)&x->reply;
	uint32_t gi_id = wire_device_gi(request->device);
	struct change c;
	struct mig_gi *gi;
	uint8_t id;
	int r = change_begin(h, x, WIRE_FAULT_MIG_CREATE, request->device,
			     "nvmlGpuInstanceCreateComputeInstance", &c);
	const struct target *t = &c.target;

	if (r < 0)
		return r;
	gi = mig_gi_find(t->state, (uint8_t)gi_id);
	if (!gi)
		return -ENOENT;
	if (request->start > MIG_ANYWHERE)
		return -EINVAL;
	r = mig_ci_create(&t->board, gi, request->profile_id, (uint8_t)request->start, &id);
	if (r < 0)
		return r;
	if (!host_part_add(h, WIRE_DEVICE_MIG(c.gpu, gi_id, id), 0,
			   host_part_find(h, gi_of(request->device)))) {
		mig_ci_destroy(gi, id);
		return -ENOMEM;
	}
	reply->id = id;
	return change_end(h, x, &c, mig_change_ns(&t->board, gi->ci[id].size, true, true));
}

/* Memory belongs to the GPU instance, so that only its last compute instance is known to be free of
 * it; of the others, that nothing runs there. */
static bool ci_in_use(const struct host *h, const struct mig_gi *gi, wire_device device)
{
	uint32_t compute_instances = 0;

	for (size_t i = 0; i < MIG_CI_MAX; i++)
		compute_instances += gi->ci[i].used;
	return is_held(h, device) ||
	       (compute_instances == 1 && host_part_find(h, gi_of(device))->own_space.used);
}

static int ci_destroy(struct host *h, struct exchange *x)
{
	const struct wire_device_request *request = x->request;
	uint32_t gi_id = wire_device_gi(request->device), id = wire_device_ci(request->device);
	struct part *part = host_part_find(h, request->device);
	struct change c;
	struct mig_gi *gi;
	int r = change_begin(h, x, WIRE_FAULT_MIG_DESTROY, request->device,
			     "nvmlComputeInstanceDestroy", &c);
	const struct target *t = &c.target;

	if (r < 0)
		return r;
	gi = mig_gi_find(t->state, (uint8_t)gi_id);
	if (!gi || !part || id == WIRE_NO_INSTANCE)
		return -ENOENT;
	if (ci_in_use(h, gi, request->device))
		return -EBUSY;
	uint8_t slices = gi->ci[id].size;
	r = host_part_remove(h, part);
	if (r < 0)
		return r;
	mig_ci_destroy(gi, (uint8_t)id);
	return change_end(h, x, &c, mig_change_ns(&t->board, slices, false, true));
}

const struct command commands_mig[] = {
	{.type = (enum wire_type)WIRE_MIG_STATE,
	 .size = sizeof(struct wire_device_request),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_mig_state_reply),
	 .run = state_get},
	{.type = (enum wire_type)WIRE_MIG_SET_MODE,
	 .size = sizeof(struct wire_mig_set_mode),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_head),
	 .run = set_mode},
	{.type = (enum wire_type)WIRE_MIG_GI_CREATE,
	 .size = sizeof(struct wire_mig_create),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_mig_reply),
	 .run = gi_create},
	{.type = (enum wire_type)WIRE_MIG_GI_DESTROY,
	 .size = sizeof(struct wire_device_request),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_mig_reply),
	 .run = gi_destroy},
	{.type = (enum wire_type)WIRE_MIG_CI_CREATE,
	 .size = sizeof(struct wire_mig_create),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_mig_reply),
	 .run = ci_create},
	{.type = (enum wire_type)WIRE_MIG_CI_DESTROY,
	 .size = sizeof(struct wire_device_request),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_mig_reply),
	 .run = ci_destroy},
	{0},
};
