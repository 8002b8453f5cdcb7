/* Why a job waits, for people. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/queue/agents.h"
#include "daemon/queue/job.h"

struct job;
struct queue_ends;
struct queues;

/* The prospect of a job that waits: the job that it waits for (0: for none that is known), and when
 * it starts. The time follows from time limits, at the latest (ns since 1970; 0: not known). */
struct job_prospect {
	int64_t blocker, starts;
};
struct job_prospect job_prospect(const struct job *job);
/* As users call the job of that number: 17, or 17_3 of an array. A job that has ended is called
 * by the number. */
const char *queue_job_id_text(const struct queues *q, int64_t id, char buf[static JOB_ID_TEXT]);
/* In words: why it waits. */
const char *job_why(const struct job *job, char buf[static JOB_WHY_SIZE]);
/* Why the job waits, in words, with what decision_explain() found. */
const char *job_waits_text(const struct job *job, const struct queue_ends *ends,
			   char buf[static JOB_WHY_SIZE]);
