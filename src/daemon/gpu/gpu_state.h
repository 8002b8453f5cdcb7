/* The state of a GPU of the pool, as its users see it, and since when. */
#pragma once

struct pool;
struct pool_gpu;

enum gpu_state {
	GPU_STATE_OK,
	GPU_STATE_LOST,        /* it fell off the bus, as the driver says */
	GPU_STATE_FAILING,     /* the driver does not answer for it, or with an error */
	GPU_STATE_UNSUPPORTED, /* NVML has no memory figures for it */
	GPU_STATE_MIG,         /* in MIG mode, without the role: neither slices nor instances */
	GPU_STATE_HELD,        /* another daemon has it */
	/* Nothing new is granted, and sessions go on: an administrator drained it, or it is left to
	 * another daemon. */
	GPU_STATE_DRAINING,
	GPU_STATE_DRAINED, /* by an administrator, and no session is on it */
};

/* "ok", "lost", "failing", "unsupported", "mig", "held", "draining", "drained" */
const char *gpu_state_name(enum gpu_state state);
/* The reason for which a GPU is lost, failing or unsupported: gpu_sample_error_text(). NULL: it is
 * in another state. Constant. */
const char *gpu_state_reason(const struct pool_gpu *gpu);
/* Brings all GPUs' states up to date, and logs what changed. Called with each sample, and each
 * second. */
void gpu_states_look(struct pool *pool);
