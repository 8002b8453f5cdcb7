/* The knowledge that `carve top` has of a daemon at one moment, made of the answers of its API.
 * Pure: no I/O, no clock. Sizes in bytes, times in nanoseconds, moments in seconds since 1970. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/gpu_holder.h"

/* Not known; of a quota: no limit. */
#define TOP_NONE UINT64_MAX

struct top_process {
	pid_t pid;
	uint64_t bytes;   /* TOP_NONE: not told */
	bool stray;       /* a process of a session that uses the GPU and is not attached */
	char command[64]; /* "": not known */
};

struct top_gpu {
	uint64_t index;
	char name[64], mode[16];
	char state[16],
		held_by[GPU_HOLDER_SIZE]; /* held_by: another daemon that owns it; "": none */
	int64_t state_since;              /* 0: not known */
	uint64_t memory, reserved, promised, outside, available;
	uint64_t used;   /* by the driver; TOP_NONE: it does not answer */
	int utilization; /* per cent; -1: not known */
	uint64_t sessions;
	struct top_process *processes; /* outside carve */
	size_t process_count;
};

/* A session, or a request that waits. Another user's has no ID, owner or details. */
struct top_session {
	char id[24], owner[40], name[64], state[16];
	char gpus[48]; /* "0,1" */
	char asked[64], reason[256];
	uint64_t uid;              /* the owner's user ID; TOP_NONE: not known */
	uint64_t size, used, peak; /* sums over its GPUs; used, peak: TOP_NONE of another user's */
	uint64_t over;             /* held beyond the slice, by the driver; `used` has it */
	double request, limit, received; /* shares of a GPU's time; < 0: not known */
	uint64_t leases, waited_ns, overrun_ns;
	uint64_t position; /* in the line; 0: it does not wait */
	int64_t created;   /* 0: not known */
	struct top_process *processes;
	size_t process_count;
};

struct top_user {
	bool group;
	char name[40];
	uint64_t id; /* TOP_NONE: not known */
	uint64_t sessions, waiting, gpus, size, used;
	uint64_t max_sessions, max_gpus, max_size; /* TOP_NONE: no limit */
	uint64_t gpu_mask;
};

struct top_model {
	char version[32], driver[40];
	uint64_t daemon_pid;
	int64_t now;
	bool leases; /* the daemon tells of leases */
	struct top_gpu *gpus;
	struct top_session *sessions, *waiting;
	struct top_user *users;
	size_t gpu_count, session_count, waiting_count, user_count;
};

/* The daemon's answers; NULL: none was got. Each is owned by the struct. */
struct top_answers {
	json_t *version, *gpus, *sessions, *quotas, *timeslicing;
};
void top_answers_free(struct top_answers *answers);

/* Makes a model, to be freed by top_model_free(). Fields that are missing from the answers or of
 * another type than expected are left empty. NULL: no memory. */
struct top_model *top_model_read(const struct top_answers *answers, int64_t now);
void top_model_free(struct top_model *model);
/* The same as JSON, for `--once --json`: the answers themselves, users added. */
json_t *top_model_json(const struct top_model *model, const struct top_answers *answers);
