/* The supervisor that started the daemon, where there is one (systemd's protocol; no library
 * needed): sockets that it opened, and what it wants to hear. */
#pragma once

#include <stdbool.h>

/* The descriptor of the listening socket that was handed over under this name (LISTEN_FDS,
 * LISTEN_FDNAMES), which is the caller's from now on; -1: none was. */
int supervisor_socket(const char *name);
/* Calls for each descriptor that was handed over, with its name: those of sockets, and those that
 * the supervisor kept for the daemon. The taker of one closes it. */
void supervisor_descriptors(void (*cb)(void *arg, const char *name, int fd), void *arg);
/* Tells it, e.g. "READY=1" or, once a second, "WATCHDOG=1"; nothing where nobody listens
 * (NOTIFY_SOCKET). */
void supervisor_tell(const char *state);
/* Likewise with a descriptor (negative: none). 0 or -errno; -EAGAIN: not now. */
int supervisor_tell_with(const char *state, int fd);
/* Whether it keeps descriptors (FDSTORE: how many). */
bool supervisor_keeps(void);
