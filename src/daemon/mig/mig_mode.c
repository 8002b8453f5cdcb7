#include "daemon/mig/mig_mode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/error.h"
#include "base/units.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/mig/mig.h"
#include "daemon/mig/mig_books.h"
#include "daemon/session/sessions.h"
#include "daemon/store/store.h"

/* Processes that have just ended are in the driver's way for a moment. */
#define PATIENCE_MS 2000u

struct mig_mode_change {
	uv_work_t work;
	struct mig *mig;
	void *asker; /* NULL: it is gone */
	mig_mode_cb cb;
	void *arg;
	uint64_t mask;
	uint32_t index[GPUS_MAX];
	int rc[GPUS_MAX];
};

static void change_free(struct mig_mode_change *c)
{
	if (c)
		free(c->arg);
	free(c);
}

/* Where the change goes through another process, the driver must not be open in this one. */
static void on_work(uv_work_t *work)
{
	struct mig_mode_change *c = work->data;
	struct gpus *gpus =
		privileges_guarded(c->mig->sessions->privileges) ? c->mig->gpus->gpus : NULL;
	bool goes_on = true;

	if (gpus)
		gpus_let_go(gpus);
	for (uint32_t gpu = 0; gpu < GPUS_MAX && goes_on; gpu++) {
		if (!(c->mask >> gpu & 1))
			continue;
		c->rc[gpu] = instances_mode_enable(c->mig->driver, c->index[gpu], PATIENCE_MS);
		goes_on = c->rc[gpu] == 0;
	}
	if (gpus)
		gpus_take_up(gpus);
}

static int change_error(const struct mig_mode_change *c, struct error *err)
{
	uint32_t gpu = 0;

	while (gpu < GPUS_MAX && c->rc[gpu] == 0)
		gpu++;
	if (gpu == GPUS_MAX)
		return 0;
	switch (c->rc[gpu]) {
	case -EBUSY:
		error_set(err, EXIT_CODE_FAILED,
			  "MIG mode of GPU %u cannot be switched on: something has the driver open "
			  "there",
			  c->index[gpu]);
		error_hint(err, "monitoring tools do (DCGM, exporters, nvidia-persistenced): stop "
				"them for the moment of the change");
		break;
	case -EAGAIN:
		error_set(err, EXIT_CODE_FAILED,
			  "MIG mode of GPU %u is pending now: it takes a reset of the GPU",
			  c->index[gpu]);
		error_hint(err,
			   "nvidia-smi --gpu-reset -i %u, while nobody uses it, or a reboot; then "
			   "carve node set-role again",
			   c->index[gpu]);
		break;
	case -EACCES:
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "the driver does not let this daemon switch MIG mode: that takes root");
		error_hint(err, "as root: nvidia-smi -i %u -mig 1", c->index[gpu]);
		break;
	default:
		error_set(err, EXIT_CODE_FAILED, "MIG mode of GPU %u cannot be switched on: %s",
			  c->index[gpu], strerrordesc_np(-c->rc[gpu]));
	}
	return c->rc[gpu];
}

static void on_done(uv_work_t *work, int status)
{
	struct mig_mode_change *c = work->data;
	struct mig *mig = c->mig;
	struct error err = {0};

	mig->orders--;
	mig->mode_change = NULL;
	int rc = change_error(c, &err);
	log_event(rc < 0 ? LOG_WARNING : LOG_INFO, "mig.mode error=\"%s\"",
		  rc < 0 ? strerrordesc_np(-rc) : "");
	if (!mig->stopping && c->asker)
		c->cb(c->asker, c->arg, &err);
	change_free(c);
}

void mig_mode_forget(struct mig *mig, const void *asker)
{
	struct mig_mode_change *c = mig->mode_change;

	if (c && c->asker == asker)
		c->asker = NULL;
}

/* 0, or negative with *err: what is in the way of a change on this GPU. */
static int gpu_check(const struct mig *mig, uint32_t gpu, struct error *err)
{
	const struct pool_gpu *g = &mig->gpus->gpu[gpu];
	char count[UNITS_TEXT_SIZE];

	if (g->claim.state != CLAIM_OURS)
		return error_set(err, EXIT_CODE_FAILED, "GPU %u is another daemon's",
				 g->info.index);
	if (!g->info.mig_capable)
		return error_set(err, EXIT_CODE_FAILED, "GPU %u (%s) is not capable of MIG",
				 g->info.index, g->info.name);
	if (g->sessions) {
		error_set(err, EXIT_CODE_FAILED, "GPU %u has %s: its MIG mode cannot change",
			  g->info.index, units_format_count(g->sessions, "session", count));
		error_hint(err, "carve session list shows them; release them first");
		return -1;
	}
	if (g->sample.process_count)
		return error_set(err, EXIT_CODE_FAILED,
				 "GPU %u is in use by process %d: its MIG mode cannot change",
				 g->info.index, (int)g->sample.processes[0].pid);
	return 0;
}

static int change_check(const struct mig *mig, uint64_t mask, struct error *err)
{
	int rc = 0;

	if (!mig->driver)
		rc = error_set(err, EXIT_CODE_FAILED, "this driver knows no MIG instances");
	else if (mig->mode_change)
		rc = error_set(err, EXIT_CODE_FAILED, "MIG mode is being changed already");
	for (uint32_t gpu = 0; rc == 0 && gpu < mig->gpus->count; gpu++)
		if (mask >> gpu & 1)
			rc = gpu_check(mig, gpu, err);
	return rc;
}

bool mig_mode_enable(struct mig *mig, uint64_t mask, mig_mode_cb cb, void *asker, void *arg)
{
	struct error err = {0};
	struct mig_mode_change *c =
		change_check(mig, mask, &err) == 0 ? calloc(1, sizeof(*c)) : NULL;

	if (c) {
		*c = (struct mig_mode_change){.work.data = c,
					      .mig = mig,
					      .asker = asker,
					      .cb = cb,
					      .arg = arg,
					      .mask = mask};
		for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
			c->index[gpu] = mig->gpus->gpu[gpu].info.index;
	} else if (!err.code) {
		error_set(&err, EXIT_CODE_FAILED, "there is no memory left");
	}
	if (c && uv_queue_work(mig->sessions->loop, &c->work, on_work, on_done) == 0) {
		mig->orders++;
		mig->mode_change = c;
		return true;
	}
	cb(asker, arg, &err);
	free(arg);
	free(c);
	return false;
}
