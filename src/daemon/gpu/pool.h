/* The GPUs that this daemon offers: inventory, who owns which GPU, what is promised on each, and
 * the driver's figures, sampled on the thread pool. Everything here runs on the loop's thread.
 *
 * Samples are numbered. pool_refresh() returns the number of one that starts after the call.
 * A caller that waits until `done` reaches it sees figures no older than its question. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "backend/context.h"
#include "backend/gpus.h"
#include "base/error.h"
#include "core/busy.h"
#include "core/compute.h"
#include "core/mig.h"
#include "core/place.h"
#include "daemon/gpu/claims.h"
#include "daemon/gpu/gpu_drain.h"
#include "daemon/gpu/gpu_state.h"
#include "daemon/gpu/unlisted.h"

struct keep;
struct store;

enum pool_state {
	POOL_STARTING, /* the inventory is being taken */
	POOL_READY,    /* at least one GPU exists */
	POOL_NO_GPU,   /* `why` says it */
};

/* A MIG instance that several sessions may share. `uuid_text` is mig's, the rest is outside.c's. */
struct pool_shared {
	char uuid_text[48];
	uint64_t outside; /* bytes that programs outside its sessions hold, as of the last sample */
	bool untold;      /* the driver does not tell what is in it */
};

struct pool_gpu {
	struct gpu_info info; /* `mig` is of the last sample */
	struct claim claim;
	uint64_t context_bytes; /* 0: not known */
	enum managed_shows managed;
	bool context_tried;   /* learned, or cannot be */
	bool gives_instances; /* it has the MIG role */
	bool parts_wanted;    /* samples shall tell its MIG instances apart: settle.c's */
	struct gpu_sample sample;
	enum gpu_state state; /* these are gpu_state.c's */
	int64_t state_since;  /* CLOCK_REALTIME, ns; 0: nobody looked yet */
	uint64_t changed_ns;  /* likewise by CLOCK_MONOTONIC */
	uint64_t told_ns;     /* CLOCK_MONOTONIC of the last event; 0: there was none */
	bool told_lost;       /* that event says that it is lost */
	struct busy busy;     /* by the driver's figures, and CLOCK_MONOTONIC */
	uint64_t sampled_ns;  /* when the last sample was in; 0: none was */
	/* Sums over the sessions: kept by session_promise.c. */
	uint64_t promised;
	uint32_t sessions;
	uint64_t share; /* the sum of compute requests, in millionths; above SHARE_ONE only in mode
			   off */
	enum compute_mode mode; /* how its time is shared: these are slicing.c's */
	uint64_t lease_ns;
	uint32_t granularity_ppm;
	bool slicing_set;         /* by somebody: the configuration has no say */
	bool slicing_refused;     /* the configuration's mode, as too much time is promised */
	struct unlisted unlisted; /* changes between samples alone */
	/* The least of that since no session said that some was its own. */
	uint64_t unlisted_usual;
	bool use_untold;  /* its driver does not tell what each process uses of it */
	uint64_t outside; /* held by programs outside carve, as of the last sample */
	uint64_t beyond;  /* the part of that which programs of sessions hold beyond their slices */
	struct pool_shared shared[MIG_INSTANCES_MAX];
	uint32_t shared_count;
	struct { /* that sample, when the next one is in (over.c) */
		struct gpu_process *processes;
		size_t count;
		uint64_t unlisted;
	} before;
};

typedef void (*pool_cb)(void *arg);

