/* Sessions: granted slices, from the grant to the end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/idle.h"
#include "core/session_state.h"
#include "core/settle.h"
#include "daemon/host/peer.h"
#include "daemon/session/books.h"
#include "daemon/store/store.h"
#include "proto/attach.h"

struct lease_member;
struct namespace_seen;
struct report_mark;
struct sessions;
struct process;
struct session;

/* Processes that are watched, all sessions' together, and what each holds open: its pidfd and a
 * namespace. */
#define WATCHED_MAX 65536u
#define HOLDER_DESCRIPTORS 2u

/* A process that keeps an ephemeral session alive: who asked for it, or its command; and the
 * commands that `carve run` started in any other. */
struct holder {
	struct holder *next;
	struct session *session;
	struct process_id process;
	struct process_watch *watch;
	uid_t owner;  /* to whom its descriptors count (budget.h) */
	bool command; /* a command of `carve run`: its descendants belong to the slice */
	bool unread;  /* it has the session's ledger, which was kept nowhere else */
	/* Its mount namespace, when it said that this was made for the slice; -1: it did not. Held
	 * open, so that no other namespace gets its number. */
	int mount_fd;
};

/* NONE -> OPEN when its first process attaches. OPEN -> LOST where a daemon starts that was kept no
 * ledger for, though processes have it. LOST -> NONE when the last of these has ended. */
enum session_ledger {
	SESSION_LEDGER_NONE, /* nobody has attached */
	SESSION_LEDGER_OPEN,
	SESSION_LEDGER_LOST, /* processes go on with it, out of the daemon's reach: nobody else
				attaches, as a new one would be a second slice */
};

/* Memory beyond the slice. UNREPORTED -> REPORTED or EXCUSED when it has lasted for `over_seconds`;
 * EXCUSED -> UNREPORTED when imported memory does not explain it any more; all -> UNREPORTED when
 * there is none. */
enum session_over {
	SESSION_OVER_UNREPORTED,
	SESSION_OVER_REPORTED, /* logged; the policy may end processes */
	SESSION_OVER_EXCUSED,  /* logged; imported memory explains it, and nobody is ended */
};

/* Its use of GPU time (daemon/idle/). */
struct session_idle {
	struct idle_clock clock;
	uint64_t held_ns;   /* the turns that it had had at the last look */
	uint64_t looked_ns; /* CLOCK_MONOTONIC of the last look */
	/* The time between looks that could tell whether it worked, and the part in which it did.
	 */
	uint64_t watched_ns, worked_ns;
	const char *unknown_why; /* why nobody can tell; NULL: it is known. Static */
	bool released;           /* the policy ended it */
};

typedef void (*session_end_cb)(void *arg, const char *id);

/* A listener for the end of a session that is ending. It also hears, once, that a process of it
 * cannot be ended (refused_pid). In that case the session is still there when `cb` is called. */
struct session_listener {
	struct session_listener *next;
	session_end_cb cb;
	void *arg;
};

