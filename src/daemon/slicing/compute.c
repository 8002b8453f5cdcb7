#include "daemon/slicing/compute.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/units.h"
#include "daemon/gpu/pool.h"
#include "daemon/session/session.h"

static bool is_on(const struct session *s, int gpu)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] == gpu)
			return true;
	return false;
}

/* "s-abc123 (60%), s-def456 (50%)", as many as there is room for. */
static void sessions_name(const struct session *first, int gpu, char *buf, size_t size)
{
	size_t used = 0;
	unsigned left = 0;

	buf[0] = '\0';
	for (const struct session *s = first; s; s = s->next) {
		if (!s->record.compute || !is_on(s, gpu))
			continue;
		if (used + 64 > size) {
			left++;
			continue;
		}
		used += (size_t)snprintf(buf + used, size - used, "%s%s (%g%%)", used ? ", " : "",
					 s->record.id, s->record.compute * 100.0 / SHARE_ONE);
	}
	if (left)
		snprintf(buf + used, size - used, " and %u more", left);
}

int compute_switch_check(const struct pool *pool, const struct session *first, uint64_t mask,
			 struct error *err)
{
	char names[320];

	for (uint32_t i = 0; i < pool->count; i++) {
		const struct pool_gpu *gpu = &pool->gpu[i];

		if (!(mask >> i & 1) || gpu->share <= SHARE_ONE)
			continue;
		sessions_name(first, (int)i, names, sizeof(names));
		error_set(err, EXIT_CODE_FAILED,
			  "GPU %u: its sessions ask for %g%% of its time: %s", gpu->info.index,
			  (double)gpu->share * 100.0 / SHARE_ONE, names);
		error_hint(err, "time is promised once: release one of them first");
		return -1;
	}
	return 0;
}
