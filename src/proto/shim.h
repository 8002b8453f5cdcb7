/* carve-shim: one process for each job of a queue. It holds the job's end of everything, so that
 * the daemon and the agent may die, be upgraded or lose their disk while the job runs:
 *
 *   - descriptor SHIM_SPEC_FD: what to run: a struct shim_head and the texts (src/shim/spec.h), in
 *     a sealed memfd;
 *   - descriptor SHIM_GO_FD: a pipe from the daemon. The daemon writes a struct shim_go once its
 *     database says that this attempt began. If the pipe ends without one, the shim ends and
 *     nothing ran;
 *   - descriptor SHIM_DIR_FD: the directory DIR of the job's user, which nobody else writes to;
 *   - the record, DIR/NAME.record: the line of the start is on the disk before the command can
 *     run, that of the end when it has ended. One file, opened once, so that a job costs two waits
 *     for the disk. A line counts when it is whole.
 *
 * SIGTERM to the shim ends the job: SIGTERM to its processes, and SIGKILL after the grace time. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/warden_jobs.h"

#define SHIM_SPEC_FD 3
#define SHIM_GO_FD 4
/* The directory of the job's user for logs and records. */
#define SHIM_DIR_FD 5
/* A socket to the launcher, where one started the shim. The shim writes SHIM_ASKS when all is ready
 * for the command to run, and lets it run once SHIM_MAY comes. Else nothing ran. */
#define SHIM_PERMIT_FD 6
#define SHIM_ASKS 'a'
#define SHIM_MAY 'm'
#define SHIM_PROGRAM "carve-shim"

enum shim_task {
	SHIM_TASK_JOB = 1,
	/* A job that is a pod of a cluster. */
	SHIM_TASK_POD = 3,
};

/* The things that `pod_size` counts. */
enum shim_unit {
	SHIM_UNIT_NONE = 0, /* the image says how much it needs */
	SHIM_UNIT_MIB = 1,
	SHIM_UNIT_MILLIONTHS = 2, /* parts of a GPU */
	SHIM_UNIT_GPUS = 3,
};

#define SHIM_QUEUE_SIZE 64
#define SHIM_INDEX_MAX 1000000000

/* The daemon's own part: numbers, and a name in a fixed alphabet. None of it is a command, a path
 * or an option, as the daemon's worker may be broken. */
struct shim_run {
	uint64_t job;      /* its number */
	uint64_t array;    /* the number of its array; 0: none */
	int64_t index;     /* in the array; -1: it is in none */
	uint64_t position; /* among the jobs that the text was vouched for */
	uint32_t attempt;
	int32_t daemon; /* the daemon's PID; 0: not known */
	uint64_t limit_ns, grace_ns;
	uint64_t pod_key; /* part of the name of the job's pod; the next three are a pod's, too */
	uint64_t pod_size;
	uint32_t pod_unit; /* enum shim_unit */
	uint32_t pod_grace_s;
	char queue[SHIM_QUEUE_SIZE]; /* letters, digits and . _ -, and zero bytes behind */
};

_Static_assert(sizeof(struct shim_run) == 144, "shim ABI");

#define SHIM_HEAD_MAGIC 0x44414548u /* "HEAD" */

/* Two texts are behind the head: the user's, and that of the agent's owner, which says how the pod
 * is made (src/shim/spec.h). Warrants are zero where the daemon runs jobs of its own user. */
struct shim_head {
	uint32_t magic;
	uint32_t kind; /* enum shim_task */
	uint32_t text_size;
	uint32_t owner_size; /* 0: there is none */
	struct shim_run run;
	struct warrant warrant, owner_warrant;
};

_Static_assert(sizeof(struct shim_head) == 160 + 2 * sizeof(struct warrant), "shim ABI");

/* Whether a head, of a file of `size` bytes, is well-formed: 0 or -EINVAL. Both the launcher and
 * the shim ask. */
int shim_head_check(const struct shim_head *head, size_t size);

/* Names of jobs' pods begin so, and go on with the job's number, the key and the attempt. */
#define SHIM_POD_PREFIX "carve-job-"
#define SHIM_POD_NAME SHIM_POD_PREFIX "%" PRIu64 "-%016" PRIx64 "-%" PRIu32

#define SHIM_GO_MAGIC 0x4d494853u /* "SHIM" */

struct shim_go {
	uint32_t magic;
	uint32_t reserved;
	char session[32]; /* the ID of the slice that the job runs in */
};

_Static_assert(sizeof(struct shim_go) == 40, "shim ABI");

/* Whether the session is an ID, or "" (a pod has none), with zero bytes behind. 0 or -EINVAL. */
int shim_go_check(const struct shim_go *go);

/* Lines of JSON, each with its `kind`. */
#define SHIM_RECORD ".record"
#define SHIM_KIND_START "start"         /* pid, birth, boot, session, started, cgroup */
#define SHIM_KIND_EXIT "exit"           /* code, started, ended, rss, cpu_ns, why, error */
#define SHIM_KIND_SIGNAL "signal"       /* the same; `code` is the signal */
#define SHIM_KIND_UNSTARTED "unstarted" /* nothing ran: the job may be started anew */
/* The shim gave up: no end can be recorded. A symbolic link, as that takes no room on most file
 * systems; its text is the errno value. */
#define SHIM_GIVEN_UP ".given-up"
#define SHIM_LOG ".log"
#define SHIM_ERR ".err" /* a link to its standard error, where that is not in the log */
#define SHIM_CID ".cid" /* the ID of the job's container */
#define SHIM_POD ".pod" /* the parts of the job's pod */
/* The state of a job's pod: an object that carve-kubernetes puts in place whole. `phase` is one of
 * those below. `why` says why it waits or has failed. `code` is the exit code. */
#define SHIM_POD_STATE ".pod-state"
#define SHIM_POD_ASKED "asked"     /* the API server has not answered yet */
#define SHIM_POD_CREATED "created" /* it is never created once more */
#define SHIM_POD_ENDED "ended"
#define SHIM_POD_REFUSED "refused" /* the API server does not take it */
#define SHIM_POD_LOST "lost"       /* it has no exit code: evicted, deleted, or its node is gone */

/* The files of an attempt in its user's directory, as bits. */
enum shim_file {
	SHIM_FILE_RECORD = 1 << 0,
	SHIM_FILE_CID = 1 << 1,
	SHIM_FILE_GIVEN_UP = 1 << 2,
	SHIM_FILE_POD = 1 << 3,
	SHIM_FILE_POD_STATE = 1 << 4,
	SHIM_FILE_LOG = 1 << 5,
	SHIM_FILE_ERR = 1 << 6,
};

#define SHIM_FILES_ALL 0x7fu

/* Removes those of the files of the attempt called `name` that are there. */
void shim_files_remove(int dir_fd, const char *name, uint32_t files);
