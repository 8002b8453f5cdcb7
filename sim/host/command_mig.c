/* MIG: mode, GPU instances, compute instances. The rules are in mig.c; here are the state, who may
 * change it, and the parts of the host that come and go with it. */
#include <errno.h>
#include <unistd.h>

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

static int target_get(struct host *h, wire_device device, struct target *ret)
{
	uint32_t gpu = wire_device_gpu(device);

	if (gpu >= h->gpu_count)
		return -ENODEV;
	ret->page = &h->page->gpu[gpu];
	ret->state = &h->gpu[gpu].mig;
	if (atomic_load(&ret->page->flags) & WIRE_GPU_LOST)
		return -EIO;
	return mig_board_find(h->gpu[gpu].model, &ret->board) ? 0 : -ENOTSUP;
}

/* MIG mode must be on. */
static int target_get_on(struct host *h, wire_device device, struct target *ret)
{
	int r = target_get(h, device, ret);

	if (r < 0)
		return r;
	return atomic_load(&ret->page->flags) & WIRE_GPU_MIG ? 0 : -ENOTSUP;
}

/* The host's owner is its administrator, as root is a real one's. */
static int may_change(const struct exchange *x)
{
	return x->process->uid == 0 || x->process->uid == geteuid() ? 0 : -EPERM;
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

static void changed(struct target *t)
{
	atomic_fetch_add(&t->page->mig_generation, 1);
}

static int state_get(struct host *h, struct exchange *x)
{
	const struct wire_device_request *request = x->request;
	struct wire_mig_state_reply *reply = (void *)&x->reply;
	uint32_t gpu = wire_device_gpu(request->device);
	struct target t;
	int r = target_get_on(h, request->device, &t);

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

/* The mode changes at once on an idle GPU without instances. With instances it cannot change; with
 * processes it stays pending until asked again. */
static int set_mode(struct host *h, struct exchange *x)
{
	const struct wire_mig_set_mode *request = x->request;
	uint32_t wanted = request->enable ? WIRE_GPU_MIG | WIRE_GPU_MIG_PENDING : 0;
	struct target t;
	int r = may_change(x);

	if (r == 0)
		r = target_get(h, request->device, &t);
	if (r < 0)
		return r;
	if (!state_empty(t.state) && !request->enable)
		return -EBUSY;
	uint32_t now = atomic_load(&t.page->flags);
	bool idle = !gpu_in_use(h, wire_device_gpu(request->device));
	bool same = !(now & WIRE_GPU_MIG) == !request->enable;
	uint32_t kept = now & ~(uint32_t)(WIRE_GPU_MIG | WIRE_GPU_MIG_PENDING);

	if (!idle && !same) {
		atomic_store(&t.page->flags,
			     kept | (now & WIRE_GPU_MIG) | (wanted & WIRE_GPU_MIG_PENDING));
		return -EBUSY;
	}
	atomic_store(&t.page->flags, kept | wanted);
	return 0;
}

/* May this client make instances there? */
static int change_begin(struct host *h, const struct exchange *x, wire_device device,
			struct target *ret)
{
	int r = may_change(x);

	return r < 0 ? r : target_get_on(h, device, ret);
}

/* And destroy them? A fault makes that fail for a time, as a real driver does while a process is
 * still being cleaned up. */
static int destroy_begin(struct host *h, const struct exchange *x, wire_device device,
			 struct target *ret)
{
	int32_t error;
	uint64_t delay;
	int r = change_begin(h, x, device, ret);

	if (r < 0)
		return r;
	return faults_take(&h->faults, WIRE_FAULT_MIG_DESTROY, device, x->process->pid, NULL,
			   h->now, &error, &delay)
		       ? -EBUSY
		       : 0;
}

static uint64_t gi_capacity(const struct mig_board *b, const struct mig_gi *gi)
{
	const struct mig_profile *p = mig_profile_by_id(b, gi->profile_id);

	return MIB(mig_memory_mib(b, p)) - mig_reserved_bytes(b, p);
}

static int gi_create(struct host *h, struct exchange *x)
{
	const struct wire_mig_create *request = x->request;
	struct wire_mig_create_reply *reply = (void *)&x->reply;
	uint32_t gpu = wire_device_gpu(request->device);
	struct target t;
	uint8_t id;
	int r = change_begin(h, x, request->device, &t);

	if (r < 0)
		return r;
	if (request->start > MIG_ANYWHERE)
		return -EINVAL;
	r = mig_gi_create(&t.board, t.state, request->profile_id, (uint8_t)request->start, &id);
	if (r < 0)
		return r;
	if (!host_part_add(h, WIRE_DEVICE_MIG(gpu, id, WIRE_NO_INSTANCE),
			   gi_capacity(&t.board, mig_gi_find(t.state, id)), NULL)) {
		mig_gi_destroy(t.state, id);
		return -ENOMEM;
	}
	changed(&t);
	reply->id = id;
	return 0;
}

static int gi_destroy(struct host *h, struct exchange *x)
{
	const struct wire_device_request *request = x->request;
	uint8_t id = (uint8_t)wire_device_gi(request->device);
	struct mig_state after;
	struct target t;
	int r = destroy_begin(h, x, request->device, &t);

	if (r < 0)
		return r;
	if (request->device != gi_of(request->device))
		return -ENOENT;
	after = *t.state;
	r = mig_gi_destroy(&after, id);
	if (r == 0)
		r = host_part_remove(h, host_part_find(h, request->device));
	if (r < 0)
		return r;
	*t.state = after;
	changed(&t);
	return 0;
}

static int ci_create(struct host *h, struct exchange *x)
{
	const struct wire_mig_create *request = x->request;
	struct wire_mig_create_reply *reply = (void *)&x->reply;
	uint32_t gpu = wire_device_gpu(request->device), gi_id = wire_device_gi(request->device);
	struct target t;
	struct mig_gi *gi;
	uint8_t id;
	int r = change_begin(h, x, request->device, &t);

	if (r < 0)
		return r;
	gi = mig_gi_find(t.state, (uint8_t)gi_id);
	if (!gi)
		return -ENOENT;
	if (request->start > MIG_ANYWHERE)
		return -EINVAL;
	r = mig_ci_create(&t.board, gi, request->profile_id, (uint8_t)request->start, &id);
	if (r < 0)
		return r;
	if (!host_part_add(h, WIRE_DEVICE_MIG(gpu, gi_id, id), 0,
			   host_part_find(h, gi_of(request->device)))) {
		mig_ci_destroy(gi, id);
		return -ENOMEM;
	}
	changed(&t);
	reply->id = id;
	return 0;
}

/* Memory belongs to the GPU instance, so that only its last compute instance is known to be free of
 * it; of the others, that nothing runs there. */
static int ci_destroy(struct host *h, struct exchange *x)
{
	const struct wire_device_request *request = x->request;
	uint32_t gi_id = wire_device_gi(request->device);
	struct part *part = host_part_find(h, request->device);
	struct target t;
	struct mig_gi *gi;
	uint32_t compute_instances = 0;
	int r = destroy_begin(h, x, request->device, &t);

	if (r < 0)
		return r;
	gi = mig_gi_find(t.state, (uint8_t)gi_id);
	if (!gi || !part || wire_device_ci(request->device) == WIRE_NO_INSTANCE)
		return -ENOENT;
	for (size_t i = 0; i < MIG_CI_MAX; i++)
		compute_instances += gi->ci[i].used;
	if (compute_instances == 1 && host_part_find(h, gi_of(request->device))->own_space.used)
		return -EBUSY;
	r = host_part_remove(h, part);
	if (r < 0)
		return r;
	mig_ci_destroy(gi, (uint8_t)wire_device_ci(request->device));
	changed(&t);
	return 0;
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
	 .reply_size = sizeof(struct wire_mig_create_reply),
	 .run = gi_create},
	{.type = (enum wire_type)WIRE_MIG_GI_DESTROY,
	 .size = sizeof(struct wire_device_request),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_head),
	 .run = gi_destroy},
	{.type = (enum wire_type)WIRE_MIG_CI_CREATE,
	 .size = sizeof(struct wire_mig_create),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_mig_create_reply),
	 .run = ci_create},
	{.type = (enum wire_type)WIRE_MIG_CI_DESTROY,
	 .size = sizeof(struct wire_device_request),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_head),
	 .run = ci_destroy},
	{0},
};
