/* Learns what a context costs on each GPU of the pool, and whether managed memory is in processes'
 * figures. Both come from the store, else from running `carved --probe-context UUID`, one model
 * after the other. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/host/child.h"

struct pool;
struct store;

/* A probe that takes longer is killed, and the cost stays unknown. */
#define PROBE_TIMEOUT_MS 15000
/* A model whose cost could not be learned is tried again after this long, and ever later. */
#define PROBE_AGAIN_MIN_NS 2000000000ull
#define PROBE_AGAIN_MAX_NS 600000000000ull
/* A driver that goes on listing a dead probe is not waited for longer. */
#define PROBE_LINGER_NS 1000000000ull

typedef void (*probe_cb)(void *arg);

struct probe {
	uv_loop_t *loop;
	struct pool *pool;
	struct store *store;
	bool running; /* costs may still come */
	bool anew;    /* then all is tried again */
	bool stopped;
	uint32_t gpu; /* the pool's number of the GPU that is probed */
	struct child child;
	pid_t pid;         /* the last probe's; 0: none was needed */
	uint64_t ended_ns; /* when it ended, CLOCK_MONOTONIC */
	uint64_t again_ns; /* when what failed is tried again, CLOCK_MONOTONIC; 0: nothing did */
	uint64_t pause_ns; /* how long before that it failed */
	probe_cb on_done;
	void *arg;
};

/* Calls on_done (at once, maybe) when all that can be known is in pool->gpu[].context_bytes. */
void probe_start(struct probe *probe, uv_loop_t *loop, struct pool *pool, struct store *store,
		 probe_cb on_done, void *arg);
/* Whether it is time to try again what failed; then probe_again() does, as probe_start(). */
bool probe_due(const struct probe *probe, uint64_t now);
/* Tries again: failed GPUs, and those that could not be tried before. While a probe runs, when all
 * have ended. */
void probe_again(struct probe *probe);
/* No further probe is started and on_done not called; a running one is killed. */
void probe_stop(struct probe *probe);
/* Whether the pool's samples still list a probe that has ended. */
bool probe_lingers(const struct probe *probe);
/* The whole of `carved --probe-context UUID`: prints both; returns the exit code. */
int probe_main(const char *uuid_text);
