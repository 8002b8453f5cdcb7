/* The records that outlive the daemon: sessions, who keeps ephemeral sessions alive, quotas,
 * settings, learned context costs. SQLite in WAL mode. A write is with the kernel when its function
 * returns, so it survives the death of the daemon at any later moment. It does not survive a power
 * cut, which ends the sessions too. Quotas and settings are on the disk, where it is on one.
 *
 * All functions return 0 or -errno: -EEXIST the ID is taken, -ENOSPC the disk is full, -EROFS it is
 * read-only, -EUCLEAN the database is damaged, -EIO anything else. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backend/context.h"
#include "core/lease.h"
#include "core/place.h"
#include "core/quota.h"
#include "core/tally.h"
#include "daemon/host/groups.h"
#include "daemon/host/peer.h"

struct error;
struct store;

#define STORE_ID_SIZE 16
#define STORE_CGROUP_SIZE 1024
#define STORE_NAME_SIZE 64
/* "NAMESPACE/POD/CONTAINER" of Kubernetes. */
#define STORE_POD_SIZE 384
#define STORE_REASON_SIZE 64
/* Ended sessions that are kept for `list --all`, unless store_keep_history() says otherwise: a
 * month of 30 users with 50 sessions a day. A session takes some 300 bytes, so all take 15 MiB. */
#define STORE_HISTORY_DEFAULT 50000u
/* The most of these that are of one user and ended within a minute. */
#define STORE_HISTORY_PER_MINUTE_DEFAULT 600u

struct store_gpu {
	char uuid_text[48];
	char name[96];
	uint32_t index;
	uint64_t bytes, requested;
	uint64_t peak;     /* set when the session ended; UINT64_MAX: nobody saw it */
	char instance[48]; /* "MIG-...": the slice is this instance of the GPU; "": it is not */
	char profile[32];  /* the instance's, as the driver calls it */
};

/* The cause of a session's end; the numbers are in databases. */
enum store_end {
	STORE_END_UNKNOWN = 0, /* it lives, or a version of carve ended it that did not tell */
	STORE_END_OWNER = 1,   /* its owner, by a release or by the end of its command */
	STORE_END_TIME = 2,    /* its own time was up */
	STORE_END_ADMINISTRATOR = 3,
	STORE_END_POLICY = 4, /* a policy of carved.json */
	STORE_END_SYSTEM = 5, /* its GPU or its instance was lost, or the host restarted */
};

/* A session as it is on disk. Times in nanoseconds of CLOCK_REALTIME, 0: none. */
struct store_session {
	char id[STORE_ID_SIZE];
	/* store_session_add(): an ended session with this ID gets that one; "": none may have it.
	 */
	char former[STORE_ID_SIZE];
	char name[STORE_NAME_SIZE];
	char pod[STORE_POD_SIZE]; /* the pod of Kubernetes that has it; "": none has */
	uid_t uid;
	gid_t gid; /* the owner's primary group when it asked, and the others */
	struct groups groups;
	bool ephemeral, tolerance_applied;
	bool kept; /* ends by its release only, and its user may have any number of these */
	enum place_kind kind;
	uint32_t compute;
	int64_t created, ends_at, ended;
	int64_t asked;       /* when its request came; 0: when it was created */
	uint64_t timeout_ns; /* the time that it was granted for; 0: none, or not known */
	int64_t row;         /* its place in the database, among those that ended in one moment */
	char reason[STORE_REASON_SIZE]; /* why it ended */
	enum store_end ended_by;
	/* The share of its GPUs' time that it had over its whole life, in millionths, set when it
	 * ends; -1: nobody measured. */
	int64_t received;
	uint32_t over_killed; /* processes that the policy ended, as it held more than the slice */
	uint64_t over_killed_bytes; /* by how much on a GPU, at most */
	uint32_t gpu_count;
	/* gpu_count entries, owned by whoever owns the struct. Functions that fill a struct want
	 * room for PLACE_GPUS_MAX here. */
	struct store_gpu *gpu;
};

/* Whether it is its owner's current session, as long as it lives (session_current()). */
static inline bool store_session_is_current(const struct store_session *session)
{
	return !session->ephemeral && !session->kept && !session->name[0];
}

/* Opens or makes the database (mode 0600). `on_disk`: it is to survive a power cut, and so writes
 * wait for the disk now and then. *err says what is wrong with it and what to do. */
