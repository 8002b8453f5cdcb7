/* Puts back, to the state in which a service begins, all that a program started on demand has of
 * the shell that needed it. */
#pragma once

/* For a child before exec: limits of resources are raised, niceness, scheduling, affinity, timer
 * slack, the score of the OOM killer and the handling of signals are as systemd's defaults, each as
 * far as it is permitted. The daemon itself names those that cannot be put back
 * (daemon/host/limited.h). */
void service_like_begin(void);
