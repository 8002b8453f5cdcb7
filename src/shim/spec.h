/* The task of a shim (proto/shim.h): two JSON objects. The text, as the user enqueued it
 * (proto/job_text.h), and that of the agent's owner, where the job is a pod, or a daemon runs jobs
 * of its own user:
 *
 *   image, images    of a container, where the user named none: for all queues, and by queue
 *   pods             of a pod: namespace, api, token_file, ca_file, and template, which has pod and
 *                    queues, objects
 *
 * The daemon adds numbers of the attempt (struct shim_run). */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/job_text.h"
#include "proto/shim.h"

struct record_place;
struct words;

/* An ID of a job: NUMBER or ARRAY_INDEX. */
#define SHIM_ID_TEXT 48

struct shim_spec {
	struct shim_run run;
	json_t *root; /* the user's text as it was read; owns what `text` points to */
	struct job_text text;
	json_t *params; /* the values of a sweep's parameters that are the job's; NULL: none */
	/* How the job's pod is made: name, namespace, api, token_file, ca_file, fraction or
	 * gpu_memory (texts), grace_s, and template (an object). NULL: the job runs on this host.
	 */
	json_t *pod;
	bool asks;          /* it asks the launcher before the command runs */
	const char *attach; /* the path of the daemon's attach socket */
	char name[JOB_TEXT_NAME_SIZE], job[SHIM_ID_TEXT];
};

/* Reads it from a descriptor. `attach` is borrowed. 0 or -errno. */
int shim_spec_read(int fd, const char *attach, struct shim_spec *ret);
/* Makes this process what the job expects: environment, limits, umask, working directory. 0 or
 * -errno, with what failed in *ret_what. */
int shim_spec_enter(const struct shim_spec *spec, const char **ret_what);
/* Opens its input and output and puts them in place of descriptors 0 to 2. The output goes to the
 * log at `place` when no file was named. 0 or -errno, with the path in `path`. */
int shim_spec_files(const struct shim_spec *spec, struct record_place *place,
		    char path[static PATH_MAX]);
/* Whether it has a standard input. */
bool shim_spec_reads(const struct shim_spec *spec);
/* The words of the command, NULL-terminated; never freed. NULL: no memory. */
char **shim_spec_argv(const struct shim_spec *spec);
/* Adds the options (--env) that give a container or a pod carve's variables of the job, and a
 * sweep's parameters. The rest of the environment is the host's: the image has its own. */
void shim_spec_environment(struct words *words, const struct shim_spec *spec);
