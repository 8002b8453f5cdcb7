/* Requests for instances: what core/mig.h decides about them, in words where it says no. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "core/mig.h"
#include "daemon/gpu/gpu_drain.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/peer.h"
#include "daemon/host/privileges.h"
#include "daemon/mig/mig.h"
#include "daemon/mig/mig_books.h"
#include "daemon/session/sessions.h"
#include "daemon/store/store.h"

/* A request as core/mig.h wants it, with what it points to. */
struct ask {
	struct mig_request request;
	uint8_t profile[MIG_DIES_MAX];
	uint8_t allowed[GPUS_MAX];
	uint32_t starts_on[GPUS_MAX];
	bool placed;
};

static uint8_t profile_named(const struct mig *mig, uint32_t die, const char *name)
{
	for (uint8_t i = 0; i < mig->die[die].profile_count; i++)
		if (!strcmp(mig->profile[die][i].name, name))
			return i;
	return MIG_NO_PROFILE;
}

static void ask_fill(const struct mig *mig, const struct slice_request *from, const uint8_t *closed,
		     struct ask *ret)
{
	const struct place_request *place = &from->place;

	*ret = (struct ask){.request = {.kind = MIG_ASK_BYTES,
					.bytes = place->bytes,
					.compute = from->compute_given ? place->compute : 0,
					.count = place->count,
					.strict = place->strict,
					.together = from->together}};
	if (place->kind == PLACE_FRACTION)
		ret->request.kind = MIG_ASK_SHARE;
	ret->request.share = place->share;
	if (place->kind == PLACE_WHOLE) {
		ret->request.kind = MIG_ASK_SHARE;
		ret->request.share = SHARE_ONE;
		ret->request.compute = 0;
		ret->request.apart = true;
	}
	if (place->kind == PLACE_PROFILE)
		ret->request.kind = MIG_ASK_PROFILE;
	ret->request.starts = from->mig_starts;
	ret->placed = from->mig_placed;
	memcpy(ret->starts_on, from->mig_on, sizeof(ret->starts_on));
	for (uint32_t die = 0; die < mig->pool.die_count; die++)
		ret->profile[die] = profile_named(mig, die, from->profile);
	for (uint32_t i = 0; i < mig->gpus->count; i++)
		ret->allowed[i] = (!place->allowed || place->allowed[i]) && !(closed && closed[i]);
}

/* The pointers are to be those of where it lies now. */
static const struct mig_request *ask_request(struct ask *ask)
{
	ask->request.profile = ask->profile;
	ask->request.allowed = ask->allowed;
	ask->request.starts_on = ask->placed ? ask->starts_on : NULL;
	return &ask->request;
}

static bool may_use(const struct slice_request *request, uint32_t gpu)
{
	return !request->place.allowed || request->place.allowed[gpu];
}

bool mig_offers(const struct mig *mig, const struct slice_request *request)
{
	for (uint32_t i = 0; mig && i < mig->gpus->count; i++)
		if (may_use(request, i) && mig_board_ours(mig, i))
			return true;
	return false;
}

/* The GPU's instances are being changed, or were not looked at yet. */
static bool is_unsettled(const struct mig_board *board)
{
	return board->changing || (!board->known && !board->why[0]);
}

bool mig_changing(const struct mig *mig, const struct slice_request *request)
{
	for (uint32_t i = 0; mig && i < mig->gpus->count; i++)
		if (may_use(request, i) && mig_board_gives(mig, i) && is_unsettled(&mig->board[i]))
			return true;
	return false;
}

struct mig_pool *mig_pool_of(struct mig *mig)
{
	return mig && mig->pool.die_count ? &mig->pool : NULL;
}

bool mig_gpu_changing(const struct mig *mig, uint32_t gpu)
{
	return mig && mig_board_gives(mig, gpu) && is_unsettled(&mig->board[gpu]);
}

