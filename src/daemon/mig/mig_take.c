/* Instances of requests and of sessions: taken, given, lent, shared and given back. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/kill_point.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/unrecorded.h"
#include "daemon/mig/mig_books.h"
#include "daemon/mig/mig_order.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"

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
static int order_plan(struct mig_order *o, const struct mig_decision *decision)
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
				mig_order_remove(o, c->gpu, at);
		rc = rc < 0 ? rc : mig_order_look(o, c->gpu);
	}
	o->grant.count = decision->count;
	o->probe.gpu = decision->choice[0].gpu;
	o->probe.profile = decision->choice[0].profile;
	for (uint32_t i = 0; i < decision->count && rc == 0; i++)
		if (decision->choice[i].step != MIG_REUSE)
			rc = mig_order_make(o, decision->choice[i].gpu, &o->wanted[i]);
	return rc;
}

static bool all_reused(const struct mig_decision *decision)
{
	for (uint32_t i = 0; i < decision->count; i++)
		if (decision->choice[i].step != MIG_REUSE && decision->choice[i].step != MIG_JOIN)
			return false;
	return true;
}

/* Else NVML is asked first who is in them. */
static bool all_seen(const struct mig *mig, const struct mig_decision *decision)
{
	for (uint32_t i = 0; i < decision->count; i++) {
		const struct mig_choice *c = &decision->choice[i];

		if (c->step == MIG_REUSE && !mig_entry_seen(&mig->board[c->gpu], c->instance))
			return false;
	}
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
		if (!mig_entry_share(mig, &mig->board[c->gpu].detail[c->instance].place, together,
				     &ret->share[i]))
			return -EIO;
	}
	return 1;
}

/* Instances of one request are of one profile, where the GPUs are of one model. */
static bool wants_probe(const struct mig *mig, const struct mig_decision *decision, bool together)
{
	const struct mig_choice *first = &decision->choice[0];

	return (together || decision->count > 1) && first->step == MIG_REUSE &&
	       mig_context_wanted(mig, first->gpu, first->profile);
}

int mig_take(struct mig *mig, const char *id, const struct mig_decision *decision, bool together,
	     struct mig_grant *ret, struct error *err)
{
	if (all_reused(decision) && all_seen(mig, decision) &&
	    !wants_probe(mig, decision, together))
		return reuse(mig, decision, together, ret);
	struct mig_order *o = mig_order_new(mig, MIG_CHOICES_MAX * (MIG_INSTANCES_MAX + 1));
	int rc = o ? order_plan(o, decision) : -ENOMEM;
	if (rc == 0) {
		o->grant.together = together;
		snprintf(o->request, sizeof(o->request), "%s", id);
		rc = mig_order_store(o);
	}
	if (rc < 0) {
		if (o)
			mig_order_revert(o);
		return unrecorded_set(err, "the MIG instance cannot be recorded", rc);
	}
	rc = mig_order_start(o);
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
