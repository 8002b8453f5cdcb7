#include "daemon/gpu/pool.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/gpu/known.h"
#include "daemon/host/keep.h"
#include "daemon/host/log.h"
#include "daemon/host/peer.h"

#define CLAIM_TRIES 50
/* Another system daemon that holds the claims' lock may have been put aside by the machine. */
#define LOCK_TRIES 500
/* The interval at which the driver is looked for, where there was no GPU at the start. */
#define DRIVER_LOOK_NS 2000000000ull
#define CLAIM_PAUSE_NS 10000000L
#define SAMPLE_CHEAP_NS 2000000ull

/* ---- one daemon a GPU -------------------------------------------------------------------- */

static void claim_part(const struct pool_gpu *gpu, char ret[static SUPERVISOR_NAME_SIZE])
{
	snprintf(ret, SUPERVISOR_NAME_SIZE, "%s", gpu->info.uuid_text);
	for (char *c = ret; *c; c++)
		*c = (char)tolower((unsigned char)*c);
}

static void claim_tell(const struct pool_gpu *gpu)
{
	const struct gpu_info *info = &gpu->info;

	switch (gpu->claim.state) {
	case CLAIM_OURS:
		log_event(LOG_INFO, "gpu.offered index=%u uuid=%s name=\"%s\"", info->index,
			  info->uuid_text, info->name);
		break;
	case CLAIM_SYSTEM:
		log_event(LOG_WARNING,
			  "gpu.left index=%u uuid=%s to=\"the system daemon\" by_pid=%d",
			  info->index, info->uuid_text, (int)gpu->claim.holder.pid);
		break;
	case CLAIM_RESERVED:
		log_event(LOG_WARNING,
			  "gpu.left index=%u uuid=%s to=\"carved.service, which does not run\"",
			  info->index, info->uuid_text);
		break;
	case CLAIM_NONE:
	case CLAIM_OTHERS:
		log_event(LOG_WARNING, "gpu.taken index=%u uuid=%s by_pid=%d", info->index,
			  info->uuid_text, (int)gpu->claim.holder.pid);
		break;
	}
}

/* The supervisor keeps the names, too: no other daemon gets a GPU while this one is started anew.
 */
static void claim_keep(struct pool *pool, const struct pool_gpu *gpu, bool had)
{
	char part[SUPERVISOR_NAME_SIZE];
	bool has = gpu->claim.name_fd >= 0;

	claim_part(gpu, part);
	if (has && !had)
		keep_put(pool->keep, SUPERVISOR_CLAIM, part, gpu->claim.name_fd);
	if (had && !has)
		keep_drop(pool->keep, SUPERVISOR_CLAIM, part);
}

static bool gpu_claim(struct pool *pool, struct pool_gpu *gpu)
{
	bool had = gpu->claim.name_fd >= 0;
	bool changed = claim_update(&pool->claims, pool->loop, &gpu->claim, gpu->info.uuid_text,
				    gpus_are_simulated(pool->gpus));

	claim_keep(pool, gpu, had);
	return changed;
}

static void gpu_unclaim(struct pool *pool, struct pool_gpu *gpu)
{
	bool had = gpu->claim.name_fd >= 0;

	claim_release(&pool->claims, &gpu->claim, gpu->info.uuid_text);
	claim_keep(pool, gpu, had);
}

bool pool_claim(struct pool *pool, bool all)
{
	bool changed = false;

	for (uint32_t i = 0; i < pool->count; i++) {
		struct pool_gpu *gpu = &pool->gpu[i];
		const struct claim *claim = &gpu->claim;

		if (!all && claim->state == CLAIM_OTHERS && claim->holder.pid &&
		    process_alive(claim->holder))
			continue;
		if (!gpu_claim(pool, gpu))
			continue;
		changed = true;
		claim_tell(gpu);
	}
	if (all)
		pool->claimed_ns = now_monotonic_ns();
	return changed;
}

void pool_claim_since(struct pool *pool, uint64_t age_ns)
{
	bool known = pool->claimed_ns && now_monotonic_ns() - pool->claimed_ns <= age_ns;

	for (uint32_t i = 0; i < pool->count; i++)
		known &= pool->gpu[i].claim.state != CLAIM_NONE;
	if (!known)
		(void)pool_claim(pool, true);
}

