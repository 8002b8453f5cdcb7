/* A container's first process becomes a command of a session. */
#pragma once

struct call;

/* POST /v1/commands. Answered when the driver has the limit of the process's cgroup, where it takes
 * one: whoever starts the container's program after the answer starts it limited. */
void api_post_command(struct call *call, const char *id);
