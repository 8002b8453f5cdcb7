/* MIG on demand, as the daemon does it: its clock, the roles of GPUs, begin and end. */
#include "daemon/mig/mig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "daemon/events/events.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/host/unrecorded.h"
#include "daemon/mig/mig_books.h"
#include "daemon/mig/mig_collect.h"
#include "daemon/mig/mig_context.h"
#include "daemon/mig/mig_order.h"
#include "daemon/session/session_hooks.h"
#include "daemon/session/sessions.h"
#include "daemon/store/store.h"

/* A place that a driver refused is tried again after this long, even where nothing has changed. */
#define REFUSED_NS 30000000000ull
/* GPUs are looked at each second, but for the time that a change takes. */
#define LOOK_OLD_NS 5000000000ull

/* ---- by the clock ------------------------------------------------------------------------ */

/* A driver may have had reasons that no list shows. */
static void refused_age(struct mig *mig, uint32_t gpu)
{
	struct mig_board *board = &mig->board[gpu];
	uint64_t now = now_monotonic_ns();

	if (now - board->refused_ns >= REFUSED_NS)
		memset(board->refused, 0, sizeof(board->refused));
	if (!board->frozen_until_ns || now < board->frozen_until_ns)
		return;
	board->frozen_until_ns = 0;
	mig_board_publish(mig, gpu);
	/* Requests and jobs that wait may have their instances tried again there. */
	mig->changes++;
	sessions_room_made(mig->sessions);
}

static void held_release(struct mig *mig, uint32_t gpu)
{
	struct mig_board *board = &mig->board[gpu];

	for (uint32_t at = 0; at < board->count; at++)
		if (mig_entry_held(board, at) &&
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
	struct mig_order *o = mig_order_new(mig, MIG_INSTANCES_MAX);

	if (!o)
		return;
	for (uint32_t at = 0; board->known && at < board->count; at++)
		if (is_debt(board, at))
			mig_order_remove(o, gpu, at);
	if (mig_order_look(o, gpu) < 0 || mig_order_store(o) < 0)
		mig_order_revert(o);
	else
		(void)mig_order_start(o);
}

/* Without MIG mode (a reboot takes it) there are no instances. */
static void mode_follow(struct mig *mig, uint32_t gpu)
{
	const struct pool_gpu *g = &mig->gpus->gpu[gpu];
	struct mig_board *board = &mig->board[gpu];

	if (!board->role || g->info.mig || g->claim.state != CLAIM_OURS || !mig->gpus->done)
		return;
	mig_board_settle(mig, gpu, NULL, 0, now_monotonic_ns());
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
		refused_age(mig, gpu);
		if (mig->driver && !mig->board[gpu].changing)
			mode_follow(mig, gpu);
		if (!mig->driver || !mig_board_ours(mig, gpu) || mig->board[gpu].changing)
			continue;
		held_release(mig, gpu);
		board_look(mig, gpu);
	}
}

void mig_share_among(struct mig *mig, gid_t group)
{
	if (!mig)
		return;
	mig->share_group = group;
	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
		mig_board_publish(mig, gpu);
}

void mig_place_by(struct mig *mig, enum place_policy policy)
{
	if (mig)
		mig->pool.spread = policy == PLACE_SPREAD;
}

void mig_drains_changed(struct mig *mig)
{
	for (uint32_t gpu = 0; mig && gpu < mig->gpus->count; gpu++)
		mig_board_publish(mig, gpu);
}

void mig_sampled(struct mig *mig)
{
	for (uint32_t gpu = 0; mig && gpu < mig->gpus->count; gpu++)
		if (mig->gpus->gpu[gpu].shared_count)
			mig_board_publish(mig, gpu);
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
	return mig->gpus->gpu[gpu].info.mig ? mig->board[gpu].why : "its MIG mode is off";
}

