/* The functions of the operations, for the table in operations.c. Each is called only with a
 * request whose size and values were checked. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "warden/operations.h"

struct warden_marks;

/* signal.c, in a child */
warden_run warden_run_signal, warden_run_signal_on_gpu, warden_run_signal_outside,
	warden_run_signal_peer;
/* slice.c, in a child: other users can make the reader wait. Whether a process of that user is in a
 * slice, by marks that the worker cannot make. */
bool warden_slice_has(pid_t pid, uid_t uid);
/* All marks that a process has of a slice, and its user. */
void warden_slice_marks(pid_t pid, struct warden_marks *ret);
warden_run warden_run_slice_look;
/* Whether this is a worker's end of a connection that the process made to its attach socket. */
bool warden_slice_peer(int fd, pid_t pid);
/* Whether a process of root's is in a slice, or runs carve and so is about to enter one. */
bool warden_slice_may_enter(pid_t pid);
/* devices.c */
warden_run warden_run_device_access;
/* mig.c, in a child */
warden_run warden_run_mig_kinds, warden_run_mig_list, warden_run_mig_make, warden_run_mig_remove,
	warden_run_mig_mode;
/* limits.c, in a child */
warden_run warden_run_limit_probe, warden_run_limit_put, warden_run_limit_enter,
	warden_run_limit_leave;
/* jobs.c; -EOPNOTSUPP where this warden starts no jobs */
warden_run warden_run_job_vouch, warden_run_job_start, warden_run_job_end, warden_run_job_files,
	warden_run_job_remove, warden_run_job_over;
/* jobs.c, in a child */
warden_run warden_run_own_sync;
