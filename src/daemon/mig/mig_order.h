/* The inside of mig.h: an order. It has changes of instances, which a thread makes one after the
 * other, and a look at the GPUs they concern.
 *
 * Call mig_order_new() first, then mig_order_look(), _remove() and _make() for its parts, and
 * _store() for the intents. Then call _start(), or _revert() if one of these failed. The thread
 * runs it (mig_order.c); mig_order_done() takes its end on the loop (mig_order_end.c) and frees it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "backend/gpus.h"
#include "backend/instances.h"
#include "core/mig.h"
#include "daemon/mig/mig.h"
#include "daemon/mig/mig_context.h"
#include "daemon/store/store.h"

enum mig_op_kind { MIG_OP_REMOVE, MIG_OP_MAKE };

struct mig_op {
	enum mig_op_kind kind;
	uint32_t gpu; /* position in the pool */
	struct instance_place place;
	int rc;
	bool done;
};

/* The instances that NVML lists on a GPU after all. */
struct mig_outcome {
	bool wanted;
	int rc;
	struct instance_kinds *kinds; /* NULL: they are known, and these: */
	const struct instance_profile *profiles;
	uint32_t profile_count;
	uint64_t looked_ns; /* CLOCK_MONOTONIC, before it was asked for: */
	struct instance list[MIG_INSTANCES_MAX];
	size_t count;
	bool measured; /* and how busy they are: */
	int8_t utilization, of_instances[MIG_INSTANCES_MAX];
};

/* Changes that are made one after the other on a thread, and a look at the GPUs they concern. */
struct mig_order {
	uv_work_t work;
	struct mig *mig;
	uint32_t index[GPUS_MAX]; /* NVML's, of each GPU */
	char request[STORE_ID_SIZE];
	struct mig_grant grant; /* the request's, when it is done */
	struct instance_place wanted[MIG_CHOICES_MAX];
	struct mig_op *op;
	uint32_t op_count;
	struct mig_outcome *outcome; /* GPUS_MAX of them */
	struct mig_probe probe;      /* in the instance, before it is handed out */
};

/* An order of at most `op_max` changes. NULL: no memory. */
struct mig_order *mig_order_new(struct mig *mig, uint32_t op_max);
void mig_order_free(struct mig_order *o);
/* The GPU is looked at after the changes. 0 or -ENOMEM. */
int mig_order_look(struct mig_order *o, uint32_t gpu);
/* A change: entry `at` of the GPU's board is removed. */
void mig_order_remove(struct mig_order *o, uint32_t gpu, uint32_t at);
/* Likewise, an instance is made; its entry is new where there was none. 0, or -ENOSPC: the board is
 * full. */
int mig_order_make(struct mig_order *o, uint32_t gpu, const struct instance_place *place);
/* Writes the intents: they are on disk before the order begins. 0 or -errno. */
int mig_order_store(struct mig_order *o);
/* Begins, and takes the order over also where it fails. 0 or an error of libuv. */
int mig_order_start(struct mig_order *o);
/* It is not begun: its entries are as before, and it is freed. */
void mig_order_revert(struct mig_order *o);
/* Its end, on the loop. */
void mig_order_done(uv_work_t *work, int status);
