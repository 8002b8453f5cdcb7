/* The text of a job: what POST /v1/jobs says about how its processes run. The daemon checks it when
 * the job is enqueued, and keeps it; the job's shim reads it when the job starts. Both have this
 * parser. Fields that only the queue looks at are the daemon's (daemon/queue/job_spec.c).
 *
 *   argv, env        lists of texts; env has NAME=VALUE entries
 *   cwd, in, out, err
 *                    paths; the last three may have %j (the job's ID), %a (its index) and %x
 *                    (its name)
 *   wait_in          where its enqueuer's standard input comes from, as long as that waits
 *   image            of a container: the command runs in one
 *   container_args   options of the container's runtime, each one word
 *   umask            a number
 *   limits           soft limits of resources by number (RLIMIT_*)
 *   params           lists of values of a sweep's parameters; the job's index chooses one of each.
 *                    They are set in the environment, and {NAME} in a word of the command becomes
 *                    the value
 *
 * All that the struct points to is the JSON's, and is valid as long as that. For programs that are
 * linked with jansson. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/record.h"

struct error;

#define JOB_TEXT_NAME_SIZE 64
#define JOB_TEXT_IMAGE_SIZE 256
/* All of container_args, with a separator each. */
#define JOB_TEXT_ARGS_SIZE 1024
/* Jobs of a sweep. */
#define JOB_TEXT_SWEEP_MAX 100000u

struct job_text {
	const json_t *argv, *env, *container_args, *limits, *params; /* NULL: there is none */
	const char *cwd, *in, *wait_in, *out, *err, *image, *name;   /* "": there is none */
	int64_t umask;                                               /* -1: it is not named */
	uint64_t sweep; /* the number of jobs that params make; 0: there are none */
};

extern const struct job_text job_text_none;
/* The table of these fields, for a struct job_text. */
extern const struct record_field job_text_fields[];
/* Takes all of these fields; other fields and nulls are passed over. 0, or negative with *err. */
int job_text_read(const json_t *root, struct job_text *ret, struct error *err);
/* Takes the name that the text says, and else makes one of its command's, whose bytes that no name
 * may have become '_'. "": it has no command either. */
void job_text_name(const struct job_text *text, char ret[static JOB_TEXT_NAME_SIZE]);