int store_open(struct store **ret, const char *path, bool on_disk, struct error *err);
void store_close(struct store *store);
/* The file, for a connection of its own that only reads. Good until store_close(). */
const char *store_path(const struct store *store);
/* The name of a file of it that somebody removed, NULL: none; each second. */
const char *store_missing(const struct store *store);
/* As database_copy(). */
int store_copy(const struct store *store);
/* Whether store_open() would take this database, without touching it. 0, or negative with *err. */
int store_check(const char *path, struct error *err);
/* Why the database cannot be used, by an error of these, and the way out. */
void store_explain(const char *path, int rc, struct error *err);

#define STORE_BOOT_SIZE 40

/* A life of the host, from one start of its kernel to the next. */
struct store_boot {
	char id[STORE_BOOT_SIZE]; /* "": not known */
	int64_t began;            /* CLOCK_REALTIME, ns */
};

/* Says in which life of the host this is, before sessions are read: those that were living in
 * another one ended with it. */
int store_boot(struct store *store, const struct store_boot *boot, unsigned *ret_ended);
/* From now on so many ended sessions are kept; older ones go with the next that end, 64 at a time.
 * If more than `per_minute` of one user's end within a minute, each further one takes the place of
 * that user's oldest. */
void store_keep_history(struct store *store, uint32_t sessions, uint32_t per_minute);

int store_session_add(struct store *store, const struct store_session *session,
		      const struct process_id *owner);
/* compute, tolerance_applied and the sizes on gpu[], after a resize. */
int store_session_resize(struct store *store, const struct store_session *session);
/* It has other instances now: writes all of its GPUs. */
int store_session_move(struct store *store, const struct store_session *session);
int store_session_end(struct store *store, const struct store_session *session);
/* Keeps an end that the database does not take, in a file that needs no more room, so that the next
 * daemon knows it too and store_retry() records it. Negative: it is not kept. */
int store_session_end_later(struct store *store, const struct store_session *session);
/* Whether any such end is still to be recorded. */
bool store_has_unrecorded(const struct store *store);
/* Records what can be of that. Returns how many were; call it each second. */
unsigned store_retry(struct store *store);

/* A place in the list of ended sessions, from the first to end to the last; all 0: before them all.
 */
struct store_place {
	int64_t ended, created, row;
};
typedef int (*store_session_cb)(void *arg, const struct store_session *session);
/* At most `limit` ended sessions behind that place, in that order. 0, -errno, or what the callback
 * returned. */
int store_sessions_page(struct store *store, const struct store_place *after, uint32_t limit,
			store_session_cb cb, void *arg);
/* Calls for every session, oldest first: the living ones, or the `limit` that ended last. A
 * callback's negative result ends the walk and is returned. */
int store_sessions_each(struct store *store, bool ended, uint32_t limit, store_session_cb cb,
			void *arg);
/* -ENOENT: no such session, living or ended. ret->gpu must be set. */
int store_session_find(struct store *store, const char *id, struct store_session *ret);
/* Likewise the one of this user that had this name and ended last. */
int store_session_named(struct store *store, uid_t uid, const char *name,
			struct store_session *ret);
/* Likewise the one that was this user's current session and ended last. */
int store_session_last_current(struct store *store, uid_t uid, struct store_session *ret);
/* A process of a session, and what else there is to it. */
typedef int (*store_process_cb)(void *arg, const struct process_id *process, uint64_t more);
/* Those that keep an ephemeral session alive; `more` is 0. */
int store_holders_each(struct store *store, const char *id, store_process_cb cb, void *arg);
int store_holder_add(struct store *store, const char *id, const struct process_id *process);

/* A command of `carve run`, with the mount namespace that was made for it (0: none). A command that
 * ended meanwhile may still be listed. */
int store_command_put(struct store *store, const char *id, const struct process_id *process,
		      uint64_t mount_namespace);
int store_command_remove(struct store *store, const char *id, const struct process_id *process);
/* With the mount namespace. */
int store_commands_each(struct store *store, const char *id, store_process_cb cb, void *arg);

/* A process that has a session's ledger, for a daemon after this one that may not look into it. A
 * process that ended meanwhile may still be listed. */
int store_attached_put(struct store *store, const char *id, uint32_t slot,
		       const struct process_id *process);
