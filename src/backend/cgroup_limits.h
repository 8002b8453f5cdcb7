/* The driver's own limits on what the processes of a cgroup have of a GPU's memory (drivers from
 * 615 on). A cgroup is named by the full path of its directory. Every call may block, so none is
 * made on the daemon's loop; any thread, one at a time. Errors: -errno; -ENOTSUP: this driver has
 * no such limits, or the GPU is in MIG mode; -EACCES: this process may not; -ENOENT: no such
 * cgroup. */
#pragma once

#include <stdint.h>

#include "base/process.h"

#define LIMIT_NO_BYTES UINT64_MAX

struct gpus;
struct limits;

/* link_fd: to a process that has the rights for changes (limits_serve()) and makes them; it stays
 * the caller's. -1: this process makes them. -ENOTSUP; -ENOMEM. The GPUs stay open for as long as
 * this is. */
int limits_open_link(const struct gpus *gpus, int link_fd, struct limits **ret);
void limits_close(struct limits *limits);

/* Whether limits may be set here. Changes nothing. */
int limits_probe(const struct limits *limits);
/* The hard limit of a cgroup in bytes; LIMIT_NO_BYTES: none. */
int limits_get(const struct limits *limits, uint32_t gpu, const char *path, uint64_t *ret);
/* Sets it, or with LIMIT_NO_BYTES takes it away. */
int limits_put(const struct limits *limits, uint32_t gpu, const char *path, uint64_t bytes);
/* Makes a cgroup (called CGROUP_SESSION...) below the one that the process is in, where there is
 * none, and puts it there. -EROFS, -EACCES, -EBUSY: not here; -ESRCH. */
int limits_enter(const struct limits *limits, struct process_id process, const char *path);
/* Removes such a cgroup. 0, also where there is none; -EBUSY: somebody is in it. */
int limits_leave(const struct limits *limits, const char *path);

/* Answers on a link until the other side hangs up. NVML is open only meanwhile. */
void limits_serve(int link_fd);
