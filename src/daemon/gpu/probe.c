#include "daemon/gpu/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/context.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/store/store.h"

static void probe_next(struct probe *probe);

/* A cost holds for all GPUs of the model; so does a failure (0). */
static void cost_set(struct probe *probe, const char *model, uint64_t bytes,
		     enum managed_shows managed)
{
	for (uint32_t i = 0; i < probe->pool->count; i++) {
		struct pool_gpu *gpu = &probe->pool->gpu[i];

		if (strcmp(gpu->info.name, model) != 0)
			continue;
		gpu->context_bytes = bytes;
		gpu->managed = managed;
		gpu->context_tried = true;
	}
}

/* However many GPUs there is something to be found out about. */
static void again_set(struct probe *probe)
{
	if (probe->again_ns)
		return;
	probe->pause_ns = MIN(MAX(2 * probe->pause_ns, PROBE_AGAIN_MIN_NS), PROBE_AGAIN_MAX_NS);
	probe->again_ns = now_monotonic_ns() + probe->pause_ns;
}

static void on_ended(struct child *child)
{
	struct probe *probe = child->arg;
	const struct pool_gpu *gpu = &probe->pool->gpu[probe->gpu];
	char *rest = child->text;
	uint64_t bytes = child->status ? 0 : strtoull(child->text, &rest, 10);
	enum managed_shows managed =
		bytes ? (enum managed_shows)strtoul(rest, NULL, 10) : MANAGED_UNKNOWN;

	probe->ended_ns = now_monotonic_ns();
	if (child->status)
		log_event(LOG_WARNING, "context.probe_failed status=%d",
			  child->status == CHILD_TIMEOUT ? SIGKILL : (int)child->status);
	/* The costs known before stay. */
	if (bytes || !gpu->context_bytes)
		cost_set(probe, gpu->info.name, bytes, managed);
	if (bytes) {
		(void)store_context_put(probe->store, gpu->info.name,
					gpus_driver_version(probe->pool->gpus), bytes, managed);
		log_event(LOG_INFO, "context.learned model=\"%s\" bytes=%" PRIu64 " managed=%s",
			  gpu->info.name, bytes,
			  managed == MANAGED_APART     ? "apart"
			  : managed == MANAGED_UNKNOWN ? "unknown"
						       : "listed");
	} else {
		log_event(LOG_WARNING, "context.unknown model=\"%s\"", gpu->info.name);
	}
	if (!bytes || managed == MANAGED_UNKNOWN)
		again_set(probe);
	probe->gpu++;
	if (!probe->stopped)
		probe_next(probe);
}

static void probe_spawn(struct probe *probe, char *uuid_text)
{
	char *args[] = {"carved", "--probe-context", uuid_text, NULL};

	probe->child.arg = probe;
	int rc = child_start(&probe->child, probe->loop, "/proc/self/exe", args, PROBE_TIMEOUT_MS,
			     on_ended);
	if (rc < 0)
		log_event(LOG_ERROR, "context.probe_failed error=\"%s\"", uv_strerror(rc));
	else
		probe->pid = probe->child.pid;
}

/* A probe takes what a slice might need: for what can be done without only where there are none. */
static bool may_look_closer(const struct pool_gpu *gpu)
{
	return !gpu->promised && !gpu->sessions;
}

static void probe_next(struct probe *probe)
{
	struct pool *pool = probe->pool;
	const char *driver = pool->gpus ? gpus_driver_version(pool->gpus) : "";

	for (; probe->gpu < pool->count; probe->gpu++) {
		struct pool_gpu *gpu = &pool->gpu[probe->gpu];
		enum managed_shows managed;
		uint64_t bytes;

		/* Nothing can be made on a GPU in MIG mode, but what was learned without holds for
		 * its instances; another daemon's GPU is its business. */
		if (gpu->context_tried || gpu->claim.state != CLAIM_OURS)
			continue;
		if (store_context_get(probe->store, gpu->info.name, driver, &bytes, &managed) ==
		    0) {
			cost_set(probe, gpu->info.name, bytes, managed);
			if (managed != MANAGED_UNKNOWN)
				continue;
			if (!may_look_closer(gpu)) {
				again_set(probe);
				continue;
			}
		}
		if (!pool_gpu_is_ours(gpu))
			continue;
		/* A lost one says nothing: tried again when it may be back. */
		if (gpu->sample.error) {
			again_set(probe);
			continue;
		}
		probe_spawn(probe, gpu->info.uuid_text);
		return;
	}
	probe->running = false;
	if (probe->anew)
		probe_again(probe);
	else
		probe->on_done(probe->arg);
}

void probe_start(struct probe *probe, uv_loop_t *loop, struct pool *pool, struct store *store,
		 probe_cb on_done, void *arg)
{
	probe->loop = loop;
	probe->pool = pool;
	probe->store = store;
	probe->gpu = 0;
	probe->running = true;
	probe->on_done = on_done;
	probe->arg = arg;
	probe_next(probe);
}

bool probe_due(const struct probe *probe, uint64_t now)
{
	return !probe->running && probe->again_ns && now >= probe->again_ns;
}

void probe_again(struct probe *probe)
{
	probe->anew = probe->running;
	if (probe->running)
		return;
	probe->again_ns = 0;
	for (uint32_t i = 0; i < probe->pool->count; i++) {
		struct pool_gpu *gpu = &probe->pool->gpu[i];

		bool unknown = gpu->managed == MANAGED_UNKNOWN;

		if (!gpu->context_bytes || (unknown && may_look_closer(gpu)))
			gpu->context_tried = false;
		else if (unknown)
			again_set(probe);
	}
	probe->gpu = 0;
	probe->running = true;
	probe_next(probe);
}

void probe_stop(struct probe *probe)
{
	if (!probe->running)
		return;
	probe->stopped = true;
	child_kill(&probe->child);
}

bool probe_lingers(const struct probe *probe)
{
	const struct pool *pool = probe->pool;

	if (!probe->pid || now_monotonic_ns() - probe->ended_ns >= PROBE_LINGER_NS)
		return false;
	for (uint32_t i = 0; i < pool->count; i++)
		if (gpu_sample_process_bytes(&pool->gpu[i].sample, probe->pid))
			return true;
	return false;
}

int probe_main(const char *uuid_text)
{
	enum managed_shows managed;
	uint64_t bytes;
	int rc = context_measure(uuid_text, &bytes, &managed);

	if (rc < 0) {
		log_event(LOG_WARNING, "context.measure error=\"%s\"", strerrordesc_np(-rc));
		return EXIT_CODE_FAILED;
	}
	printf("%" PRIu64 " %d\n", bytes, managed);
	return EXIT_CODE_OK;
}
