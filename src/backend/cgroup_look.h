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
/* Makes a session's cgroup, called CGROUP_SESSION..., below the one that the process is in, where
 * there is none, and puts the process there. 0, also where it is there; -EROFS, -EACCES, -EBUSY:
 * not here; -ESRCH. */
int cgroup_session_enter(struct process_id process, const char *session);
