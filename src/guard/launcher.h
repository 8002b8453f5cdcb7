/* The launcher: a process of a system daemon that keeps root's rights, to start the shims of jobs
 * as the users who enqueued them (proto/launcher.h). It answers its worker, one request at a time,
 * in about a millisecond at most, parses no text, and looks no user up.
 *
 * A worker that was broken into can have it start commands of its own choice as users who are
 * connected to it at that time. It can do so as no other user: warrants are made of what the kernel
 * says of a client's socket. It cannot change what was enqueued before. */
#pragma once

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "guard/permits.h"
#include "guard/rights.h"
#include "guard/warrant.h"
#include "proto/launcher.h"

/* Users pass through cgroups of shims to their own. */
#define LAUNCHER_CGROUP_MODE 0711
/* With its end, the name of the cgroup of all shims. */
#define LAUNCHER_CGROUP_NAME_SIZE 64

struct process_id;
struct shim_head;

struct leftover;
struct left_owner;

struct leftovers {
	struct leftover *first, *last;
};

/* The cgroups of jobs that are over, and the directories in which more are looked for; zero: there
 * are none. */
struct launcher_left {
	struct left_owner *owners; /* the owner whose turn it is comes first */
	struct leftovers busy;     /* with processes in them, the longest ago tried first */
	DIR *looks[2];
};

struct launcher_place {
	int link_fd;
	int jobs_fd;            /* the directory of jobs' files, root's; one in it a user */
	const char *jobs_path;  /* the same by its name */
	const char *shim;       /* the program's path */
	const char *attach;     /* the path of the daemon's attach socket */
	gid_t worker_gid;       /* the group that may read and remove what shims record */
	struct warrant_key key; /* the key of warrants */
	struct rights rights;   /* the register of what was let run */
	struct permits permits; /* shims that have not asked yet */
	uint64_t synced_ns;     /* when the register was looked at last; CLOCK_MONOTONIC */
	/* The cgroup in which each shim gets one, called as its files are; "": they get none. Set
	 * by the launcher itself. */
	char cgroup[PATH_MAX];
	/* Likewise in version 1, for the limit of tasks alone; "": there is none, or version 2 has
	 * the limit. */
	char tasks_cgroup[PATH_MAX];
	uint64_t
		tasks_wanted; /* tasks, which are processes and threads, of a job; 0: the default */
	uint64_t tasks_max;   /* the limit, set by the launcher itself */
	enum launcher_tasks tasks; /* how it holds; likewise */
	struct launcher_left left; /* jobs' cgroups that are to be removed */
};

/* Whether this process has the rights that a launcher needs. */
bool launcher_may(void);
/* Forks the launcher, as root. Its worker is the caller, which gets the other end of the link. It
 * ends with the worker; the jobs go on. 0 or -errno. */
int launcher_fork(struct launcher_place *place, int *ret_link_fd);

/* Listens, if *listen_fd is -1 or the file of it was removed. 0, or -errno. */
typedef int launcher_listen(void *arg, int *listen_fd);
/* Answers the processes of root that connect to a listening socket, one daemon after the other, for
 * ever: the launcher as a service of its own. Returns -errno where it cannot listen any more. */
int launcher_serve(struct launcher_place *place, launcher_listen *listen_at, void *arg);

/* Opens the key and the register in the directory of jobs' files, and makes them where they are
 * not. Without the register nobody knows what is spent: then the key is made anew, too. 0 or
 * -errno. */
int launcher_secrets_open(struct launcher_place *place);
/* Opens the directory of jobs' files, and makes it where there is none. It is root's, and so are
 * all directories above it: nobody else can put another in its place. The group `gid`, the
 * worker's, may look what is there, and users may pass through to their own. `old` is where the
 * directory was before; it is moved from there. NULL: nowhere. The descriptor, or -errno; -EPERM:
 * it, or a directory above it, is another's to change. */
int launcher_jobs_open(const char *path, const char *old, gid_t gid);
/* Makes anew what was removed: that directory, the key in it, and user `uid`'s directory there
 * (LAUNCHER_NOBODY: nobody's). 0 or -errno. */
int launcher_files_make(struct launcher_place *place, uid_t uid);
/* The user's directory for logs and records, made if need be: the user's, and the worker's group
 * may read there. Nobody but root can put another in its place. Its path is in `path`. The
 * descriptor, or -errno. */
int launcher_user_directory(const struct launcher_place *place, uid_t uid, char *path, size_t size);

/* Removes files (enum shim_file) of attempt `name` of that user. 0 or -errno. */
int launcher_files_remove(const struct launcher_place *place, uid_t uid, const char *name,
			  uint32_t files);

/* Starts a shim as the warrant says, for `name` (JOB.ATTEMPT) in the user's directory, which is
 * made if need be. The shim reads `spec_fd`, and asks at `permit_fd` (-1: it need not ask). *ret_go
 * is the end of the pipe on which it is told to go. 0 or -errno: nothing runs. */
int launcher_shim_start(const struct launcher_place *place, const struct warrant *warrant,
			const char *name, int spec_fd, int permit_fd, int *ret_go,
			struct process_id *ret);

/* One cgroup for all shims of this daemon, in the launcher's own, or beside it where the service
 * manager made that for the launcher alone. The next launcher of the same directory finds it by its
 * name. */
void launcher_shims_begin(struct launcher_place *place);
/* Makes that of shim `name`, which is root's still. "": it gets none. */
void launcher_cgroup_make(const struct launcher_place *place, const char *name,
			  char ret[static PATH_MAX]);
/* From now on its user may make a few others in it, and move own processes there. Nobody may take
 * them out of it. */
void launcher_cgroup_give(const char *path, const struct warrant *warrant);
/* Where shims' cgroups are to be, and what they are called there. 0 or -errno. */
int launcher_cgroup_place(const struct launcher_place *place, char parent[static PATH_MAX],
			  char name[static LAUNCHER_CGROUP_NAME_SIZE]);
/* Chooses the limit of tasks, and how jobs can have it: from now on each gets it. */
void launcher_tasks_begin(struct launcher_place *place);
/* RLIMIT_NPROC of a job's process, which the kernel counts by user. */
rlim_t launcher_tasks_of_user(const struct launcher_place *place);
/* Gives shim `name`, whose cgroup is `cgroup`, that limit. `ret`: the cgroup of version 1 that its
 * process is to enter before it is its user's; "": none. */
void launcher_tasks_limit(const struct launcher_place *place, const char *name, const char *cgroup,
			  char ret[static PATH_MAX]);
/* Kills what is left of `name`, and removes its cgroups as launcher_left_note() does. */
void launcher_shim_end(struct launcher_place *place, const char *name);

/* The time for a step of the removal: a request waits for one step at most. */
#define LAUNCHER_STEP_NS 1000000ull
/* Looks anew for cgroups that a launcher before this one left. */
void launcher_left_begin(struct launcher_place *place);
/* Removes the cgroups of `name`, at once where they are empty, else in steps. */
void launcher_left_note(struct launcher_place *place, const char *name);
/* Removes some cgroups of jobs that are over, in turns by owner. */
void launcher_left_step(struct launcher_place *place);
/* How long there is nothing to remove, in ms; 0: there is something; -1: nothing is left. */
int launcher_left_wait_ms(const struct launcher_place *place);
