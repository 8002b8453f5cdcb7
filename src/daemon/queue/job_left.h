/* Processes of a job whose shim was killed. */
#pragma once

struct job_record;
struct queues;

/* Sends a signal (0: none) to all processes of the job, of this process's own user, whose shim was
 * killed. Returns how many there are. */
unsigned job_left_signal(const struct queues *q, const struct job_record *record, int signal);
