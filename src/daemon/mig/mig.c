/* MIG on demand, as the daemon does it. Longer than other files: the steps of one order, from its
 * begin on a thread to its end on the loop, are read together. */
#include "daemon/mig/mig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/kill_point.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/mig/mig_books.h"
#include "daemon/mig/mig_context.h"
#include "daemon/session/session.h"
#include "daemon/session/session_hooks.h"
#include "daemon/session/sessions.h"
#include "daemon/store/store.h"

/* A removal waits for so long for whoever holds the instance; then it is left alone for a while. */
#define REMOVE_PATIENCE_MS 2000u
#define HELD_NS 5000000000ull
/* A place that a driver refused is tried again after so long, even where nothing has changed. */
#define REFUSED_NS 30000000000ull

enum op_kind { OP_REMOVE, OP_MAKE };

struct op {
	enum op_kind kind;
	uint32_t gpu; /* position in the pool */
	struct instance_place place;
	int rc;
	bool done;
};

/* The instances that NVML lists on a GPU after all. */
struct outcome {
	bool wanted;
	int rc;
	struct instance_kinds *kinds; /* NULL: they are known, and these: */
	const struct instance_profile *profiles;
	uint32_t profile_count;
	struct instance list[MIG_INSTANCES_MAX];
	size_t count;
	bool measured; /* and how busy they are: */
	int8_t utilization, of_instances[MIG_INSTANCES_MAX];
};

/* Changes that are made one after the other on a thread, and a look at the GPUs they concern. */
struct order {
	uv_work_t work;
	struct mig *mig;
	uint32_t index[GPUS_MAX]; /* NVML's, of each GPU */
	char request[STORE_ID_SIZE];
	struct mig_grant grant; /* the request's, when it is done */
	struct instance_place wanted[MIG_CHOICES_MAX];
	struct op *op;
	uint32_t op_count;
	struct outcome *outcome; /* GPUS_MAX of them */
	struct mig_probe probe;  /* in the instance, before it is handed out */
};

static const struct pool_gpu *pool_gpu(const struct mig *mig, uint32_t gpu)
{
	return &mig->gpus->gpu[gpu];
}

/* ---- on the thread ----------------------------------------------------------------------- */

static int op_run(const struct instances *driver, const struct order *o, struct op *op)
{
	struct instance made;

	if (op->kind == OP_REMOVE)
		return instance_remove(driver, o->index[op->gpu], &op->place, REMOVE_PATIENCE_MS);
	return instance_make(driver, o->index[op->gpu], &op->place, &made);
}

/* All or none: what was made before something else failed is removed again. */
static void order_undo(const struct instances *driver, const struct order *o)
{
	for (uint32_t i = 0; i < o->op_count; i++)
		if (o->op[i].kind == OP_MAKE && o->op[i].done && o->op[i].rc == 0)
			(void)instance_remove(driver, o->index[o->op[i].gpu], &o->op[i].place,
					      REMOVE_PATIENCE_MS);
}