const char *mig_holder(const struct mig *mig, uint32_t gpu, uint32_t at)
{
	return mig->board[gpu].detail[at].session;
}

uint64_t mig_changes(const struct mig *mig)
{
	return mig ? mig->changes : 0;
}

uint64_t mig_bytes_for(struct mig *mig, const struct place_request *place, uint32_t gpu)
{
	const struct slice_request request = {.place = *place};
	struct ask ask;

	if (!mig || !mig->board[gpu].known || place->kind == PLACE_PROFILE)
		return 0;
	ask_fill(mig, &request, NULL, &ask);
	uint8_t wanted = mig_wanted(&mig->pool, gpu, ask_request(&ask));
	return wanted == MIG_NO_PROFILE ? 0
					: mig->die[mig->gpu[gpu].die].profile[wanted].memory_bytes;
}

void mig_came(struct mig *mig, const struct slice_request *request, enum mig_admission admission)
{
	struct ask ask;

	if (!mig || !mig->pool.die_count)
		return;
	ask_fill(mig, request, NULL, &ask);
	mig_arrival(&mig->pool, ask_request(&ask), admission);
}

/* ---- in words ---------------------------------------------------------------------------- */

/* "1g.10gb, 2g.20gb": what GPUs that may be used can have. */
static void names_list(const struct mig *mig, const struct slice_request *request, char *buf,
		       size_t size)
{
	uint64_t said = 0;
	size_t used = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < mig->gpus->count; i++) {
		uint32_t die = mig->gpu[i].die;

		if (!may_use(request, i) || !mig_board_ours(mig, i) || !mig->board[i].known ||
		    said >> die & 1)
			continue;
		said |= 1ull << die;
		for (uint32_t p = 0; p < mig->die[die].profile_count && used < size; p++)
			used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "",
						 mig->profile[die][p].name);
	}
}

static const char *reason_text(enum mig_reason reason)
{
	switch (reason) {
	case MIG_FITS:
		return "it has room for one, not for all of them";
	case MIG_NOT_ALLOWED:
		return "not in --gpu-ids";
	case MIG_NO_SUCH_PROFILE:
		return "it has no such profile";
	case MIG_TOO_LARGE:
		return "no instance of it is that large";
	case MIG_TOO_MUCH_COMPUTE:
		return "no instance of it has so many SMs";
	case MIG_FULL:
		return "sessions' instances are in the way";
	case MIG_FULL_FOREIGN:
		return "instances that carve did not make are in the way";
	case MIG_FULL_CHANGING:
		return "instances are being made or removed there";
	case MIG_FULL_LIMIT:
		return "it allows no more of that profile beside the instances that are there";
	case MIG_FULL_REFUSED:
		return "the driver refuses it, though there is a place; carve asks the driver "
		       "again every 30 s";
	case MIG_FULL_FROZEN:
		return "the driver refuses to change its instances";
	default:
		return "not offered";
	}
}

/* Names the process that is in the way, if no session is. */
const char *mig_held_text(const struct mig *mig, uint32_t gpu, char *buf, size_t size)
{
	const struct mig_board *board = &mig->board[gpu];

	for (uint32_t at = 0; at < board->count; at++) {
		const struct mig_detail *d = &board->detail[at];

		if (!mig_entry_held(board, at))
			continue;
		if (d->pid_count)
			snprintf(buf, size, "process %u holds the idle instance at %u:%u",
				 d->pid[0], d->place.start, d->place.size);
		else
			snprintf(buf, size,
				 "the driver says that the idle instance at %u:%u is in use, and "
				 "lists no process: restart monitoring tools",
				 d->place.start, d->place.size);
		return buf;
	}
	return NULL;
}

