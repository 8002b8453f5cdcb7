#include "proto/warden_mig.h"

/* More GPUs than any host has. */
#define GPU_MOST 256u

bool warden_mig_names_gpu(const void *request)
{
	const struct warden_mig *r = request;

	return r->gpu < GPU_MOST && !r->profile_id && !r->start && !r->size && !r->reserved &&
	       !r->more;
}

bool warden_mig_names_place(const void *request)
{
	const struct warden_mig *r = request;

	return r->gpu < GPU_MOST && r->size && r->start + r->size <= (int)WARDEN_MIG_MOST &&
	       !r->reserved && !r->more;
}

bool warden_mig_wanted_fits(const void *request)
{
	const struct warden_mig_wanted *r = request;

	if (r->gpu >= GPU_MOST || r->count > WARDEN_MIG_MOST)
		return false;
	for (uint32_t i = r->count; i < WARDEN_MIG_MOST; i++)
		if (r->id[i])
			return false;
	return true;
}
