/* Agents: which GPUs queues may fill, and with jobs of which size. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/process.h"
#include "core/place.h"
#include "core/queue_spec.h"
#include "daemon/queue/job.h"

struct agent_pods;
struct error;
struct job;
struct queues;
struct warrant;

struct agent_queue {
	struct queue_spec spec;
	bool draining;
	uint32_t running;
};

struct agent {
	struct agent *next;
	char id[16];
	uid_t uid;
	gid_t gid;
	struct agent_pods *pods; /* its jobs are pods (queue_pods.h), owned; NULL: they run here */
	uint64_t gpus;           /* by NVML index; of pods none */
	bool fair;
	uint32_t last; /* the queue that started a job last */
	/* The image of jobs' containers, where neither the job nor its queue names one; "": none.
	 * And which options of the runtime jobs may have: queue_container_refuse(). */
	char image[QUEUE_IMAGE_SIZE], container_allow[256], container_deny[256];
	int64_t started;
	struct process_id owner; /* pid 0: it is detached */
	struct process_watch *watch;
	bool ended; /* its command: it is stopped once that can be written */
	struct queues *queues;
	uint32_t queue_count;
	struct agent_queue queue[QUEUE_LIST_MAX];
	/* The last decision. */
	int64_t head;         /* the job that has a placement reserved; 0: none */
	uint64_t reserved_ns; /* CLOCK_MONOTONIC; QUEUE_NEVER: not known */
	int64_t blocker;
};

struct agent *agent_find(const struct queues *q, const char *id);
/* Whether it runs this user's jobs: root's runs everybody's, any other its own user's. */
bool agent_runs_for(const struct agent *agent, uid_t uid);
/* The agent that serves a queue for a user ((uid_t)-1: for anybody), and its queue's position.
 * NULL: none. */
struct agent *agent_serving(const struct queues *q, const char *queue, uid_t uid,
			    uint32_t *ret_position);
#define JOB_WHY_SIZE 640
/* Why no agent starts jobs of the job's queue for its user; "" where one does. */
const char *job_halt(const struct job *job, char buf[static JOB_WHY_SIZE]);
/* Why no agent serves the job's queue for its user, where that is so. */
const char *job_unserved(const struct job *job, char buf[static JOB_WHY_SIZE]);
/* The most bytes that a job of this queue of the agent's can have on one GPU, whoever leaves. The
 * jobs of the agent are no pods. */
uint64_t agent_queue_most(const struct queues *q, const struct agent *agent, uint32_t position);
/* The place the job would have on the agent's GPUs if nobody else were there: the fewest bytes on
 * each of so many GPUs as it needs. Returns 0, or -ENOSPC: they can never grant it. */
int agent_least(const struct queues *q, const struct agent *agent,
		const struct place_request *request, struct place_result *ret);
/* Starts an agent: checks it, and writes it down. `wanted` is copied, and its pods become
 * the started one's. 0 with *ret, or negative with *err. */
int agent_start(struct queues *q, const struct agent *wanted, struct agent **ret,
		struct error *err);
/* Ends it. `now`: with its jobs; else these end by themselves. */
void agent_stop(struct agent *agent, bool now, const char *why);
/* Drains a queue of it (NULL: all), or resumes it. -ENOENT: it has no such queue. */
int agent_drain(struct agent *agent, const char *queue, bool drain);
int agents_load(struct queues *q);
/* The queue's place in the agent's list; -1: it is none of the agent's. */
int agent_queue_position(const struct agent *agent, const char *queue);
/* The job counts among those that run of its queue, at its agent, and of its array; or no more. */
void job_agent_enter(const struct job *job);
void job_agent_leave(const struct job *job);
/* Stops those whose command has ended. */
void agents_end(struct queues *q);
void agents_free(struct queues *q);
/* The place that the job needs in this queue: 0, or -EINVAL: it has no size, or a larger one than
 * the queue.
 */
int agent_request(const struct queues *q, const struct agent *agent, uint32_t position,
		  const struct job_spec *spec, struct place_request *ret, uint32_t *ret_count_min);
/* An option of the job's container that the agent does not allow; NULL: there is none. */
const char *agent_refuses(const struct agent *agent, const struct job_spec *spec);
/* The agent's GPUs, one flag for each position in the pool. */
void agent_allowed(const struct queues *q, const struct agent *agent,
		   uint8_t ret[static PLACE_GPUS_MAX]);
