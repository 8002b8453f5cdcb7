/* Shims (proto/shim.h): what they are told, and how they are started, by the launcher or as
 * children of this process. */
#pragma once

#include "base/process.h"
#include "daemon/queue/launcher.h"

struct job;
struct shim_head;

/* A sealed memfd with what a shim reads (proto/shim.h), or -errno. The function sets the head's
 * magic and sizes. `owners` is the text of the agent's owner; NULL: there is none. */
int shim_spec_memfd(struct shim_head *head, const char *text, const char *owners);
/* Has a shim started for the job's attempt, as its user. `cb` gets the job, a struct warden_started
 * with the shim's process, and the end of its pipe. It is called before this returns where the shim
 * is this process's child. Else it is called later. 0, or -errno without a call. */
int shim_launch(struct job *job, int spec, warden_cb cb);
/* The shim of that answer. 0 or -errno: `rc`, or the answer is wrong. */
int shim_of_answer(int rc, const void *reply, int fd, struct process_id *ret);