/* A place that was asked for, and that the driver refused though it looks free: which. */
static const char *refused_text(const struct mig *mig, uint32_t gpu, const struct ask *ask,
				char *buf, size_t size)
{
	uint8_t profile = ask->profile[mig->gpu[gpu].die];
	uint32_t starts = ask->placed && profile != MIG_NO_PROFILE
				  ? ask->starts_on[gpu] & mig_refused(mig, gpu, profile)
				  : 0;

	if (!starts)
		return NULL;
	snprintf(buf, size,
		 "the driver refuses it at memory unit %d, though nothing is in the way there; "
		 "carve asks the driver again every 30 s",
		 __builtin_ctz(starts));
	return buf;
}

/* Why GPU `gpu` does not fulfil a request, in words that may lie in buf. */
static const char *says_text(const struct mig *mig, uint32_t gpu, enum mig_reason reason,
			     const struct ask *ask, char *buf, size_t size)
{
	char bytes[UNITS_TEXT_SIZE];
	const char *known = NULL;

	if (reason == MIG_FULL_FROZEN)
		known = mig_refusal(mig, gpu);
	if (reason == MIG_FULL_REFUSED)
		known = refused_text(mig, gpu, ask, buf, size);
	if (reason == MIG_FULL && !known)
		known = mig_held_text(mig, gpu, buf, size);
	if (reason != MIG_TOO_SMALL)
		return known ? known : reason_text(reason);
	uint8_t wanted = mig_wanted(&mig->pool, gpu, &ask->request);
	snprintf(buf, size, "one CUDA context alone takes %s",
		 units_format_bytes(mig->board[gpu].context[wanted], bytes));
	return buf;
}

/* Each GPU that gives instances says that what was asked for is too small. */
static bool all_too_small(struct mig *mig, struct ask *ask)
{
	uint32_t given = 0, small = 0;

	for (uint32_t i = 0; i < mig->gpus->count; i++) {
		if (!ask->allowed[i] || !mig_board_ours(mig, i))
			continue;
		given++;
		small += mig_check(&mig->pool, i, ask_request(ask)) == MIG_TOO_SMALL;
	}
	return given && small == given;
}

/* The answer of one GPU to a request that has no room, in words that may lie in buf. */
static const char *board_text(struct mig *mig, uint32_t gpu, struct ask *ask, char *buf,
			      size_t size)
{
	const struct mig_board *board = &mig->board[gpu];
	const struct store_drain *drain = gpu_drain_of(mig->gpus, gpu);
	char drained[GPU_DRAIN_TEXT_SIZE];
	enum mig_reason reason = mig->gpu[gpu].offered
					 ? mig_check(&mig->pool, gpu, ask_request(ask))
					 : MIG_NOT_OFFERED;

	if (drain) {
		snprintf(buf, size, "%s", gpu_drain_text(drain, drained));
		return buf;
	}
	return board->why[0] ? board->why : says_text(mig, gpu, reason, ask, buf, size);
}

static void explain(struct mig *mig, struct ask *ask, const char *asked, struct error *err)
{
	char text[sizeof(err->message) - 112], part[GPU_DRAIN_TEXT_SIZE + 32];
	char says[GPU_DRAIN_TEXT_SIZE];
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < mig->gpus->count; i++) {
		if (!ask->allowed[i] || !mig_board_ours(mig, i))
			continue;
		snprintf(part, sizeof(part), "%s GPU %u: %s", used ? ";" : "",
			 mig->gpus->gpu[i].info.index, board_text(mig, i, ask, says, sizeof(says)));
		/* Whole words of as many GPUs as there is room for. */
		if (used + strlen(part) >= sizeof(text))
			break;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", part);
	}
	if (all_too_small(mig, ask))
		error_set(err, EXIT_CODE_USAGE, "a slice of %s is too small:%s", asked, text);
	else
		error_set(err, EXIT_CODE_NO_ROOM, "no room for %s in MIG instances:%s", asked,
			  text);
}

