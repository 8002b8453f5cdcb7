/* cgroups (v2) as everybody may see them: by the full path of their directory. Every call may block
 * for as long as others make it, so none is made on the daemon's loop. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/process.h"
#include "proto/warden_limits.h"

/* As cgroup_of() (base/cgroup.h). -ENOENT: none that is to be seen from here; -ESRCH: it is
 * gone; -ENAMETOOLONG. */
int cgroup_of_process(struct process_id process, char ret[static LIMITS_PATH_SIZE]);
/* The processes in it, not below it. -E2BIG: more than `max`. */
int cgroup_processes(const char *cgroup, pid_t *list, size_t max, size_t *ret_count);
/* Puts a process into the cgroup of its session, called CGROUP_SESSION..., below the one that it is
 * in. Makes that cgroup where there is none. Returns 0, also where the process is there already, or
 * -errno; -EROFS, -EACCES, -EBUSY: not here. */
int cgroup_session_enter(struct process_id process, const char *session);
