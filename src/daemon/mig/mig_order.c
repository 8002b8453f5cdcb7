/* The begin of an order of MIG instances, on the loop, and its work, on a thread. */
#include "daemon/mig/mig_order.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/kill_point.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/mig/mig_books.h"
#include "daemon/session/sessions.h"

/* A removal waits for this long for whoever holds the instance; then it is left alone for a while.
 */
#define REMOVE_PATIENCE_MS 2000u

/* ---- on the thread ----------------------------------------------------------------------- */

static int op_run(const struct instances *driver, const struct mig_order *o, struct mig_op *op)
{
	struct instance made;

	if (op->kind == MIG_OP_REMOVE)
		return instance_remove(driver, o->index[op->gpu], &op->place, REMOVE_PATIENCE_MS);
	return instance_make(driver, o->index[op->gpu], &op->place, &made);
}

/* All or none: what was made before something else failed is removed again. */
static void order_undo(const struct instances *driver, const struct mig_order *o)
{
	for (uint32_t i = 0; i < o->op_count; i++)
		if (o->op[i].kind == MIG_OP_MAKE && o->op[i].done && o->op[i].rc == 0)
			(void)instance_remove(driver, o->index[o->op[i].gpu], &o->op[i].place,
					      REMOVE_PATIENCE_MS);
}

static void gpu_look(const struct instances *driver, uint32_t index, struct mig_outcome *out)
{
	out->looked_ns = now_monotonic_ns();
	if (out->kinds) {
		out->rc = instances_kinds(driver, index, out->kinds);
		out->profiles = out->kinds->profile;
		out->profile_count = out->kinds->die.profile_count;
	}
	if (out->rc == 0)
		out->rc = instances_list(driver, index, out->profiles, out->profile_count,
					 out->list, MIG_INSTANCES_MAX, &out->count);
}

/* A request does not wait for that. */
static void gpu_measure(struct gpm *gpm, uint32_t index, struct mig_outcome *out)
{
	gpm_look(gpm, index, out->list, out->rc == 0 ? out->count : 0, &out->utilization,
		 out->of_instances);
	out->measured = true;
}

static void order_run(uv_work_t *work)
{
	struct mig_order *o = work->data;
	const struct instances *driver = o->mig->driver;
	int rc = 0;

	for (uint32_t i = 0; i < o->op_count && rc == 0; i++) {
		rc = o->op[i].rc = op_run(driver, o, &o->op[i]);
		o->op[i].done = true;
	}
	if (rc < 0)
		order_undo(driver, o);
	for (uint32_t gpu = 0; gpu < GPUS_MAX; gpu++) {
		if (!o->outcome[gpu].wanted)
			continue;
		gpu_look(driver, o->index[gpu], &o->outcome[gpu]);
		if (!o->request[0])
			gpu_measure(o->mig->gpm, o->index[gpu], &o->outcome[gpu]);
	}
}

/* ---- on the loop ------------------------------------------------------------------------- */

void mig_order_free(struct mig_order *o)
{
	for (uint32_t gpu = 0; o->outcome && gpu < GPUS_MAX; gpu++)
		free(o->outcome[gpu].kinds);
	free(o->outcome);
	free(o->op);
	free(o);
}

struct mig_order *mig_order_new(struct mig *mig, uint32_t op_max)
{
	struct mig_order *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->work.data = o;
	o->mig = mig;
	o->op = calloc(MAX(op_max, 1), sizeof(*o->op));
	o->outcome = calloc(GPUS_MAX, sizeof(*o->outcome));
	for (uint32_t i = 0; i < mig->gpus->count; i++)
		o->index[i] = mig->gpus->gpu[i].info.index;
	if (o->op && o->outcome)
		return o;
	mig_order_free(o);
	return NULL;
}

/* A GPU's profiles stay the same: they are read once. */
int mig_order_look(struct mig_order *o, uint32_t gpu)
{
	const struct mig *mig = o->mig;
	struct mig_outcome *out = &o->outcome[gpu];
	uint32_t die = mig->gpu[gpu].die;

	if (out->wanted)
		return 0;
	if (mig->board[gpu].known) {
		out->profiles = mig->profile[die];
		out->profile_count = mig->die[die].profile_count;
	} else {
		out->kinds = calloc(1, sizeof(*out->kinds));
	}
	out->wanted = out->profiles || out->kinds;
	return out->wanted ? 0 : -ENOMEM;
}

int mig_order_start(struct mig_order *o)
{
	struct mig *mig = o->mig;
	int rc = uv_queue_work(mig->sessions->loop, &o->work, order_run, mig_order_done);

	if (rc < 0) {
		mig_order_free(o);
		return rc;
	}
	mig->orders++;
	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
		if (o->outcome[gpu].wanted) {
			mig->board[gpu].changing = true;
			mig_board_publish(mig, gpu);
		}
	return 0;
}

/* The intent: on disk before it is begun. */
int mig_order_store(struct mig_order *o)
{
	struct mig *mig = o->mig;
	struct store_instance *list = calloc(MAX(o->op_count, 1), sizeof(*list));
	int rc = list ? 0 : -ENOMEM;
	uint32_t count = 0;

	for (uint32_t i = 0; rc == 0 && i < o->op_count; i++) {
		int at = mig_entry_find(&mig->board[o->op[i].gpu], &o->op[i].place);

		if (at >= 0)
			mig_entry_record(mig, o->op[i].gpu, (uint32_t)at, &list[count++]);
	}
	if (rc == 0)
		rc = store_instances_put(mig->sessions->store, list, count);
	kill_point("mig.intent");
	free(list);
	return rc;
}

void mig_order_remove(struct mig_order *o, uint32_t gpu, uint32_t at)
{
	struct mig_board *board = &o->mig->board[gpu];

	o->op[o->op_count++] = (struct mig_op){
		.kind = MIG_OP_REMOVE, .gpu = gpu, .place = board->detail[at].place};
	mig_entry_set(board, at, MIG_REMOVING);
}

int mig_order_make(struct mig_order *o, uint32_t gpu, const struct instance_place *place)
{
	struct mig *mig = o->mig;
	int old = mig_entry_find(&mig->board[gpu], place);

	o->op[o->op_count++] = (struct mig_op){.kind = MIG_OP_MAKE, .gpu = gpu, .place = *place};
	if (old >= 0)
		return 0;
	struct mig_detail *detail = mig_entry_add(mig, gpu, place, MIG_CREATING);
	if (!detail)
		return -ENOSPC;
	detail->generation = ++mig->generation;
	return 0;
}

/* It was not begun. */
void mig_order_revert(struct mig_order *o)
{
	for (uint32_t i = 0; i < o->op_count; i++) {
		struct mig_board *board = &o->mig->board[o->op[i].gpu];
		int at = mig_entry_find(board, &o->op[i].place);

		if (at >= 0 && board->instance[at].state == MIG_REMOVING)
			mig_entry_set(board, (uint32_t)at, MIG_IDLE);
		else if (at >= 0 && board->instance[at].state == MIG_CREATING)
			board->instance[at].state = MIG_GONE; /* the next look takes it away */
	}
	mig_order_free(o);
}
