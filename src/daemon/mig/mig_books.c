#include "daemon/mig/mig_books.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/groups.h"
#include "daemon/host/log.h"
#include "daemon/host/owner.h"
#include "daemon/host/privileges.h"
#include "daemon/mig/mig.h"
#include "daemon/mig/mig_context.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/store/store.h"

/* ---- sessions on instances --------------------------------------------------------------- */

static const struct store_gpu *part_on(const struct session *s, const char *uuid_text)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (!strcmp(s->record.gpu[i].instance, uuid_text))
			return &s->record.gpu[i];
	return NULL;
}

const struct session *mig_session_on(const struct session *s, const char *uuid_text)
{
	while (s && !(*uuid_text && part_on(s, uuid_text)))
		s = s->next;
	return s;
}

/* The sum of all sessions on it. */
static uint64_t promised_on(const struct mig *mig, const struct mig_detail *detail)
{
	uint64_t sum = 0;

	for (const struct session *s = mig_session_on(mig->sessions->first, detail->uuid_text); s;
	     s = mig_session_on(s->next, detail->uuid_text))
		sum += part_on(s, detail->uuid_text)->bytes;
	return sum;
}

uint64_t mig_promised(const struct mig *mig, uint32_t gpu)
{
	uint64_t sum = 0;

	for (uint32_t at = 0; mig && at < mig->board[gpu].count; at++)
		if (mig->board[gpu].instance[at].state == MIG_BUSY)
			sum += promised_on(mig, &mig->board[gpu].detail[at]);
	return sum;
}

bool mig_is_shared(const struct mig *mig, const struct mig_detail *detail)
{
	const struct session *s = mig_session_on(mig->sessions->first, detail->uuid_text);

	return s && part_on(s, detail->uuid_text)->bytes < detail->bytes;
}

/* Above all user IDs. */
#define PARTY_OF_GROUP (1ull << 32)

uint64_t mig_party(const struct mig *mig, uid_t uid, gid_t gid, const struct groups *groups)
{
	gid_t group = mig->share_group;

	if (group != MIG_SHARE_NO_GROUP && (gid == group || groups_have(groups, group)))
		return PARTY_OF_GROUP | group;
	return owner_of(uid);
}

/* Those who share the instance. False: they belong to several parties by now, as the administrator
 * named another group, so that nobody joins them. */
static bool party_on(const struct mig *mig, const struct mig_detail *detail, uint64_t *ret)
{
	const struct session *first = mig_session_on(mig->sessions->first, detail->uuid_text);

	for (const struct session *s = first; s; s = mig_session_on(s->next, detail->uuid_text)) {
		const struct store_session *record = &s->record;
		uint64_t party = mig_party(mig, record->uid, record->gid, &record->groups);

		if (s != first && party != *ret)
			return false;
		*ret = party;
	}
	return first != NULL;
}

static struct pool_shared *shared_find(struct pool_gpu *gpu, const char *uuid_text)
{
	for (uint32_t i = 0; i < gpu->shared_count; i++)
		if (!strcmp(gpu->shared[i].uuid_text, uuid_text))
			return &gpu->shared[i];
	return NULL;
}

/* The memory of programs outside carve is not there to be promised. Where the driver does not tell
 * how much that is, nobody joins. An instance that was just given was looked into before. */
static uint64_t room_on(const struct mig *mig, uint32_t gpu, const struct mig_detail *detail)
{
	const struct pool_shared *shared = shared_find(&mig->gpus->gpu[gpu], detail->uuid_text);
	uint64_t usable = detail->bytes - MIN(detail->reserved, detail->bytes);
	uint64_t taken = promised_on(mig, detail) + (shared ? shared->outside : 0);

	return mig_is_shared(mig, detail) && !(shared && shared->untold) && taken < usable
		       ? usable - taken
		       : 0;
}

