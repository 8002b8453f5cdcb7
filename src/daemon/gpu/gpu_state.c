#include "daemon/gpu/gpu_state.h"

#include <errno.h>
#include <stdbool.h>

#include "base/clock.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"

static const char *const names[] = {
	[GPU_STATE_OK] = "ok",
	[GPU_STATE_LOST] = "lost",
	[GPU_STATE_FAILING] = "failing",
	[GPU_STATE_UNSUPPORTED] = "unsupported",
	[GPU_STATE_MIG] = "mig",
	[GPU_STATE_HELD] = "held",
	[GPU_STATE_DRAINING] = "draining",
};

const char *gpu_state_name(enum gpu_state state)
{
	return names[state];
}

/* An error of the driver's is the state's reason. */
static bool is_of_error(enum gpu_state state)
{
	return state == GPU_STATE_LOST || state == GPU_STATE_FAILING ||
	       state == GPU_STATE_UNSUPPORTED;
}

const char *gpu_state_reason(const struct pool_gpu *gpu)
{
	return is_of_error(gpu->state) ? gpu_sample_error_text(gpu->sample.error) : NULL;
}

static enum gpu_state gpu_state_of_error(int error)
{
	return error == -ENXIO     ? GPU_STATE_LOST
	       : error == -ENOTSUP ? GPU_STATE_UNSUPPORTED
				   : GPU_STATE_FAILING;
}

/* By what is known of it at this moment. Pure. */
static enum gpu_state gpu_state_find(const struct pool_gpu *gpu)
{
	if (gpu->claim.state != CLAIM_OURS)
		return pool_gpu_is_left(gpu) && gpu->sessions ? GPU_STATE_DRAINING : GPU_STATE_HELD;
	if (gpu->sample.error)
		return gpu_state_of_error(gpu->sample.error);
	return gpu->info.mig && !gpu->gives_instances ? GPU_STATE_MIG : GPU_STATE_OK;
}

static void state_tell(const struct pool_gpu *gpu, enum gpu_state state)
{
	enum log_level level = state == GPU_STATE_OK ? LOG_INFO : LOG_WARNING;
	const char *before = gpu->state_since ? names[gpu->state] : "new";

	if (is_of_error(state))
		log_event(level, "gpu.state index=%u uuid=%s state=%s before=%s error=\"%s\"",
			  gpu->info.index, gpu->info.uuid_text, names[state], before,
			  gpu_sample_error_text(gpu->sample.error));
	else
		log_event(level, "gpu.state index=%u uuid=%s state=%s before=%s", gpu->info.index,
			  gpu->info.uuid_text, names[state], before);
}

void gpu_states_look(struct pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++) {
		struct pool_gpu *gpu = &pool->gpu[i];
		enum gpu_state state = gpu_state_find(gpu);

		if (gpu->state_since && state == gpu->state)
			continue;
		if (gpu->state_since || state != GPU_STATE_OK)
			state_tell(gpu, state);
		gpu->state = state;
		gpu->state_since = now_realtime_ns();
	}
}
