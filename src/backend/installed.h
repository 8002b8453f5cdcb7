/* Whether this host's GPUs are a system daemon's, and where a user's own daemon lives otherwise:
 * what the command and the daemon have to agree on. Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/trust.h"

#define RUNTIME_DIR_SYSTEM TRUST_SYSTEM_DIR

/* Whether a system daemon is installed here, running or not: its runtime directory is there, or
 * systemd runs this host and has its unit. Users' daemons then leave the host's GPUs to it. */
bool installed_for_all(void);
/* The directory of a user's own daemon. It is $XDG_RUNTIME_DIR/carve, where XDG_RUNTIME_DIR is this
 * user's and nobody else writes to it (su and sudo may leave the caller's there). Else it is
 * /tmp/carve-UID. 0 or -ENAMETOOLONG. */
int installed_user_dir(char *buf, size_t size);
