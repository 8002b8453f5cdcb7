#include "core/quota.h"

struct quota_use quota_add(struct quota_use a, struct quota_use b)
{
	uint64_t room = UINT64_MAX - a.vram_bytes;

	return (struct quota_use){
		.vram_bytes = a.vram_bytes + (b.vram_bytes < room ? b.vram_bytes : room),
		.sessions = a.sessions + b.sessions,
		.gpu_mask = a.gpu_mask | b.gpu_mask,
	};
}

uint64_t quota_gpus(struct quota_use use)
{
	return (uint64_t)__builtin_popcountll(use.gpu_mask);
}

enum quota_verdict quota_check(const struct quota *quota, struct quota_use use)
{
	if (use.vram_bytes > quota->vram_bytes)
		return QUOTA_VRAM;
	if (use.sessions > quota->sessions)
		return QUOTA_SESSIONS;
	if (quota_gpus(use) > quota->gpus)
		return QUOTA_GPUS;
	return QUOTA_WITHIN;
}