struct session {
	struct session *next, *previous; /* sessions->first */
	struct session *next_id, *next_current, *next_attached;
	struct sessions *sessions;
	uid_t owner; /* to whom it counts (budget.h) */
	struct store_session record;
	int *pool_gpu; /* record.gpu_count positions in the pool; -1: that GPU is gone */
	/* Likewise the GPU time that its processes used while that was not sliced, as far as it was
	 * measured (metrics/gpu_time.h). */
	uint64_t *used_ns;
	enum session_state state;
	struct session_idle idle;
	bool timed;                  /* something becomes of it by the clock */
	struct books books;          /* made when the first process attaches */
	struct lease_member *lease;  /* its turns on the GPUs; NULL: it has no books yet */
	struct report_mark *counted; /* the room `report` has its time up to there; or NULL */
	int wake_fd; /* its processes' wake descriptor, kept over an upgrade, until it is leased */
	bool wake_kept; /* there was one */
	/* Since when its GPU time is counted (ns since 1970): its beginning, but where a daemon
	 * died meanwhile the next one's. Accounts of leases that were kept have their own. */
	int64_t counted_from;
	struct process *processes; /* slots in use */
	struct holder *holders;
	struct process_id command_left; /* a command that ended, and is in the store; pid 0: none */
	uint64_t record_at_ns; /* SESSION_RECORDING: CLOCK_MONOTONIC of the next attempt; 0: there
				* was none yet */
	uint64_t kill_at_ns;   /* SESSION_TERMINATING: CLOCK_MONOTONIC when SIGKILL follows */
	pid_t refused_pid;     /* a process that carve may not end; 0: none was found */
	struct session_listener *listeners;
	/* By how much its processes hold more than the slice on any GPU, by the driver's figures,
	 * and since when (CLOCK_MONOTONIC; 0: they don't). Memory that bypasses the front shows
	 * here.
	 */
	uint64_t over_bytes, over_since_ns;
	/* The part of that which may have been others' that it imported; and what the database has
	 * of it. */
	uint64_t over_inherited_bytes, over_inherited_stored;
	/* Processes of it have imported memory; what others had less of since, for a few seconds;
	 * what it had more of just then; and what it held in all (over.c). */
	bool imported;
	uint64_t fell_bytes, fell_ns, moved_bytes, held_before;
	enum session_over over;
	uint32_t over_killed_stored; /* the value of record.over_killed in the database */
	bool over_ended;             /* the policy ended the last ones that used the GPU */
	uint32_t slicing_killed;     /* processes ended as they took time beyond its turns */
	/* Processes of it may have each other's memory: what one gives back may be in another's
	 * figure. So nobody's charge is lowered but by a sample over which all were quiescent. */
	bool exported;
	bool quiescent;          /* all were over the newest sample, on all of its GPUs */
	bool lowering_deferred;  /* some process may have less than is posted for it */
	bool may_have_less;      /* a process that was not quiescent seems to have less */
	bool fd_bytes_kept;      /* slot 0 is charged with what only open descriptors keep */
	uint64_t kept_sample;    /* first one that shows who has what slot 0 is charged with */
	const char *unbound_why; /* a process of it is bound by the front alone; NULL: none is */
	struct settle_quiesce quiesce; /* they are made to, for another look (CLOCK_MONOTONIC) */
	bool room_looks;               /* the next look is somebody's who waits for room */
	uint64_t room_until_ns; /* until then somebody without room waits for what is posted */
};

/* A process that does not end by SIGTERM within this time is killed (session timeout, forced
 * release). */
#define SESSION_KILL_AFTER_NS 3000000000ull
/* An end that could not be written to disk is tried again this often. */
#define SESSION_RECORD_EVERY_NS 1000000000ull

/* Makes a session from `record` (whose gpu[] is copied): on disk first, then promised. `owner` is
 * the process that keeps an ephemeral session alive; NULL for others. 0 or -errno of the store;
 * -ESRCH: the owner is gone. */
int session_create(struct sessions *sessions, const struct store_session *record,
		   const struct process_id *owner, struct session **ret);
/* Takes up a session found in the store, without holders. */
int session_restore(struct sessions *sessions, const struct store_session *record,
		    struct session **ret);

/* Another holder. 0 or -errno. */
int session_holder_add(struct session *session, const struct process_id *process);
/* The process that is to keep an ephemeral session alive that was made without an owner: on disk,
 * too. 0 or -errno; -ESRCH: it is gone. */
int session_owner_set(struct session *session, const struct process_id *process);
/* It holds the session no more, unless that has it for another reason than that it asked. */
void session_holder_leave(struct session *session, const struct process_id *process);
/* A process whose slot nobody can read has nothing of the session any more. The session may be gone
 * when this returns. */
void session_unread_let_go(struct session *session, const struct process_id *process);
/* All of them, with what they took of their user's budget. */
void session_holders_free(struct session *session);
/* Likewise one that is a command, which goes to disk, too. The mount namespace that was made for
 * the slice is `mount_fd` (-1: none was); it becomes the session's, whatever is returned. And one
 * that a daemon before this one put there. */
int session_command_add(struct session *session, const struct process_id *process, int mount_fd);
/* It lives, and is none of the commands any more. An ephemeral session keeps it. */
void session_command_remove(struct session *session, const struct process_id *process);
int session_command_restore(struct session *session, const struct process_id *process,
			    int mount_fd);
/* Has the commands of `carve run` in it ended (SIGTERM, which these pass on), whether they use the
 * GPU or not; but for those that `but` is of (NULL: all). */
