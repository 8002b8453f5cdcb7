/* What a program that is started on demand has of the shell that needed it, put back to what a
 * service begins with. */
#pragma once

/* For a child before exec: limits of resources are raised, niceness, scheduling, affinity, timer
 * slack and the handling of signals are as systemd's defaults, each as far as it is permitted. What
 * cannot be put back the daemon says itself (daemon/host/limited.h). */
void service_like_begin(void);
