/* The supervisor that started the daemon, where there is one (systemd's protocol; no library
 * needed): sockets that it opened, and what it wants to hear. */
#pragma once

/* The descriptor of the listening socket that was handed over under this name (LISTEN_FDS,
 * LISTEN_FDNAMES), which is the caller's from now on; -1: none was. */
int supervisor_socket(const char *name);
/* Tells it, e.g. "READY=1" or, once a second, "WATCHDOG=1"; nothing where nobody listens
 * (NOTIFY_SOCKET). */
void supervisor_tell(const char *state);
