/* The end of an order of MIG instances, on the loop: what is learned of it, and who is told. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/kill_point.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/mig/mig_books.h"
#include "daemon/mig/mig_collect.h"
#include "daemon/mig/mig_order.h"
#include "daemon/session/session_hooks.h"
#include "daemon/session/sessions.h"

/* An instance that was not removed, as somebody holds it, is left alone for this long. */
#define HELD_NS 5000000000ull
/* A GPU whose driver refuses is left out for this long. Some calls give up after 10 s only, and
 * requests that wait need the thread pool for more than such calls. */
#define FROZEN_NS 10000000000ull

/* Numbers of profiles are a die's. */
static void profiles_number(struct mig *mig, uint32_t gpu)
{
	struct mig_board *board = &mig->board[gpu];

	for (uint32_t i = 0; i < board->count; i++)
		board->instance[i].profile =
			mig_profile_of(mig, gpu, board->detail[i].place.profile_id);
}

static void board_learn(struct mig *mig, uint32_t gpu, const struct mig_outcome *out)
{
	struct mig_board *board = &mig->board[gpu];
	int die = out->rc < 0 || !out->profile_count ? -1
		  : out->kinds                       ? mig_die_find(mig, out->kinds)
						     : mig->gpu[gpu].die;

	board->changing = false;
	board->known = die >= 0;
	board->silent = out->rc < 0 && out->rc != -EACCES && out->rc != -EPIPE;
	if (die < 0)
		mig_board_measured(board, NULL, 0, GPM_UNKNOWN, NULL);
	/* Its mode may be off by now: a sample tells. */
	if (out->rc == -ENOTSUP)
		(void)pool_refresh(mig->gpus, POOL_ALL);
	if (die < 0) {
		snprintf(board->why, sizeof(board->why), "%s",
			 out->rc == 0          ? "it is not capable of MIG"
			 : out->rc == -EACCES  ? "the driver lets this daemon neither see nor make "
						 "instances"
			 : out->rc == -EPIPE   ? "the warden, which makes instances, has ended"
			 : out->rc == -ENOTSUP ? "the driver does not let its instances be managed"
					       : "the driver does not say what instances it has");
		return;
	}
	board->why[0] = '\0';
	mig->gpu[gpu].die = (uint16_t)die;
	if (out->kinds)
		mig_contexts_load(mig, gpu);
	profiles_number(mig, gpu);
	mig_board_settle(mig, gpu, out->list, out->count, out->looked_ns);
	if (out->measured)
		mig_board_measured(board, out->list, out->count, out->utilization,
				   out->of_instances);
}

/* ---- refusals ---------------------------------------------------------------------------- */

/* The refuser: the driver for one place or instance, the driver for the GPU (carve leaves it out
 * for a while), a right that is missing, or the warden. */
enum refusal_scope { REFUSAL_PLACE, REFUSAL_GPU, REFUSAL_RIGHT, REFUSAL_WARDEN };

/* EXIT_CODE_NO_ROOM: other instances may do. */
static const int refusal_codes[] = {
	[REFUSAL_PLACE] = EXIT_CODE_NO_ROOM,
	[REFUSAL_GPU] = EXIT_CODE_NO_ROOM,
	[REFUSAL_RIGHT] = EXIT_CODE_NOT_PERMITTED,
	[REFUSAL_WARDEN] = EXIT_CODE_FAILED,
};

/* The driver's errors by errno. A number of errno would be read as the daemon's own trouble. */
static const struct refusal {
	int rc;
	enum refusal_scope making, removing;
	const char *text, *removing_text, *hint; /* NULL: the first one; none */
} refusals[] = {
	{-ENOSPC, REFUSAL_PLACE, REFUSAL_GPU,
	 "the driver refuses an instance, though there is a place for it",
	 "the driver refuses to remove an instance"},
	{-EBUSY, REFUSAL_GPU, REFUSAL_PLACE,
	 "the driver makes no instance while something uses the GPU itself; monitoring tools do, "
	 "too",
	 "a process holds it open, as monitoring tools do"},
	{-ETIMEDOUT, REFUSAL_GPU, REFUSAL_PLACE,
	 "the driver did not come to making a MIG instance in time: it is busy with other changes",
	 "the driver did not come to removing a MIG instance in time: it is busy with other "
	 "changes"},
	{-EUCLEAN, REFUSAL_GPU, REFUSAL_GPU,
	 "a MIG instance was made by half, and the half cannot be removed yet"},
	{-ENXIO, REFUSAL_GPU, REFUSAL_GPU, "the driver has lost the GPU"},
	{-ENODEV, REFUSAL_GPU, REFUSAL_GPU, "the driver has lost the GPU"},
	{-EAGAIN, REFUSAL_GPU, REFUSAL_GPU,
	 "the driver wants the GPU to be reset while nobody uses it (nvidia-smi --gpu-reset)"},
	{-ENOTSUP, REFUSAL_GPU, REFUSAL_GPU, "the driver does not let its instances be managed"},
	{-EACCES, REFUSAL_RIGHT, REFUSAL_RIGHT, "the driver lets this daemon make no MIG instances",
	 NULL, "that takes root, or the capability that /dev/nvidia-caps/nvidia-cap1 stands for"},
	{-EPERM, REFUSAL_RIGHT, REFUSAL_RIGHT,
	 "carve has no record of having made the MIG instance, and removes no other's", NULL,
	 "root can remove it with nvidia-smi mig -dci and -dgi"},
	{-EPIPE, REFUSAL_WARDEN, REFUSAL_WARDEN,
	 "the warden, which makes MIG instances, has ended; carved ends, too, and has another when "
	 "it is started anew"},
	{-ECHILD, REFUSAL_WARDEN, REFUSAL_WARDEN,
	 "the process that makes MIG instances was killed; the next request gets another one"},
	/* The last one stands for all others. */
	{-EIO, REFUSAL_GPU, REFUSAL_GPU, "the driver reports an error of its own"},
};

