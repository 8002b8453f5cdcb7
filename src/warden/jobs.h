/* Jobs: the warden starts their shims as the users who enqueued them (proto/warden_jobs.h), and
 * ends what they leave. It parses no text, and looks no user up. Each operation takes about a
 * millisecond at most; cgroups that jobs leave are removed in steps (job_left.c).
 *
 * A worker that was broken into can have commands of its own choice started as users who are
 * connected to it at that time. It can do so as no other user: warrants are made of what the kernel
 * says of a client's socket. It cannot change what was enqueued before. */
#pragma once

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "proto/warden_jobs.h"
#include "warden/permits.h"
#include "warden/rights.h"
#include "warden/warrant.h"

/* Users pass through cgroups of shims to their own. */
#define JOBS_CGROUP_MODE 0711
/* With its end, the name of the cgroup of all shims. */
#define JOBS_CGROUP_NAME_SIZE 64

struct process_id;
struct shim_head;

struct leftover;
struct left_owner;

struct leftovers {
	struct leftover *first, *last;
};

/* The cgroups of jobs that are over, and the directories in which more are looked for; zero: there
 * are none. */
struct jobs_left {
	struct left_owner *owners; /* the owner whose turn it is comes first */
	struct leftovers busy;     /* with processes in them, the longest ago tried first */
	DIR *looks[2];
};

struct jobs_place {
	int jobs_fd;            /* the directory of jobs' files, root's; one in it a user */
	const char *jobs_path;  /* the same by its name */
	const char *shim;       /* the program's path */
	const char *attach;     /* the path of the daemon's attach socket */
	gid_t worker_gid;       /* the group that may read and remove what shims record */
	struct warrant_key key; /* the key of warrants */
	struct rights rights;   /* the register of what was let run */
	struct permits permits; /* shims that have not asked yet */
	uint64_t synced_ns;     /* when its last sync began; CLOCK_MONOTONIC */
	bool syncs;             /* one goes on */
	/* The cgroup in which each shim gets one, called as its files are; "": they get none. Set
	 * by jobs_shims_begin(). */
	char cgroup[PATH_MAX];
	/* Likewise in version 1, for the limit of tasks alone; "": there is none, or version 2 has
	 * the limit. */
	char tasks_cgroup[PATH_MAX];
	uint64_t
		tasks_wanted; /* tasks, which are processes and threads, of a job; 0: the default */
	uint64_t tasks_max;   /* the limit, set by jobs_shims_begin() */
	enum warden_tasks tasks; /* how it holds; likewise */
	struct jobs_left left;   /* jobs' cgroups that are to be removed */
};

/* Whether this process has the rights that starting jobs needs. */
bool jobs_may(void);

/* Opens the key and the register in the directory of jobs' files, and makes them where they are
 * not. Without the register nobody knows what is spent: then the key is made anew, too. 0 or
 * -errno. */
int jobs_secrets_open(struct jobs_place *place);
/* Closes and forgets what jobs_open(), jobs_secrets_open() and the warden opened. Shims that wait
 * for the warden's word get none. Takes a place of which nothing is open. */
void jobs_close(struct jobs_place *place);
/* Opens the directory of jobs' files, and makes it where there is none. It is root's, and so are
 * all directories above it: nobody else can put another in its place. The group `gid`, the
 * worker's, may look what is there, and users may pass through to their own. `old` is where the
 * directory was before; it is moved from there. NULL: nowhere. The descriptor, or -errno; -EPERM:
 * it, or a directory above it, is another's to change. */
int jobs_open(const char *path, const char *old, gid_t gid);
/* Makes anew what was removed: that directory, the key in it, and user `uid`'s directory there
 * (WARDEN_NOBODY: nobody's). 0 or -errno. */
int jobs_files_make(struct jobs_place *place, uid_t uid);
/* The user's directory for logs and records, made if need be: the user's, and the worker's group
 * may read there. Nobody but root can put another in its place. Its path is in `path`. The
 * descriptor, or -errno. */
