/* How a system daemon gets its warden (warden/warden.h), and the warden as a service of its own. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct error;
struct launcher;
struct runtime;

struct warden_making {
	const struct runtime *runtime;
	const char *state_dir;
	uint32_t job_tasks; /* tasks that each job may have; 0: the default */
	uid_t uid;          /* the worker's user; 0: it stays root */
	gid_t gid;
};

/* Before the process becomes the worker: connects to carve-warden.service, where that runs, else
 * forks a warden with the rights that this process has. It starts jobs, if these suffice;
 * launcher->why_not says why not. *ret_link_fd is the other end of its link. 0 or negative with
 * *err. */
int warden_make(const struct warden_making *making, struct launcher *launcher, int *ret_link_fd,
		struct error *err);
/* The whole of `carved --warden`: serves one worker after the other at a socket in the runtime
 * directory until it is ended. An exit code with *err. */
int warden_main(const struct warden_making *making, struct error *err);