/* Samples shall tell what is in the instances that sessions share. */
static void shared_publish(struct mig *mig, uint32_t gpu)
{
	const struct mig_board *board = &mig->board[gpu];
	struct pool_gpu *pool = &mig->gpus->gpu[gpu];
	struct pool_shared list[MIG_INSTANCES_MAX];
	uint32_t count = 0;

	for (uint32_t at = 0; at < board->count; at++) {
		const char *uuid_text = board->detail[at].uuid_text;
		const struct pool_shared *before = shared_find(pool, uuid_text);

		if (board->instance[at].state != MIG_BUSY ||
		    !mig_is_shared(mig, &board->detail[at]))
			continue;
		list[count] = before ? *before : (struct pool_shared){0};
		snprintf(list[count].uuid_text, sizeof(list[count].uuid_text), "%s", uuid_text);
		count++;
	}
	memcpy(pool->shared, list, count * sizeof(*list));
	pool->shared_count = count;
}

/* The instance that a session shares, by its number there; -1: it shares none. */
static int shared_by(const struct session *s)
{
	const struct mig *mig = s->sessions->mig;
	int gpu = s->record.gpu_count == 1 ? s->pool_gpu[0] : -1;

	for (uint32_t at = 0; gpu >= 0 && at < mig->board[gpu].count; at++) {
		const struct mig_detail *detail = &mig->board[gpu].detail[at];

		if (*detail->uuid_text && !strcmp(detail->uuid_text, s->record.gpu[0].instance) &&
		    mig_is_shared(mig, detail))
			return (int)at;
	}
	return -1;
}

uint64_t mig_part_most(const struct session *s)
{
	const struct mig *mig = s->sessions->mig;
	int at = shared_by(s);

	return at < 0 ? 0
		      : s->record.gpu[0].bytes + room_on(mig, (uint32_t)s->pool_gpu[0],
							 &mig->board[s->pool_gpu[0]].detail[at]);
}

uint64_t mig_context_bytes(const struct session *s, uint32_t position)
{
	const struct mig *mig = s->sessions->mig;
	int gpu = s->pool_gpu[position];

	for (uint32_t at = 0; gpu >= 0 && at < mig->board[gpu].count; at++) {
		const struct mig_board *board = &mig->board[gpu];
		uint8_t profile = board->instance[at].profile;

		if (!strcmp(board->detail[at].uuid_text, s->record.gpu[position].instance))
			return profile == MIG_NO_PROFILE ? 0 : board->context[profile];
	}
	return 0;
}

uint64_t mig_part_least(const struct session *s)
{
	return shared_by(s) < 0 ? 0 : mig_context_bytes(s, 0);
}

/* ---- the pool ---------------------------------------------------------------------------- */

/* The memory of the largest instance that the GPU could make room for now. */
static uint64_t largest(struct mig *mig, uint32_t gpu)
{
	uint32_t die = mig->gpu[gpu].die;
	uint8_t wanted[MIG_DIES_MAX];
	const struct mig_request request = {.kind = MIG_ASK_PROFILE, .profile = wanted, .count = 1};
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < mig->die[die].profile_count; i++) {
		wanted[die] = (uint8_t)i;
		if (mig->die[die].profile[i].memory_bytes > bytes &&
		    mig_check(&mig->pool, gpu, &request) == MIG_FITS)
			bytes = mig->die[die].profile[i].memory_bytes;
	}
	return bytes;
}

void mig_board_publish(struct mig *mig, uint32_t gpu)
{
	struct mig_board *board = &mig->board[gpu];
	const struct pool_gpu *pool = &mig->gpus->gpu[gpu];
	struct mig_gpu *to = &mig->gpu[gpu];

	mig->gpus->gpu[gpu].gives_instances = board->role;
	shared_publish(mig, gpu);
	for (uint32_t at = 0; at < board->count; at++) {
		struct mig_instance *in = &board->instance[at];

		in->room = in->state == MIG_BUSY && party_on(mig, &board->detail[at], &in->party)
				   ? room_on(mig, gpu, &board->detail[at])
				   : 0;
	}
	to->instances = board->instance;
	to->instance_count = board->count;
	to->refused = board->refused;
	to->frozen = board->frozen_until_ns != 0;
	mig_contexts_publish(mig, gpu);
	to->offered = board->role && board->known && !board->changing && !board->why[0] &&
		      pool->info.mig && pool->claim.state == CLAIM_OURS &&
		      !gpu_drain_of(mig->gpus, gpu);
	if (to->offered && mig_gpu_update(to, &mig->die[to->die]) < 0)
		to->offered = false;
	if (to->offered)
		mig->board[gpu].available = largest(mig, gpu);
	else if (!board->changing)
		mig->board[gpu].available = 0;
}

