/* Keys of the configuration file about the times of sessions and jobs. */
#include <jansson.h>

#include "base/error.h"
#include "base/record_json.h"
#include "base/units.h"
#include "daemon/config.h"

/* 30 years, as units_parse_seconds() has it. */
#define DURATION_MAX_S 1e9

/* "8h", or a number of seconds; 0 stands for none. */
static int take_duration(const json_t *value, uint64_t *ret)
{
	double seconds = json_number_value(value);
	struct error ignored = {0};

	if (json_is_string(value))
		return units_parse_seconds(json_string_value(value), "", ret, &ignored) < 0
			       ? RECORD_WRONG_TYPE
			       : 0;
	if (!json_is_number(value) || !(seconds >= 0 && seconds <= DURATION_MAX_S))
		return RECORD_WRONG_TYPE;
	*ret = (uint64_t)(seconds * 1e9);
	return 0;
}

/* Makes the function that takes a key whose value is a duration. */
#define TAKE_DURATION(function, member)                                          \
	int function(const json_t *value, void *record, struct error *err)       \
	{                                                                        \
		return take_duration(value, &((struct config *)record)->member); \
	}
TAKE_DURATION(config_take_session_default, times.session.default_ns)
TAKE_DURATION(config_take_session_max, times.session.max_ns)
TAKE_DURATION(config_take_job_default, times.job.default_ns)
TAKE_DURATION(config_take_job_max, times.job.max_ns)
TAKE_DURATION(config_take_idle_timeout, times.idle.timeout_ns)
TAKE_DURATION(config_take_idle_warning, times.idle.warning_ns)

int config_take_idle_exempt(const json_t *value, void *record, struct error *err)
{
	struct config_times *to = &((struct config *)record)->times;

	return config_exempt_take("idle_exempt", value, &to->idle_users, &to->idle_groups, err);
}

/* A warning that comes with the release, or before the session was idle, is none. */
static int idle_agrees(const struct idle_policy *idle, struct error *err)
{
	char timeout[UNITS_TEXT_SIZE], warning[UNITS_TEXT_SIZE];

	if (!idle->warning_ns || !idle->timeout_ns || idle->warning_ns < idle->timeout_ns)
		return 0;
	return error_set(
		err, EXIT_CODE_USAGE,
		"idle_warning (%s) is not shorter than idle_timeout (%s): leave it out for "
		"a tenth of that",
		units_format_exact_duration(idle->warning_ns, warning),
		units_format_exact_duration(idle->timeout_ns, timeout));
}

/* A default beyond the longest time would have requests refused that name no time. */
static int times_agree(const struct time_limits *times, const char *what, struct error *err)
{
	char asked[UNITS_TEXT_SIZE], most[UNITS_TEXT_SIZE];

	if (!times->max_ns || times->default_ns <= times->max_ns)
		return 0;
	return error_set(err, EXIT_CODE_USAGE,
			 "%s_default (%s) is longer than %s_max (%s): make it %s or less", what,
			 units_format_exact_duration(times->default_ns, asked), what,
			 units_format_exact_duration(times->max_ns, most), most);
}

int config_times_agree(const struct config_times *times, struct error *err)
{
	int rc = times_agree(&times->session, "session_timeout", err);

	if (rc == 0)
		rc = times_agree(&times->job, "job_time", err);
	return rc < 0 ? rc : idle_agrees(&times->idle, err);
}
