#include "daemon/host/pod.h"

#include <stdio.h>

#include "base/file.h"
#include "core/pod_cgroup.h"

/* As many cgroups as version 1 has controllers, each with a path of some 200 bytes. */
#define CGROUP_TEXT_SIZE 8192

static char own[CGROUP_TEXT_SIZE]; /* as pod_cgroup_find() writes it; "": none */

int pod_enter(struct error *err)
{
	char text[CGROUP_TEXT_SIZE];

	if (file_read("/proc/self/cgroup", text, sizeof(text)) >= 0 &&
	    pod_cgroup_find(text, own, sizeof(own)))
		return 0;
	own[0] = '\0';
	error_set(err, EXIT_CODE_FAILED,
		  "--pod: no line of /proc/self/cgroup names a pod's cgroup");
	error_hint(err, "the container needs the host's cgroup namespace, which privileged ones "
			"have, and the kubelet cgroupsPerQOS");
	return -1;
}

bool pod_has(pid_t pid)
{
	char path[64], text[CGROUP_TEXT_SIZE];

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	return own[0] && file_read(path, text, sizeof(text)) >= 0 && pod_cgroup_holds(own, text);
}
