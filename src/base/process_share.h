/* Processes that have their caller's memory, and not a copy of it. A copy costs more than the work
 * of a short process: each page that is touched is mapped anew. libc only. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Starts a process that runs `run`, whose result is its status. Only its memory is the caller's: it
 * has descriptors, a working directory and signals of its own. `waits`: the caller goes on when the
 * process has ended or become another program. Without it the caller may only wait, and frees
 * nothing that the process may use, until that has ended; one that ends first leaves it the memory.
 * The caller has one thread. Returns the PID, or -errno. */
pid_t process_share(int (*run)(void *arg), void *arg, bool waits);
