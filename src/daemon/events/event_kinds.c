#include "daemon/events/event_kinds.h"

#include <string.h>

static const struct event_kind_row rows[EVENT_KINDS] = {
	[EVENT_QUOTA_SET] = {"quota.set", EVENT_FOR_OWNER, LOG_INFO, .change = true,
			     .synced = true},
	[EVENT_QUOTA_NEAR] = {"quota.near", EVENT_FOR_OWNER, LOG_INFO, .by_users = true},
	[EVENT_TIMESLICING_SET] = {"timeslicing.set", EVENT_FOR_ALL, LOG_INFO, .change = true,
				   .synced = true},
	[EVENT_MIG_ROLE] = {"mig.role", EVENT_FOR_ALL, LOG_INFO, .change = true, .synced = true},
	[EVENT_SESSION_RELEASED] = {"session.released", EVENT_FOR_OWNER, LOG_INFO, .change = true},
	[EVENT_SESSION_RESIZED] = {"session.resized", EVENT_FOR_OWNER, LOG_INFO, .change = true},
	[EVENT_JOB_CHANGED] = {"job.changed", EVENT_FOR_OWNER, LOG_INFO, .change = true},
	[EVENT_OVER_KILLED] = {"session.over_killed", EVENT_FOR_OWNER, LOG_WARNING, .change = true,
			       .by_users = true},
	[EVENT_SLICING_KILLED] = {"session.slicing_killed", EVENT_FOR_OWNER, LOG_WARNING,
				  .change = true, .by_users = true},
	[EVENT_OUTSIDE_REPORTED] = {"outside.reported", EVENT_FOR_OWNER, LOG_WARNING,
				    .by_users = true},
	[EVENT_OUTSIDE_WARNED] = {"outside.warned", EVENT_FOR_OWNER, LOG_WARNING, .by_users = true},
	[EVENT_OUTSIDE_KILLED] = {"outside.killed", EVENT_FOR_OWNER, LOG_WARNING, .change = true,
				  .by_users = true},
	[EVENT_IDLE_WARNED] = {"session.idle_warned", EVENT_FOR_OWNER, LOG_INFO, .by_users = true},
	[EVENT_IDLE_RELEASED] = {"session.idle_released", EVENT_FOR_OWNER, LOG_INFO, .change = true,
				 .by_users = true},
	[EVENT_IDLE_WITHDRAWN] = {"session.idle_withdrawn", EVENT_FOR_OWNER, LOG_INFO,
				  .by_users = true},
	[EVENT_GPU_DRAINED] = {"gpu.drained", EVENT_FOR_ALL, LOG_INFO, .change = true,
			       .synced = true},
	[EVENT_GPU_RESUMED] = {"gpu.resumed", EVENT_FOR_ALL, LOG_INFO, .change = true,
			       .synced = true},
	[EVENT_GPU_LOST] = {"gpu.lost", EVENT_FOR_ALL, LOG_ERROR},
	[EVENT_GPU_BACK] = {"gpu.back", EVENT_FOR_ALL, LOG_INFO},
	[EVENT_STARTED] = {"carved.started", EVENT_FOR_ALL, LOG_INFO},
	[EVENT_CONFIG_READ] = {"config.read", EVENT_FOR_ADMINS, LOG_INFO, .change = true},
	[EVENT_CONFIG_REFUSED] = {"config.refused", EVENT_FOR_ADMINS, LOG_ERROR},
	[EVENT_NOTICE_SET] = {"notice.set", EVENT_FOR_ALL, LOG_INFO, .change = true,
			      .synced = true},
};

const struct event_kind_row *event_kind_row(enum event_kind kind)
{
	return &rows[kind];
}

enum event_kind event_kind_find(const char *word)
{
	int kind = 0;

	while (kind < EVENT_KINDS && strcmp(rows[kind].word, word) != 0)
		kind++;
	return kind;
}