int store_attached_remove(struct store *store, const char *id, uint32_t slot);
/* With the slot. */
int store_attached_each(struct store *store, const char *id, store_process_cb cb, void *arg);

struct store_quota {
	enum quota_kind kind;
	uint32_t id; /* uid or gid; 0 for everyone */
	struct quota quota;
};

int store_quota_put(struct store *store, const struct store_quota *quota);
int store_quota_remove(struct store *store, enum quota_kind kind, uint32_t id);
typedef int (*store_quota_cb)(void *arg, const struct store_quota *quota);
int store_quotas_each(struct store *store, store_quota_cb cb, void *arg);

/* The part of the memory that a living session holds beyond its slice that was others', which it
 * imported (orphans.h); 0: nothing. */
int store_inherited_put(struct store *store, const char *id, uint64_t bytes);
int store_inherited_get(struct store *store, const char *id, uint64_t *ret_bytes);

/* over_killed and over_killed_bytes; store_session_end() puts them too. */
int store_over_put(struct store *store, const struct store_session *session);

/* A session that exported memory, on one of its GPUs; it may have ended. */
struct store_exporter {
	char session[STORE_ID_SIZE];
	char uuid_text[48];
	uint32_t position; /* the GPU's position in the session */
	bool exports;      /* it lives, and has processes that exported something, or had */
	uint64_t slice;    /* bytes; none of the below is more */
	uint64_t remains;  /* given up since there are descriptors of its memory */
	uint64_t kept;     /* by these alone, and so in nobody's figure */
	uint64_t given;    /* given up just now: others' figures may rise by it */
};

int store_exporter_put(struct store *store, const struct store_exporter *exporter);
int store_exporter_remove(struct store *store, const struct store_exporter *exporter);
typedef int (*store_exporter_cb)(void *arg, const struct store_exporter *exporter);
int store_exporters_each(struct store *store, store_exporter_cb cb, void *arg);

/* Learned cost of a context of this GPU model under this driver, and where managed memory shows
 * (MANAGED_UNKNOWN is not kept). -ENOENT: not known. */
int store_context_get(struct store *store, const char *model, const char *driver,
		      uint64_t *ret_bytes, enum managed_shows *ret_managed);
int store_context_put(struct store *store, const char *model, const char *driver, uint64_t bytes,
		      enum managed_shows managed);

/* A GPU of the host, as it was when it last answered: a lost one does not tell its UUID. */
struct store_host_gpu {
	char uuid_text[48];
	uint32_t index; /* NVML's */
	char name[96];
	char pci_bus_id[32];
	uint64_t total, reserved; /* bytes */
	bool mig;                 /* it was in MIG mode */
};

int store_host_gpu_put(struct store *store, const struct store_host_gpu *gpu);
int store_host_gpu_remove(struct store *store, const char *uuid_text);
typedef int (*store_host_gpu_cb)(void *arg, const struct store_host_gpu *gpu);
int store_host_gpus_each(struct store *store, store_host_gpu_cb cb, void *arg);

/* How a GPU's time is sliced, where somebody set it. */
struct store_slicing {
	char uuid_text[48];
	struct lease_setting setting;
};

/* All of them or none. */
int store_slicing_put(struct store *store, const struct store_slicing *slicing, uint32_t count);
typedef int (*store_slicing_cb)(void *arg, const struct store_slicing *slicing);
int store_slicing_each(struct store *store, store_slicing_cb cb, void *arg);

/* Bytes of a drain's reason, its end included. */
#define DRAIN_REASON_SIZE 129

/* A GPU that an administrator drained. */
struct store_drain {
	char uuid_text[48];
	char reason[DRAIN_REASON_SIZE];
	uint32_t uid;  /* the user that drained it */
	int64_t since; /* CLOCK_REALTIME, ns */
};

/* All of them or none. A GPU's row is replaced. */
int store_drains_put(struct store *store, const struct store_drain *drains, uint32_t count);
int store_drains_remove(struct store *store, const char *const *uuids, uint32_t count);
typedef int (*store_drain_cb)(void *arg, const struct store_drain *drain);
int store_drains_each(struct store *store, store_drain_cb cb, void *arg);

