/* Several memory requests of one party in one instance. The smallest room that is enough is taken,
 * so that large rooms stay for large requests. The hardware holds an instance to its size, but
 * within the instance the front alone holds each session to its part. A hostile program can leave
 * the front, and so strangers never share. */
#include <errno.h>

#include "core/mig_private.h"

static bool is_better(const struct mig_pool *pool, const struct mig_choice *best,
		      const struct mig_instance *in)
{
	return !best || in->room < pool->gpus[best->gpu].instances[best->instance].room;
}

int mig_join(const struct mig_pool *pool, const struct mig_request *request,
	     struct mig_decision *ret)
{
	struct mig_choice found, *best = NULL;

	if (!request->together || request->kind != MIG_ASK_BYTES || request->count != 1)
		return -EAGAIN;
	for (uint32_t gpu = 0; gpu < pool->gpu_count; gpu++) {
		const struct mig_gpu *g = &pool->gpus[gpu];

		for (uint32_t i = 0; i < g->instance_count; i++) {
			const struct mig_instance *in = &g->instances[i];

			if (!mig_considers(request, g, gpu) || in->state != MIG_BUSY || !in->room ||
			    in->party != request->party || in->room < request->bytes ||
			    in->profile == MIG_NO_PROFILE ||
			    mig_is_too_small(g, in->profile, request) || !is_better(pool, best, in))
				continue;
			found = (struct mig_choice){.step = MIG_JOIN,
						    .gpu = gpu,
						    .instance = i,
						    .profile = in->profile,
						    .start = in->start,
						    .near = MIG_NO_PROFILE,
						    .bytes = request->bytes,
						    .requested = request->bytes};
			best = &found;
		}
	}
	if (!best)
		return -EAGAIN;
	ret->count = 1;
	ret->choice[0] = *best;
	return 0;
}
