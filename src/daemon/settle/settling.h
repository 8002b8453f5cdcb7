/* The books of the room that compares the driver's figures with the ledgers, and the settings that
 * it goes by. The daemon's root owns and fills it in (rooms.c). On the loop's thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/session/sessions.h"
#include "daemon/settle/descriptors.h"
#include "daemon/settle/orphans.h"

struct stray;

/* A session that holds more than its slice, by the driver's figures. */
struct over_setting {
	bool kills;               /* its processes are killed; else it is shown and logged alone */
	uint64_t tolerance_bytes; /* so much more is nothing, */
	uint64_t after_ns;        /* and it has to last so long */
};

struct settling {
	struct sessions *sessions; /* lent; its `settling` is this one */
	struct pool *pool;         /* lent */
	struct over_setting over;
	struct stray *strays;
	struct descriptors descriptors;
	struct orphans orphans;
	uv_timer_t quiesce_timer; /* sessions that were not quiescent are looked at again */
};
