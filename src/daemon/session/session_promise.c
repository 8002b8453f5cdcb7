/* Promises to sessions: memory of GPUs, and shares of their time. */
#include <stdlib.h>

#include "base/macros.h"
#include "base/units.h"
#include "daemon/gpu/pool.h"
#include "daemon/lease/leases.h"
#include "daemon/session/session.h"
#include "daemon/session/session_private.h"
#include "daemon/session/sessions.h"

struct drain {
	struct drain *next;
	int gpu;
	uint64_t bytes;
	uint64_t sample; /* number of the first sample that started after the end */
};

void session_promise_share(struct sessions *sessions, int position, uint32_t more, uint32_t less)
{
	struct pool_gpu *gpu = &sessions->pool->gpu[position];

	if (more == less)
		return;
	gpu->share += more;
	gpu->share -= less;
	leases_promise(sessions->leases, (uint32_t)position, (uint32_t)MIN(gpu->share, SHARE_ONE));
}

bool session_promise_first(const struct session *s, uint32_t position)
{
	for (uint32_t i = 0; i < position; i++)
		if (s->pool_gpu[i] == s->pool_gpu[position])
			return false;
	return true;
}

void session_promise_add(struct session *s, uint32_t position)
{
	if (s->pool_gpu[position] < 0)
		return;
	struct pool_gpu *gpu = &s->sessions->pool->gpu[s->pool_gpu[position]];
	gpu->sessions += session_promise_first(s, position);
	/* An instance is nothing of what the GPU itself can give. */
	if (s->record.gpu[position].instance[0])
		return;
	gpu->promised += s->record.gpu[position].bytes;
	session_promise_share(s->sessions, s->pool_gpu[position], s->record.compute, 0);
}

/* Memory that processes held may still be the driver's: the promise stays until figures are newer.
 */
static bool drain_add(struct session *s, uint32_t position, uint64_t sample)
{
	struct drain *drain = malloc(sizeof(*drain));

	if (!drain)
		return false;
	*drain = (struct drain){
		.next = s->sessions->drains,
		.gpu = s->pool_gpu[position],
		.bytes = s->record.gpu[position].bytes,
		.sample = sample,
	};
	s->sessions->drains = drain;
	return true;
}

void session_promises_drop(struct session *s)
{
	struct pool *pool = s->sessions->pool;
	bool drains = books_exist(&s->books);
	uint64_t sample = drains ? pool_refresh(pool, POOL_ALL) : 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		if (s->pool_gpu[i] < 0)
			continue;
		struct pool_gpu *gpu = &pool->gpu[s->pool_gpu[i]];
		gpu->sessions -= session_promise_first(s, i);
		if (s->record.gpu[i].instance[0])
			continue;
		session_promise_share(s->sessions, s->pool_gpu[i], 0, s->record.compute);
		if (!drains || !drain_add(s, i, sample))
			gpu->promised -= s->record.gpu[i].bytes;
	}
}

bool session_drain(struct sessions *sessions)
{
	bool any = false;

	for (struct drain **at = &sessions->drains; *at;) {
		struct drain *drain = *at;

		if (drain->sample > sessions->pool->done) {
			at = &drain->next;
			continue;
		}
		sessions->pool->gpu[drain->gpu].promised -= drain->bytes;
		*at = drain->next;
		free(drain);
		any = true;
	}
	return any;
}

void session_promises_free(struct sessions *sessions)
{
	while (sessions->drains) {
		struct drain *drain = sessions->drains;

		sessions->drains = drain->next;
		free(drain);
	}
}
