#include "daemon/api/api_time_limits.h"

#include "core/time_limits.h"
#include "daemon/api/limits_row.h"
#include "daemon/idle/idle.h"
#include "daemon/node.h"

/* 0 ns: there is no limit. */
static void row_add(struct limits_view *view, const char *limit, const char *title, uint64_t ns,
		    const char *key)
{
	limits_add(view, &(struct limit_row){
				 .limit = limit,
				 .title = title,
				 .unit = LIMIT_NS,
				 .most = ns ? ns : LIMITS_NONE,
				 .used = LIMITS_NONE,
				 .from = key ? "carved.json" : NULL,
				 .name = key,
			 });
}

struct times_row {
	const char *limit, *title, *key;
};

/* Without a default the longest time is the default. */
static void times_add(struct limits_view *view, const struct time_limits *times,
		      const struct times_row *first, const struct times_row *most)
{
	uint64_t ns = 0;

	(void)time_limits_apply(times, 0, &ns);
	row_add(view, first->limit, first->title, ns,
		times->default_ns ? first->key
		: ns              ? most->key
				  : NULL);
	row_add(view, most->limit, most->title, times->max_ns, times->max_ns ? most->key : NULL);
}

void api_time_limits(struct limits_view *view)
{
	static const struct times_row rows[] = {
		{"session_timeout_default_ns", "session time-out, default",
		 "session_timeout_default"},
		{"session_timeout_max_ns", "session time-out, longest", "session_timeout_max"},
		{"job_time_default_ns", "job time, default", "job_time_default"},
		{"job_time_max_ns", "job time, longest", "job_time_max"},
	};
	const struct config_times *times = &view->node->config.times;
	const struct peer *whose = &view->whose;
	uint64_t timeout = times->idle.timeout_ns;
	bool spared =
		timeout && idle_exempts(view->node->idle, whose->uid, whose->gid, &whose->groups);

	times_add(view, &times->session, &rows[0], &rows[1]);
	times_add(view, &times->job, &rows[2], &rows[3]);
	row_add(view, "idle_timeout_ns", "idle session released", spared ? 0 : timeout,
		spared    ? "idle_exempt"
		: timeout ? "idle_timeout"
			  : NULL);
}
