/* carve-shim: one process for each job of a queue. It holds the job's end of everything, so that
 * the daemon and the agent may die, be upgraded or lose their disk while the job runs:
 *
 *   - descriptor SHIM_SPEC_FD: what to run: a struct shim_head, the user's text and the daemon's
 *     (src/shim/spec.h), in a sealed memfd;
 *   - descriptor SHIM_GO_FD: a pipe from the daemon. The daemon writes a struct shim_go once its
 *     database says that this attempt began. If the pipe ends without one, the shim ends and
 *     nothing ran;
 *   - the record, DIR/NAME.record: the line of the start is on the disk before the command can
 *     run, that of the end when it has ended. One file, opened once, so that a job costs two waits
 *     for the disk. A line counts when it is whole.
 *
 * SIGTERM to the shim ends the job: SIGTERM to its processes, and SIGKILL after the grace time. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/launcher.h"

#define SHIM_SPEC_FD 3
#define SHIM_GO_FD 4
#define SHIM_PROGRAM "carve-shim"
/* Says where ld.so finds the driver's libraries: one object, cuda, nvml and paths (shim/spec.h). */
#define SHIM_DRIVER "--driver"
/* Starts the user's own daemon again where that is killed. Behind it is the path of the daemon's
 * attach socket, and SHIM_GO_FD is a pipe that the daemon holds: the process ends with it. */
#define SHIM_REVIVE "--revive"

#define SHIM_HEAD_MAGIC 0x44414548u /* "HEAD" */

struct shim_head {
	uint32_t magic;
	uint32_t text_size; /* the size of the text that the user enqueued */
	uint32_t run_size;  /* the size of the daemon's text about this attempt, behind it */
	uint32_t reserved;
	struct warrant warrant; /* the text's; zero where the daemon runs jobs of its own user */
};

_Static_assert(sizeof(struct shim_head) == 1208, "shim ABI");

/* The head's magic where the job is a pod whose cluster, token and template another text says: that
 * of the agent's owner, who is the job's user. A struct shim_pods is behind the head, and that text
 * behind the other two. */
#define SHIM_PODS_MAGIC 0x53444f50u /* "PODS" */

struct shim_pods {
	uint32_t size; /* the size of the text */
	uint32_t reserved;
	struct warrant warrant; /* the text's */
};

_Static_assert(sizeof(struct shim_pods) == 1200, "shim ABI");

/* The mark for a text that is no job, but a program that is told of jobs' changes. That program
 * runs outside of slices, leaves the shim's session, and has the pipe as its standard input. */
#define SHIM_RUN_HOOK "{\"job\":\"0\",\"hook\":true}"

/* Names of jobs' pods begin so. */
#define SHIM_POD_PREFIX "carve-job-"

#define SHIM_GO_MAGIC 0x4d494853u /* "SHIM" */

struct shim_go {
	uint32_t magic;
	uint32_t reserved;
	char session[32]; /* the ID of the slice that the job runs in */
};

_Static_assert(sizeof(struct shim_go) == 40, "shim ABI");

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