/* NULL: the driver did it, or was not asked. */
static const struct refusal *op_refusal(const struct mig_op *op)
{
	const struct refusal *last = &refusals[ARRAY_SIZE(refusals) - 1], *r = refusals;

	if (!op->done || op->rc == 0)
		return NULL;
	while (r < last && r->rc != op->rc)
		r++;
	return r;
}

static enum refusal_scope op_scope(const struct mig_op *op, const struct refusal *refusal)
{
	return op->kind == MIG_OP_MAKE ? refusal->making : refusal->removing;
}

static const char *op_text(const struct mig_op *op, const struct refusal *refusal)
{
	bool removing = op->kind == MIG_OP_REMOVE && refusal->removing_text;

	return removing ? refusal->removing_text : refusal->text;
}

static void gpu_leave_out(struct mig_board *board, const char *why)
{
	board->frozen_until_ns = now_monotonic_ns() + FROZEN_NS;
	board->refusal = why;
}

/* The next place is tried on another GPU where there is one, and on this GPU otherwise. Where all
 * places of the profile were refused, all of them are tried again later. */
static void refused_note(struct mig *mig, uint32_t gpu, uint8_t profile, uint8_t start,
			 const char *why)
{
	struct mig_board *board = &mig->board[gpu];

	board->refused[profile] |= 1u << start;
	board->refused_ns = now_monotonic_ns();
	bool all = mig_is_refused(&mig->gpu[gpu], &mig->die[mig->gpu[gpu].die], profile);
	if (all)
		board->refused[profile] = 0;
	if (all || mig_is_elsewhere(&mig->pool, gpu, profile))
		gpu_leave_out(board, why);
}

/* An instance that was not removed: whoever holds it keeps it for a while. */
static void held_note(struct mig *mig, const struct mig_op *op)
{
	struct mig_board *board = &mig->board[op->gpu];
	int at = mig_entry_find(board, &op->place);

	if (at < 0)
		return;
	board->detail[at].held_until_ns = now_monotonic_ns() + HELD_NS;
	if (board->instance[at].state != MIG_IDLE)
		return;
	mig_entry_set(board, (uint32_t)at, MIG_BUSY);
	mig_entry_store(mig, op->gpu, (uint32_t)at);
}

/* The driver is not asked again at once for what it refused: requests that wait may have something
 * else. */
static void op_learn(struct mig *mig, const struct mig_op *op)
{
	struct mig_board *board = &mig->board[op->gpu];
	uint8_t profile = mig_profile_of(mig, op->gpu, op->place.profile_id);
	const struct refusal *refusal = op_refusal(op);

	if (!refusal)
		return;
	log_event(LOG_WARNING, "mig.%s_failed gpu=%u start=%u size=%u error=\"%s\"",
		  op->kind == MIG_OP_MAKE ? "make" : "remove", mig->gpus->gpu[op->gpu].info.index,
		  op->place.start, op->place.size, strerrordesc_np(-op->rc));
	if (op->kind == MIG_OP_REMOVE)
		held_note(mig, op);
	if (op_scope(op, refusal) == REFUSAL_GPU)
		gpu_leave_out(board, op_text(op, refusal));
	else if (op->kind == MIG_OP_MAKE && op_scope(op, refusal) == REFUSAL_PLACE &&
		 profile != MIG_NO_PROFILE)
		refused_note(mig, op->gpu, profile, op->place.start, op_text(op, refusal));
}

/* An instance that a process holds is named as `carve mig list` has it: by its first memory unit
 * and their number. */
static void op_error(const struct mig_order *o, const struct mig_op *op,
		     const struct refusal *refusal, int code, struct error *err)
{
	unsigned index = o->mig->gpus->gpu[op->gpu].info.index;

	if (op->kind == MIG_OP_REMOVE && refusal->rc == -EBUSY) {
		error_set(err, code,
			  "the driver refused to remove the MIG instance at %u:%u on GPU %u: %s",
			  op->place.start, op->place.size, index, refusal->removing_text);
		error_hint(err, "`carve mig list` shows the instances and the processes in them");
		return;
	}
	error_set(err, code, "GPU %u: %s", index, op_text(op, refusal));
	if (refusal->hint)
		error_hint(err, "%s", refusal->hint);
}

