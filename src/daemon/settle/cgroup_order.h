/* The work on one cgroup that is done away from the loop; daemon/settle/cgroups.h decides when. The
 * steps of an order may block, in the kernel and in the driver, so each runs on the thread pool. A
 * step takes a bounded number of looks, whatever the user of the cgroup does (core/leaf.h). One
 * order runs at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "backend/gpus.h"
#include "base/process.h"
#include "core/leaf.h"
#include "core/turns.h"
#include "daemon/store/store.h"
#include "proto/warden_limits.h"

struct cgroups;
struct limits;

/* Commands of the session that are compared with the processes of a cgroup. */
#define ORDER_ROOTS_MAX 65u
/* So many cgroups, from the process's own upwards, may be the one that has the limit. */
#define ORDER_LEVELS_MAX 16u

enum order_step {
	ORDER_PROBE, /* whether there are such limits here */
	ORDER_PLACE, /* in which cgroup the process is */
	ORDER_LOOK,  /* which cgroup can carry its limit */
	ORDER_SET, /* the process is put there, where that is to be, and the driver has the limit */
	ORDER_KEEP, /* a limit is set again, or cleared where nobody is in its cgroup any more */
};

struct order_level {
	size_t length; /* the part of the path that names the cgroup */
	uint64_t number;
};

struct order {
	struct turn turn; /* it is first */
	uv_work_t work;
	struct cgroups *cgroups;
	const struct limits *driver;
	enum order_step step;
	char session[STORE_ID_SIZE];
	struct process_id process; /* pid 0: no process waits for it */
	enum leaf_asker asker;
	struct process_id roots[ORDER_ROOTS_MAX]; /* the process, and the session's commands */
	uint32_t root_count;
	/* The session's GPUs with its sizes, and all that may have a limit to be cleared. */
	struct {
		uint32_t index;
		uint64_t bytes;
	} gpu[GPUS_MAX];
	uint32_t gpu_count, all_gpus[GPUS_MAX], all_count;
	/* The cgroup, from LOOK on the one that carries the limit. `number`: the kernel's, which no
	 * cgroup has again. `held`: the one in which the driver has these sizes already; 0: none.
	 */
	char path[LIMITS_PATH_SIZE];
	struct order_level level[ORDER_LEVELS_MAX];
	uint32_t level_count;
	uint64_t number, held;
	size_t job_length; /* PLACE: the part of the path that names its job's cgroup; 0: no job */
	bool made, others, fixed;
	bool job;                /* the cgroup is a job's: its user can leave those below it only */
	enum leaf_choice choice; /* LOOK; with the line that it gives */
	const char *why;
	bool cleared; /* KEEP */
	int rc;
	uint64_t asked_ns; /* CLOCK_MONOTONIC */
	/* Told once what came of it: cgroups_cb. NULL: nobody asks any more. */
	void (*cb)(void *context, uint64_t number, const char *refusal);
	void *context;
	uint64_t ticket;
};

/* Runs the step of `work->data`. On the thread pool. */
void order_run(uv_work_t *work);
/* The name of a session's own cgroup. Returns its length. */
int order_leaf_name(const char *session, char ret[static STORE_ID_SIZE + 16]);
