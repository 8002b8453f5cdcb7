/* Children that spin for ever must not outlive a parent that fails. */
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/* fork(), whose child is killed when its parent ends: also when that was before the child could ask
 * for it. The parent's thread has to live as long as the process. */
static inline pid_t fork_bound(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}
