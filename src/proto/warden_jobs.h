/* The warden's operations on jobs (proto/warden.h): it starts their shims as the users who enqueued
 * them. The worker is not trusted with whose a job is. When a job is enqueued, the warden itself
 * asks the kernel which process is at the other end of the client's socket, and gives out a
 * warrant. It holds user, groups and limits, and a code over these and the job's text that only the
 * warden can make. The warden starts nothing but texts with their warrants. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WARRANT_MAGIC 0x52524157u /* "WARR" */
#define WARRANT_VERSION 2u
#define WARRANT_GROUPS_MAX 256u
#define WARRANT_LIMITS 16u
/* The value that stands for no limit. */
#define WARRANT_UNLIMITED UINT64_MAX

/* The kinds of texts that are vouched for, by the numbers that warrants on disk have. */
enum warrant_kind {
	WARRANT_JOB = 1,
	WARRANT_PODS = 3, /* how the pods of an agent's jobs are made */
};

/* On disk with the job. All is set by the warden. */
struct warrant {
	uint32_t magic;
	uint32_t version;
	uint32_t uid, gid;
	uint32_t group_count;
	uint32_t kind;                      /* enum warrant_kind */
	uint32_t group[WARRANT_GROUPS_MAX]; /* supplementary ones; 0 beyond group_count */
	uint64_t limit[WARRANT_LIMITS];     /* hard limits of resources, by RLIMIT_ number */
	/* Rights of this number and the next ones, one a job of the text. Each is spent once for
	 * each attempt, from 1 to `attempts`, in the warden's register (warden/rights.h). */
	uint64_t number;
	uint32_t count, attempts;
	uint64_t code[2];
};

_Static_assert(sizeof(struct warrant) == 1208, "warrant ABI");

/* The longest text of a job: what HTTP takes, with room for what the daemon adds. */
#define WARDEN_TEXT_MAX ((size_t)1 << 20)

/* Jobs of a text, and attempts of a job. */
#define WARDEN_COUNT_MAX (1u << 20)
#define WARDEN_ATTEMPTS_MAX 32766u
#define WARDEN_OVER_MAX 256u
/* The directory of users' jobs is beside the daemon's state directory, as that is the worker's to
 * rename things in: its path with this behind. */
#define WARDEN_JOBS "-jobs"

/* WARDEN_JOB_VOUCH: with a client's connected socket, and a memfd of a text of this kind. The text
 * is of `count` jobs, each of which has up to `attempts` attempts. The answer is its struct
 * warrant.
 */
struct warden_vouch {
	uint32_t kind; /* enum warrant_kind */
	uint32_t count, attempts;
	uint32_t reserved;
};

/* WARDEN_JOB_START: with a sealed memfd as proto/shim.h has it: starts a shim for attempt `attempt`
 * of job `job`. The answer has its process, and comes with the end of the pipe on which the shim is
 * told to go. The error is EKEYREJECTED where the text's warrant is not by the warden's key, and
 * EKEYEXPIRED where the job's right to this attempt is spent: no try more will do. It is
 * EKEYREVOKED where the warrant of its agent's text is not: another agent may do.
 *
 * WARDEN_JOB_END: the attempt is over: kills what is left in the cgroup that the warden made for
 * it. The answer does not wait for the removal of that cgroup. With `below` set, it only kills what
 * is in the cgroups below: the job's command, and not the process that removes its container. */
struct warden_job {
	uint64_t job;
	uint32_t attempt;
	uint32_t below; /* WARDEN_JOB_END: 0 or 1; WARDEN_JOB_START: 0 */
};
struct warden_started {
	uint64_t birth;
	int32_t pid;
	uint32_t reserved;
};

/* WARDEN_JOB_FILES: makes anew what was removed of the directory of jobs' files: that itself, its
 * key, and the user's directory (WARDEN_NOBODY: nobody's). The answer says how jobs are limited. */
struct warden_job_files {
	uint32_t uid;
	uint32_t reserved;
};
#define WARDEN_NOBODY UINT32_MAX
struct warden_job_limits {
	uint64_t tasks_max;
	uint32_t tasks; /* enum warden_tasks */
	uint32_t reserved;
};

/* WARDEN_JOB_REMOVE: removes files of attempt `attempt` of job `job` in the directory of
 * user `uid`. */
struct warden_job_remove {
	uint64_t job;
	uint32_t attempt;
	uint32_t uid;
	uint32_t files; /* enum shim_file of proto/shim.h */
	uint32_t reserved;
};

/* WARDEN_JOB_OVER: the jobs that have the rights from number `first` on, `count` of them, are over,
 * or their text is another one now: no attempt more. */
struct warden_job_over {
	uint64_t first;
	uint32_t count;
	uint32_t reserved;
};

/* How a job's tasks (processes and threads) are limited. */
enum warden_tasks {
	WARDEN_TASKS_OF_JOB = 0,  /* by the job's cgroup: each job has as many */
	WARDEN_TASKS_OF_USER = 1, /* by RLIMIT_NPROC: all of its user's together; root's are not */
};

_Static_assert(sizeof(struct warden_vouch) == 16, "warden ABI");
_Static_assert(sizeof(struct warden_job_remove) == 24, "warden ABI");
_Static_assert(sizeof(struct warden_job_over) == 16, "warden ABI");
_Static_assert(sizeof(struct warden_job) == 16, "warden ABI");
_Static_assert(sizeof(struct warden_started) == 16, "warden ABI");
_Static_assert(sizeof(struct warden_job_files) == 8, "warden ABI");
_Static_assert(sizeof(struct warden_job_limits) == 16, "warden ABI");

bool warden_vouch_fits(const void *request);
bool warden_job_start_fits(const void *request);
bool warden_job_end_fits(const void *request);
bool warden_job_files_fits(const void *request);
bool warden_job_remove_fits(const void *request);
bool warden_job_over_fits(const void *request);
