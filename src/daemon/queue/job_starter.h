/* The starter: a job's start, in steps (job_starter.c). Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/queue.h"

struct agent;
struct job;

/* After an attempt that failed to start, jobs like it are tried again after this long, and so is an
 * end that could not be written. The job itself waits for queue_again_ns(). */
#define QUEUE_AGAIN_NS 1000000000ull
/* Has it started at that place, or as a pod, which has none. Its slice is granted here. Its shim
 * comes later, when the warden has started it, and then the job runs. 0: it is starting, or its
 * failure is being told. Else one of these:
 *
 *   -EAGAIN       its user's quota does not let it now
 *   -EDQUOT       nor ever
 *   -EACCES       agent_refuses()
 *   -EINPROGRESS  its MIG instance is being made first; it is to be decided anew then
 *   -ESTALE       that was done already: another had the instance, or it could not be made
 *
 * or another -errno. */
int job_start(struct job *job, struct agent *agent, uint32_t position,
	      const struct place_request *request, const struct queue_decision *decision);
/* Whether its MIG instance is being made. */
bool job_is_making(struct job *job);

/* On disk a claim is in these words, and the ID behind them: why a job is ended, and later why it
 * waits again. */
#define QUEUE_PREEMPTED_BY "preempted by job "
/* Judges a start that failed, of a job that waits again. `agent` is needed for -EACCES alone. */
void job_start_judge(struct job *job, const struct agent *agent, int rc);
/* Puts a job off that could not be started: `rc` is why, or 0. */
void job_start_failed(struct job *job, int rc);
