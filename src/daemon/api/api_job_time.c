/* The default and the longest time limit of jobs, as the configuration has them. */
#include <inttypes.h>

#include "base/error.h"
#include "base/units.h"
#include "core/time_limits.h"
#include "daemon/api/api_job_private.h"
#include "daemon/node.h"
#include "daemon/queue/job.h"

#define SECOND_NS 1000000000ull

void api_job_time_default(const struct node *node, json_t *body)
{
	const json_t *time = json_object_get(body, "time");
	uint64_t ns;

	if ((time && !json_is_null(time)) ||
	    time_limits_apply(&node->config.times.job, 0, &ns) < 0 || !ns)
		return;
	json_object_set_new(body, "time",
			    ns % SECOND_NS ? json_real((double)ns / SECOND_NS)
					   : json_integer((json_int_t)(ns / SECOND_NS)));
}

int api_job_time_check(const struct node *node, const struct job_spec *spec, struct error *err)
{
	const struct time_limits *times = &node->config.times.job;
	char asked[UNITS_TEXT_SIZE], most[UNITS_TEXT_SIZE];
	uint64_t ns;

	if (time_limits_apply(times, spec->limit_ns, &ns) == 0)
		return 0;
	error_set(err, EXIT_CODE_NOT_PERMITTED,
		  "time: a job runs for %s at most here, and %s is asked for",
		  units_format_exact_duration(times->max_ns, most),
		  units_format_exact_duration(spec->limit_ns, asked));
	error_hint(err,
		   "ask for --time %s or less, or have an administrator raise job_time_max in "
		   "carved.json",
		   most);
	return -EXIT_CODE_NOT_PERMITTED;
}