int mig_die_find(struct mig *mig, const struct instance_kinds *kinds)
{
	uint32_t at = 0;

	while (at < mig->pool.die_count && !mig_die_equal(&mig->die[at], &kinds->die))
		at++;
	if (at == MIG_DIES_MAX)
		return -1;
	if (at == mig->pool.die_count) {
		mig->die[at] = kinds->die;
		memcpy(mig->profile[at], kinds->profile, sizeof(kinds->profile));
		mig->pool.die_count++;
	}
	return (int)at;
}

uint8_t mig_profile_of(const struct mig *mig, uint32_t gpu, uint32_t profile_id)
{
	uint32_t die = mig->gpu[gpu].die;

	for (uint8_t i = 0; i < mig->die[die].profile_count; i++)
		if (mig->profile[die][i].id == profile_id)
			return i;
	return MIG_NO_PROFILE;
}

/* ---- entries ----------------------------------------------------------------------------- */

static bool same_place(const struct instance_place *a, const struct instance_place *b)
{
	return a->profile_id == b->profile_id && a->start == b->start && a->size == b->size;
}

/* The entry at this place, of whatever state if `foreign`; -1: none. */
static int entry_at(const struct mig_board *board, const struct instance_place *place, bool foreign)
{
	for (uint32_t at = 0; at < board->count; at++)
		if ((foreign || board->instance[at].state != MIG_FOREIGN) &&
		    same_place(&board->detail[at].place, place))
			return (int)at;
	return -1;
}

int mig_entry_find(const struct mig_board *board, const struct instance_place *place)
{
	return entry_at(board, place, false);
}

struct mig_detail *mig_entry_add(struct mig *mig, uint32_t gpu, const struct instance_place *place,
				 enum mig_state state)
{
	struct mig_board *board = &mig->board[gpu];

	if (board->count == MIG_INSTANCES_MAX || place->start + place->size > (int)MIG_UNITS_MAX)
		return NULL;
	uint32_t at = board->count++;
	board->instance[at] = (struct mig_instance){
		.profile = mig_profile_of(mig, gpu, place->profile_id),
		.start = place->start,
		.size = place->size,
		.state = state,
	};
	board->detail[at] = (struct mig_detail){
		.place = *place, .since = now_realtime_ns(), .utilization = GPM_UNKNOWN};
	return &board->detail[at];
}

static void entry_drop(struct mig_board *board, uint32_t at)
{
	board->count--;
	memmove(&board->instance[at], &board->instance[at + 1],
		(board->count - at) * sizeof(board->instance[0]));
	memmove(&board->detail[at], &board->detail[at + 1],
		(board->count - at) * sizeof(board->detail[0]));
}

void mig_entry_set(struct mig_board *board, uint32_t at, enum mig_state state)
{
	struct mig_instance *instance = &board->instance[at];

	if (instance->state == state)
		return;
	assert(mig_state_may(instance->state, state));
	instance->state = state;
	board->detail[at].since = now_realtime_ns();
	if (state == MIG_IDLE)
		instance->used = now_monotonic_ns();
	if (state != MIG_BUSY)
		board->detail[at].session[0] = '\0';
}

void mig_entry_record(const struct mig *mig, uint32_t gpu, uint32_t at, struct store_instance *ret)
{
	const struct mig_board *board = &mig->board[gpu];
	const struct mig_detail *detail = &board->detail[at];

	*ret = (struct store_instance){
		.profile_id = detail->place.profile_id,
		.start = detail->place.start,
		.size = detail->place.size,
		.state = (uint8_t)board->instance[at].state,
		.generation = detail->generation,
		.bytes = detail->bytes,
		.since = detail->since,
	};
	snprintf(ret->gpu, sizeof(ret->gpu), "%s", mig->gpus->gpu[gpu].info.uuid_text);
	snprintf(ret->instance, sizeof(ret->instance), "%s", detail->uuid_text);
	snprintf(ret->session, sizeof(ret->session), "%s", detail->session);
}

