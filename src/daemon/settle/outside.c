#include "daemon/settle/outside.h"

#include <string.h>

#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/settle/descriptors.h"
#include "daemon/settle/settling.h"
#include "daemon/settle/strays.h"

/* One of several slots that a dead process had. */
static bool is_dead_twin(const struct process *p)
{
	for (const struct process *q = p->session->processes; q != p; q = q->next)
		if (process_is_dead(q) && process_same(q->id, p->id))
			return true;
	return false;
}

/* A process with several slots has ended, and the daemon has heard so of one of them only. The
 * driver's figure is counted by another one. */
static bool has_living_twin(const struct process *p)
{
	for (const struct process *q = p->session->processes; q; q = q->next)
		if (!process_is_dead(q) && process_same(q->id, p->id))
			return true;
	return false;
}

void figures_note(const struct session *s, struct process *p)
{
	struct process_id now;

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		int gpu = s->pool_gpu[i];

		if (gpu < 0 || !(s->sessions->pool->mask >> gpu & 1) ||
		    s->sessions->pool->gpu[gpu].sample.error)
			continue;
		uint64_t figure =
			gpu_sample_process_bytes(&s->sessions->pool->gpu[gpu].sample, p->id.pid);
		/* The PID is another process's by now: what is listed is that one's, too. */
		if (process_is_dead(p) && figure && process_identify(p->id.pid, &now) == 0 &&
		    !process_same(now, p->id))
			continue;
		p->gpu[i].listed = figure;
		if (!process_is_dead(p) && p->sampled)
			p->gpu[i].held = process_figure(p, gpu);
	}
}

/* `uuid`: in that instance alone; NULL: on the whole GPU. */
static uint64_t figure_of(const struct process *p, uint32_t position,
			  const struct gpu_sample *sample, const uint8_t *uuid)
{
	uint64_t figure = process_is_dead(p) ? process_figure_of_dead(p, sample)
					     : process_figure(p, p->session->pool_gpu[position]);

	return uuid ? MIN(figure, gpu_sample_part_bytes(sample, p->id.pid, uuid)) : figure;
}

/* The memory that the session's processes hold on a GPU of it, its strays among them: by the
 * driver's word alone. */
static uint64_t held_in(const struct session *s, uint32_t position, const struct gpu_sample *sample,
			const uint8_t *uuid)
{
	uint64_t held = strays_held(s, sample, uuid);

	for (const struct process *p = s->processes; p; p = p->next) {
		if (process_first_twin(p) != p ||
		    (process_is_dead(p) && (is_dead_twin(p) || has_living_twin(p))))
			continue;
		uint64_t figure = figure_of(p, position, sample, uuid);

		/* The others are looked for where the driver lists it: few are. */
		held += figure && process_counts_at(p, position) ? figure : 0;
	}
	return held;
}

uint64_t session_held(const struct session *s, uint32_t position, const struct gpu_sample *sample)
{
	return held_in(s, position, sample, NULL);
}

uint64_t session_uses(const struct session *s, uint32_t position)
{
	int gpu = s->pool_gpu[position];
	uint64_t charged = session_used(s, position);

	if (s->over == SESSION_OVER_UNREPORTED || gpu < 0)
		return charged;
	const struct gpu_sample *sample = &s->sessions->pool->gpu[gpu].sample;
	return sample->error ? charged : MAX(charged, session_held(s, position, sample));
}

/* A dead process whose forked children keep the driver's descriptors still has its memory, whether
 * the driver lists it or not. It has no more than the driver said while it lived, and no more than
 * is still charged for it. */
static uint64_t left_unlisted(const struct process *p, uint32_t position)
{
	const struct process_gpu *gpu = &p->gpu[position];
	uint64_t most =
		MIN(ledger_slot_bytes(&p->session->books.ledger, p->slot, position), gpu->held);

	if (p->life != PROCESS_LIFE_INHERITED || is_dead_twin(p) || !process_counts_at(p, position))
		return 0;
	return most - MIN(most, gpu->listed);
}

/* The bytes that those with managed memory have charged, or had when the sample was taken, beyond
 * the driver's figures for them. Managed memory is in the figure of no process, but for drivers
 * that count it there; how much of it is on the GPU nobody tells. */
static uint64_t session_unseen(const struct session *s, uint32_t position)
{
	uint64_t unseen = 0;

	for (const struct process *p = s->processes; p; p = p->next) {
		unseen += left_unlisted(p, position);
		if (process_is_dead(p) ||
		    (!process_has_managed(p) && !p->gpu[position].seen_managed_unlisted &&
		     !process_managed_unlisted(p, position)))
			continue;
		uint64_t charged = MAX(ledger_slot_bytes(&s->books.ledger, p->slot, position),
				       (uint64_t)MAX(p->gpu[position].seen_used, 0));
		uint64_t figure = process_figure(p, s->pool_gpu[position]);

		unseen += charged > figure ? charged - figure : 0;
	}
	return unseen;
}

/* Only sessions with a ledger have processes; strays may be any session's. There may be thousands
 * that hold nothing. */