/* GPUs whose MIG instances carve makes and removes. */
int store_mig_role(struct store *store, const char *uuid_text, bool has);
typedef int (*store_role_cb)(void *arg, const char *uuid_text);
int store_mig_roles_each(struct store *store, store_role_cb cb, void *arg);

/* An instance that carve made, or is about to make or to remove: what it intends is here before it
 * does so. */
struct store_instance {
	char gpu[48];
	uint32_t profile_id;
	uint8_t start, size;
	uint8_t state;       /* enum mig_state */
	uint64_t generation; /* a number for each instance, as UUIDs come back */
	char instance[48];   /* its UUID; "": not known yet */
	uint64_t bytes;
	char session[STORE_ID_SIZE]; /* that has it; "": none */
	int64_t since;               /* in this state: CLOCK_REALTIME, ns */
};

/* All of them or none. */
int store_instances_put(struct store *store, const struct store_instance *list, uint32_t count);
int store_instance_remove(struct store *store, const struct store_instance *instance);
typedef int (*store_instance_cb)(void *arg, const struct store_instance *instance);
int store_instances_each(struct store *store, store_instance_cb cb, void *arg);

/* A cgroup that has a limit of the driver's for a session, or is about to have it: here before it
 * is set, until the driver has it no more. */
struct store_limit {
	char path[STORE_CGROUP_SIZE];
	char session[STORE_ID_SIZE];
	bool made; /* carve made the cgroup, and removes it */
};

int store_limit_put(struct store *store, const struct store_limit *limit);
int store_limit_remove(struct store *store, const char *path);
typedef int (*store_limit_cb)(void *arg, const struct store_limit *limit);
int store_limits_each(struct store *store, store_limit_cb cb, void *arg);

/* A request that waits for room. Times in nanoseconds. */
struct store_waiting {
	char id[STORE_ID_SIZE];         /* the ID that the session will have */
	uid_t uid;                      /* the user that asked */
	uint64_t since_ns, deadline_ns; /* CLOCK_MONOTONIC, of this life of the host */
	int64_t created;                /* CLOCK_REALTIME */
	unsigned passed;                /* by later requests, as far as it is kept */
	const char *body; /* the request as it came, JSON; the caller's, and of a callback's time */
	size_t body_size; /* bytes */
};

int store_waiting_put(struct store *store, const struct store_waiting *waiting);
int store_waiting_passed(struct store *store, const char *id, unsigned passed);
int store_waiting_remove(struct store *store, const char *id);
typedef int (*store_waiting_cb)(void *arg, const struct store_waiting *waiting);
/* In the order in which they came. The callback must not change the store. */
int store_waiting_each(struct store *store, store_waiting_cb cb, void *arg);

/* ---- tallies (core/tally.h) ---- */

/* One user has rows of so many primary groups a day, for each GPU, and of so many names. Figures of
 * further groups and names are added to the rows of STORE_OTHER_GROUP and STORE_OTHER_NAME. */
#define STORE_TALLY_GROUPS 4
#define STORE_TALLY_NAMES 32
#define STORE_OTHER_GROUP UINT32_MAX
#define STORE_OTHER_NAME "\x1f"

/* A user's tally of a GPU, or of the sessions and jobs that had a name. */
struct store_tally {
	int64_t day;
	uint32_t uid;
	bool named;                 /* the row is that of `name`; else of `gid` and `gpu` */
	uint32_t gid;               /* the primary group when it was asked for */
	char gpu[48];               /* its UUID; "": no GPU was granted */
	char name[STORE_NAME_SIZE]; /* "": the sessions had no name */
	struct tally tally;
};

/* How far the counting is. */
struct store_tally_state {
	uint64_t until;         /* CLOCK_MONOTONIC of this life of the host; 0: not known */
	int64_t until_realtime; /* CLOCK_REALTIME at that moment */
	int64_t began;          /* the first day of which all is there */
};

/* -ENOENT: nothing was counted yet. */
int store_tally_state(struct store *store, struct store_tally_state *ret);
/* Adds all of these to what is there, and sets the state: all or nothing. */
int store_tally_put(struct store *store, const struct store_tally *rows, uint32_t count,
		    const struct store_tally_state *state);