static void gpu_look(const struct instances *driver, uint32_t index, struct outcome *out)
{
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
static void gpu_measure(struct gpm *gpm, uint32_t index, struct outcome *out)
{
	gpm_look(gpm, index, out->list, out->rc == 0 ? out->count : 0, &out->utilization,
		 out->of_instances);
	out->measured = true;
}

static void order_run(uv_work_t *work)
{
	struct order *o = work->data;
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

/* ---- its end ----------------------------------------------------------------------------- */

static void order_free(struct order *o)
{
	for (uint32_t gpu = 0; o->outcome && gpu < GPUS_MAX; gpu++)
		free(o->outcome[gpu].kinds);
	free(o->outcome);
	free(o->op);
	free(o);
}

/* Numbers of profiles are a die's. */
static void profiles_number(struct mig *mig, uint32_t gpu)
{
	struct mig_board *board = &mig->board[gpu];

	for (uint32_t i = 0; i < board->count; i++)
		board->instance[i].profile =
			mig_profile_of(mig, gpu, board->detail[i].place.profile_id);
}

static void board_learn(struct mig *mig, uint32_t gpu, const struct outcome *out)
{
	struct mig_board *board = &mig->board[gpu];
	int die = out->rc < 0 || !out->profile_count ? -1
		  : out->kinds                       ? mig_die_find(mig, out->kinds)
						     : mig->gpu[gpu].die;

	board->changing = false;
	board->known = die >= 0;
	if (die < 0)
		mig_board_measured(board, NULL, 0, GPM_UNKNOWN, NULL);
	/* Its mode may be off by now: a sample tells. */
	if (out->rc == -ENOTSUP)
		(void)pool_refresh(mig->gpus, POOL_ALL);
	mig->lost |= out->rc == -EPIPE;
	if (die < 0) {
		snprintf(board->why, sizeof(board->why), "%s",
			 out->rc == 0          ? "it is not capable of MIG"
			 : out->rc == -EACCES  ? "the driver lets this daemon neither see nor make "
						 "instances"
			 : out->rc == -EPIPE   ? "the part of carved that makes instances has ended"
			 : out->rc == -ENOTSUP ? "the driver does not let its instances be managed"
					       : "the driver does not say what instances it has");
		return;
	}
	board->why[0] = '\0';
	mig->gpu[gpu].die = (uint16_t)die;
	if (out->kinds)
		mig_contexts_load(mig, gpu);
	profiles_number(mig, gpu);
	mig_board_settle(mig, gpu, out->list, out->count);
	if (out->measured)
		mig_board_measured(board, out->list, out->count, out->utilization,
				   out->of_instances);
}

static void refused_note(struct mig_board *board, uint8_t profile, uint8_t start)
{
	board->refused[profile] |= 1u << start;
	board->refused_ns = now_monotonic_ns();
}

/* A driver may have had reasons that no list shows. */
static void refused_age(struct mig_board *board)
{
	if (now_monotonic_ns() - board->refused_ns >= REFUSED_NS)
		memset(board->refused, 0, sizeof(board->refused));
}

/* A profile that a driver refused is not asked for again before something changed there; what
 * somebody holds is left alone for a while. */
static void op_learn(struct mig *mig, const struct op *op)
{
	struct mig_board *board = &mig->board[op->gpu];
	uint8_t profile = mig_profile_of(mig, op->gpu, op->place.profile_id);
	int at = mig_entry_find(board, &op->place);

	if (!op->done || op->rc == 0)
		return;
	log_event(LOG_WARNING, "mig.%s_failed gpu=%u start=%u size=%u error=\"%s\"",
		  op->kind == OP_MAKE ? "make" : "remove", pool_gpu(mig, op->gpu)->info.index,
		  op->place.start, op->place.size, strerrordesc_np(-op->rc));
	if (op->kind == OP_MAKE && op->rc == -ENOSPC && profile != MIG_NO_PROFILE)
		refused_note(board, profile, op->place.start);
	if (op->kind == OP_REMOVE && at >= 0) {
		board->detail[at].held_until_ns = now_monotonic_ns() + HELD_NS;
		if (board->instance[at].state == MIG_IDLE) {
			mig_entry_set(board, (uint32_t)at, MIG_BUSY);
			mig_entry_store(mig, op->gpu, (uint32_t)at);
		}
	}
}

static int order_error(const struct order *o, struct error *err)
{
	for (uint32_t i = 0; i < o->op_count; i++) {
		const struct op *op = &o->op[i];
		uint32_t index = pool_gpu(o->mig, op->gpu)->info.index;

		if (!op->done || op->rc == 0)
			continue;
		if (op->rc == -EACCES) {
			error_set(err, EXIT_CODE_NOT_PERMITTED,
				  "GPU %u: the driver lets this daemon make no MIG instances",
				  index);
			error_hint(err, "that takes root, or the capability that "
					"/dev/nvidia-caps/nvidia-cap1 stands for");
		} else if (op->rc == -EUCLEAN) {
			error_set(
				err, EXIT_CODE_FAILED,
				"GPU %u: its MIG instance was made by half, and the half cannot be "
				"removed yet; carve tries that again each second",
				index);
		} else if (op->rc == -EPIPE) {
			error_set(err, EXIT_CODE_FAILED,
				  "the part of carved that makes MIG instances has ended; carved "
				  "ends, too, and has another when it is started anew");
		} else if (op->rc == -EBUSY && op->kind == OP_MAKE) {
			error_set(err, EXIT_CODE_FAILED,
				  "GPU %u: the driver makes no instance while something uses the "
				  "GPU itself; monitoring tools do, too",
				  index);
		} else {
			error_set(err, EXIT_CODE_FAILED,
				  "GPU %u: its MIG instance cannot be %s: %s", index,
				  op->kind == OP_MAKE ? "made" : "removed",
				  strerrordesc_np(-op->rc));
		}
		return op->rc;
	}
	return 0;
}

/* The instance that an order made, or took idle, is there: its real size and UUID. */
static bool share_fill(const struct mig *mig, const struct instance_place *place, bool together,
		       struct mig_share *share)
{
	const struct mig_board *board = &mig->board[share->gpu];
	int at = mig_entry_find(board, place);

	if (at < 0 || !board->detail[at].uuid_text[0])
		return false;
	snprintf(share->uuid_text, sizeof(share->uuid_text), "%s", board->detail[at].uuid_text);
	if (board->detail[at].bytes)
		share->bytes = together ? MIN(share->requested, board->detail[at].bytes)
					: board->detail[at].bytes;
	return true;
}

/* Less than one context takes, as is known since the instance is there. */
static bool is_too_small(const struct order *o)
{
	return o->grant.together &&
	       o->grant.share[0].requested <
		       o->mig->board[o->grant.share[0].gpu].context[o->probe.profile];
}

static void order_answer(struct order *o)
{
	struct mig *mig = o->mig;
	struct error err = {0};
	int rc = order_error(o, &err);

	/* Somebody's instance was in the way, or somebody holds one: to be decided anew. */
	bool again =
		rc == -ENOSPC || (rc == -EBUSY && o->op[0].kind == OP_REMOVE) || is_too_small(o);
	for (uint32_t i = 0; rc == 0 && i < o->grant.count; i++)
		if (!share_fill(mig, &o->wanted[i], o->grant.together, &o->grant.share[i]))
			rc = again = true;
	if (rc == 0 && !again)
		mig->hooks->made(mig->context, o->request, &o->grant, NULL);
	else
		mig->hooks->made(mig->context, o->request, NULL, again ? NULL : &err);
}

static unsigned collect_start(struct mig *mig, uint32_t gpu, uint64_t older_ns);

/* The driver certainly made nothing: an instance at that place is somebody's who was first, also
 * where it is of the same profile. */
static bool op_made_nothing(const struct op *op)
{
	return op->kind == OP_MAKE &&
	       (!op->done || op->rc == -ENOSPC || op->rc == -EBUSY || op->rc == -EACCES);
}

/* Before the books are compared with the driver's list. */
static void op_disown(struct mig *mig, const struct op *op)
{
	struct mig_board *board = &mig->board[op->gpu];
	int at = op_made_nothing(op) ? mig_entry_find(board, &op->place) : -1;

	if (at >= 0 && board->instance[at].state == MIG_CREATING)
		board->instance[at].state = MIG_GONE;
}

static void order_end(struct order *o)
{
	struct mig *mig = o->mig;

	mig->orders--;
	mig->changes++;
	if (mig->stopping) {
		order_free(o);
		return;
	}
	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
		mig_board_publish(mig, gpu);
	if (o->request[0])
		order_answer(o);
	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
		if (!mig->board[gpu].changing && mig->board[gpu].collect) {
			mig->board[gpu].collect = false;
			(void)collect_start(mig, gpu, mig->board[gpu].collect_older_ns);
		}
	order_free(o);
	sessions_room_made(mig->sessions);
}

static void on_probed(struct mig_probe *probe)
{
	struct order *o = probe->arg;

	kill_point("mig.probed");
	o->mig->board[probe->gpu].changing = false;
	order_end(o);
}

/* The first of those who share an instance of a profile has the cost of a context found out. */
static bool probe_begin(struct order *o)
{
	struct mig *mig = o->mig;
	struct mig_board *board = &mig->board[o->grant.share[0].gpu];
	int at = o->grant.together && o->grant.count ? mig_entry_find(board, &o->wanted[0]) : -1;

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

static void order_done(uv_work_t *work, int status)
{
	struct order *o = work->data;
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

/* ---- its begin --------------------------------------------------------------------------- */

static struct order *order_new(struct mig *mig, uint32_t op_max)
{
	struct order *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->work.data = o;
	o->mig = mig;
	o->op = calloc(MAX(op_max, 1), sizeof(*o->op));
	o->outcome = calloc(GPUS_MAX, sizeof(*o->outcome));
	for (uint32_t i = 0; i < mig->gpus->count; i++)
		o->index[i] = pool_gpu(mig, i)->info.index;
	if (o->op && o->outcome)
		return o;
	order_free(o);
	return NULL;
}

/* A GPU's profiles stay the same: they are read once. */
static int order_look(struct order *o, uint32_t gpu)
{
	const struct mig *mig = o->mig;
	struct outcome *out = &o->outcome[gpu];
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

static int order_start(struct order *o)
{
	struct mig *mig = o->mig;
	int rc = uv_queue_work(mig->sessions->loop, &o->work, order_run, order_done);

	if (rc < 0) {
		order_free(o);
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
static int intents_store(struct order *o)
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

static void op_remove_add(struct order *o, uint32_t gpu, uint32_t at)
{
	struct mig_board *board = &o->mig->board[gpu];

	o->op[o->op_count++] =
		(struct op){.kind = OP_REMOVE, .gpu = gpu, .place = board->detail[at].place};
	mig_entry_set(board, at, MIG_REMOVING);
}

static int op_make_add(struct order *o, uint32_t gpu, const struct instance_place *place)
{
	struct mig *mig = o->mig;
	int old = mig_entry_find(&mig->board[gpu], place);

	o->op[o->op_count++] = (struct op){.kind = OP_MAKE, .gpu = gpu, .place = *place};
	if (old >= 0)
		return 0;
	struct mig_detail *detail = mig_entry_add(mig, gpu, place, MIG_CREATING);
	if (!detail)
		return -ENOSPC;
	detail->generation = ++mig->generation;
	return 0;
}

/* ---- granting ---------------------------------------------------------------------------- */

static void share_begin(const struct mig *mig, const struct mig_choice *choice,
			struct mig_share *share)
{
	uint32_t die = mig->gpu[choice->gpu].die;

	*share = (struct mig_share){
		.gpu = choice->gpu, .bytes = choice->bytes, .requested = choice->requested};
	snprintf(share->profile, sizeof(share->profile), "%s",
		 mig->profile[die][choice->profile].name);
}

static struct instance_place choice_place(const struct mig *mig, const struct mig_choice *choice)
{
	uint32_t die = mig->gpu[choice->gpu].die;

	return (struct instance_place){.profile_id = mig->profile[die][choice->profile].id,
				       .start = choice->start,
				       .size = mig->die[die].profile[choice->profile].size};
}

/* Removals are named by the numbers that instances have now; nothing is added before all are. */
static int order_plan(struct order *o, const struct mig_decision *decision)
{
	struct mig *mig = o->mig;
	int rc = 0;

	for (uint32_t i = 0; i < decision->count; i++) {
		const struct mig_choice *c = &decision->choice[i];
		struct mig_board *board = &mig->board[c->gpu];

		share_begin(o->mig, c, &o->grant.share[i]);
		o->grant.less |= c->less;
		o->wanted[i] = c->step == MIG_REUSE ? board->detail[c->instance].place
						    : choice_place(mig, c);
		for (uint32_t at = 0; c->step == MIG_REPLACE && at < board->count; at++)
			if (c->destroy >> at & 1)
				op_remove_add(o, c->gpu, at);
		rc = rc < 0 ? rc : order_look(o, c->gpu);
	}
	o->grant.count = decision->count;
	o->probe.gpu = decision->choice[0].gpu;
	o->probe.profile = decision->choice[0].profile;
	for (uint32_t i = 0; i < decision->count && rc == 0; i++)
		if (decision->choice[i].step != MIG_REUSE)
			rc = op_make_add(o, decision->choice[i].gpu, &o->wanted[i]);
	return rc;
}

/* It was not begun. */
static void order_revert(struct order *o)
{
	for (uint32_t i = 0; i < o->op_count; i++) {
		struct mig_board *board = &o->mig->board[o->op[i].gpu];
		int at = mig_entry_find(board, &o->op[i].place);

		if (at >= 0 && board->instance[at].state == MIG_REMOVING)
			mig_entry_set(board, (uint32_t)at, MIG_IDLE);
		else if (at >= 0 && board->instance[at].state == MIG_CREATING)
			board->instance[at].state = MIG_GONE; /* the next look takes it away */
	}
	order_free(o);
}

static bool all_reused(const struct mig_decision *decision)
{
	for (uint32_t i = 0; i < decision->count; i++)
		if (decision->choice[i].step != MIG_REUSE && decision->choice[i].step != MIG_JOIN)
			return false;
	return true;
}

/* Nothing has to be made. */
static int reuse(struct mig *mig, const struct mig_decision *decision, bool together,
		 struct mig_grant *ret)
{
	*ret = (struct mig_grant){.count = decision->count, .together = together};
	for (uint32_t i = 0; i < decision->count; i++) {
		const struct mig_choice *c = &decision->choice[i];

		share_begin(mig, c, &ret->share[i]);
		ret->less |= c->less;
		if (!share_fill(mig, &mig->board[c->gpu].detail[c->instance].place, together,
				&ret->share[i]))
			return -EIO;
	}
	return 1;
}

int mig_take(struct mig *mig, const char *id, const struct mig_decision *decision, bool together,
	     struct mig_grant *ret, struct error *err)
{
	bool probe = together && decision->choice[0].step == MIG_REUSE &&
		     mig_context_wanted(mig, decision->choice[0].gpu, decision->choice[0].profile);

	if (all_reused(decision) && !probe)
		return reuse(mig, decision, together, ret);
	struct order *o = order_new(mig, MIG_CHOICES_MAX * (MIG_INSTANCES_MAX + 1));
	int rc = o ? order_plan(o, decision) : -ENOMEM;
	if (rc == 0) {
		o->grant.together = together;
		snprintf(o->request, sizeof(o->request), "%s", id);
		rc = intents_store(o);
	}
	if (rc < 0) {
		if (o)
			order_revert(o);
		return error_set(err, EXIT_CODE_FAILED, "the MIG instance cannot be recorded: %s",
				 strerrordesc_np(-rc));
	}
	rc = order_start(o);
	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "the MIG instance cannot be made: %s",
				  uv_strerror(rc))
		      : 0;
}

static int entry_of_uuid(const struct mig_board *board, const char *uuid_text)
{
	for (uint32_t at = 0; at < board->count; at++)
		if (board->instance[at].state != MIG_FOREIGN &&
		    !strcmp(board->detail[at].uuid_text, uuid_text))
			return (int)at;
	return -1;
}

bool mig_instance_ids(const struct mig *mig, uint32_t gpu, const char *uuid_text,
		      uint32_t *ret_gpu_instance, uint32_t *ret_compute_instance)
{
	int at = mig && gpu < GPUS_MAX ? entry_of_uuid(&mig->board[gpu], uuid_text) : -1;
	const struct mig_detail *detail = at < 0 ? NULL : &mig->board[gpu].detail[at];

	if (!detail || !detail->gpu_instance || !detail->compute_instance)
		return false;
	*ret_gpu_instance = detail->gpu_instance - 1u;
	*ret_compute_instance = detail->compute_instance - 1u;
	return true;
}

void mig_give(struct mig *mig, const struct mig_grant *grant, const char *session)
{
	for (uint32_t i = 0; i < grant->count; i++) {
		struct mig_board *board = &mig->board[grant->share[i].gpu];
		int at = entry_of_uuid(board, grant->share[i].uuid_text);

		if (at >= 0 && board->instance[at].state == MIG_BUSY)
			mig_board_publish(mig, grant->share[i].gpu); /* others have it, too */
		if (at < 0 || board->instance[at].state != MIG_IDLE)
			continue;
		kill_point("mig.granted");
		mig_entry_set(board, (uint32_t)at, MIG_BUSY);
		snprintf(board->detail[at].session, sizeof(board->detail[at].session), "%s",
			 session);
		mig_entry_store(mig, grant->share[i].gpu, (uint32_t)at);
		mig_board_publish(mig, grant->share[i].gpu);
	}
}

void mig_lend(struct mig *mig, const struct session *s)
{
	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++) {
		struct mig_board *board = &mig->board[gpu];

		for (uint32_t at = 0; s && at < board->count; at++)
			if (board->instance[at].state == MIG_BUSY &&
			    !strcmp(board->detail[at].session, s->record.id) &&
			    !mig_is_shared(mig, &board->detail[at]))
				board->instance[at].state = MIG_IDLE;
		if (!s)
			mig_sessions_match(mig, gpu);
		mig_board_publish(mig, gpu);
	}
}

bool mig_shares(const struct session *s)
{
	const struct store_gpu *part = s->record.gpu;
	int gpu = s->record.gpu_count ? s->pool_gpu[0] : -1;
	int at = gpu < 0 || !part->instance[0]
			 ? -1
			 : entry_of_uuid(&s->sessions->mig->board[gpu], part->instance);

	return at >= 0 && part->bytes < s->sessions->mig->board[gpu].detail[at].bytes;
}

void mig_part_changed(const struct session *s)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		if (s->pool_gpu[i] < 0)
			continue;
		mig_sessions_match(s->sessions->mig, (uint32_t)s->pool_gpu[i]);
		mig_board_publish(s->sessions->mig, (uint32_t)s->pool_gpu[i]);
	}
}

void mig_session_ended(const struct session *s)
{
	struct mig *mig = s->sessions->mig;
	bool any = false;

	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		any |= s->record.gpu[i].instance[0];
	if (any)
		kill_point("mig.ended");
	if (any)
		mig->changes++;
	for (uint32_t gpu = 0; any && gpu < mig->gpus->count; gpu++) {
		mig_sessions_match(mig, gpu);
		mig_board_publish(mig, gpu);
	}
}

/* ---- by the clock ------------------------------------------------------------------------ */

static void held_release(struct mig *mig, uint32_t gpu)
{
	struct mig_board *board = &mig->board[gpu];

	for (uint32_t at = 0; at < board->count; at++)
		if (board->instance[at].state == MIG_BUSY && !board->detail[at].session[0] &&
		    now_monotonic_ns() >= board->detail[at].held_until_ns)
			mig_entry_set(board, at, MIG_IDLE);
}

static bool is_debt(const struct mig_board *board, uint32_t at)
{
	return board->instance[at].state == MIG_DEBT &&
	       now_monotonic_ns() >= board->detail[at].held_until_ns;
}

/* A look, and another try to remove what is left half made or half removed. */
static void board_look(struct mig *mig, uint32_t gpu)
{
	struct mig_board *board = &mig->board[gpu];
	struct order *o = order_new(mig, MIG_INSTANCES_MAX);

	if (!o)
		return;
	for (uint32_t at = 0; board->known && at < board->count; at++)
		if (is_debt(board, at))
			op_remove_add(o, gpu, at);
	if (order_look(o, gpu) < 0 || intents_store(o) < 0)
		order_revert(o);
	else
		(void)order_start(o);
}

static bool board_is_used(const struct mig *mig, uint32_t gpu)
{
	return mig->board[gpu].role && pool_gpu(mig, gpu)->info.mig &&
	       pool_gpu(mig, gpu)->claim.state == CLAIM_OURS;
}

/* Without MIG mode (a reboot takes it) there are no instances. */
static void mode_follow(struct mig *mig, uint32_t gpu)
{
	const struct pool_gpu *g = pool_gpu(mig, gpu);
	struct mig_board *board = &mig->board[gpu];

	if (!board->role || g->info.mig || g->claim.state != CLAIM_OURS || !mig->gpus->done)
		return;
	mig_board_settle(mig, gpu, NULL, 0);
	mig_board_measured(board, NULL, 0, GPM_UNKNOWN, NULL);
	board->known = false;
	mig_board_publish(mig, gpu);
}

void mig_tick(struct mig *mig)
{
	if (!mig)
		return;
	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++) {
		mig_board_publish(mig, gpu);
		if (mig->driver && !mig->board[gpu].changing)
			mode_follow(mig, gpu);
		if (!mig->driver || !board_is_used(mig, gpu) || mig->board[gpu].changing)
			continue;
		held_release(mig, gpu);
		refused_age(&mig->board[gpu]);
		board_look(mig, gpu);
	}
}

static bool is_old(const struct mig_board *board, uint32_t at, uint64_t older_ns)
{
	return board->instance[at].state == MIG_IDLE &&
	       now_monotonic_ns() - board->instance[at].used >= older_ns;
}

/* Returns how many are to go. Removals that are under way come first. */
static unsigned collect_start(struct mig *mig, uint32_t gpu, uint64_t older_ns)
{
	struct mig_board *board = &mig->board[gpu];
	unsigned count = 0;

	for (uint32_t at = 0; at < board->count; at++)
		count += is_old(board, at, older_ns);
	if (board->changing) {
		board->collect = true;
		board->collect_older_ns = older_ns;
		return count;
	}
	struct order *o = count ? order_new(mig, MIG_INSTANCES_MAX) : NULL;
	if (!o)
		return 0;
	for (uint32_t at = 0; at < board->count; at++)
		if (is_old(board, at, older_ns))
			op_remove_add(o, gpu, at);
	if (order_look(o, gpu) == 0 && intents_store(o) == 0)
		return order_start(o) == 0 ? count : 0;
	order_revert(o);
	return 0;
}

static unsigned board_collect(struct mig *mig, uint32_t gpu, uint64_t older_ns)
{
	return board_is_used(mig, gpu) ? collect_start(mig, gpu, older_ns) : 0;
}

unsigned mig_collect(struct mig *mig, uint64_t older_ns)
{
	unsigned count = 0;

	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
		count += board_collect(mig, gpu, older_ns);
	return count;
}

/* ---- roles and beginning ----------------------------------------------------------------- */

bool mig_has_role(const struct mig *mig, uint32_t gpu)
{
	return mig && mig->board[gpu].role;
}

uint64_t mig_available(const struct mig *mig, uint32_t gpu)
{
	return mig ? mig->board[gpu].available : 0;
}

const char *mig_problem(const struct mig *mig, uint32_t gpu)
{
	if (!mig_has_role(mig, gpu))
		return "";
	return pool_gpu(mig, gpu)->info.mig ? mig->board[gpu].why : "its MIG mode is off";
}

int mig_utilization(const struct mig *mig, uint32_t gpu)
{
	return mig_has_role(mig, gpu) && pool_gpu(mig, gpu)->info.mig ? mig->board[gpu].utilization
								      : GPM_UNKNOWN;
}

uint32_t mig_refused(const struct mig *mig, uint32_t gpu, uint8_t profile)
{
	return mig->board[gpu].refused[profile];
}

uint32_t mig_foreign(const struct mig *mig, uint32_t gpu)
{
	uint32_t count = 0;

	for (uint32_t at = 0; mig && at < mig->board[gpu].count; at++)
		count += mig->board[gpu].instance[at].state == MIG_FOREIGN;
	return count;
}

/* "process 12, 34": those that the driver lists on a GPU; "": none. */
static const char *users_text(const struct gpu_sample *sample, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < sample->process_count && used + 12 < size; i++)
		used += (size_t)snprintf(buf + used, size - used, "%s%d", i ? ", " : "process ",
					 (int)sample->processes[i].pid);
	return buf;
}

/* MIG mode is off: why, and what would switch it on. */
static int mode_error(const struct pool_gpu *g, struct error *err)
{
	char users[128];

	if (!g->info.mig_capable)
		return error_set(err, EXIT_CODE_FAILED, "GPU %u (%s) is not capable of MIG",
				 g->info.index, g->info.name);
	if (g->sample.mig_pending) {
		error_set(err, EXIT_CODE_FAILED, "MIG mode of GPU %u is pending, and not on yet",
			  g->info.index);
		error_hint(err,
			   "it takes a reset while nobody uses the GPU (nvidia-smi --gpu-reset -i "
			   "%u), or a reboot",
			   g->info.index);
		return -1;
	}
	users_text(&g->sample, users, sizeof(users));
	error_set(err, EXIT_CODE_FAILED, "GPU %u is not in MIG mode%s%s", g->info.index,
		  users[0] ? ", and in use by " : "", users);
	error_hint(
		err,
		"carve node set-role --dynamic-mig-enabled --gpu-ids %u --enable-mode switches it "
		"on while nobody uses the GPU",
		g->info.index);
	return -1;
}

static int role_check(const struct mig *mig, uint32_t gpu, struct error *err)
{
	const struct pool_gpu *g = pool_gpu(mig, gpu);

	if (!mig->driver)
		return error_set(err, EXIT_CODE_FAILED, "this driver knows no MIG instances");
	if (g->claim.state != CLAIM_OURS)
		return error_set(err, EXIT_CODE_FAILED, "GPU %u is another daemon's",
				 g->info.index);
	return g->info.mig ? 0 : mode_error(g, err);
}

static bool is_in_use(const struct mig_board *board)
{
	for (uint32_t at = 0; at < board->count; at++)
		if (board->instance[at].state == MIG_BUSY && board->detail[at].session[0])
			return true;
	return false;
}

static int role_keep(struct mig *mig, uint32_t gpu, bool on, struct error *err)
{
	struct mig_board *board = &mig->board[gpu];
	int rc = board->role == on ? 0
				   : store_mig_role(mig->sessions->store,
						    pool_gpu(mig, gpu)->info.uuid_text, on);

	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "the role cannot be recorded: %s",
				 strerrordesc_np(-rc));
	if (board->role != on)
		log_event(LOG_INFO, "mig.role gpu=%u role=%s", pool_gpu(mig, gpu)->info.index,
			  on ? "dynamic-mig" : "none");
	/* Nobody would see or use what is idle there. */
	if (board->role && !on)
		(void)board_collect(mig, gpu, 0);
	board->known &= on && board->role;
	board->role = on;
	mig_board_publish(mig, gpu);
	if (on && !board->known && !board->changing)
		board_look(mig, gpu);
	return 0;
}

