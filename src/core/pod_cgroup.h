/* Which pod of Kubernetes a process is in, by the text of its /proc/PID/cgroup: pure. A kubelet
 * makes one cgroup for each pod, and the container runtime one for each container, below its
 * pod's. A container's root cannot leave its cgroup, nor make one beside it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Writes the lines of the text, each cut behind the pod's cgroup. Returns false where no line names
 * a pod, or they do not fit. */
bool pod_cgroup_find(const char *text, char *ret, size_t size);
/* Whether the process of this text is in the pod that pod_cgroup_find() wrote: every line of it
 * has to be there. */
bool pod_cgroup_holds(const char *pod, const char *text);
