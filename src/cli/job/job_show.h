/* Jobs as people read them. */
#pragma once

#include <jansson.h>

/* To standard output: a table of an array of jobs, as the daemon tells them. One thread. */
void jobs_print(const json_t *jobs);
/* Likewise all of one job, line by line. */
void job_print(const json_t *job);
