/* The driver's own limits on what the processes of a cgroup have of a GPU's memory (drivers from
 * 615 on). A cgroup is named by the full path of its directory. Every call may block, so none is
 * made on the daemon's loop; any thread, one at a time. Errors: -errno; -ENOTSUP: this driver has
 * no such limits, or the GPU is in MIG mode; -EACCES: this process may not; -ENOENT: no such
 * cgroup. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/process.h"

#define LIMIT_NO_BYTES UINT64_MAX

struct gpus;
struct limits;

/* Asks the warden (proto/warden_limits.h), from any thread, and waits for its answer. 0 or -errno.
 */
struct limits_asking {
	int (*ask)(void *context, uint16_t operation, const void *request, size_t size,
		   void *answer, size_t answer_size);
	void *context;
};
/* `asking`: how the warden is asked, which has the rights for changes and makes them. NULL: this
 * process makes them. -ENOTSUP; -ENOMEM. The GPUs stay open for as long as this is. */
int limits_open(const struct gpus *gpus, const struct limits_asking *asking, struct limits **ret);
void limits_close(struct limits *limits);

/* Whether limits may be set here. Changes nothing. */
int limits_probe(const struct limits *limits);
/* The hard limit of a cgroup in bytes; LIMIT_NO_BYTES: none. */
int limits_get(const struct limits *limits, uint32_t gpu, const char *path, uint64_t *ret);
/* Sets it, or with LIMIT_NO_BYTES takes it away. */
int limits_put(const struct limits *limits, uint32_t gpu, const char *path, uint64_t bytes);
/* As cgroup_session_enter() (cgroup_look.h). */
int limits_enter(const struct limits *limits, struct process_id process, const char *session);
/* Removes such a cgroup. 0, also where there is none; -EBUSY: somebody is in it. */
int limits_leave(const struct limits *limits, const char *path);
