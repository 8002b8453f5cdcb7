/* Quotas: what a user, or the users of a group together, may hold at most. Pure. */
#pragma once

#include <stdint.h>

/* No limit, in each of a quota's fields. */
#define QUOTA_NONE UINT64_MAX

struct quota {
	uint64_t vram_bytes; /* sum over all slices and GPUs */
	uint64_t sessions;
	uint64_t gpus; /* different GPUs */
};

/* The present use. */
struct quota_use {
	uint64_t vram_bytes;
	uint64_t sessions;
	uint64_t gpu_mask; /* bit = position in the pool */
};

enum quota_verdict {
	QUOTA_WITHIN,
	QUOTA_VRAM,
	QUOTA_SESSIONS,
	QUOTA_GPUS,
};

struct quota_use quota_add(struct quota_use a, struct quota_use b);
uint64_t quota_gpus(struct quota_use use);
/* The first field that `use` exceeds. */
enum quota_verdict quota_check(const struct quota *quota, struct quota_use use);
