#include "daemon/waiting/grant.h"

#include <stdio.h>

#include "base/clock.h"
#include "core/place.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/peer.h"
#include "daemon/mig/mig.h"
#include "daemon/store/store.h"

void grant_record_fill(const struct pool *pool, const struct peer *peer,
		       const struct place_request *request, const struct place_result *place,
		       struct store_gpu *gpus, struct store_session *ret)
{
	*ret = (struct store_session){
		.uid = peer->uid,
		.gid = peer->gid,
		.groups = peer->groups,
		.received = -1,
		.tolerance_applied = place->tolerance_applied,
		.kind = request->kind,
		.compute = place_compute(request),
		.created = now_realtime_ns(),
		.gpu_count = place->count,
		.gpu = gpus,
	};
	for (uint32_t i = 0; i < place->count; i++) {
		const struct gpu_info *info = &pool->gpu[place->grant[i].gpu].info;

		gpus[i] = (struct store_gpu){
			.index = info->index,
			.bytes = place->grant[i].bytes,
			.requested = place->grant[i].requested,
		};
		snprintf(gpus[i].uuid_text, sizeof(gpus[i].uuid_text), "%s", info->uuid_text);
		snprintf(gpus[i].name, sizeof(gpus[i].name), "%s", info->name);
	}
}

void grant_record_instances(const struct mig_grant *instances, struct store_gpu *gpus)
{
	for (uint32_t i = 0; i < instances->count; i++) {
		const struct mig_share *share = &instances->share[i];

		snprintf(gpus[i].instance, sizeof(gpus[i].instance), "%s", share->uuid_text);
		snprintf(gpus[i].profile, sizeof(gpus[i].profile), "%s", share->profile);
	}
}

void grant_of_decision(const struct mig_decision *instances, struct place_result *ret)
{
	*ret = (struct place_result){.count = instances->count};
	for (uint32_t i = 0; i < instances->count; i++) {
		ret->grant[i] = (struct place_grant){.gpu = instances->choice[i].gpu,
						     .bytes = instances->choice[i].bytes,
						     .requested = instances->choice[i].requested};
		ret->tolerance_applied |= instances->choice[i].less;
	}
}

void grant_of_instances(const struct mig_grant *instances, struct place_result *ret)
{
	*ret = (struct place_result){.count = instances->count,
				     .tolerance_applied = instances->less};
	for (uint32_t i = 0; i < instances->count; i++)
		ret->grant[i] = (struct place_grant){.gpu = instances->share[i].gpu,
						     .bytes = instances->share[i].bytes,
						     .requested = instances->share[i].requested};
}
