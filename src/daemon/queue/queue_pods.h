/* Agents whose jobs are pods of a cluster: `carve agent --on kubernetes`. A job's shim runs
 * carve-kubernetes, which makes the pod, in place of the command. Loop thread only. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/queue/agents.h"
#include "daemon/queue/job.h"
#include "proto/shim.h"

/* Pods of one agent at a time, where it names no other number. */
#define AGENT_PODS_MOST 1000u
/* A pod that is to end may have an API server that is away: it is waited for (7 days). */
#define AGENT_PODS_GRACE_NS (7ull * 86400 * 1000000000)

struct agent_pods {
	json_t *template; /* integrations/kubernetes/pod/pod_template.h; owned */
	char namespace[64];
	char api[512], token_file[PATH_MAX], ca_file[PATH_MAX]; /* "": as in a pod */
	uint32_t most;
	/* With a launcher: agent_text(), and that the owner said it. Else NULL. */
	char *text;
	struct warrant *warrant;
};

/* Reads the request's field `pods`, or what agent_pods_json() made. 0 with *ret (owned by the
 * caller), or negative with *err. */
int agent_pods_read(const json_t *object, struct agent_pods **ret, struct error *err);
/* Takes NULL. */
void agent_pods_free(struct agent_pods *pods);
/* The owner's words on images and pods, as a shim reads them (src/shim/spec.h) and the launcher
 * vouches for them. The text is malloc'ed; NULL: out of memory. */
char *agent_text(const struct agent *agent);
/* On disk, with what was vouched for. */
void agent_pods_save(const struct agent_pods *pods, json_t *object);
void agent_pods_vouched_read(struct agent_pods *pods, const json_t *object);

/* agent_request() of such an agent: 0, -EINVAL, or -ERANGE, also where the job's size cannot be
 * compared with its queue's. */
int agent_pods_request(const struct agent *agent, uint32_t position, const struct job_spec *spec,
		       struct place_request *ret);
/* Jobs of the agent that are pods now. */
uint32_t agent_pods_running(const struct agent *agent);

/* The numbers by which the shim makes the pod (proto/shim.h). */
void job_pod_fill(const struct job *job, const struct place_request *request, struct shim_run *ret);
/* The job's place where it is a pod: malloc'ed. */
char *job_pod_place(const struct job *job, const struct agent *agent);
/* Whether the attempt that the record is of is a pod. */
bool job_is_pod(const struct job_record *record);
/* How far the pod of the job's attempt is (proto/shim.h, SHIM_POD_STATE); owned by the caller.
 * NULL: nothing says. */
json_t *job_pod_state(const struct queues *q, const struct job_record *record);
/* Whether a pod was made that may be there still: its end is noted before it is deleted. The
 * record's attempt is the pod's. */
bool job_pod_is_there(const struct queues *q, const struct job_record *record);
