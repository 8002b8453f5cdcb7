/* Simulates one case of MIG placement under every policy, over several seeds. One line a policy and
 * seed on stdout: "POLICY<tab>SEED<tab>ACCEPTED<tab>WAIT<tab>USED<tab>REUSED<tab>CREATED": the part
 * of the offered work that was granted, the mean wait in mean run times, the part of the GPUs that
 * was in use, and instances reused and created.
 *
 *   mig_sim GPUS LOAD MIX exponential|heavy lossy|waiting JOBS SEEDS [MODEL [POLICY...]]
 *
 * SEEDS is how many there are, or the first and the last one: 6-25. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "mig_mix.h"

/* As the daemon's WAITING_PASSES. */
#define PASSES 16u

static const struct mix *mix_find(const char *name)
{
	for (const struct mix *m = mixes; m->name; m++)
		if (!strcmp(m->name, name))
			return m;
	return NULL;
}

static bool is_named(const char *const *names, const char *policy)
{
	bool any = *names != NULL;

	for (; *names; names++)
		if (!strcmp(*names, policy))
			return true;
	return !any;
}

/* `names`: of the policies to play, ended by NULL; none: all. */
static int play(struct mig_sim_setting *setting, const char *const *names,
		const struct mig_sim_job *jobs, size_t count, unsigned long seed)
{
	for (int policy = 0; policy < MIG_POLICIES; policy++) {
		struct mig_sim_result r;

		if (!is_named(names, mig_policy_text((enum mig_policy)policy)))
			continue;
		setting->policy = (enum mig_policy)policy;
		if (mig_sim_run(setting, jobs, count, &r) < 0)
			return 1;
		printf("%s\t%lu\t%.6f\t%.6f\t%.6f\t%" PRIu64 "\t%" PRIu64 "\n",
		       mig_policy_text(setting->policy), seed, r.accepted / r.offered,
		       r.granted ? r.wait_sum / (double)r.granted : 0.0,
		       r.used / (r.span * setting->gpu_count), r.reused, r.created);
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct mig_die die;
	struct mig_request wants[6];
	uint8_t profile[6];
	double mean;

	if (argc < 8)
		return 2;
	uint32_t gpus = (uint32_t)strtoul(argv[1], NULL, 10);
	const struct mix *mix = mix_find(argv[3]);
	size_t count = strtoul(argv[6], NULL, 10);
	const char *model = argc > 8 ? argv[8] : "h100-80gb";
	struct mig_sim_job *jobs = calloc(count + 1, sizeof(*jobs));
	uint16_t *gpu_die = calloc(gpus + 1, sizeof(*gpu_die));

	if (!mix || !jobs || !gpu_die || mix_die(model, &die) < 0)
		return 2;
	mix_wants(model, mix, profile, wants, &mean);
	struct mig_sim_setting setting = {.dies = &die,
					  .die_count = 1,
					  .gpu_die = gpu_die,
					  .gpu_count = gpus,
					  .wants = wants,
					  .want_count = ARRAY_SIZE(wants),
					  .waits = !strcmp(argv[5], "waiting"),
					  .passes = PASSES,
					  .warm = count / 5};
	static const char *const all[] = {NULL};
	const char *const *policies = argc > 9 ? (const char *const *)&argv[9] : all;
	char *end;
	unsigned long first = 1, last = strtoul(argv[7], &end, 10);
	int rc = 0;

	if (*end == '-') {
		first = last;
		last = strtoul(end + 1, NULL, 10);
	}
	for (unsigned long seed = first; seed <= last && rc == 0; seed++) {
		mix_draw(mix, mean, strtod(argv[2], NULL), gpus, !strcmp(argv[4], "heavy"), seed,
			 jobs, count);
		rc = play(&setting, policies, jobs, count, seed);
	}
	free(jobs);
	free(gpu_die);
	return rc;
}