/* Whole GPUs are asked for, and GPUs are short, not room: says so and returns true. */
static bool count_explain(const struct mig *mig, const struct ask *ask, struct error *err)
{
	char asked[UNITS_TEXT_SIZE];
	uint32_t ours = 0, all = mig->gpus->count;

	for (uint32_t i = 0; i < all; i++)
		ours += ask->allowed[i] && mig_board_ours(mig, i);
	if (!ask->request.apart || ours >= ask->request.count)
		return false;
	units_format_count(ask->request.count, "GPU", asked);
	if (all < ask->request.count)
		error_set(err, EXIT_CODE_NO_ROOM, "%s asked, there %s %u", asked,
			  all == 1 ? "is" : "are", all);
	else
		error_set(err, EXIT_CODE_NO_ROOM,
			  "%s asked, %u that may be used give%s out MIG "
			  "instances",
			  asked, ours, ours == 1 ? "s" : "");
	return true;
}

/* The GPU has the profile, at a start that was asked for. */
static bool may_be_there(const struct mig *mig, const struct ask *ask, uint32_t gpu)
{
	uint32_t die = mig->gpu[gpu].die;
	uint32_t starts = ask->placed ? ask->starts_on[gpu] : ask->request.starts;
	uint8_t profile = ask->profile[die];

	return profile != MIG_NO_PROFILE &&
	       (!starts || starts & mig->die[die].profile[profile].starts);
}

/* The GPU is drained, and has such instances when it is resumed. */
static bool is_drained(const struct mig *mig, uint32_t gpu, struct ask *ask)
{
	return gpu_drain_of(mig->gpus, gpu) && mig->board[gpu].known &&
	       mig_wanted(&mig->pool, gpu, ask_request(ask)) != MIG_NO_PROFILE;
}

/* A GPU that is drained, or whose driver does not answer now, may have room later. */
static bool any_returns(const struct mig *mig, struct ask *ask)
{
	for (uint32_t i = 0; i < mig->gpus->count; i++)
		if (ask->allowed[i] && mig_board_ours(mig, i) &&
		    (mig->board[i].silent || is_drained(mig, i, ask)))
			return true;
	return false;
}

int mig_would(struct mig *mig, const struct slice_request *request, const struct peer *peer,
	      const uint8_t *closed, struct mig_decision *ret, struct error *err)
{
	char asked[REQUEST_TEXT_SIZE], names[sizeof(err->hint) - 16];
	struct ask ask;
	int rc = -EAGAIN;

	ask_fill(mig, request, closed, &ask);
	if (peer)
		ask.request.party = mig_party(mig, peer->uid, peer->gid, &peer->groups);
	if (peer && mig->pool.die_count && mig_join(&mig->pool, ask_request(&ask), ret) == 0)
		return 0;
	if (mig->pool.die_count)
		rc = mig_decide(&mig->pool, ask_request(&ask), ret);
	for (uint32_t i = 0; rc == 0 && request->together && i < ret->count; i++)
		ret->choice[i].bytes = MIN(ret->choice[i].bytes, ret->choice[i].requested);
	if (rc == 0)
		return 0;
	names_list(mig, request, names, sizeof(names));
	bool named = false;
	for (uint32_t i = 0; i < mig->gpus->count; i++)
		named |= ask.allowed[i] && mig_board_ours(mig, i) &&
			 (!mig->board[i].known || may_be_there(mig, &ask, i));
	if (request->place.kind == PLACE_PROFILE && !named) {
		char at[32] = "";

		if (request->mig_starts)
			snprintf(at, sizeof(at), " at memory unit %d",
				 __builtin_ctz(request->mig_starts));
		error_set(err, EXIT_CODE_USAGE, "mig_profile: no GPU here has '%.32s'%s",
			  request->profile, at);
		error_hint(err, "there are %.400s", names);
		return -EDOM;
	}
	if (rc == -EDOM && count_explain(mig, &ask, err))
		return rc;
	explain(mig, &ask, request_text(&request->place, request->profile, asked), err);
	if (err->code == EXIT_CODE_USAGE)
		return -EDOM;
	if (any_returns(mig, &ask))
		rc = -EAGAIN;
	if (rc == -EAGAIN)
		error_hint(err, "carve mig list shows who has what; wait for room with --wait-for "
				"10m");
	else if (request->place.kind != PLACE_PROFILE && *names)
		error_hint(err, "instances here are %.400s", names);
	return rc;
}

