/* The life of an attached process, from its attach until its slot is free again. Pure.
 *
 *   from         event         to           comment
 *   CONNECTED    DISCONNECT    UNCONNECTED  exec, or the process closed its descriptors
 *   CONNECTED    END           INHERITED    a forked child holds the connection
 *   UNCONNECTED  CONNECT       CONNECTED    it resumes at the next daemon, or an upgrade kept it
 *   UNCONNECTED  END           RELEASING
 *   INHERITED    DISCONNECT    RELEASING    the last child is gone
 *   RELEASING    CONNECT       INHERITED    an upgrade kept the connection of a child
 *
 * A new process begins CONNECTED, one that was read from the store UNCONNECTED. RELEASING ends when
 * the driver has the memory back: then the process is forgotten. Every other pair is impossible. */
#pragma once

#include <stdbool.h>

enum process_life {
	PROCESS_LIFE_CONNECTED,   /* lives, and its attach connection is open */
	PROCESS_LIFE_UNCONNECTED, /* lives; its connection ended, or was another daemon's */
	PROCESS_LIFE_INHERITED,   /* ended, but a forked child holds its connection, and the
				   * driver's descriptors with it; it may be at its slot */
	PROCESS_LIFE_RELEASING,   /* ended, as all of its children; the driver gives memory back */
	PROCESS_LIVES
};

enum process_event {
	PROCESS_EVENT_CONNECT,
	PROCESS_EVENT_DISCONNECT,
	PROCESS_EVENT_END,
	PROCESS_EVENTS
};

/* False, and nothing is set: this cannot happen to such a process. */
bool process_life_next(enum process_life from, enum process_event event, enum process_life *ret);
/* Whether the process itself has ended. */
bool process_life_is_over(enum process_life life);
