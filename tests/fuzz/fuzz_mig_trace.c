/* Traces for `carve mig simulate`: any text is read or refused with a line that says why, and what
 * was read can be simulated. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "cli/mig/mig_models.h"
#include "cli/mig/mig_trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Jobs that are simulated: the first ones. */
#define JOBS_MAX 200u

static struct mig_die die;
static char names[1][MIG_PROFILES_MAX][MIG_NAME_SIZE];
static uint16_t gpu_die[2];

static struct mig_models models_make(void)
{
	memset(&die, 0, sizeof(die));
	die.profile_count = 3;
	for (uint32_t i = 0; i < die.profile_count; i++) {
		snprintf(names[0][i], MIG_NAME_SIZE, "%ug", i + 1);
		die.profile[i] = (struct mig_profile){.memory_bytes = GIB(10ull << i),
						      .sms = 10u << i,
						      .slices = 1u << i,
						      .starts = i == 2   ? 1
								: i == 1 ? 5
									 : 15,
						      .size = (uint8_t)(1u << i)};
	}
	if (mig_die_init(&die) < 0)
		abort();
	return (struct mig_models){
		.dies = &die, .names = names, .die_count = 1, .gpu_die = gpu_die, .gpu_count = 2};
}

static void simulate(const struct mig_models *models, const struct mig_trace *trace)
{
	struct mig_sim_setting setting = {.dies = models->dies,
					  .die_count = 1,
					  .gpu_die = models->gpu_die,
					  .gpu_count = models->gpu_count,
					  .wants = trace->wants,
					  .want_count = trace->want_count,
					  .passes = 16};
	struct mig_sim_result result;

	for (int waits = 0; waits < 2; waits++) {
		setting.waits = waits;
		if (mig_sim_run(&setting, trace->jobs, MIN(trace->count, JOBS_MAX), &result) < 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mig_models models = models_make();
	struct mig_trace trace;
	struct error err = {0};
	FILE *file = size ? fmemopen((void *)data, size, "r") : NULL;

	if (!file)
		return 0;
	int rc = mig_trace_read(file, "trace.csv", &models, &trace, &err);

	(void)fclose(file);
	if (rc < 0) {
		if (!err.message[0])
			abort();
		return 0;
	}
	for (size_t i = 1; i < trace.count; i++)
		if (trace.jobs[i].arrival < trace.jobs[i - 1].arrival)
			abort();
	simulate(&models, &trace);
	mig_trace_free(&trace);
	return 0;
}