int mig_role_set(struct mig *mig, uint64_t mask, bool on, struct error *err)
{
	int rc = 0;

	for (uint32_t gpu = 0; gpu < mig->gpus->count && rc == 0; gpu++) {
		if (!(mask >> gpu & 1))
			continue;
		if (on)
			rc = role_check(mig, gpu, err);
		else if (is_in_use(&mig->board[gpu]))
			rc = error_set(err, EXIT_CODE_FAILED,
				       "GPU %u has sessions in MIG instances; release them first",
				       pool_gpu(mig, gpu)->info.index);
	}
	for (uint32_t gpu = 0; gpu < mig->gpus->count && rc == 0; gpu++)
		if (mask >> gpu & 1)
			rc = role_keep(mig, gpu, on, err);
	sessions_room_made(mig->sessions);
	return rc;
}

static int role_load(void *arg, const char *uuid_text)
{
	struct mig *mig = arg;
	int gpu = pool_find(mig->gpus, uuid_text);

	if (gpu >= 0)
		mig->board[gpu].role = true;
	return 0;
}

/* States that a daemon was ended in: what NVML lists decides. */
static int instance_load(void *arg, const struct store_instance *record)
{
	struct mig *mig = arg;
	int gpu = pool_find(mig->gpus, record->gpu);
	struct instance_place place = {record->profile_id, record->start, record->size};

	mig->generation = MAX(mig->generation, record->generation);
	if (gpu < 0 || record->state >= MIG_STATES || record->size > MIG_UNITS_MAX)
		return 0;
	struct mig_detail *d = mig_entry_add(mig, (uint32_t)gpu, &place, record->state);
	if (!d)
		return 0;
	snprintf(d->uuid_text, sizeof(d->uuid_text), "%s", record->instance);
	snprintf(d->session, sizeof(d->session), "%s", record->session);
	d->bytes = record->bytes;
	d->generation = record->generation;
	d->since = record->since;
	mig->board[gpu].instance[mig->board[gpu].count - 1].used = now_monotonic_ns();
	return 0;
}

