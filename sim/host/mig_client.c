#include "host/mig_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int mig_client_state(struct client *c, uint32_t gpu, struct wire_mig_state_reply *ret)
{
	struct wire_device_request request = {.head.type = WIRE_MIG_STATE, .device = gpu};
	int r = client_call(c, &request, sizeof(request), -1, ret, sizeof(*ret), NULL);

	return r < 0 ? r : 0;
}

static void device_fill(const struct mig_board *b, const struct wire_gpu *gpu,
			const struct mig_gi *gi, uint8_t ci, struct mig_device *d)
{
	const struct mig_profile *p = mig_profile_by_id(b, gi->profile_id);
	struct mig_compute_profile compute;

	mig_uuid(gpu->uuid, gi, &gi->ci[ci], d->uuid);
	d->gi_slices = p->compute_slices;
	d->memory_total = (uint64_t)mig_gi_memory_mib(b, gi) << 20;
	d->memory_reserved = mig_reserved_bytes(b, p);
	if (b->family->memory_shared) {
		d->memory_total = gpu->memory_total;
		d->memory_reserved = gpu->memory_reserved;
	}
	if (!mig_compute_profile(b, gi, gi->ci[ci].profile_id, &compute))
		return;
	memcpy(d->profile, compute.name, sizeof(d->profile));
	d->sm = compute.sm;
	d->ci_slices = compute.slices;
}

static int by_instance(const void *a, const void *b)
{
	const struct mig_device *x = a, *y = b;
	uint32_t gi_x = wire_device_gi(x->id), gi_y = wire_device_gi(y->id);

	if (gi_x != gi_y)
		return gi_x < gi_y ? -1 : 1;
	return (int)wire_device_ci(x->id) - (int)wire_device_ci(y->id);
}

int mig_client_devices(struct client *c, uint32_t gpu, struct mig_device out[MIG_DEVICES_MAX])
{
	const struct wire_host *host = client_host(c);
	struct wire_mig_state_reply reply;
	struct mig_board board;
	int n = 0, r;

	if (gpu >= host->gpu_count)
		return -ENODEV;
	if (!(host->gpu[gpu].flags & WIRE_GPU_MIG) ||
	    !mig_board_find(sim_model_find(host->gpu[gpu].model), host->driver_branch, &board))
		return 0;
	r = mig_client_state(c, gpu, &reply);
	if (r < 0)
		return r;
	for (size_t i = 0; i < MIG_GI_MAX; i++) {
		const struct mig_gi *gi = &reply.state.gi[i];

		for (uint8_t ci = 0; gi->used && ci < MIG_CI_MAX; ci++) {
			if (!gi->ci[ci].used)
				continue;
			out[n] = (struct mig_device){.id = WIRE_DEVICE_MIG(gpu, gi->id, ci),
						     .memory_used = reply.used[i]};
			device_fill(&board, &host->gpu[gpu], gi, ci, &out[n++]);
		}
	}
	qsort(out, (size_t)n, sizeof(out[0]), by_instance);
	return n;
}

int mig_client_set_mode(struct client *c, uint32_t gpu, bool enable)
{
	struct wire_mig_set_mode request = {
		.head.type = WIRE_MIG_SET_MODE, .device = gpu, .enable = enable};
	struct wire_head reply;
	int r = client_call(c, &request, sizeof(request), -1, &reply, sizeof(reply), NULL);

	return r < 0 ? r : 0;
}

int mig_client_create(struct client *c, enum wire_mig_type type, wire_device device,
		      uint32_t profile_id, uint32_t start, uint32_t *ret_id)
{
	struct wire_mig_create request = {
		.head.type = type, .device = device, .profile_id = profile_id, .start = start};
	struct wire_mig_reply reply = {.delay_ns = 0};
	int r = client_call(c, &request, sizeof(request), -1, &reply, sizeof(reply), NULL);

	client_sleep(reply.delay_ns);
	if (r < 0)
		return r;
	*ret_id = reply.id;
	return 0;
}

int mig_client_destroy(struct client *c, enum wire_mig_type type, wire_device device)
{
	struct wire_device_request request = {.head.type = type, .device = device};
	struct wire_mig_reply reply = {.delay_ns = 0};
	int r = client_call(c, &request, sizeof(request), -1, &reply, sizeof(reply), NULL);

	client_sleep(reply.delay_ns);
	return r < 0 ? r : 0;
}
