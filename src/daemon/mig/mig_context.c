#include "daemon/mig/mig_context.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/context.h"
#include "base/clock.h"
#include "daemon/gpu/pool.h"
#include "daemon/gpu/probe.h"
#include "daemon/host/log.h"
#include "daemon/mig/mig.h"
#include "daemon/mig/mig_books.h"
#include "daemon/session/sessions.h"
#include "daemon/store/store.h"

/* As CUDA names an instance. */
struct model {
	char text[sizeof(((struct gpu_info *)NULL)->name) + INSTANCE_NAME_SIZE + 8];
};

static struct model model_of(const struct mig *mig, uint32_t gpu, uint8_t profile)
{
	struct model model;

	snprintf(model.text, sizeof(model.text), "%s MIG %s", mig->gpus->gpu[gpu].info.name,
		 mig->profile[mig->gpu[gpu].die][profile].name);
	return model;
}

void mig_contexts_load(struct mig *mig, uint32_t gpu)
{
	const struct mig_die *die = &mig->die[mig->gpu[gpu].die];
	const char *driver = gpus_driver_version(mig->gpus->gpus);
	enum managed_shows managed;

	for (uint8_t i = 0; i < die->profile_count; i++) {
		struct model model = model_of(mig, gpu, i);

		if (store_context_get(mig->sessions->store, model.text, driver,
				      &mig->board[gpu].context_learned[i], &managed) < 0)
			mig->board[gpu].context_learned[i] = 0;
	}
}

void mig_contexts_publish(struct mig *mig, uint32_t gpu)
{
	struct mig_board *board = &mig->board[gpu];
	uint64_t outside = mig->gpus->gpu[gpu].context_bytes;

	for (uint32_t i = 0; i < MIG_PROFILES_MAX; i++)
		board->context[i] = board->context_learned[i] ? board->context_learned[i] : outside;
	mig->gpu[gpu].context = board->context;
}

bool mig_context_wanted(const struct mig *mig, uint32_t gpu, uint8_t profile)
{
	const struct mig_board *board = &mig->board[gpu];

	return profile < MIG_PROFILES_MAX && !board->context[profile] &&
	       now_monotonic_ns() >= board->context_again_ns[profile];
}

/* It holds for all instances of that name: on dies of one model the profile's number may differ. */
static void cost_set(struct mig *mig, const struct model *model, uint64_t bytes)
{
	uint64_t again_ns = bytes ? 0 : now_monotonic_ns() + MIG_CONTEXT_AGAIN_NS;

	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++) {
		struct mig_board *board = &mig->board[gpu];

		for (uint8_t i = 0; board->known && i < mig->die[mig->gpu[gpu].die].profile_count;
		     i++) {
			struct model other = model_of(mig, gpu, i);

			if (strcmp(other.text, model->text) != 0)
				continue;
			board->context_learned[i] = bytes;
			board->context_again_ns[i] = again_ns;
		}
		mig_contexts_publish(mig, gpu);
	}
}

static void probe_remove(struct mig_probe *probe)
{
	struct mig_probe **at = &probe->mig->probes;

	while (*at != probe)
		at = &(*at)->next;
	*at = probe->next;
}

static void on_ended(struct child *child)
{
	struct mig_probe *probe = child->arg;
	struct mig *mig = probe->mig;
	struct model model = model_of(mig, probe->gpu, probe->profile);
	uint64_t bytes = child->status ? 0 : strtoull(child->text, NULL, 10);

	probe_remove(probe);
	if (!mig->stopping) {
		cost_set(mig, &model, bytes);
		if (bytes) {
			(void)store_context_put(mig->sessions->store, model.text,
						gpus_driver_version(mig->gpus->gpus), bytes,
						MANAGED_UNKNOWN);
			log_event(LOG_INFO, "context.learned model=\"%s\" bytes=%" PRIu64,
				  model.text, bytes);
		} else {
			log_event(LOG_WARNING, "context.unknown model=\"%s\"", model.text);
		}
	}
	probe->on_done(probe);
}

void mig_context_probe(struct mig *mig, struct mig_probe *probe, const char *uuid_text)
{
	char uuid[INSTANCE_UUID_SIZE];
	char *args[] = {"carved", "--probe-context", uuid, NULL};

	snprintf(uuid, sizeof(uuid), "%s", uuid_text);
	probe->mig = mig;
	probe->next = mig->probes;
	mig->probes = probe;
	probe->child.arg = probe;
	/* A failure is told to on_ended, too. */
	(void)child_start(&probe->child, mig->sessions->loop, "/proc/self/exe", args,
			  PROBE_TIMEOUT_MS, on_ended);
}

void mig_contexts_stop(struct mig *mig)
{
	for (struct mig_probe *probe = mig->probes; probe; probe = probe->next)
		child_kill(&probe->child);
}