struct session *holding_first(const struct settling *settling)
{
	return settling->strays ? settling->sessions->first : settling->sessions->attached;
}

struct session *holding_next(const struct session *s)
{
	return s->sessions->settling->strays ? s->next : s->next_attached;
}

/* The memory that the sessions hold of a GPU. */
struct inside {
	uint64_t held;   /* by the driver's figures, and by open descriptors */
	uint64_t kept;   /* by those alone */
	uint64_t unseen; /* the most that they may hold besides, within their slices */
	uint64_t beyond; /* the bytes that they hold beyond their slices */
	bool any;        /* at least one is there */
};

static void inside_add(struct inside *in, const struct session *s, uint32_t position,
		       const uint8_t *uuid)
{
	uint64_t slice = s->record.gpu[position].bytes;
	uint64_t kept = descriptors_keep(s, position);
	/* Memory beyond the slice was never promised: others may not have it. */
	uint64_t all =
		held_in(s, position, &s->sessions->pool->gpu[s->pool_gpu[position]].sample, uuid) +
		kept;
	uint64_t held = MIN(all, slice);

	in->any = true;
	in->beyond += all - held;
	in->held += held;
	in->kept += kept;
	in->unseen += MIN(session_unseen(s, position), slice - held);
}

/* The memory that is the sessions'. Memory that they may hold besides counts up to the amount that
 * the driver has for no process. The amount that was there before they said so is not theirs. */
static uint64_t inside_sum(const struct inside *in, uint64_t unlisted, uint64_t usual)
{
	uint64_t most = unlisted - MIN(unlisted, in->kept);

	return in->held + MIN(in->unseen, most - MIN(most, usual));
}

/* Memory that none of the sessions uses, at the moment when the driver listed processes. */
static uint64_t outside_of(struct pool_gpu *gpu, const struct inside *in)
{
	unlisted_add(&gpu->unlisted, &gpu->sample, in->any);
	int64_t bytes = unlisted_bytes(&gpu->unlisted);
	uint64_t used = (uint64_t)MAX((int64_t)gpu_sample_listed(&gpu->sample) + bytes, 0);
	uint64_t unlisted = (uint64_t)MAX(bytes, 0);

	gpu->unlisted_usual =
		in->unseen || in->kept ? MIN(gpu->unlisted_usual, unlisted) : unlisted;
	return used - MIN(used, inside_sum(in, unlisted, gpu->unlisted_usual));
}

static void gpu_take(struct pool_gpu *gpu, const struct inside *in)
{
	gpu->outside = outside_of(gpu, in);
	gpu->beyond = MIN(in->beyond, gpu->outside);
}

/* All that is used of an instance; false: it is not in the sample. */
static bool part_used(const struct gpu_sample *sample, const uint8_t *uuid, uint64_t *ret_used,
		      uint64_t *ret_unlisted)
{
	bool found = false;

	*ret_used = 0;
	for (size_t i = 0; i < sample->part_count; i++) {
		const struct gpu_part *part = &sample->parts[i];

		if (memcmp(part->uuid, uuid, LEDGER_UUID_SIZE) != 0)
			continue;
		*ret_used += part->bytes;
		if (part->pid == 0) {
			*ret_unlisted = part->bytes;
			found = true;
		}
	}
	return found;
}

/* A session in a shared instance has no other part of a GPU. */
static void shared_take(const struct settling *settling, int gpu, struct pool_shared *shared)
{
	const struct gpu_sample *sample = &settling->pool->gpu[gpu].sample;
	uint8_t uuid[LEDGER_UUID_SIZE];
	struct inside in = {0};
	uint64_t used, unlisted;

	shared->untold = !sample->parts_known;
	if (shared->untold || gpu_uuid_parse(shared->uuid_text, uuid) < 0 ||
	    !part_used(sample, uuid, &used, &unlisted))
		return;
	for (const struct session *s = holding_first(settling); s; s = holding_next(s))
		if (s->record.gpu_count == 1 && s->pool_gpu[0] == gpu &&
		    !strcmp(s->record.gpu[0].instance, shared->uuid_text))
			inside_add(&in, s, 0, uuid);
	shared->outside = used - MIN(used, inside_sum(&in, unlisted, 0));
}

void outside_compute(struct settling *settling)
{
	struct pool *pool = settling->pool;
	struct inside inside[GPUS_MAX] = {0};

	for (struct session *s = holding_first(settling); s; s = holding_next(s))
		for (uint32_t i = 0; i < s->record.gpu_count; i++) {
			int gpu = s->pool_gpu[i];

			if (gpu >= 0)
				inside_add(&inside[gpu], s, i, NULL);
		}
	for (uint32_t i = 0; i < pool->count; i++) {
		struct pool_gpu *gpu = &pool->gpu[i];

		if (!(pool->mask >> i & 1) || gpu->sample.error)
			continue;
		gpu_take(gpu, &inside[i]);
		for (uint32_t k = 0; gpu->parts_wanted && k < gpu->shared_count; k++)
			shared_take(settling, (int)i, &gpu->shared[k]);
	}
}
