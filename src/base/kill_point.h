/* Named points at which a test can have a process killed. libc only. */
#pragma once

/* With CARVE_KILL_POINT=NAME:FILE in the environment, the first process that comes to the point
 * NAME and removes FILE is killed there (SIGKILL). Does nothing otherwise. */
void kill_point(const char *name);