static void store_tell(int rc)
{
	if (rc < 0)
		log_event(LOG_ERROR, "mig.unrecorded error=\"%s\"", strerrordesc_np(-rc));
}

void mig_entry_store(struct mig *mig, uint32_t gpu, uint32_t at)
{
	struct store_instance record;

	mig_entry_record(mig, gpu, at, &record);
	store_tell(store_instances_put(mig->sessions->store, &record, 1));
}

static void entry_forget(struct mig *mig, uint32_t gpu, uint32_t at)
{
	struct mig_board *board = &mig->board[gpu];
	struct store_instance record;

	if (board->instance[at].state != MIG_FOREIGN) {
		mig_entry_record(mig, gpu, at, &record);
		store_tell(store_instance_remove(mig->sessions->store, &record));
	}
	entry_drop(board, at);
}

/* ---- NVML's word ------------------------------------------------------------------------- */

static const struct instance *listed(const struct instance *list, size_t count,
				     const struct instance_place *place)
{
	for (size_t i = 0; i < count; i++)
		if (same_place(&list[i].place, place))
			return &list[i];
	return NULL;
}

/* The fate of a session's instance that NVML lists no more, or as another one. */
static void session_lose(struct mig *mig, const struct mig_detail *detail, const char *why)
{
	struct session *s =
		detail->session[0] ? session_find(mig->sessions, detail->session) : NULL;

	if (!s)
		return;
	session_commands_end(s, NULL);
	session_end(s, STORE_END_SYSTEM, why);
}

/* Whether it is the instance that the books have. Where they have no UUID, it was being made. */
static bool is_that(const struct mig_detail *detail, const struct instance *found)
{
	return !detail->uuid_text[0] || !found->uuid_text[0] ||
	       !strcmp(detail->uuid_text, found->uuid_text);
}

static enum mig_state settled_state(const struct mig_board *board, uint32_t at,
				    const struct instance *found)
{
	enum mig_state state = board->instance[at].state;
	bool whole = found->uuid_text[0];

	switch (state) {
	case MIG_CREATING:
	case MIG_REMOVING:
		return whole ? MIG_IDLE : MIG_DEBT;
	case MIG_BUSY:
		/* Somebody destroyed its compute instance. */
		return whole ? MIG_BUSY : MIG_IDLE;
	case MIG_IDLE:
		return whole ? MIG_IDLE : MIG_REMOVING;
	default:
		return state;
	}
}

/* False: it is gone from the books. */
static bool entry_settle(struct mig *mig, uint32_t gpu, uint32_t at, const struct instance *found)
{
	struct mig_board *board = &mig->board[gpu];
	struct mig_detail *detail = &board->detail[at];

	if (!found || board->instance[at].state == MIG_GONE || !is_that(detail, found)) {
		/* Ending it may change the board. */
		struct mig_detail lost = *detail;

		log_event(LOG_INFO, "mig.gone gpu=%u start=%u size=%u uuid=%s",
			  mig->gpus->gpu[gpu].info.index, lost.place.start, lost.place.size,
			  lost.uuid_text);
		entry_forget(mig, gpu, at);
		session_lose(mig, &lost, "its MIG instance is gone (removed, or GPU was reset)");
		return false;
	}
	enum mig_state before = board->instance[at].state, state = settled_state(board, at, found);
	bool learned = !detail->uuid_text[0] && found->uuid_text[0];
	struct mig_detail was = *detail;

	if (found->uuid_text[0]) {
		snprintf(detail->uuid_text, sizeof(detail->uuid_text), "%s", found->uuid_text);
		detail->bytes = found->bytes;
		detail->gpu_instance = found->gpu_instance;
		detail->compute_instance = found->compute_instance;
	}
	detail->reserved = found->reserved;
	mig_entry_set(board, at, state);
	if (state == MIG_REMOVING) {
		mig_entry_set(board, at, MIG_DEBT);
		state = MIG_DEBT;
	}
	if (state != before || learned)
		mig_entry_store(mig, gpu, at);
	if (before == MIG_BUSY && state != MIG_BUSY)
		session_lose(mig, &was, "its MIG instance was taken apart from outside");
	return true;
}

