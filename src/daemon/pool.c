#include "daemon/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/handover.h"
#include "daemon/log.h"
#include "daemon/peer.h"

#define CLAIM_TRIES 50
#define CLAIM_PAUSE_NS 10000000L
#define SAMPLE_CHEAP_NS 2000000ull

/* ---- one daemon a GPU -------------------------------------------------------------------- */

static socklen_t claim_address(const char *uuid_text, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	int length =
		snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1, "carve-gpu-%s", uuid_text);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* Whoever connects only wants to know who we are: the kernel has told already. */
static void on_claim_connection(uv_poll_t *poll, int status, int events)
{
	struct pool_gpu *gpu = poll->data;
	int fd = accept4(gpu->claim_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	close_fd(&fd);
}

static void holder_ask(struct pool_gpu *gpu, const struct sockaddr_un *address, socklen_t size)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct peer peer;

	gpu->holder_pid = 0;
	if (fd < 0 || connect(fd, (const struct sockaddr *)address, size) < 0 ||
	    peer_identify(fd, &peer) < 0 || process_is_headless(peer.process.pid))
		return;
	gpu->holder_pid = peer.process.pid;
	gpu->holder_uid = peer.uid;
}

/* The claim that the last program left; -1: none. */
static int claim_left(struct pool *pool, const char *uuid_text)
{
	const json_t *claims =
		pool->handover ? json_object_get(pool->handover->root, "claims") : NULL;
	size_t i;
	json_t *claim;

	json_array_foreach(claims, i, claim)
	{
		const char *uuid = json_string_value(json_object_get(claim, "uuid"));

		if (uuid && !strcmp(uuid, uuid_text))
			return handover_take(pool->handover, json_object_get(claim, "fd"));
	}
	return -1;
}

void pool_hand_over(const struct pool *pool, struct handover *h)
{
	for (uint32_t i = 0; i < pool->count; i++)
		if (pool->gpu[i].claim_fd >= 0)
			handover_add(h, "claims",
				     json_pack("{s:s, s:o}", "uuid", pool->gpu[i].info.uuid_text,
					       "fd", handover_fd(h, pool->gpu[i].claim_fd)));
}

static int claim_make(struct pool_gpu *gpu)
{
	struct sockaddr_un address;
	socklen_t size = claim_address(gpu->info.uuid_text, &address);
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 16) == 0)
		return steal_fd(&fd);
	holder_ask(gpu, &address, size);
	return -1;
}

static bool gpu_claim(struct pool *pool, struct pool_gpu *gpu)
{
	cleanup_close int fd = claim_left(pool, gpu->info.uuid_text);

	if (fd < 0)
		fd = claim_make(gpu);
	if (fd < 0)
		return false;
	uv_poll_t *poll = calloc(1, sizeof(*poll));
	if (!poll || uv_poll_init(pool->loop, poll, fd) < 0) {
		free(poll);
		return false;
	}
	poll->data = gpu;
	uv_poll_start(poll, UV_READABLE, on_claim_connection);
	gpu->claim_poll = poll;
	gpu->claim_fd = steal_fd(&fd);
	gpu->holder_pid = 0;
	return true;
}

bool pool_claim(struct pool *pool)
{
	bool won = false;

	for (uint32_t i = 0; i < pool->count; i++)
		if (pool->gpu[i].claim_fd < 0)
			won |= gpu_claim(pool, &pool->gpu[i]);
	return won;
}

static void free_handle(uv_handle_t *handle)
{
	free(handle);
}

void pool_unclaim(struct pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++) {
		struct pool_gpu *gpu = &pool->gpu[i];

		if (gpu->claim_poll)
			uv_close((uv_handle_t *)steal_ptr(&gpu->claim_poll), free_handle);
		close_fd(&gpu->claim_fd);
	}
}

/* ---- samples ----------------------------------------------------------------------------- */

static void sample_take(uv_work_t *work)
{
	struct pool *pool = work->data;
	uint64_t began = now_monotonic_ns();

	for (uint32_t i = 0; i < pool->count; i++)
		if (pool->mask >> i & 1)
			gpus_sample(pool->gpus, pool->gpu[i].info.index, pool->exact,
				    unlisted_bytes(&pool->gpu[i].unlisted), &pool->incoming[i]);
	pool->took_next_ns = now_monotonic_ns() - began;
}

static void sample_start(struct pool *pool);

/* Anybody who may can switch the mode while the daemon lives. True: it is another now. */
static bool mig_follow(struct pool_gpu *gpu)
{
	const struct gpu_sample *sample = &gpu->sample;
	bool changed = sample->mig >= 0 && gpu->info.mig != (sample->mig > 0);

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
		if (mig_follow(&pool->gpu[i]))
			pool->mig_changed |= 1ull << i;
	}
	pool->done = pool->started;
	pool->took_ns = pool->took_next_ns;
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

/* A daemon that was killed may leave its claims for a moment to threads that are still ending, or
 * to a child that it had just forked, until that execs: a claim that nobody alive holds is worth a
 * moment's wait. */
static bool gpu_claim_patiently(struct pool *pool, struct pool_gpu *gpu)
{
	struct timespec pause = {.tv_nsec = CLAIM_PAUSE_NS};

	for (int tries = 0; tries < CLAIM_TRIES; tries++) {
		if (gpu_claim(pool, gpu))
			return true;
		if (gpu->holder_pid)
			return false;
		nanosleep(&pause, NULL);
	}
	return false;
}

static void inventory_done(uv_work_t *work, int status)
{
	struct pool *pool = work->data;

	pool->running = false;
	for (size_t i = 0; i < pool->found_count; i++) {
		struct pool_gpu *gpu = &pool->gpu[i];

		*gpu = (struct pool_gpu){.info = pool->found[i], .claim_fd = -1};
		if (gpu_claim_patiently(pool, gpu))
			log_event(LOG_INFO, "gpu.offered index=%u uuid=%s name=\"%s\"",
				  gpu->info.index, gpu->info.uuid_text, gpu->info.name);
		else
			log_event(LOG_WARNING, "gpu.taken index=%u uuid=%s by_pid=%d",
				  gpu->info.index, gpu->info.uuid_text, (int)gpu->holder_pid);
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

void pool_close(struct pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++) {
		gpu_sample_clear(&pool->gpu[i].sample);
		gpu_sample_clear(&pool->incoming[i]);
	}
	gpus_close(pool->gpus);
	pool->gpus = NULL;
	pool->count = 0;
}

/* ---- views ------------------------------------------------------------------------------- */

void pool_place_gpus(const struct pool *pool, struct place_gpu *ret)
{
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
			.offered = pool_gpu_is_ours(gpu) && !gpu->sample.error,
		};
	}
}

int pool_find(const struct pool *pool, const char *uuid_text)
{
	for (uint32_t i = 0; i < pool->count; i++)
		if (!strcmp(pool->gpu[i].info.uuid_text, uuid_text))
			return (int)i;
	return -1;
}