struct pool {
	uv_loop_t *loop;
	struct keep *keep;    /* has the names that own GPUs */
	struct claims claims; /* opened before pool_start() */
	uint64_t claimed_ns;  /* CLOCK_MONOTONIC: when all claims were looked at; or 0 */
	struct events *events;
	struct store *store;      /* likewise; remembers GPUs for when they are lost */
	struct gpu_drains drains; /* read before pool_start() */
	enum place_policy policy; /* which GPU a request gets: the settings' */
	struct gpus *gpus;
	enum pool_state state;
	struct error why;
	struct pool_gpu gpu[GPUS_MAX];
	uint32_t count;
	uint64_t started, done; /* numbers of samples */
	uint64_t done_ns;       /* CLOCK_MONOTONIC at the start of the last whole one */
	bool running;
	uint64_t mask, mask_next; /* GPUs being sampled; to be sampled next */
	uint64_t mig_changed;     /* GPUs that went into MIG mode or left it, by the last sample */
	uint64_t started_ns;
	bool exact;                 /* the running sample decides about a request */
	uint64_t ended_ns, took_ns; /* when the last sample was in; how long it took the thread */
	uint64_t took_next_ns;
	uint64_t took_all_ns; /* all samples together */
	uv_work_t work;
	struct gpu_info found[GPUS_MAX]; /* by the inventory; then, of unread GPUs, by a sample */
	size_t found_count;
	struct gpu_sample incoming[GPUS_MAX];
	pool_cb on_inventory; /* state has left POOL_STARTING */
	pool_cb on_driver;    /* see pool_look_for_driver() */
	uint64_t look_ns;     /* the next such look; CLOCK_MONOTONIC */
	pool_cb on_sampling;  /* just before a sample starts */
	pool_cb on_sample;    /* a sample is in */
	void *arg;
};

/* Starts taking the inventory. 0 or -errno. */
int pool_start(struct pool *pool, uv_loop_t *loop);
/* On each tick. Where the inventory found no GPU, looks each 2 s whether the driver has some by
 * now, as its module may be loaded after the daemon started; calls on_driver(arg) then. The GPUs
 * are the next program's to offer. */
void pool_look_for_driver(struct pool *pool);
/* Gives the GPUs up: others may claim them. */
void pool_unclaim(struct pool *pool);
/* Closes the driver. The loop must have ended. */
void pool_close(struct pool *pool);

#define POOL_ALL UINT64_MAX
/* Asks for a sample of the GPUs in `mask` (bit = index in pool->gpu) and returns its number. */
uint64_t pool_refresh(struct pool *pool, uint64_t mask);
/* The time that the next sample has to wait, ns; at most `most_ns` after the last one, and 0 where
 * samples are cheap. So at most one part in `parts` of the time goes on samples, which may hold up
 * programs' own calls in the driver. It is for repeated looks: a question does not wait. */
uint64_t pool_pause_ns(const struct pool *pool, unsigned parts, uint64_t most_ns);
/* Looks whose the GPUs are now: tries for those that another daemon had, and leaves to a system
 * daemon what that claims. With `all` false those whose holder lives are not asked for. True: one
 * was won or lost. */
bool pool_claim(struct pool *pool, bool all);
/* Likewise of all, unless that was done so short a time ago (ns). */
void pool_claim_since(struct pool *pool, uint64_t age_ns);
/* Whether a GPU was this daemon's, and is left to a system daemon: what is on it goes on. */
bool pool_gpu_is_left(const struct pool_gpu *gpu);

/* Whether this daemon gives out slices of it: what others do with theirs is not its business. */
static inline bool pool_gpu_is_ours(const struct pool_gpu *gpu)
{
	return gpu->claim.state == CLAIM_OURS && !gpu->info.mig;
}

/* The pool as core/place.h wants it; `ret` has room for GPUS_MAX. */
void pool_place_gpus(const struct pool *pool, struct place_gpu *ret);
/* "GPU 0", "GPUs 0-3, 5": the GPUs at these positions (bits), by their numbers. Returns buf. */
#define POOL_GPUS_TEXT_SIZE 160
const char *pool_gpus_text(const struct pool *pool, uint64_t mask,
			   char buf[static POOL_GPUS_TEXT_SIZE]);
/* Position of a GPU by its UUID text, or -1. */
int pool_find(const struct pool *pool, const char *uuid_text);