bool pool_gpu_is_left(const struct pool_gpu *gpu)
{
	return gpu->claim.state == CLAIM_SYSTEM || gpu->claim.state == CLAIM_RESERVED;
}

void pool_unclaim(struct pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++)
		gpu_unclaim(pool, &pool->gpu[i]);
}

/* ---- samples ----------------------------------------------------------------------------- */

static void sample_take(uv_work_t *work)
{
	struct pool *pool = work->data;
	uint64_t began = now_monotonic_ns();

	for (uint32_t i = 0; i < pool->count; i++) {
		const struct pool_gpu *gpu = &pool->gpu[i];

		if (!(pool->mask >> i & 1))
			continue;
		if (gpu->info.unread)
			gpus_info(pool->gpus, gpu->info.index, &pool->found[i]);
		gpus_sample(pool->gpus, gpu->info.index, pool->exact,
			    unlisted_bytes(&gpu->unlisted), gpu->parts_wanted, &pool->incoming[i]);
	}
	pool->took_next_ns = now_monotonic_ns() - began;
}

static void sample_start(struct pool *pool);

/* Anybody who may can switch the mode while the daemon lives. True: it is another now. */
static bool mig_follow(struct pool_gpu *gpu)
{
	const struct gpu_sample *sample = &gpu->sample;
	bool changed = sample->mig >= 0 && gpu->info.mig != (sample->mig > 0);

	if (sample->mig >= 0)
		gpu->info.mig_capable = sample->mig_capable;
	if (changed) {
		gpu->info.mig = sample->mig > 0;
		log_event(LOG_WARNING, "gpu.mig index=%u uuid=%s mode=%s", gpu->info.index,
			  gpu->info.uuid_text, gpu->info.mig ? "on" : "off");
	}
	if ((changed || !gpu->info.total) && !gpu->info.mig && !sample->error) {
		gpu->info.total = sample->total;
		gpu->info.reserved = sample->reserved;
	}
	return changed;
}

/* A GPU that was lost when the daemon started may answer by now. It is the one that it was taken
 * for, unless nobody knew it. */
static void unread_follow(struct pool *pool, struct pool_gpu *gpu, const struct gpu_info *found)
{
	if (!gpu->info.unread || found->unread)
		return;
	log_event(LOG_INFO, "gpu.read index=%u uuid=%s before=%s", found->index, found->uuid_text,
		  gpu->info.uuid_text);
	bool same = !strcmp(gpu->info.uuid_text, found->uuid_text);
	if (!same)
		gpu_unclaim(pool, gpu);
	gpu->info = *found;
	known_keep(pool->store, found);
	if (same)
		return;
	gpu->claim = CLAIM_NEW;
	gpu_claim(pool, gpu);
	claim_tell(gpu);
}

/* The driver's figure is of the moment before. A longer gap than this between two samples is one in
 * which nobody had a session there. */
#define BUSY_GAP_NS 2000000000ull

static void busy_follow(struct pool_gpu *gpu, uint64_t now)
{
	uint64_t gap = gpu->sampled_ns ? MIN(now - gpu->sampled_ns, BUSY_GAP_NS) : 0;
	int percent = gpu->sample.error ? -1 : gpu->sample.utilization;

	gpu->sampled_ns = now;
	if (percent > 0)
		busy_add(&gpu->busy, now, gap * (uint64_t)MIN(percent, 100) / 100);
}

static void sample_done(uv_work_t *work, int status)
{
	struct pool *pool = work->data;
	bool whole = true;

	pool->mig_changed = 0;
	for (uint32_t i = 0; i < pool->count; i++) {
		if (!(pool->mask >> i & 1)) {
			whole = false;
			continue;
		}
		gpu_sample_clear(&pool->gpu[i].sample);
		pool->gpu[i].sample = pool->incoming[i];
		pool->incoming[i] = (struct gpu_sample){0};
		busy_follow(&pool->gpu[i], now_monotonic_ns());
		unread_follow(pool, &pool->gpu[i], &pool->found[i]);
		if (!mig_follow(&pool->gpu[i]))
			continue;
		pool->mig_changed |= 1ull << i;
		known_keep(pool->store, &pool->gpu[i].info);
	}
	pool->done = pool->started;
	pool->took_ns = pool->took_next_ns;
	pool->took_all_ns += pool->took_ns;
	pool->ended_ns = now_monotonic_ns();
	if (whole)
		pool->done_ns = pool->started_ns;
	/* Still "running" for the callback: what it asks for starts after it. */
	pool->on_sample(pool->arg);
	pool->running = false;
	if (pool->mask_next)
		sample_start(pool);
}

