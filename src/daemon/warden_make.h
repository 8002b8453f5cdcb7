/* How a system daemon gets its warden (warden/warden.h), and the warden as a service of its own. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct error;
struct node;
struct runtime;
struct runtime_start;
struct warden;

struct warden_making {
	const struct runtime *runtime;
	const char *state_dir;
	uint32_t job_tasks; /* tasks that each job may have; 0: the default */
	uid_t uid;          /* the worker's user; 0: it stays root */
	gid_t gid;
};

/* For a worker under systemd: the link to carve-warden.service, or -errno. */
int warden_connect(const struct runtime *runtime);
/* Opens the warden that this process hosts, with the rights that the process has. A warden that is
 * open for the same directory of jobs stays. *ret_jobs_error: why it starts no jobs (-errno), or 0.
 * 0 or -errno. */
int warden_host(const struct warden_making *making, struct warden **warden, int *ret_jobs_error);
/* The whole of `carved --warden`: prepares each worker that connects to a socket in the runtime
 * directory, and is its warden, one worker after the other, until it is ended. An exit code with
 * *err. */
int warden_main(struct node *node, const struct runtime_start *start, struct error *err);
