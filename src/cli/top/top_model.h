/* The knowledge that `carve top` has of a daemon at one moment, made of the answers of its API.
 * Pure: no I/O, no clock. Sizes in bytes, times in nanoseconds, moments in seconds since 1970. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum top_list {
	TOP_GPUS,
	TOP_SESSIONS,
	TOP_WAITING,
	TOP_QUEUES,
	TOP_JOBS,
	TOP_USERS,
	TOP_LISTS,
};

struct top_model {
	char version[32], driver[40];
	int64_t daemon_pid;
	int64_t now;
	bool leases; /* the daemon tells of leases */
	/* Arrays of objects: users as `--once --json` has them, and all else as the daemon told of
	 * it; of jobs those that run come first. Figures that are made for the screen are under
	 * "shown". */
	json_t *list[TOP_LISTS];
};

/* The daemon's answers; NULL: none was got. Each is owned by the struct. */
struct top_answers {
	json_t *version, *gpus, *sessions, *quotas, *timeslicing, *queues, *jobs;
};
void top_answers_free(struct top_answers *answers);

/* Makes a model, to be freed by top_model_free(). Fields that are missing from the answers or of
 * another type than expected are left out. NULL: no memory. */
struct top_model *top_model_read(const struct top_answers *answers, int64_t now);
void top_model_free(struct top_model *model);
/* The processes of a GPU or a session: objects with "pid", perhaps "memory_bytes", "stray", and the
 * caller's "command". */
json_t *top_processes(const json_t *row);
/* The model as JSON, for `--once --json`: the answers themselves, users added. */
json_t *top_model_json(const struct top_model *model, const struct top_answers *answers);