static void sample_start(struct pool *pool)
{
	pool->mask = pool->mask_next;
	pool->mask_next = 0;
	pool->started++;
	pool->started_ns = now_monotonic_ns();
	pool->on_sampling(pool->arg);
	pool->running = uv_queue_work(pool->loop, &pool->work, sample_take, sample_done) == 0;
}

uint64_t pool_refresh(struct pool *pool, uint64_t mask)
{
	pool->mask_next |= mask;
	if (pool->running || pool->state != POOL_READY)
		return pool->started + 1;
	sample_start(pool);
	return pool->started;
}

uint64_t pool_pause_ns(const struct pool *pool, unsigned parts, uint64_t most_ns)
{
	uint64_t gone = now_monotonic_ns() - pool->ended_ns;
	uint64_t pause = MIN((parts - 1) * pool->took_ns, most_ns);

	return pool->took_ns < SAMPLE_CHEAP_NS || gone >= pause ? 0 : pause - gone;
}

/* ---- inventory --------------------------------------------------------------------------- */

static void inventory_take(uv_work_t *work)
{
	struct pool *pool = work->data;

	if (!pool->gpus && gpus_open(&pool->gpus, &pool->why) < 0)
		return;
	if (gpus_list(pool->gpus, pool->found, GPUS_MAX, &pool->found_count) < 0)
		error_set(&pool->why, EXIT_CODE_FAILED, "the driver does not list its GPUs");
	else if (pool->found_count == 0)
		error_set(&pool->why, EXIT_CODE_FAILED, "the driver sees no GPU");
}

/* A user's daemon that was killed may leave its names for a moment to threads that are still
 * ending. It may also leave them to a child that it had just forked, until that execs. So a name
 * that nobody alive holds is worth a moment's wait. */
static void gpu_claim_patiently(struct pool *pool, struct pool_gpu *gpu)
{
	struct timespec pause = {.tv_nsec = CLAIM_PAUSE_NS};
	struct claim *claim = &gpu->claim;
	char part[SUPERVISOR_NAME_SIZE];

	claim_part(gpu, part);
	int left = keep_take(pool->keep, SUPERVISOR_CLAIM, part);
	/* It took names until root made it a system daemon. */
	if (left >= 0 && pool->claims.system)
		close_fd(&left);
	if (left >= 0)
		claim_inherit(pool->loop, claim, left);
	for (int tries = 0; tries < (claim->state == CLAIM_NONE ? LOCK_TRIES : CLAIM_TRIES);
	     tries++) {
		gpu_claim(pool, gpu);
		if (claim->state != CLAIM_NONE &&
		    (claim->state != CLAIM_OTHERS || claim->holder.pid))
			return;
		nanosleep(&pause, NULL);
	}
}

static void inventory_done(uv_work_t *work, int status)
{
	struct pool *pool = work->data;

	pool->running = false;
	known_inventory(pool->store, pool->found, pool->found_count);
	for (size_t i = 0; i < pool->found_count; i++) {
		struct pool_gpu *gpu = &pool->gpu[i];

		*gpu = (struct pool_gpu){.info = pool->found[i],
					 .claim = CLAIM_NEW,
					 .sample.error = pool->found[i].unread};
		gpu_claim_patiently(pool, gpu);
		claim_tell(gpu);
	}
	pool->count = (uint32_t)pool->found_count;
	pool->state = pool->count ? POOL_READY : POOL_NO_GPU;
	if (!pool->count)
		log_event(LOG_WARNING, "gpu.none reason=\"%s\"", pool->why.message);
	pool->on_inventory(pool->arg);
	if (pool->state == POOL_READY && pool->mask_next && !pool->running)
		sample_start(pool);
}