static void foreign_forget(struct mig_board *board)
{
	for (uint32_t at = board->count; at-- > 0;)
		if (board->instance[at].state == MIG_FOREIGN)
			entry_drop(board, at);
}

static bool same_foreign(const struct mig_board *board, const struct instance *list, size_t count)
{
	for (uint32_t at = 0; at < board->count; at++)
		if (board->instance[at].state == MIG_FOREIGN &&
		    !listed(list, count, &board->detail[at].place))
			return false;
	return true;
}

/* If nothing changed, their age stays. One that was seen half made becomes whole, and one may be
 * removed and another made at its place between two looks. */
static void foreign_settle(struct mig *mig, uint32_t gpu, const struct instance *list, size_t count)
{
	struct mig_board *board = &mig->board[gpu];

	if (!same_foreign(board, list, count))
		foreign_forget(board);
	for (size_t i = 0; i < count; i++) {
		int at = entry_at(board, &list[i].place, true);
		struct mig_detail *detail =
			at < 0 ? mig_entry_add(mig, gpu, &list[i].place, MIG_FOREIGN)
			: board->instance[at].state == MIG_FOREIGN ? &board->detail[at]
								   : NULL;

		if (!detail)
			continue;
		if (detail->uuid_text[0] && strcmp(detail->uuid_text, list[i].uuid_text) != 0)
			detail->since = now_realtime_ns();
		snprintf(detail->uuid_text, sizeof(detail->uuid_text), "%s", list[i].uuid_text);
		detail->bytes = list[i].bytes;
		detail->gpu_instance = list[i].gpu_instance;
		detail->compute_instance = list[i].compute_instance;
	}
}

/* Whether the session that is noted still has it. */
static bool has_session(const struct mig *mig, const struct mig_detail *detail)
{
	for (const struct session *s = mig_session_on(mig->sessions->first, detail->uuid_text); s;
	     s = mig_session_on(s->next, detail->uuid_text))
		if (!strcmp(s->record.id, detail->session))
			return true;
	return false;
}

static void pids_learn(struct mig_board *board, const struct instance *list, size_t count)
{
	for (uint32_t at = 0; at < board->count; at++) {
		const struct instance *found = listed(list, count, &board->detail[at].place);

		board->detail[at].pid_count = found ? found->pid_count : 0;
		if (found)
			memcpy(board->detail[at].pid, found->pid, sizeof(found->pid));
	}
}

void mig_sessions_match(struct mig *mig, uint32_t gpu)
{
	struct mig_board *board = &mig->board[gpu];

	for (uint32_t at = 0; at < board->count; at++) {
		struct mig_detail *detail = &board->detail[at];
		enum mig_state state = board->instance[at].state;
		const struct session *s =
			state == MIG_BUSY || state == MIG_IDLE
				? mig_session_on(mig->sessions->first, detail->uuid_text)
				: NULL;

		if (state == MIG_BUSY && detail->session[0] && !s)
			mig_entry_set(board, at, MIG_IDLE);
		else if (s && (state == MIG_IDLE || !has_session(mig, detail))) {
			mig_entry_set(board, at, MIG_BUSY);
			snprintf(detail->session, sizeof(detail->session), "%s", s->record.id);
		} else {
			continue;
		}
		mig_entry_store(mig, gpu, at);
	}
}

static bool has_uuid(const struct mig_board *board, const char *uuid_text)
{
	for (uint32_t at = 0; at < board->count; at++)
		if (!strcmp(board->detail[at].uuid_text, uuid_text))
			return true;
	return false;
}

/* Sessions that name an instance which the books do not have: a daemon was ended while it made
 * another one for them. Those for which one is being made are left alone. */
