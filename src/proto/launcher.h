/* The requests that a system daemon's worker, which has no rights, makes of its launcher, which
 * starts the shims of jobs as the users who enqueued them. They are messages of one size over a
 * SOCK_SEQPACKET socket pair, and answered by their number. The worker is not trusted with whose a
 * job is. When a job is enqueued, the launcher itself asks the kernel which process is at the other
 * end of the client's socket, and gives out a warrant. It holds user, groups and limits, and a code
 * over these and the job's text that only the launcher can make. It starts nothing but texts with
 * their warrants. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define LAUNCHER_MAGIC 0x4e55414cu /* "LAUN" */
#define LAUNCHER_VERSION 2u
/* In the runtime directory, of a launcher that is a service of its own. */
#define LAUNCHER_SOCKET "launcher.sock"

#define WARRANT_MAGIC 0x52524157u /* "WARR" */
#define WARRANT_GROUPS_MAX 256u
#define WARRANT_LIMITS 16u
/* The value that stands for no limit. */
#define WARRANT_UNLIMITED UINT64_MAX

/* The kinds of texts that are vouched for. A job's is never run as a hook, whose standard input is
 * the worker's to write. */
enum warrant_kind {
	WARRANT_JOB = 1,
	WARRANT_HOOK = 2, /* the program of an agent's hook */
	WARRANT_PODS = 3, /* how the pods of an agent's jobs are made */
};

/* On disk with the job. All is set by the launcher. */
struct warrant {
	uint32_t magic;
	uint32_t version;
	uint32_t uid, gid;
	uint32_t group_count;
	uint32_t kind;                      /* enum warrant_kind */
	uint32_t group[WARRANT_GROUPS_MAX]; /* supplementary ones; 0 beyond group_count */
	uint64_t limit[WARRANT_LIMITS];     /* hard limits of resources, by RLIMIT_ number */
	/* Rights of this number and the next ones, one a job of the text. Each is spent once for
	 * each attempt, from 1 to `attempts`, in the launcher's register (guard/rights.h). */
	uint64_t number;
	uint32_t count, attempts;
	uint64_t code[2];
};

_Static_assert(sizeof(struct warrant) == 1208, "warrant ABI");

/* The longest text of a job: what HTTP takes, with room for what the daemon adds. */
#define LAUNCHER_TEXT_MAX ((size_t)1 << 20)

enum launcher_op {
	/* With a client's connected socket, and a memfd of a text of kind `kind`: the answer comes
	 * with a memfd that has the warrant. The text is of `job` jobs, each of which has up to
	 * `attempt` attempts. */
	LAUNCHER_VOUCH = 1,
	/* With a sealed memfd as proto/shim.h has it: start a shim for attempt `attempt` of job
	 * `job`. Job 0 is no job, but the hook of the agent with the number `attempt`. The answer
	 * has its process, and comes with the end of the pipe on which the shim is told to go. Its
	 * error is EKEYREJECTED where the text's warrant is not by the launcher's key, and
	 * EKEYEXPIRED where the job's right to this attempt is spent: no try more will do. It is
	 * EKEYREVOKED where the warrant of its agent's text is not: another agent may do. */
	LAUNCHER_START = 2,
	/* Attempt `attempt` of job `job` is over: kill what is left in the cgroup that the launcher
	 * made for it. The answer does not wait for the removal of that cgroup. */
	LAUNCHER_END = 3,
	/* Make anew what was removed of the directory of jobs' files: that itself, its key, and the
	 * directory of user `user` (LAUNCHER_NOBODY: nobody's). */
	LAUNCHER_FILES = 4,
	/* Remove files of attempt `attempt` of job `job` (0: of a hook) in the directory of user
	 * `user`. */
	LAUNCHER_REMOVE = 5,
	/* The jobs that have the rights from number `job` on, `attempt` of them, are over, or their
	 * text is another one now: no attempt more. */
	LAUNCHER_OVER = 6,
};

#define LAUNCHER_NOBODY UINT32_MAX
/* Jobs of a text, and attempts of a job. */
#define LAUNCHER_COUNT_MAX (1u << 20)
#define LAUNCHER_ATTEMPTS_MAX 65534u
#define LAUNCHER_OVER_MAX 256u
/* The directory of users' jobs is beside the daemon's state directory, as that is the worker's to
 * rename things in: its path with this behind. */
#define LAUNCHER_JOBS "-jobs"

/* How a job's tasks (processes and threads) are limited. */
enum launcher_tasks {
	LAUNCHER_TASKS_OF_JOB = 0, /* by the job's cgroup: each job has as many */
	LAUNCHER_TASKS_OF_USER =
		1, /* by RLIMIT_NPROC: all of its user's together; root's are not */
};

struct launcher_request {
	uint32_t magic;
	uint16_t version;
	uint16_t op;     /* enum launcher_op */
	uint64_t number; /* the answer's */
	uint64_t job;
	uint32_t attempt;
	uint32_t kind;        /* enum warrant_kind; 0 but for LAUNCHER_VOUCH */
	uint32_t user;        /* LAUNCHER_FILES and LAUNCHER_REMOVE have it */
	uint32_t files;       /* LAUNCHER_REMOVE has them: enum shim_file of proto/shim.h */
	uint32_t reserved[6]; /* 0 */
};

struct launcher_reply {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint64_t number;
	int32_t error; /* 0, or an errno value */
	int32_t pid;
	uint64_t birth;
	uint64_t tasks_max; /* 0: by an older launcher they are not limited */
	uint32_t tasks;     /* enum launcher_tasks */
	uint32_t reserved[5];
};

_Static_assert(sizeof(struct launcher_request) == 64, "launcher ABI");
_Static_assert(sizeof(struct launcher_reply) == 64, "launcher ABI");

/* 0; -EPROTO: not a request, and whoever sent it is broken; -EOPNOTSUPP: of a later version;
 * -EINVAL: its values are not allowed. */
int launcher_request_check(const struct launcher_request *request, size_t size);
/* 0 or -EPROTO. */
int launcher_reply_check(const struct launcher_reply *reply, size_t size);
