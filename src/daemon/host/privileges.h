/* Actions that need rights that the daemon may not have: signals to processes of sessions, and
 * mount namespaces of root's commands. A system daemon asks its guard (proto/guard.h); any other
 * does it itself, as the kernel lets its user. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/process.h"
#include "proto/guard.h"

struct handover;
struct privileges_asked;

struct privileges {
	int link_fd; /* to the guard; -1: there is none */
	int mig_fd;  /* to the part that makes MIG instances (proto/instances.h); -1: there is none
		      */
	int limits_fd; /* to the part that sets limits of cgroups (proto/cgroup_limits.h); -1:
			  likewise */
	uv_poll_t *poll, *limits_poll;
	void (*on_ended)(void *context);
	void *context;
	uint64_t number;
	/* Signals whose answer is due, oldest first; those from `unsent` on are to be sent. */
	struct privileges_asked *first, *unsent;
	/* The file that privileges_file_ask() asked for; number 0: none. */
	uint64_t file_number;
	void (*file_cb)(void *context, int fd);
	void *file_context;
};

/* With the other ends of the links (-1: none), which become the privileges'. */
void privileges_init(struct privileges *privileges, int link_fd, int mig_fd);
/* Begins to listen to the guard, once there is a loop. Calls on_ended(context) when the guard, or
 * the part that sets limits, has ended. 0 or -errno. */
int privileges_start(struct privileges *privileges, uv_loop_t *loop,
		     void (*on_ended)(void *context), void *context);
/* Somebody has noticed that a part has ended: calls on_ended(context). */
void privileges_part_ended(struct privileges *privileges);
/* The loop ends: no more answers. */
void privileges_stop(struct privileges *privileges);
/* The daemon ends, and its guard with it; `sockets`: which removes those of the runtime directory.
 */
void privileges_leave(struct privileges *privileges, bool sockets);
/* Leaves the link to the next program; and takes it up, and has the guard become that program too.
 */
void privileges_hand_over(const struct privileges *privileges, struct handover *handover);
void privileges_take_over(struct privileges *privileges, struct handover *handover);
void privileges_renew(struct privileges *privileges);

/* Told what became of a signal: 0, or -errno; -ESRCH: that process is gone, -EPERM: the session's
 * user may not signal it. */
typedef void (*signal_cb)(void *context, const char *session, struct process_id process, int rc);
/* Sends SIGTERM or SIGKILL to a process of a session if `uid`, the session's user, may do so by the
 * kernel's rule. `session` (shorter than PRIVILEGES_SESSION_SIZE) is handed to `cb`, which may be
 * NULL. `cb` is called once, maybe before this returns, but not after privileges_stop(). */
#define PRIVILEGES_SESSION_SIZE 16
void privileges_signal(struct privileges *privileges, uid_t uid, const char *session,
		       struct process_id process, int signal, signal_cb cb, void *context);
/* A descriptor of the mount namespace that a process is in: process_mount_namespace(). Waits for
 * the guard, whose work for it is some 50 us; -ETIMEDOUT after 0.1 s. */
int privileges_namespace(struct privileges *privileges, struct process_id process);
/* Whether an error of these says nothing of the process: the guard was too slow, or the machine is
 * short of memory or descriptors. The client may ask again. */
bool privileges_try_again(int error);
/* Whether there is a guard. */
bool privileges_guarded(const struct privileges *privileges);
/* A file of the runtime directory made anew by the guard, which there is. Its descriptor or -errno;
 * waits as privileges_namespace() does. */
int privileges_file(struct privileges *privileges, enum guard_file file);
/* As privileges_file(), without waiting: `cb` is called once with the descriptor, which is its own
 * from then on, or with -errno; maybe before this returns, but not after privileges_stop(). One
 * file at a time. */
void privileges_file_ask(struct privileges *privileges, enum guard_file file,
			 void (*cb)(void *context, int fd), void *context);