int jobs_user_directory(const struct jobs_place *place, uid_t uid, char *path, size_t size);

/* Removes files (enum shim_file) of attempt `name` of that user. 0 or -errno. */
int jobs_files_remove(const struct jobs_place *place, uid_t uid, const char *name, uint32_t files);

/* Starts a shim as the warrant says, for `name` (JOB.ATTEMPT) in the user's directory, which is
 * made if need be. The shim reads `spec_fd`, and asks at `permit_fd` (-1: it need not ask). *ret_go
 * is the end of the pipe on which it is told to go. 0 or -errno: nothing runs. */
int jobs_shim_start(const struct jobs_place *place, const struct warrant *warrant, const char *name,
		    int spec_fd, int permit_fd, int *ret_go, struct process_id *ret);

/* One cgroup for all shims of this daemon, in the warden's own, or beside it where the service
 * manager made that for the launcher alone. The next warden of the same directory finds it by its
 * name. */
void jobs_shims_begin(struct jobs_place *place);
/* Makes that of shim `name`, which is root's still. "": it gets none. */
void jobs_cgroup_make(const struct jobs_place *place, const char *name, char ret[static PATH_MAX]);
/* From now on its user may make a few others in it, and move own processes there. Nobody may take
 * them out of it. */
void jobs_cgroup_give(const char *path, const struct warrant *warrant);
/* Where shims' cgroups are to be, and what they are called there. 0 or -errno. */
int jobs_cgroup_place(const struct jobs_place *place, char parent[static PATH_MAX],
		      char name[static JOBS_CGROUP_NAME_SIZE]);
/* Chooses the limit of tasks, and how jobs can have it: from now on each gets it. */
void jobs_tasks_begin(struct jobs_place *place);
/* RLIMIT_NPROC of a job's process, which the kernel counts by user. */
rlim_t jobs_tasks_of_user(const struct jobs_place *place);
/* Gives shim `name`, whose cgroup is `cgroup`, that limit. `ret`: the cgroup of version 1 that its
 * process is to enter before it is its user's; "": none. */
void jobs_tasks_limit(const struct jobs_place *place, const char *name, const char *cgroup,
		      char ret[static PATH_MAX]);
/* Kills what is in the cgroups below that of `name`, as its command is. */
void jobs_command_kill(const struct jobs_place *place, const char *name);
/* Kills what is left of `name`, and removes its cgroups as jobs_left_note() does. */
void jobs_shim_end(struct jobs_place *place, const char *name);

/* The time for a step of the removal: a request waits for one step at most. */
#define JOBS_STEP_NS 1000000ull
/* Looks anew for cgroups that a warden before this one left. */
void jobs_left_begin(struct jobs_place *place);
/* Forgets which cgroups there are to remove. */
void jobs_left_end(struct jobs_place *place);
/* Removes the cgroups of `name`, at once where they are empty, else in steps. */
void jobs_left_note(struct jobs_place *place, const char *name);
/* Removes some cgroups of jobs that are over, in turns by owner. */
void jobs_left_step(struct jobs_place *place);
/* How long there is nothing to remove, in ms; 0: there is something; -1: nothing is left. */
int jobs_left_wait_ms(const struct jobs_place *place);

struct pollfd;
/* Does the work between requests, in bounded steps: notes what shims ask for, and removes cgroups.
 * `fds`: as permits_poll() set them, after poll(). */
void jobs_step(struct jobs_place *place, const struct pollfd *fds, unsigned count);
/* When that, or a sync of the register, is due, in ms; -1: not before a shim asks. */
int jobs_wait_ms(const struct jobs_place *place);
/* Whether the register is to be synced now, and no sync goes on. */
bool jobs_sync_is_due(const struct jobs_place *place);
/* Begins a sync that is due. A descriptor of the register, which is to be synced (fdatasync) in
 * another process; the caller's. Else -errno. */
int jobs_sync_begin(struct jobs_place *place);
/* The sync has ended with this result, 0 or -errno: answers shims. -EAGAIN: it did not begin. */
void jobs_synced(struct jobs_place *place, int rc);
