/* Actions of other rooms as sessions live and end (session/session_hooks.h), and as MIG instances
 * are made (mig/mig.h), and of queues as idle sessions are released (idle/idle.h). For the daemon's
 * root. */
#pragma once

struct idle_hooks;
struct mig_hooks;
struct session_hooks;

extern const struct session_hooks node_session_hooks;
extern const struct mig_hooks node_mig_hooks;
extern const struct idle_hooks node_idle_hooks;
