/* The states of a session, from its grant until it is forgotten. Pure.
 *
 *   from         event     to           action of the daemon
 *   ACTIVE       END       TERMINATING  SIGTERM to its processes; SIGKILL follows
 *   ACTIVE       EMPTY     RECORDING    (an END without living processes) writes its end
 *   TERMINATING  END       TERMINATING  none: SIGKILL follows anyway
 *   TERMINATING  DEADLINE  KILLING      SIGKILL
 *   TERMINATING  EMPTY     RECORDING    writes its end
 *   KILLING      END       KILLING      SIGKILL again: the last one was in vain
 *   KILLING      EMPTY     RECORDING    writes its end
 *   RECORDING    END       RECORDING    none
 *   RECORDING    EMPTY     RECORDING    writes its end again, if the last attempt failed
 *
 * A session whose end is written is forgotten. A state other than ACTIVE grants nothing more and
 * never becomes ACTIVE again. Every other pair is impossible. */
#pragma once

#include <stdbool.h>

enum session_state {
	SESSION_ACTIVE,
	SESSION_TERMINATING, /* its processes got SIGTERM */
	SESSION_KILLING,     /* its processes got SIGKILL */
	SESSION_RECORDING,   /* no process lives in it; its end is to be written to the store */
	SESSION_STATES
};

enum session_event {
	SESSION_EVENT_END,      /* somebody ends it, and processes live in it */
	SESSION_EVENT_DEADLINE, /* SIGTERM was long enough ago */
	SESSION_EVENT_EMPTY,    /* it is to end, and no process lives in it */
	SESSION_EVENTS
};

/* False, and nothing is set: this cannot happen to such a session. */
bool session_state_next(enum session_state from, enum session_event event, enum session_state *ret);
