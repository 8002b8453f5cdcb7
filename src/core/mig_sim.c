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

struct waiting {
	size_t job;
	uint32_t passed;
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
	struct waiting *queue;
	size_t first, last;
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

/* Passes those that are before it in the queue. */
static void pass(struct sim *s, size_t until)
{
	for (size_t i = s->first; i < until; i++)
		s->queue[i].passed += !s->queue[i].served;
}

/* In order of arrival; what does not fit is passed a few times, and then nothing more is granted.
 * A want that found no room once finds none in this round. */
static int queue_serve(struct sim *s, bool *full)
{
	memset(full, 0, s->setting->want_count * sizeof(*full));
	for (size_t i = s->first; i < s->last; i++) {
		struct waiting *w = &s->queue[i];
		const struct mig_sim_job *job = &s->jobs[w->job];
		int r = w->served || full[job->want] ? 0 : serve(s, job);

		if (r < 0)
			return r;
		if (r > 0) {
			w->served = true;
			pass(s, i);
		} else if (!w->served) {
			full[job->want] = true;
			if (w->passed >= s->setting->passes)
				break;
		}
	}
	while (s->first < s->last && s->queue[s->first].served)
		s->first++;
	return 0;
}

static int arrive(struct sim *s, size_t number, bool *full)
{
	const struct mig_sim_job *job = &s->jobs[number];
	bool possible = part_of(s, job->want) > 0, counted = number >= s->setting->warm;
	int r;

	s->now = job->arrival;
	s->result.jobs += counted;
	if (!possible) {
		s->result.never += counted;
		return 0;
	}
	if (counted)
		s->result.offered += part_of(s, job->want) * job->duration;
	if (!s->setting->waits) {
		r = serve(s, job);
		mig_arrival(&s->pool, &s->setting->wants[job->want],
			    r > 0 ? MIG_GRANTED : MIG_REFUSED);
		return r;
	}
	s->queue[s->last++] = (struct waiting){.job = number};
	r = queue_serve(s, full);
	mig_arrival(&s->pool, &s->setting->wants[job->want],
		    s->queue[s->last - 1].served ? MIG_GRANTED : MIG_QUEUED);
	return r;
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
			r = arrive(s, next++, full);
		} else {
			break; /* a request that waits now will never fit */
		}
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
	if (!s->pool.dies || !s->pool.gpus || !s->dies || !s->instances || !s->profiles ||
	    !s->heap || !s->queue)
		return -ENOMEM;
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
