/* The identity of a process. libc only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A process, named for ever: PIDs come back. The low 40 bits of `birth` are when it started, in
 * clock ticks since boot. Above them are 24 bits of the kernel's own number for the process, which
 * it gives to no other; 0 where the kernel (before 6.9) shows none. */
struct process_id {
	pid_t pid;
	uint64_t birth;
};

/* Whether both name one process. Where one of them has no number of the kernel's, the times decide.
 */
bool process_same(struct process_id a, struct process_id b);
/* Whether `a` started before `b`, or in the same tick. */
bool process_not_younger(struct process_id a, struct process_id b);
/* Whether it started before that time by CLOCK_BOOTTIME, for certain: clock ticks are coarse. */
bool process_began_before(struct process_id process, uint64_t boottime_ns);
/* The process that has this PID now. 0 or -errno; -ESRCH: nobody. */
int process_identify(pid_t pid, struct process_id *ret);
/* The process of a pidfd, whose PID is or was this one. Likewise. */
int process_identify_by(int pidfd, pid_t pid, struct process_id *ret);
bool process_alive(struct process_id process);
/* Whether all of a process's user IDs are one, and which. */
bool process_user(pid_t pid, uid_t *ret);
/* A pidfd of that process, or -errno; -ESRCH: it is gone. */
int process_open(struct process_id process);

/* Further up nobody looks for whom a process belongs to. */
#define PROCESS_ANCESTORS_MAX 64

/* Its parent, still there. False: there is none, or one that is younger and took its number. */
bool process_parent_find(struct process_id process, struct process_id *ret);
/* Whether `ancestor` is this process, or one that it descends from. */
bool process_descends_from(struct process_id process, struct process_id ancestor);

/* A descriptor of the mount namespace that a process is in. The namespace lives as long as that is
 * open, so its number is no other's. Returns -EINVAL where this process or the host's first one is
 * in it, too, so it says nothing of the processes in there. Else another -errno. */
int process_mount_namespace(struct process_id process);
