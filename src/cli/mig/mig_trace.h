/* A trace of requests for `carve mig simulate`: lines of "arrival,size or profile,duration" as CSV,
 * times in seconds. An empty line, one that begins with '#' and a heading are passed over. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/mig_sim.h"

struct error;
struct mig_models;

#define MIG_TRACE_JOBS_MAX 10000000u
/* Requests that get other profiles on some die. */
#define MIG_TRACE_WANTS_MAX 1024u

/* A class of requests: sizes that get the same profile on each die. */
struct mig_trace_want {
	uint8_t profile[MIG_DIES_MAX]; /* each die's profile, or MIG_NO_PROFILE */
	uint64_t least, most;          /* bytes asked; of named profiles their own */
	uint64_t jobs;
};

struct mig_trace {
	struct mig_sim_job *jobs; /* owned; by arrival */
	size_t count;
	struct mig_request *wants;    /* owned */
	struct mig_trace_want *about; /* owned; of each want */
	uint32_t want_count;
};

/* `name` is the file's, for messages. 0, or negative with *err naming the line and what is wrong
 * with it. */
int mig_trace_read(FILE *file, const char *name, const struct mig_models *models,
		   struct mig_trace *ret, struct error *err);
void mig_trace_free(struct mig_trace *trace);