/* False: nothing was refused. EXIT_CODE_NO_ROOM: other instances may do. */
static bool order_error(const struct mig_order *o, struct error *err)
{
	for (uint32_t i = 0; i < o->op_count; i++) {
		const struct mig_op *op = &o->op[i];
		const struct refusal *refusal = op_refusal(op);

		if (!refusal)
			continue;
		op_error(o, op, refusal, refusal_codes[op_scope(op, refusal)], err);
		return true;
	}
	return false;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* Less than one context takes, as is known since the instance is there. */
static bool is_too_small(const struct mig_order *o)
{
	return o->grant.together &&
	       o->grant.share[0].requested <
		       o->mig->board[o->grant.share[0].gpu].context[o->probe.profile];
}

/* Somebody was left in it by the session before. */
static bool is_held(const struct mig *mig, uint32_t gpu, const struct instance_place *place)
{
	int at = mig_entry_find(&mig->board[gpu], place);

	return at >= 0 && mig_entry_held(&mig->board[gpu], (uint32_t)at);
}

static void order_answer(struct mig_order *o)
{
	struct mig *mig = o->mig;
	struct error err = {0};
	bool refused = order_error(o, &err);

	/* Somebody holds one, or has another part of it: to be decided anew. */
	bool again = !refused && is_too_small(o);
	for (uint32_t i = 0; !refused && i < o->grant.count; i++)
		again |=
			is_held(mig, o->grant.share[i].gpu, &o->wanted[i]) ||
			!mig_entry_share(mig, &o->wanted[i], o->grant.together, &o->grant.share[i]);
	mig->hooks->made(mig->context, o->request, refused || again ? NULL : &o->grant,
			 refused ? &err : NULL);
}

/* The driver certainly made nothing: an instance at that place is somebody's who was first, also
 * where it is of the same profile. */
static bool op_made_nothing(const struct mig_op *op)
{
	return op->kind == MIG_OP_MAKE &&
	       (!op->done || op->rc == -ENOSPC || op->rc == -EBUSY || op->rc == -EACCES);
}

/* Before the books are compared with the driver's list. */
static void op_disown(struct mig *mig, const struct mig_op *op)
{
	struct mig_board *board = &mig->board[op->gpu];
	int at = op_made_nothing(op) ? mig_entry_find(board, &op->place) : -1;

	if (at >= 0 && board->instance[at].state == MIG_CREATING)
		board->instance[at].state = MIG_GONE;
}

static void order_end(struct mig_order *o)
{
	struct mig *mig = o->mig;

	mig->orders--;
	mig->changes++;
	if (mig->stopping) {
		mig_order_free(o);
		return;
	}
	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
		mig_board_publish(mig, gpu);
	if (o->request[0])
		order_answer(o);
	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
		if (!mig->board[gpu].changing && mig->board[gpu].collect) {
			mig->board[gpu].collect = false;
			(void)mig_collect_start(mig, gpu, mig->board[gpu].collect_older_ns);
		}
	mig_order_free(o);
	sessions_room_made(mig->sessions);
}

static void on_probed(struct mig_probe *probe)
{
	struct mig_order *o = probe->arg;

	kill_point("mig.probed");
	o->mig->board[probe->gpu].changing = false;
	order_end(o);
}

/* The first request that shares an instance of a profile, or has several of a GPU, has the cost of
 * a context found out. The driver's figures do not tell it there. */
static bool probe_begin(struct mig_order *o)
{
	struct mig *mig = o->mig;
	struct mig_board *board = &mig->board[o->grant.share[0].gpu];
	bool wanted = o->grant.together ? o->grant.count > 0 : o->grant.count > 1;
	int at = wanted ? mig_entry_find(board, &o->wanted[0]) : -1;

	if (at < 0 || !board->detail[at].uuid_text[0] || board->instance[at].state != MIG_IDLE ||
	    !mig_context_wanted(mig, o->probe.gpu, o->probe.profile))
		return false;
	board->changing = true;
	mig_board_publish(mig, o->probe.gpu);
	o->probe.on_done = on_probed;
	o->probe.arg = o;
	mig_context_probe(mig, &o->probe, board->detail[at].uuid_text);
	return true;
}

void mig_order_done(uv_work_t *work, int status)
{
	struct mig_order *o = work->data;
	struct mig *mig = o->mig;

	if (mig->stopping) {
		order_end(o);
		return;
	}
	for (uint32_t i = 0; i < o->op_count; i++)
		op_disown(mig, &o->op[i]);
	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
		if (o->outcome[gpu].wanted)
			board_learn(mig, gpu, &o->outcome[gpu]);
	kill_point("mig.learned");
	for (uint32_t i = 0; i < o->op_count; i++)
		op_learn(mig, &o->op[i]);
	if (!probe_begin(o))
		order_end(o);
}