static void sessions_orphaned(struct mig *mig, uint32_t gpu)
{
	for (struct session *s = mig->sessions->first, *next; s; s = next) {
		bool lost = false;

		next = s->next;
		for (uint32_t i = 0; i < s->record.gpu_count; i++)
			lost |= s->pool_gpu[i] == (int)gpu && s->record.gpu[i].instance[0] &&
				!has_uuid(&mig->board[gpu], s->record.gpu[i].instance);
		if (lost && s->state == SESSION_ACTIVE &&
		    !mig->hooks->resizes(mig->context, s->record.id)) {
			session_commands_end(s, NULL);
			session_end(s, STORE_END_SYSTEM,
				    "its MIG instance is gone (removed, or GPU was reset)");
			return; /* more at the next look: ending one may change the list */
		}
	}
}

/* The driver may allow a place that it refused, when other instances came or went. An attempt of
 * ours that came to nothing is no such change: the next one would be made where the last one was
 * refused. */
static void refused_settle(struct mig_board *board, const struct instance *list, size_t count)
{
	bool same = count == board->there_count;

	for (size_t i = 0; i < count && same; i++)
		same = same_place(&board->there[i], &list[i].place);
	if (!same)
		memset(board->refused, 0, sizeof(board->refused));
	board->there_count = MIN(count, MIG_INSTANCES_MAX);
	for (size_t i = 0; i < board->there_count; i++)
		board->there[i] = list[i].place;
}

bool mig_entry_seen(const struct mig_board *board, uint32_t at)
{
	return board->looked_ns > board->instance[at].used;
}

bool mig_entry_held(const struct mig_board *board, uint32_t at)
{
	return board->instance[at].state == MIG_BUSY && !board->detail[at].session[0];
}

/* A process may outlive its session: it left all that carve knows its processes by. Nobody else can
 * have the memory of the instance that it holds. */
static void held_settle(struct mig *mig, uint32_t gpu)
{
	struct mig_board *board = &mig->board[gpu];

	for (uint32_t at = 0; at < board->count; at++) {
		struct mig_detail *detail = &board->detail[at];
		bool idle = board->instance[at].state == MIG_IDLE;

		if (idle && detail->pid_count && mig_entry_seen(board, at)) {
			log_event(LOG_WARNING, "mig.held gpu=%u start=%u size=%u pid=%u",
				  mig->gpus->gpu[gpu].info.index, detail->place.start,
				  detail->place.size, detail->pid[0]);
			mig_entry_set(board, at, MIG_BUSY);
			detail->held_until_ns = UINT64_MAX;
		} else if (!idle && mig_entry_held(board, at) &&
			   detail->held_until_ns == UINT64_MAX && !detail->pid_count) {
			mig_entry_set(board, at, MIG_IDLE);
		} else {
			continue;
		}
		mig_entry_store(mig, gpu, at);
	}
}

void mig_board_settle(struct mig *mig, uint32_t gpu, const struct instance *list, size_t count,
		      uint64_t looked_ns)
{
	struct mig_board *board = &mig->board[gpu];

	board->looked_ns = looked_ns;
	refused_settle(board, list, count);
	for (uint32_t at = board->count; at-- > 0;)
		if (at < board->count && board->instance[at].state != MIG_FOREIGN)
			(void)entry_settle(mig, gpu, at,
					   listed(list, count, &board->detail[at].place));
	foreign_settle(mig, gpu, list, count);
	pids_learn(board, list, count);
	mig_sessions_match(mig, gpu);
	held_settle(mig, gpu);
	sessions_orphaned(mig, gpu);
}

void mig_board_measured(struct mig_board *board, const struct instance *list, size_t count,
			int8_t utilization, const int8_t *of_instances)
{
	board->utilization = utilization;
	for (uint32_t at = 0; at < board->count; at++) {
		const struct instance *found = listed(list, count, &board->detail[at].place);

		board->detail[at].utilization =
			(int8_t)(found ? of_instances[found - list] : GPM_UNKNOWN);
	}
}

bool mig_entry_share(const struct mig *mig, const struct instance_place *place, bool together,
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

bool mig_board_gives(const struct mig *mig, uint32_t gpu)
{
	return mig_board_ours(mig, gpu) && !gpu_drain_of(mig->gpus, gpu);
}

bool mig_board_ours(const struct mig *mig, uint32_t gpu)
{
	return mig->board[gpu].role && mig->gpus->gpu[gpu].info.mig &&
	       mig->gpus->gpu[gpu].claim.state == CLAIM_OURS;
}
