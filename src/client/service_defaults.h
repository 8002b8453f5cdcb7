/* Puts back, to the state in which a service begins, all that a program started on demand has of
 * the shell that needed it. */
#pragma once

/* For a child before exec: makes its surroundings as systemd's defaults, each as far as it is
 * permitted. These are limits of resources (raised), niceness, scheduling, affinity, timer slack,
 * the OOM killer's score and the handling of signals. The daemon itself names those that cannot be
 * put back (daemon/host/limited.h). */
void service_defaults_restore(void);
