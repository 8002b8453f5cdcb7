/* The kinds of events, as one table: the word of a kind, which is also its name in the daemon's log
 * and in the database, and who may see it. */
#pragma once

#include <stdbool.h>

#include "daemon/host/log.h"

enum event_kind {
	EVENT_QUOTA_SET,
	EVENT_QUOTA_NEAR,
	EVENT_TIMESLICING_SET,
	EVENT_MIG_ROLE,
	EVENT_SESSION_RELEASED,
	EVENT_SESSION_RESIZED,
	EVENT_JOB_CHANGED,
	EVENT_OVER_KILLED,
	EVENT_SLICING_KILLED,
	EVENT_OUTSIDE_REPORTED,
	EVENT_OUTSIDE_WARNED,
	EVENT_OUTSIDE_KILLED,
	EVENT_IDLE_WARNED,
	EVENT_IDLE_RELEASED,
	EVENT_IDLE_WITHDRAWN,
	EVENT_GPU_DRAINED,
	EVENT_GPU_RESUMED,
	EVENT_GPU_LOST,
	EVENT_GPU_BACK,
	EVENT_STARTED,
	EVENT_CONFIG_READ,
	EVENT_CONFIG_REFUSED,
	EVENT_NOTICE_SET,
	EVENT_KINDS
};

enum event_audience {
	EVENT_FOR_ADMINS, /* administrators alone */
	EVENT_FOR_OWNER,  /* and the user whom the event concerns */
	EVENT_FOR_ALL,    /* every user */
};

struct event_kind_row {
	const char *word; /* never changed: databases have it */
	enum event_audience audience;
	enum log_level level;
	bool change;   /* somebody or a policy changed something: `carve audit` shows it */
	bool by_users; /* users can cause any number of these: they count against their owner */
	bool synced;   /* an administrator's setting: on the disk when events_add() returns */
};

const struct event_kind_row *event_kind_row(enum event_kind kind);
/* EVENT_KINDS: no kind has that word, as of another version of carve. */
enum event_kind event_kind_find(const char *word);
