/* Tells root of the host from root of a container. Both have user ID 0 where a container shares the
 * host's user IDs, and the kernel names that ID to whoever asks for a peer. libc only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Looks which capabilities root has on this machine: those that this process or the first process
 * of its PID namespace has. Else that is done with the first question. */
void host_root_remember(void);
/* A process without rights takes what a process with root's rights has found: the capabilities, a
 * bit each. */
uint64_t host_root_needed(void);
void host_root_adopt(uint64_t capabilities);
/* Whether a process of user ID 0 can do what root of this machine can. It has to be in this
 * process's user namespace, and to have the capabilities that make root what it is. Returns false
 * also where that cannot be seen. The PID has to be that process's from before the call until after
 * it: hold a pidfd and ask it afterwards. */
bool host_root_is(pid_t pid);
