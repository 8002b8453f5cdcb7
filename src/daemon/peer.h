/* Who is at the other end of a Unix socket, and the end of processes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

/* A process, named for ever: PIDs come back. `birth` is when it started (clock ticks since boot, in
 * the low 40 bits), and above that 24 bits of the kernel's own number for the process, which it
 * gives to no other; 0 where the kernel (before 6.9) shows none. */
struct process_id {
	pid_t pid;
	uint64_t birth;
};

/* Whether both name one process. Where one of them has no number of the kernel's, the times decide.
 */
bool process_same(struct process_id a, struct process_id b);
/* Whether `a` started before `b`, or in the same tick. */
bool process_not_younger(struct process_id a, struct process_id b);
/* Who has this PID now. 0 or -errno; -ESRCH: nobody. */
int process_identify(pid_t pid, struct process_id *ret);

struct peer {
	struct process_id process;
	uid_t uid;
	gid_t gid;
	bool admin; /* root, or a member of group `carve` */
};

/* Reads the peer's credentials, as the kernel noted them when it connected. 0 or -errno; -ESRCH
 * where the process has ended since, or is in a PID namespace that this one does not see. Somebody
 * else who has its PID by now is not taken for it (by kernels from 6.5 on; before, a PID that came
 * back between the connecting and this call is not noticed). */
int peer_identify(int fd, struct peer *ret);

/* Further up nobody looks for whom a process belongs to. */
#define PROCESS_ANCESTORS_MAX 64

/* Its parent, still there. False: there is none, or one that is younger and took its number. */
bool process_parent_find(struct process_id process, struct process_id *ret);
/* Whether `ancestor` is this process, or one that it descends from. */
bool process_descends_from(struct process_id process, struct process_id ancestor);

/* Calls once, on the loop, when a process has ended. */
struct process_watch;
typedef void (*process_watch_cb)(void *arg);
/* -ESRCH where that process (this PID with this birth) is gone already; else 0 or -errno. */
int process_watch_start(uv_loop_t *loop, struct process_id process, process_watch_cb cb, void *arg,
			struct process_watch **ret);
/* Takes NULL. The callback is not called any more. */
void process_watch_stop(struct process_watch *watch);
/* Its pidfd, which can be read when the process has ended; -1 of NULL. */
int process_watch_descriptor(const struct process_watch *watch);
/* Sends a signal to just that process. 0 or -errno. */
int process_watch_signal(const struct process_watch *watch, int signal);

bool process_alive(struct process_id process);

/* A number for the mount namespace of a process, for as long as that lives. 0: it is this daemon's
 * own, or not to be told. */
uint64_t process_mount_namespace(struct process_id process);
