/* Actions that need rights that the daemon may not have: signals to processes of sessions, and
 * mount namespaces of root's commands. A system daemon asks its
 * warden (proto/warden.h); any other does it itself, as the kernel lets its user. Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/process.h"
#include "daemon/host/warden_link.h"
#include "proto/warden.h"

struct privileges {
	struct warden_link warden;
};

/* With the other end of the link (-1: none), which becomes the privileges'. */
void privileges_init(struct privileges *privileges, int link_fd);
/* Begins to listen to the warden, once there is a loop. Calls on_ended(context) when the warden has
 * ended. 0 or -errno. */
int privileges_start(struct privileges *privileges, uv_loop_t *loop,
		     void (*on_ended)(void *context), void *context);
/* The loop ends: no more answers. */
void privileges_stop(struct privileges *privileges);
/* The daemon ends, and its warden with it. */
void privileges_leave(struct privileges *privileges);
/* Whether there is a warden. */
bool privileges_guarded(const struct privileges *privileges);
/* Has the warden do something in nobody's turn, and waits for its answer; by a thread of the pool.
 * `context`: the privileges. 0 or -errno. */
int privileges_call(void *context, uint16_t operation, const void *request, size_t size,
		    void *answer, size_t answer_size);

/* Told what became of a signal: 0, or -errno. -ESRCH: that process is gone. -EPERM: the session's
 * user may not signal it. -EACCES: it is in no slice and on no GPU, as far as the warden can see.
 */
typedef void (*signal_cb)(void *context, const char *session, struct process_id process, int rc);
/* Sends SIGTERM or SIGKILL to a process of a session if `uid`, the session's user, may do so by the
 * kernel's rule. `session` (shorter than PRIVILEGES_SESSION_SIZE) is handed to `cb`, which may be
 * NULL. `cb` is called once, maybe before this returns, but not after privileges_stop(). */
#define PRIVILEGES_SESSION_SIZE 16
void privileges_signal(struct privileges *privileges, uid_t uid, const char *session,
		       struct process_id process, int signal, signal_cb cb, void *context);

/* The signal of privileges_signal(), with the daemon's end of the connection by which the process
 * attached; it stays the caller's. -1: that is not there. */
void privileges_signal_peer(struct privileges *privileges, uid_t uid, const char *session,
			    struct process_id process, int connection, int signal, signal_cb cb,
			    void *context);

/* The mount namespace of a process, as process_mount_namespace() has it. */
struct namespace_seen {
	int rc; /* 0 or -errno; -EINVAL: the host's, or the daemon's own */
	struct warden_namespace id;
	int fd; /* -1: only its number was asked for */
};
/* Looks by itself, where there is no warden. The descriptor is the caller's. */
struct namespace_seen privileges_namespace_look(struct process_id process);
/* Has the warden look, in the owner's turn; `hold`: with a descriptor. The callback may take that
 * (steal_fd()); else it is closed afterwards. The request's number for privileges_forget(), or 0:
 * no memory, and no callback. */
typedef void (*namespace_cb)(void *context, struct namespace_seen *seen);
uint64_t privileges_namespace_ask(struct privileges *privileges, uid_t owner,
				  struct process_id process, bool hold, namespace_cb cb,
				  void *context);
void privileges_forget(struct privileges *privileges, uint64_t number);
/* Has the warden look whether a process of user ID 0 is root of the host: calls cb(context, 0), or
 * -errno; -EPERM: it is not. The request's number for privileges_forget(), or 0: no memory, and no
 * callback. */
typedef void (*root_cb)(void *context, int rc);
uint64_t privileges_root_ask(struct privileges *privileges, struct process_id process, root_cb cb,
			     void *context);
/* Whether an error of these says nothing of the process: the machine is short of memory or
 * descriptors. The client may ask again. */
bool privileges_try_again(int error);