int pool_start(struct pool *pool, uv_loop_t *loop)
{
	pool->loop = loop;
	pool->state = POOL_STARTING;
	pool->work.data = pool;
	int rc = uv_queue_work(loop, &pool->work, inventory_take, inventory_done);
	pool->running = rc == 0;
	return rc;
}

/* A driver that has no GPU yet is opened anew: it may list none until then. */
static void driver_look(uv_work_t *work)
{
	struct pool *pool = work->data;

	gpus_close(pool->gpus);
	pool->gpus = NULL;
	inventory_take(work);
}

static void driver_looked(uv_work_t *work, int status)
{
	struct pool *pool = work->data;

	pool->running = false;
	if (status == 0 && pool->found_count)
		pool->on_driver(pool->arg);
}

void pool_look_for_driver(struct pool *pool)
{
	uint64_t now = now_monotonic_ns();

	if (pool->state != POOL_NO_GPU || pool->running || now < pool->look_ns)
		return;
	pool->look_ns = now + DRIVER_LOOK_NS;
	pool->found_count = 0;
	pool->running = uv_queue_work(pool->loop, &pool->work, driver_look, driver_looked) == 0;
}

void pool_close(struct pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++) {
		gpu_sample_clear(&pool->gpu[i].sample);
		free(pool->gpu[i].before.processes);
		pool->gpu[i].before.processes = NULL;
		gpu_sample_clear(&pool->incoming[i]);
	}
	claims_close(&pool->claims);
	gpus_close(pool->gpus);
	pool->gpus = NULL;
	pool->count = 0;
}

/* ---- views ------------------------------------------------------------------------------- */

void pool_place_gpus(const struct pool *pool, struct place_gpu *ret)
{
	uint64_t now = now_monotonic_ns();

	for (uint32_t i = 0; i < pool->count; i++) {
		const struct pool_gpu *gpu = &pool->gpu[i];

		ret[i] = (struct place_gpu){
			.total = gpu->info.total,
			.reserved = gpu->info.reserved,
			.outside = gpu->outside,
			.promised = gpu->promised,
			.context = gpu->context_bytes,
			.sessions = gpu->sessions,
			.share = gpu->share,
			.shared_time = compute_mode_promises(gpu->mode),
			.busy = busy_percent(&gpu->busy, now),
			.offered = pool_gpu_is_ours(gpu) && !gpu->sample.error,
			.drained = gpu_drain_of(pool, i) != NULL,
		};
	}
}

static uint64_t indices_of(const struct pool *pool, uint64_t mask)
{
	uint64_t indices = 0;

	for (uint32_t i = 0; i < pool->count; i++)
		if (mask >> i & 1 && pool->gpu[i].info.index < GPUS_MAX)
			indices |= 1ull << pool->gpu[i].info.index;
	return indices;
}

const char *pool_gpus_text(const struct pool *pool, uint64_t mask,
			   char buf[static POOL_GPUS_TEXT_SIZE])
{
	uint64_t left = indices_of(pool, mask);
	size_t used = (size_t)snprintf(buf, POOL_GPUS_TEXT_SIZE, "GPU%s",
				       __builtin_popcountll(left) == 1 ? "" : "s");

	for (unsigned at = 0; at < GPUS_MAX && used < POOL_GPUS_TEXT_SIZE - 16; at++) {
		unsigned last = at;

		if (!(left >> at & 1))
			continue;
		while (last + 1 < GPUS_MAX && left >> (last + 1) & 1)
			last++;
		used += (size_t)snprintf(buf + used, POOL_GPUS_TEXT_SIZE - used,
					 last == at ? "%s %u" : "%s %u-%u",
					 left & ((1ull << at) - 1) ? "," : "", at, last);
		at = last;
	}
	return buf;
}

int pool_find(const struct pool *pool, const char *uuid_text)
{
	for (uint32_t i = 0; i < pool->count; i++)
		if (!strcmp(pool->gpu[i].info.uuid_text, uuid_text))
			return (int)i;
	return -1;
}
