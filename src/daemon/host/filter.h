/* A filter of system calls: the worker, and what it starts, may not make those that no daemon needs
 * and that break-ins are made of. They fail with EPERM; the driver's library, which the worker
 * loads, may make any other. The filter stays over an upgrade. */
#pragma once

/* 0 or -errno. */
int filter_apply(void);
