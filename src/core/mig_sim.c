#include "core/mig_sim_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* A job whose session runs. */
struct running {
	double end;
	uint32_t gpu, slot; /* slot within the GPU's instances */
};

/* No position in the queue. */
#define NOBODY SIZE_MAX

/* A request in the queue. Requests of one want are served in their order, so each want has a list
 * of those that wait, and its first one stands for them all. */
struct waiting {
	size_t job;
	size_t next; /* the next of its want, or NOBODY */
	bool served;
};

struct sim {
	const struct mig_sim_setting *setting;
	const struct mig_sim_job *jobs;
	size_t count;
	struct mig_pool pool;
	struct sim_die *dies;
	struct sim_view view;
	struct mig_instance *instances; /* MIG_INSTANCES_MAX a GPU; slots stay where they are */
	uint8_t *profiles;              /* the wanted one, by want and die */
	struct running *heap;
	size_t running;
	struct waiting *queue; /* by arrival, the served ones among them */
	size_t first, last;    /* the first one that waits, and the end */
	size_t served;         /* requests so far */
	size_t *heads, *tails; /* by want: the first and last one that wait, or NOBODY */
	size_t events;         /* arrivals and ends so far */
	double now, from, until;
	struct mig_sim_result result;
};

/* ---- running sessions, by their ends -------------------------------------------------------- */

