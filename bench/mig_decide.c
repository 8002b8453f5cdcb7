/* The cost of a decision of the MIG policy in a pool that is played at a load of 1: one line a case
 * on stdout, "NAME GPUS MEAN_NS P50_NS P99_NS".
 *
 *   mig_decide GPUS... */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/macros.h"
#include "mig_mix.h"

#define DECISIONS 20000u

static uint64_t clock_ns(void)
{
	struct timespec t;

	/* Work of others on this machine does not count. */
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct world {
	struct mig_die die;
	struct mig_pool pool;
	struct mig_gpu *gpus;
	struct mig_instance *instances;
	double *ends; /* of each instance that is busy */
};

static void world_make(struct world *w, const char *model, uint32_t gpus)
{
	*w = (struct world){.gpus = calloc(gpus, sizeof(*w->gpus)),
			    .instances = calloc(gpus * MIG_INSTANCES_MAX, sizeof(*w->instances)),
			    .ends = calloc(gpus * MIG_INSTANCES_MAX, sizeof(*w->ends))};
	if (!w->gpus || !w->instances || !w->ends || mix_die(model, &w->die) < 0)
		exit(1);
	w->pool = (struct mig_pool){
		.dies = &w->die, .gpus = w->gpus, .die_count = 1, .gpu_count = gpus};
	for (uint32_t i = 0; i < gpus; i++) {
		w->gpus[i].offered = true;
		w->gpus[i].instances = &w->instances[i * MIG_INSTANCES_MAX];
		mig_gpu_update(&w->gpus[i], &w->die);
	}
}

/* An instance that ended is idle, or gone. */
static void world_advance(struct world *w, double now, bool keeps)
{
	for (uint32_t g = 0; g < w->pool.gpu_count; g++) {
		bool changed = false;

		for (uint32_t i = 0; i < w->gpus[g].instance_count; i++) {
			struct mig_instance *in = &w->instances[g * MIG_INSTANCES_MAX + i];

			if (in->state != MIG_BUSY || w->ends[g * MIG_INSTANCES_MAX + i] > now)
				continue;
			in->state = keeps ? MIG_IDLE : MIG_GONE;
			in->used = (uint64_t)(w->ends[g * MIG_INSTANCES_MAX + i] * 1e6);
			changed = true;
		}
		if (changed)
			mig_gpu_update(&w->gpus[g], &w->die);
	}
}

static void world_take(struct world *w, const struct mig_choice *c, double end)
{
	struct mig_gpu *gpu = &w->gpus[c->gpu];
	struct mig_instance *in = &w->instances[c->gpu * MIG_INSTANCES_MAX];
	uint32_t slot = c->instance;

	for (uint32_t i = 0; i < gpu->instance_count; i++)
		if (c->destroy >> i & 1)
			in[i].state = MIG_GONE;
	if (c->step != MIG_REUSE) {
		for (slot = 0; slot < gpu->instance_count && in[slot].state != MIG_GONE; slot++)
			;
		gpu->instance_count = MAX(gpu->instance_count, slot + 1);
		in[slot] = (struct mig_instance){.profile = c->profile,
						 .start = c->start,
						 .size = w->die.profile[c->profile].size};
	}
	in[slot].state = MIG_BUSY;
	w->ends[c->gpu * MIG_INSTANCES_MAX + slot] = end;
	mig_gpu_update(gpu, &w->die);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* `calm`: nobody is turned away, as far as the policy knows. */
static void measure(const char *name, uint32_t gpus, bool keeps, bool calm)
{
	static uint64_t took[DECISIONS];
	size_t warm = 20 * (size_t)gpus, jobs_count = warm + DECISIONS;
	struct mig_sim_job *jobs = calloc(jobs_count, sizeof(*jobs));
	struct mig_request wants[6];
	uint8_t profile[6];
	struct world w;
	double mean, sum = 0;

	if (!jobs)
		exit(1);
	world_make(&w, "h100-80gb", gpus);
	mix_wants("h100-80gb", &mixes[0], profile, wants, &mean);
	mix_draw(&mixes[0], mean, 1.0, gpus, false, 1, jobs, jobs_count);
	for (size_t i = 0; i < jobs_count; i++) {
		struct mig_decision d;

		world_advance(&w, jobs[i].arrival, keeps);
		uint64_t began = clock_ns();
		int r = mig_decide(&w.pool, &wants[jobs[i].want], &d);
		uint64_t ended = clock_ns();

		mig_arrival(&w.pool, &wants[jobs[i].want],
			    r == 0 || calm ? MIG_GRANTED : MIG_REFUSED);
		if (r == 0)
			world_take(&w, &d.choice[0], jobs[i].arrival + jobs[i].duration);
		if (i >= warm)
			sum += (double)(took[i - warm] = ended - began);
	}
	qsort(took, DECISIONS, sizeof(took[0]), by_size);
	printf("%s %" PRIu32 " %.0f %" PRIu64 " %" PRIu64 "\n", name, gpus, sum / DECISIONS,
	       took[DECISIONS / 2], took[DECISIONS / 100 * 99]);
	free(jobs);
	free(w.gpus);
	free(w.instances);
	free(w.ends);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		uint32_t gpus = (uint32_t)strtoul(argv[i], NULL, 10);

		if (gpus == 0)
			return 3;
		measure("mig-place", gpus, false, false);
		measure("mig-kept", gpus, true, true);
		measure("mig-kept-scarce", gpus, true, false);
	}
	return 0;
}
