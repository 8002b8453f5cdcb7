/* The pod of Kubernetes that this daemon serves in (carved --pod). */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

/* Remembers the pod of this process; to be called once, before the first question. 0 or negative
 * with *err. */
int pod_enter(struct error *err);
/* Whether a process is in that pod; false where pod_enter() was not called. The PID has to be that
 * process's from before the call until after it. */
bool pod_has(pid_t pid);