bool mig_possible(struct mig *mig, const struct slice_request *request)
{
	struct mig_decision ignored;
	struct ask ask;

	if (!mig || !mig->pool.die_count || request->backend == BACKEND_FRACTION)
		return false;
	ask_fill(mig, request, NULL, &ask);
	/* GPUs that are drained are not offered. */
	return mig_decide(&mig->pool, ask_request(&ask), &ignored) != -EDOM;
}

void mig_explain(struct mig *mig, const struct slice_request *request, uint32_t gpu,
		 struct mig_says *ret)
{
	const struct mig_board *board = &mig->board[gpu];
	uint32_t die = mig->gpu[gpu].die;
	char held[sizeof(ret->text)];
	struct ask ask;

	*ret = (struct mig_says){.reason = MIG_NOT_OFFERED};
	snprintf(ret->text, sizeof(ret->text), "%s", mig_problem(mig, gpu));
	if (!board->known && !ret->text[0])
		snprintf(ret->text, sizeof(ret->text),
			 "its instances are being looked at: ask again in a moment");
	if (!board->known)
		return;
	ask_fill(mig, request, NULL, &ask);
	if (mig->gpu[gpu].offered)
		ret->reason = mig_check(&mig->pool, gpu, ask_request(&ask));
	else if (board->changing)
		ret->reason = MIG_FULL_CHANGING;
	if (!ret->text[0] && ret->reason != MIG_FITS)
		snprintf(ret->text, sizeof(ret->text), "%s",
			 says_text(mig, gpu, ret->reason, &ask, held, sizeof(held)));
	uint8_t wanted = mig_wanted(&mig->pool, gpu, ask_request(&ask));
	if (!ret->text[0] && wanted != MIG_NO_PROFILE)
		snprintf(ret->text, sizeof(ret->text), "a MIG instance %s",
			 mig->profile[die][wanted].name);
	ret->requested = mig_requested(&mig->die[die], die, ask_request(&ask));
	for (uint32_t i = 0; i < mig->die[die].profile_count; i++)
		ret->capacity = MAX(ret->capacity, mig->die[die].profile[i].memory_bytes);
}

const char *mig_near(const struct mig *mig, uint32_t gpu, uint64_t requested, uint32_t compute,
		     uint64_t *ret_bytes, double *ret_compute)
{
	const struct mig_request request = {
		.kind = MIG_ASK_BYTES, .bytes = requested, .compute = compute, .count = 1};
	struct mig_match match;

	if (!mig || !mig->board[gpu].known)
		return NULL;
	uint32_t number = mig->gpu[gpu].die;
	const struct mig_die *die = &mig->die[number];
	mig_match(die, number, &request, &match);
	if (match.near == MIG_NO_PROFILE)
		return NULL;
	*ret_bytes = die->profile[match.near].memory_bytes;
	*ret_compute = die->profile[match.near].sms / (double)die->sms;
	return mig->profile[number][match.near].name;
}

bool mig_keeps(struct mig *mig, const struct store_gpu *part, uint32_t gpu,
	       const struct slice_request *request, uint64_t *ret_requested)
{
	struct ask ask;

	if (!mig->board[gpu].known)
		return false;
	ask_fill(mig, request, NULL, &ask);
	uint32_t die = mig->gpu[gpu].die;
	uint8_t wanted = mig_wanted(&mig->pool, gpu, ask_request(&ask));
	*ret_requested = mig_requested(&mig->die[die], die, ask_request(&ask));
	return wanted != MIG_NO_PROFILE && !strcmp(mig->profile[die][wanted].name, part->profile) &&
	       (request->place.kind != PLACE_BYTES || *ret_requested <= part->bytes);
}