const char *mig_refusal(const struct mig *mig, uint32_t gpu)
{
	bool frozen = mig_has_role(mig, gpu) && mig->board[gpu].frozen_until_ns;

	return frozen ? mig->board[gpu].refusal : "";
}

int mig_utilization(const struct mig *mig, uint32_t gpu)
{
	return mig_has_role(mig, gpu) && mig->gpus->gpu[gpu].info.mig ? mig->board[gpu].utilization
								      : GPM_UNKNOWN;
}

int mig_instance_utilization(const struct mig *mig, uint32_t gpu, const char *uuid_text)
{
	const struct mig_board *board = mig ? &mig->board[gpu] : NULL;

	if (!board || !mig_board_ours(mig, gpu) ||
	    now_monotonic_ns() - board->looked_ns > LOOK_OLD_NS)
		return GPM_UNKNOWN;
	for (uint32_t at = 0; at < board->count; at++)
		if (!strcmp(board->detail[at].uuid_text, uuid_text))
			return board->detail[at].utilization;
	return GPM_UNKNOWN;
}

uint32_t mig_refused(const struct mig *mig, uint32_t gpu, uint8_t profile)
{
	const struct mig_board *board = &mig->board[gpu];

	return board->frozen_until_ns ? mig->die[mig->gpu[gpu].die].profile[profile].starts
				      : board->refused[profile];
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
	const struct pool_gpu *g = &mig->gpus->gpu[gpu];

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
						    mig->gpus->gpu[gpu].info.uuid_text, on);

	if (rc < 0)
		return unrecorded_set(err, "the role cannot be recorded", rc);
	/* Nobody would see or use what is idle there. */
	if (board->role && !on)
		(void)mig_collect_board(mig, gpu, 0);
	board->known &= on && board->role;
	board->role = on;
	mig_board_publish(mig, gpu);
	if (on && !board->known && !board->changing)
		board_look(mig, gpu);
	return 0;
}

static void roles_record(const struct mig *mig, uint64_t changed, bool on, const struct peer *actor)
{
	char subject[POOL_GPUS_TEXT_SIZE];

	if (changed)
		events_add(mig->sessions->events,
			   &(struct event){
				   .kind = EVENT_MIG_ROLE,
				   .actor = actor,
				   .subject = pool_gpus_text(mig->gpus, changed, subject),
				   .before = on ? "none" : "dynamic-mig",
				   .after = on ? "dynamic-mig" : "none",
			   });
}

int mig_role_set(struct mig *mig, uint64_t mask, bool on, const struct peer *actor,
		 struct error *err)
{
	uint64_t changed = 0;
	int rc = 0;

	for (uint32_t gpu = 0; gpu < mig->gpus->count && rc == 0; gpu++) {
		if (!(mask >> gpu & 1))
			continue;
		if (on)
			rc = role_check(mig, gpu, err);
		else if (is_in_use(&mig->board[gpu]))
			rc = error_set(err, EXIT_CODE_FAILED,
				       "GPU %u has sessions in MIG instances; release them first",
				       mig->gpus->gpu[gpu].info.index);
	}
	for (uint32_t gpu = 0; gpu < mig->gpus->count && rc == 0; gpu++)
		if (mask >> gpu & 1) {
			bool had = mig->board[gpu].role;

			rc = role_keep(mig, gpu, on, err);
			if (rc == 0 && had != on)
				changed |= 1ull << gpu;
		}
	roles_record(mig, changed, on, actor);
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
	mig->share_group = MIG_SHARE_NO_GROUP;
	sessions->mig = *ret = mig;
	mig->pool = (struct mig_pool){
		.dies = mig->die, .gpus = mig->gpu, .gpu_count = mig->gpus->count};
	int rc = !mig->gpus->gpus ? -ENODEV
		 : privileges_guarded(sessions->privileges)
			 ? instances_open_link(&(struct instances_asking){privileges_call,
									  sessions->privileges},
					       &mig->driver)
			 : instances_open(mig->gpus->gpus, &mig->driver);
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