/* The GPU-hours (tally.gpu_ns) of each user and group from that day on; the rest is 0. */
typedef int (*store_tally_cb)(void *arg, const struct store_tally *sum);
int store_tally_sums(struct store *store, int64_t day, store_tally_cb cb, void *arg);
/* Forgets at most `limit` rows of each kind of the days before `day`, the oldest first. Forgets
 * none where there are no rows of the last days before `today`: the clock may be set far ahead.
 * Returns how many rows were forgotten, or -errno. */
int store_tally_trim(struct store *store, int64_t day, int64_t today, uint32_t limit);

/* An event of the log (daemon/events/events.h). User IDs and the PID: -1 is none. */
struct store_event {
	uint64_t number;
	int64_t at; /* CLOCK_REALTIME, ns */
	char kind[32];
	int64_t uid, login, pid; /* the client's user, the user who logged in, and its process */
	char process[64];        /* the program's name */
	char parents[128];       /* "bash 4711, sshd 4700": the processes above it */
	int64_t owner;           /* the user whom it concerns */
	int64_t charged;         /* the user against whose events it counts */
	char subject[160], before[256], after[256], text[512];
};

/* The numbers of events. */
struct store_event_log {
	char id[24]; /* the database's random name */
	char boot[STORE_BOOT_SIZE];
	int64_t last; /* that was given to an event; 0: none was */
};

int store_event_log(struct store *store, struct store_event_log *ret);
/* The life of the host in which the last event was written. */
int store_event_boot(struct store *store, const char *boot);
/* `synced`: on the disk itself when it returns. */
int store_event_add(struct store *store, const struct store_event *event, bool synced);
typedef int (*store_event_cb)(void *arg, const struct store_event *event);
/* At most `limit` events from that number on. 0, -errno, or what the callback returned. */
int store_events_each(struct store *store, uint64_t from, uint32_t limit, store_event_cb cb,
		      void *arg);
/* The number of the first event from that moment on. -ENOENT: there is none. */
int store_event_since(struct store *store, int64_t at, uint64_t *ret);
/* How many there are that count against users, and that do not. */
int store_events_count(struct store *store, int64_t *ret_users, int64_t *ret_node);
/* Leaves the last `keep` events of one user. */
int store_events_trim_user(struct store *store, int64_t charged, uint32_t keep,
			   unsigned *ret_removed);
/* Removes the oldest event of all users, or of those that count against nobody. */
int store_event_trim(struct store *store, bool of_users);
/* Removes some events from before that moment. */
int store_events_expire(struct store *store, int64_t before, unsigned *ret_removed);
/* The notice that users are shown (daemon/events/notice.h). */
#define STORE_NOTICE_SIZE 1024
struct store_notice {
	int64_t number;               /* ascending; 0: none was set yet */
	int64_t at;                   /* CLOCK_REALTIME, ns */
	uint32_t uid;                 /* the administrator who set it */
	char text[STORE_NOTICE_SIZE]; /* "": there is none now */
};

int store_notice_get(struct store *store, struct store_notice *ret);
/* On the disk itself when it returns; nobody has seen it then. */
int store_notice_put(struct store *store, const struct store_notice *notice);
/* Whether this user has seen the notice; and that the user has. */
int store_notice_is_seen(struct store *store, uid_t uid, bool *ret);
int store_notice_see(struct store *store, uid_t uid);
const char *store_boot_id(const struct store *store);

/* ---- recorded commands ---- */

/* A session keeps the newest of them. */
#define STORE_RECORDED_MOST 8
#define STORE_RECORDED_SIZE 256

/* A command that its user had recorded. Times in ns since 1970. */
struct store_recorded {
	int64_t number;
	char session[STORE_ID_SIZE];
	uid_t uid;
	int64_t began, ended; /* ended is 0 while it goes on, or if nobody told of its end */
	int32_t exit_code;    /* 128 + n where signal n ended it */
	char text[STORE_RECORDED_SIZE];
};

/* Sets the number. */
int store_recorded_add(struct store *store, struct store_recorded *recorded);
/* Sets ended and exit_code. */
int store_recorded_end(struct store *store, const struct store_recorded *recorded);
/* -ENOENT: there is none of that number, or no longer. */
int store_recorded_find(struct store *store, int64_t number, struct store_recorded *ret);
/* Those of a session, oldest first. */
typedef int (*store_recorded_cb)(void *arg, const struct store_recorded *recorded);
int store_recorded_each(struct store *store, const char *session, store_recorded_cb cb, void *arg);
