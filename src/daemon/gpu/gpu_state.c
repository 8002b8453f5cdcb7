#include "daemon/gpu/gpu_state.h"

#include <errno.h>
#include <stdbool.h>

#include "base/clock.h"
#include "daemon/events/events.h"
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
	[GPU_STATE_DRAINED] = "drained",
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
static enum gpu_state gpu_state_find(const struct pool_gpu *gpu, bool drained)
{
	if (gpu->claim.state != CLAIM_OURS)
		return pool_gpu_is_left(gpu) && gpu->sessions ? GPU_STATE_DRAINING : GPU_STATE_HELD;
	if (gpu->sample.error)
		return gpu_state_of_error(gpu->sample.error);
	if (gpu->info.mig && !gpu->gives_instances)
		return GPU_STATE_MIG;
	if (drained)
		return gpu->sessions ? GPU_STATE_DRAINING : GPU_STATE_DRAINED;
	return GPU_STATE_OK;
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

/* ---- events -------------------------------------------------------------------------------- */

/* A driver that does not answer for a moment is no event. */
#define FAILING_NS 10000000000ull
/* A GPU that comes and goes is two events in this time at most. */
#define EVENT_PAUSE_NS 60000000000ull

static bool is_lost(const struct pool_gpu *gpu, uint64_t now)
{
	return gpu->state == GPU_STATE_LOST ||
	       (gpu->state == GPU_STATE_FAILING && now - gpu->changed_ns >= FAILING_NS);
}

static void event_tell(const struct pool *pool, const struct pool_gpu *gpu)
{
	char subject[POOL_GPUS_TEXT_SIZE];

	events_add(pool->events,
		   &(struct event){
			   .kind = gpu->told_lost ? EVENT_GPU_LOST : EVENT_GPU_BACK,
			   .subject = pool_gpus_text(pool, 1ull << (gpu - pool->gpu), subject),
			   .before = gpu->told_lost ? "ok" : "lost",
			   .after = names[gpu->state],
			   .text = gpu_state_reason(gpu),
		   });
}

static void event_look(const struct pool *pool, struct pool_gpu *gpu, uint64_t now)
{
	bool lost = is_lost(gpu, now);

	if (lost == gpu->told_lost || (!lost && is_of_error(gpu->state)) ||
	    (gpu->told_ns && now - gpu->told_ns < EVENT_PAUSE_NS && lost))
		return;
	gpu->told_lost = lost;
	if (lost)
		gpu->told_ns = now;
	event_tell(pool, gpu);
}

void gpu_states_look(struct pool *pool)
{
	uint64_t now = now_monotonic_ns();

	for (uint32_t i = 0; i < pool->count; i++) {
		struct pool_gpu *gpu = &pool->gpu[i];
		enum gpu_state state = gpu_state_find(gpu, gpu_drain_of(pool, i) != NULL);

		if (!gpu->state_since || state != gpu->state) {
			if (gpu->state_since || state != GPU_STATE_OK)
				state_tell(gpu, state);
			gpu->state = state;
			gpu->state_since = now_realtime_ns();
			gpu->changed_ns = now;
		}
		event_look(pool, gpu, now);
	}
}
