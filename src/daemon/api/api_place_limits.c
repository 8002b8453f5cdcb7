#include "daemon/api/api_place_limits.h"

#include "daemon/api/limits_row.h"
#include "daemon/node.h"

void api_place_limits(struct limits_view *view)
{
	const struct pool *pool = &view->node->pool;
	bool spread = pool->policy == PLACE_SPREAD;
	char gpus[POOL_GPUS_TEXT_SIZE];
	uint64_t drained = 0;

	for (uint32_t i = 0; i < pool->count; i++)
		if (gpu_drain_of(pool, i))
			drained |= 1ull << i;
	limits_add(view, &(struct limit_row){.limit = "placement",
					     .title = "placement",
					     .unit = LIMIT_TEXT,
					     .text = spread ? "spread" : "pack",
					     .used = LIMITS_NONE,
					     .from = spread ? "carved.json" : "default",
					     .name = spread ? "placement" : NULL});
	if (drained)
		limits_add(view, &(struct limit_row){.limit = "drained",
						     .title = "drained GPUs",
						     .unit = LIMIT_TEXT,
						     .text = pool_gpus_text(pool, drained, gpus),
						     .used = LIMITS_NONE});
}