static void heap_push(struct sim *s, struct running r)
{
	size_t i = s->running++;

	for (; i && s->heap[(i - 1) / 2].end > r.end; i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = r;
}

static struct running heap_pop(struct sim *s)
{
	struct running first = s->heap[0], last = s->heap[--s->running];
	size_t i = 0;

	for (size_t child; (child = 2 * i + 1) < s->running; i = child) {
		if (child + 1 < s->running && s->heap[child + 1].end < s->heap[child].end)
			child++;
		if (s->heap[child].end >= last.end)
			break;
		s->heap[i] = s->heap[child];
	}
	s->heap[i] = last;
	return first;
}

/* ---- instances ------------------------------------------------------------------------------ */

static struct mig_instance *instances_of(const struct sim *s, uint32_t gpu)
{
	return &s->instances[(size_t)gpu * MIG_INSTANCES_MAX];
}

static const struct mig_profile *profile_of(const struct sim *s, uint32_t gpu, uint8_t profile)
{
	return &s->pool.dies[s->pool.gpus[gpu].die].profile[profile];
}

static void gpu_changed(struct sim *s, uint32_t index)
{
	struct mig_gpu *gpu = &s->pool.gpus[index];

	mig_gpu_update(gpu, &s->pool.dies[gpu->die]);
}

/* The first slot that is not taken. */
static uint32_t slot_find(struct sim *s, uint32_t index)
{
	struct mig_gpu *gpu = &s->pool.gpus[index];
	const struct mig_instance *in = instances_of(s, index);
	uint32_t slot = 0;

	while (slot < gpu->instance_count && in[slot].state != MIG_GONE)
		slot++;
	if (slot == gpu->instance_count)
		gpu->instance_count++;
	return slot;
}

/* Whether the choice is legal, now that what it destroys is gone. */
static bool choice_is_legal(const struct sim *s, const struct mig_choice *c)
{
	const struct mig_profile *p = profile_of(s, c->gpu, c->profile);
	const struct mig_gpu *gpu = &s->pool.gpus[c->gpu];

	if (s->setting->policy == MIG_POLICY_REPACK)
		return true;
	return p->starts >> c->start & 1 &&
	       !((gpu->live | gpu->idle) & mig_units(c->start, p->size));
}

/* Returns the slot, or -EPROTO. */
static int choice_do(struct sim *s, const struct mig_choice *c)
{
	struct mig_instance *in = instances_of(s, c->gpu);
	uint32_t slot = c->instance;

	for (uint32_t gone = c->destroy; gone; gone &= gone - 1) {
		in[__builtin_ctz(gone)].state = MIG_GONE;
		s->result.destroyed++;
	}
	gpu_changed(s, c->gpu);
	if (c->step == MIG_REUSE) {
		s->result.reused++;
	} else {
		if (!choice_is_legal(s, c))
			return -EPROTO;
		slot = slot_find(s, c->gpu);
		s->result.created++;
		in[slot] = (struct mig_instance){
			.profile = c->profile,
			.start = c->start,
			.size = profile_of(s, c->gpu, c->profile)->size,
		};
	}
	in[slot].state = MIG_BUSY;
	gpu_changed(s, c->gpu);
	return (int)slot;
}

static void session_end(struct sim *s)
{
	struct running r = heap_pop(s);
	struct mig_instance *in = &instances_of(s, r.gpu)[r.slot];

	s->now = r.end;
	/* Microseconds: a clock that only grows. */
	in->used = (uint64_t)(r.end * 1e6);
	in->state = s->setting->policy == MIG_POLICY_CARVE ? MIG_IDLE : MIG_GONE;
	s->result.destroyed += in->state == MIG_GONE;
	gpu_changed(s, r.gpu);
}

/* ---- requests ------------------------------------------------------------------------------- */

static const uint8_t *profiles_of(const struct sim *s, uint32_t want)
{
	return &s->profiles[(size_t)want * s->setting->die_count];
}

/* The job's part of a GPU: on the first die that can hold it. */
static double part_of(const struct sim *s, uint32_t want)
{
	const uint8_t *profile = profiles_of(s, want);

	for (uint32_t d = 0; d < s->setting->die_count; d++)
		if (profile[d] != MIG_NO_PROFILE)
			return (double)s->pool.dies[d].profile[profile[d]].size /
			       s->pool.dies[d].units;
	return 0;
}

static bool decide(struct sim *s, uint32_t want, struct mig_choice *ret)
{
	struct mig_decision decision;

	if (s->setting->policy != MIG_POLICY_CARVE && s->setting->policy != MIG_POLICY_EAGER) {
		s->view.profile = profiles_of(s, want);
		return sim_choose(&s->view, s->setting->policy, ret);
	}
	if (mig_decide(&s->pool, &s->setting->wants[want], &decision) < 0)
		return false;
	*ret = decision.choice[0];
	return true;
}

static void grant_count(struct sim *s, const struct mig_sim_job *job, const struct mig_choice *c)
{
	double waited = s->now - job->arrival, end = MIN(s->now + job->duration, s->until);
	const struct mig_profile *p = profile_of(s, c->gpu, c->profile);
	double part = (double)p->size / s->pool.dies[s->pool.gpus[c->gpu].die].units;

	if (end > MAX(s->now, s->from))
		s->result.used += part * (end - MAX(s->now, s->from));
	if (job < s->jobs + s->setting->warm)
		return;
	s->result.granted++;
	s->result.accepted += part_of(s, job->want) * job->duration;
	s->result.wait_sum += waited;
	s->result.wait_longest = MAX(s->result.wait_longest, waited);
}

/* 1: granted; 0: no room; -EPROTO. */
static int serve(struct sim *s, const struct mig_sim_job *job)
{
	struct mig_choice c;

	if (!decide(s, job->want, &c))
		return 0;
	int slot = choice_do(s, &c);
	if (slot < 0)
		return slot;
	heap_push(s, (struct running){s->now + job->duration, c.gpu, (uint32_t)slot});
	grant_count(s, job, &c);
	return 1;
}

static void queue_add(struct sim *s, size_t number)
{
	uint32_t want = s->jobs[number].want;
	size_t at = s->last++;

	s->queue[at] = (struct waiting){.job = number, .next = NOBODY};
	if (s->heads[want] == NOBODY)
		s->heads[want] = at;
	else
		s->queue[s->tails[want]].next = at;
	s->tails[want] = at;
}

/* The first one of its want was served. */
static void queue_remove(struct sim *s, size_t at)
{
	s->queue[at].served = true;
	s->served++;
	s->heads[s->jobs[s->queue[at].job].want] = s->queue[at].next;
	while (s->first < s->last && s->queue[s->first].served)
		s->first++;
}

/* Whether the first one that waits was passed so often that nothing is granted before it. All that
 * came before it have been served, so the others that were came later, and passed it. Nobody in the
 * queue has been passed more often. */
static bool queue_stands(const struct sim *s)
{
	return s->first < s->last && s->served - s->first >= s->setting->passes;
}

static size_t queue_next(const struct sim *s, const bool *full)
{
	size_t next = NOBODY;

	for (uint32_t want = 0; want < s->setting->want_count; want++)
		if (!full[want] && s->heads[want] < next)
			next = s->heads[want];
	return next;
}

/* A session has ended. Requests are served in order of arrival; what does not fit is passed a few
 * times, and then nothing more is granted. A want that found no room once finds none in this round.
 */
static int queue_serve(struct sim *s, bool *full)
{
	size_t at;

	memset(full, 0, s->setting->want_count * sizeof(*full));
	while ((at = queue_next(s, full)) != NOBODY) {
		const struct mig_sim_job *job = &s->jobs[s->queue[at].job];
		int r = serve(s, job);

		if (r < 0)
			return r;
		if (r > 0) {
			queue_remove(s, at);
			continue;
		}
		full[job->want] = true;
		if (at == s->first && queue_stands(s))
			break;
	}
	return 0;
}

/* Room came since the last round for nobody who waits: a request that arrives need not be compared
 * with those before it. 1: granted; 0: it waits; -EPROTO. */
static int queue_arrive(struct sim *s, size_t number)
{
	bool stands = queue_stands(s);
	size_t at = s->last;

	queue_add(s, number);
	if (stands || s->heads[s->jobs[number].want] != at)
		return 0;
	int r = serve(s, &s->jobs[number]);
	if (r > 0)
		queue_remove(s, at);
	return r;
}

static int arrive(struct sim *s, size_t number)
{
	const struct mig_sim_job *job = &s->jobs[number];
	bool possible = part_of(s, job->want) > 0, counted = number >= s->setting->warm;

	s->now = job->arrival;
	s->result.jobs += counted;
	if (!possible) {
		s->result.never += counted;
		return 0;
	}
	if (counted)
		s->result.offered += part_of(s, job->want) * job->duration;
	int r = s->setting->waits ? queue_arrive(s, number) : serve(s, job);
	mig_arrival(&s->pool, &s->setting->wants[job->want],
		    r > 0               ? MIG_GRANTED
		    : s->setting->waits ? MIG_QUEUED
					: MIG_REFUSED);
	return r;
}

static void event_note(struct sim *s)
{
	if (++s->events % MIG_SIM_PROGRESS == 0 && s->setting->progress)
		s->setting->progress(s->setting->arg, s->events);
}

static int play(struct sim *s, bool *full)
{
	size_t next = 0;
	int r = 0;

	while (r >= 0 && (next < s->count || (s->setting->waits && s->first < s->last))) {
		if (s->running && (next == s->count || s->heap[0].end <= s->jobs[next].arrival)) {
			session_end(s);
			r = s->setting->waits ? queue_serve(s, full) : 0;
		} else if (next < s->count) {
			r = arrive(s, next++);
		} else {
			break; /* a request that waits now will never fit */
		}
		event_note(s);
	}
	return MIN(r, 0);
}

/* ---- from a setting to a pool --------------------------------------------------------------- */

static int setting_check(const struct mig_sim_setting *setting, const struct mig_sim_job *jobs,
			 size_t count)
{
	if (setting->die_count == 0 || setting->die_count > MIG_DIES_MAX ||
	    setting->gpu_count == 0 || setting->want_count == 0 ||
	    (unsigned)setting->policy >= MIG_POLICIES)
		return -EINVAL;
	for (uint32_t i = 0; i < setting->gpu_count; i++)
		if (setting->gpu_die[i] >= setting->die_count)
			return -EINVAL;
	for (size_t i = 0; i < count; i++)
		if (jobs[i].want >= setting->want_count)
			return -EINVAL;
	return 0;
}

static void wants_match(struct sim *s)
{
	const struct mig_sim_setting *setting = s->setting;

	for (uint32_t w = 0; w < setting->want_count; w++)
		for (uint32_t d = 0; d < setting->die_count; d++) {
			struct mig_match match;

			mig_match(&s->pool.dies[d], d, &setting->wants[w], &match);
			s->profiles[(size_t)w * setting->die_count + d] =
				match.fit_count ? match.fit[0] : MIG_NO_PROFILE;
		}
}

/* How often each profile is asked for, as FGD needs to know. */
static void shares_count(struct sim *s)
{
	for (size_t i = 0; i < s->count; i++) {
		const uint8_t *profile = profiles_of(s, s->jobs[i].want);

		for (uint32_t d = 0; d < s->setting->die_count; d++)
			if (profile[d] != MIG_NO_PROFILE)
				s->dies[d].share[profile[d]] += 1.0 / (double)s->count;
	}
}

static int sim_init(struct sim *s)
{
	const struct mig_sim_setting *setting = s->setting;
	size_t gpus = setting->gpu_count;

	s->pool.die_count = setting->die_count;
	s->pool.gpu_count = setting->gpu_count;
	s->pool.dies = calloc(setting->die_count, sizeof(*s->pool.dies));
	s->pool.gpus = calloc(gpus, sizeof(*s->pool.gpus));
	s->dies = calloc(setting->die_count, sizeof(*s->dies));
	s->instances = calloc(gpus * MIG_INSTANCES_MAX, sizeof(*s->instances));
	s->profiles = calloc(setting->want_count, setting->die_count);
	s->heap = calloc(gpus * MIG_INSTANCES_MAX, sizeof(*s->heap));
	s->queue = calloc(setting->waits ? s->count + 1 : 1, sizeof(*s->queue));
	s->heads = calloc(setting->want_count, sizeof(*s->heads));
	s->tails = calloc(setting->want_count, sizeof(*s->tails));
	if (!s->pool.dies || !s->pool.gpus || !s->dies || !s->instances || !s->profiles ||
	    !s->heap || !s->queue || !s->heads || !s->tails)
		return -ENOMEM;
	for (uint32_t want = 0; want < setting->want_count; want++)
		s->heads[want] = NOBODY;
	memcpy(s->pool.dies, setting->dies, setting->die_count * sizeof(*s->pool.dies));
	for (uint32_t i = 0; i < gpus; i++) {
		s->pool.gpus[i] = (struct mig_gpu){.die = setting->gpu_die[i], .offered = true};
		s->pool.gpus[i].instances = instances_of(s, i);
		gpu_changed(s, i);
	}
	s->view = (struct sim_view){.pool = &s->pool, .dies = s->dies};
	wants_match(s);
	shares_count(s);
	if (s->count > setting->warm) {
		s->from = s->jobs[setting->warm].arrival;
		s->until = s->jobs[s->count - 1].arrival;
	}
	return 0;
}

static void sim_free(struct sim *s)
{
	free(s->pool.dies);
	free(s->pool.gpus);
	free(s->dies);
	free(s->instances);
	free(s->profiles);
	free(s->heap);
	free(s->queue);
	free(s->heads);
	free(s->tails);
}

int mig_sim_run(const struct mig_sim_setting *setting, const struct mig_sim_job *jobs, size_t count,
		struct mig_sim_result *ret)
{
	struct sim s = {.setting = setting, .jobs = jobs, .count = count};
	int r = setting_check(setting, jobs, count);
	bool *full = r < 0 ? NULL : calloc(setting->want_count, sizeof(*full));

	if (r == 0)
		r = full ? sim_init(&s) : -ENOMEM;
	if (r == 0)
		r = play(&s, full);
	s.result.span = s.until - s.from;
	if (r == 0)
		*ret = s.result;
	sim_free(&s);
	free(full);
	return r;
}