int mig_start(struct sessions *sessions, const struct mig_hooks *hooks, void *context,
	      struct mig **ret)
{
	struct mig *mig = calloc(1, sizeof(*mig));

	if (!mig)
		return -ENOMEM;
	mig->sessions = sessions;
	mig->gpus = sessions->pool;
	mig->hooks = hooks;
	mig->context = context;
	sessions->mig = *ret = mig;
	mig->pool = (struct mig_pool){
		.dies = mig->die, .gpus = mig->gpu, .gpu_count = mig->gpus->count};
	int rc = !mig->gpus->gpus ? -ENODEV
		 : mig->sessions->privileges->mig_fd < 0
			 ? instances_open(mig->gpus->gpus, &mig->driver)
			 : instances_open_link(mig->sessions->privileges->mig_fd, &mig->driver);
	if (rc < 0)
		mig->driver = NULL;
	for (uint32_t gpu = 0; gpu < GPUS_MAX; gpu++)
		mig->board[gpu].utilization = GPM_UNKNOWN;
	if (mig->gpus->gpus && gpm_open(mig->gpus->gpus, &mig->gpm) < 0)
		mig->gpm = NULL;
	rc = store_mig_roles_each(mig->sessions->store, role_load, mig);
	if (rc == 0)
		rc = store_instances_each(mig->sessions->store, instance_load, mig);
	return rc;
}

void mig_sessions_restored(struct mig *mig)
{
	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
		mig_sessions_match(mig, gpu);
	mig_tick(mig);
}

void mig_stop(struct mig *mig)
{
	if (!mig)
		return;
	mig->stopping = true;
	mig_contexts_stop(mig);
}

void mig_free(struct mig *mig)
{
	if (!mig)
		return;
	gpm_close(mig->gpm);
	instances_close(mig->driver);
	mig->sessions->mig = NULL;
	free(mig);
}