void session_commands_end(const struct session *session, const struct process_id *but);
/* Whether a living process has a slot. */
bool session_has_attached(const struct session *session, pid_t pid);
/* Whether the mount namespace of a process decides about its entry: for the two functions below,
 * which otherwise need not know it. `root`: the process is root's. */
bool session_asks_namespace(const struct session *session, bool root);
/* Returns 0 where a process of another user is in the slice: root's command has a mount namespace
 * of its own, and root put the processes there. Returns -EPERM where it is not; -EAGAIN: it could
 * not be seen. `seen`: the process's mount namespace. */
int session_admits(const struct session *session, const struct namespace_seen *seen);
/* Returns -EPERM where a process of root is in the mount namespace of another session's slice, such
 * as a container, and in none of this one's. So it stays in that one. Returns 0 where it is not;
 * -EAGAIN: it could not be seen. */
int session_shut_in(const struct session *session, const struct namespace_seen *seen);
/* A process was ended for what the session holds beyond its slice: logged, and counted. */
void session_over_killed(struct session *session, pid_t pid);
/* Likewise, for the time that it took beyond its turns. */
void session_slicing_killed(struct session *session, pid_t pid);
/* This process has the session's ledger, and the daemon has not. */
void session_holder_unread(struct session *session, const struct process_id *process);
/* Holders of that kind. */
uint32_t session_holders_unread(const struct session *session);
enum session_ledger session_ledger(const struct session *session);
/* Ends an ephemeral session that nothing keeps alive any more. The session may be gone afterwards.
 */
void session_check_held(struct session *session);

struct session *session_find(const struct sessions *sessions, const char *id);
/* The user's session of this name, if it has not ended. */
struct session *session_named(const struct sessions *sessions, uid_t uid, const char *name);
/* The user's current session, which `carve run` joins: of those that live until they are released,
 * the one without a name. A user has one at most. NULL: none. */
struct session *session_current(const struct sessions *sessions, uid_t uid);
/* A fresh ID. */
void session_make_id(const struct sessions *sessions, char ret[static STORE_ID_SIZE]);

/* The session's ledger, made if need be. 0 or -errno; -EBUSY: it is lost. */
int session_books(struct session *session);
/* Puts the session into the list of those with books. */
void session_set_attached(struct session *session);
/* Sets new sizes and share of time, already checked for room: on disk, promised and in the ledger.
 * Returns 0 or -errno; -EBUSY: more than the new size is in use, by now. */
int session_resize(struct session *session, const uint64_t *bytes, uint32_t compute);
/* Gives a session that nobody is in other instances, as many as it has. 0 or -errno; then nothing
 * changed. */
int session_move(struct session *session, const struct store_gpu *gpus);
/* The driver's figures are a GPU's, and this is one of several instances there. */
bool session_is_one_of_several(const struct session *session, uint32_t position);
/* Bytes that its processes hold on GPU `position` of it. */
uint64_t session_used(const struct session *session, uint32_t position);
uint64_t session_peak(const struct session *session, uint32_t position);
/* Somebody is in it, or a command was started that may come. */
bool session_is_used(const struct session *session);
/* Writes the stamp of a session (ATTACH_ENV_STAMP) that lives or has ended. Returns `buf`. Pure. */
const char *session_stamp(const struct store_session *record, char buf[static ATTACH_STAMP_SIZE]);
/* Processes that live, those that could not be looked into among them. */
uint32_t session_live(const struct session *session);

/* Ends the session; its living processes get SIGTERM, later SIGKILL, and it ends when they are
 * gone. `reason` is copied. The session may be gone afterwards. */
void session_end(struct session *session, enum store_end by, const char *reason);
/* Likewise a session without processes. If it is ephemeral and a policy ended the last processes
 * that used the GPU, the policy and its reason take the place of `by` and `reason`. */
void session_end_unused(struct session *session, enum store_end by, const char *reason);
/* Goes on with an ending session: called when a process ended and on each tick. */
void session_continue_end(struct session *session);
/* Calls cb when the session has ended; the session must be ending. 0 or -ENOMEM. */
int session_listen(struct session *session, session_end_cb cb, void *arg);
void session_unlisten(struct sessions *sessions, void *arg);

/* Gives promises of ended sessions back that a new sample covers. True where any was. */
bool session_drain(struct sessions *sessions);
/* Forgets all without ending them: the daemon stops. */
void sessions_free(struct sessions *sessions);
