/* The task of a shim (proto/shim.h): two JSON objects. The text, as the user enqueued it:
 *
 *   argv, env        lists of texts; env has NAME=VALUE entries
 *   cwd, in, out, err
 *                    paths; the last three may have %j (the job's ID), %a (its index) and %x
 *                    (its name)
 *   wait_in          where its enqueuer's standard input comes from, as long as that waits
 *   image            of a container: the command runs in one
 *   container_args   options of the container's runtime
 *   umask            a number
 *   limits           soft limits of resources by number (RLIMIT_*)
 *   params           lists of values of a sweep's parameters; the job's index chooses one of each.
 *                    They are set in the environment, and {NAME} in a word of the command becomes
 *                    the value
 *
 * And what the daemon says of this attempt, which cannot change what runs:
 *
 *   job, index, name, queue, attempt
 *   attach           the daemon's attach socket
 *   daemon           its PID
 *   limit_ns, grace_ns
 *   driver           by which names ld.so found the driver's libraries: cuda, nvml, and paths, the
 *                    search path (LD_LIBRARY_PATH) with which it did
 *   hook             it is no job, but a program that is told of jobs' changes
 *   pod              the job is a pod of a cluster: name, namespace, api, token_file, ca_file,
 *                    image, fraction or gpu_memory (texts), grace_s, and template (an object). Only
 *                    of a daemon that runs its own user's jobs */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct words;

struct shim_spec {
	json_t *root;         /* both; owns all texts below */
	const json_t *pod;    /* NULL: the job runs on this host */
	const json_t *driver; /* NULL: the daemon does not know yet */
	bool hook;            /* no job: SHIM_RUN_HOOK */
	const char *cwd, *attach, *job, *name, *image;
	pid_t daemon;  /* 0: not known */
	int64_t index; /* -1: it is of no array */
	int64_t attempt;
	uint64_t limit_ns, grace_ns;
};

/* Reads the object from a descriptor. 0 or -errno. */
int shim_spec_read(int fd, struct shim_spec *ret);
/* Makes this process what the job expects: environment, limits, umask, working directory. 0 or
 * -errno, with what failed in *ret_what. */
int shim_spec_enter(const struct shim_spec *spec, const char **ret_what);
/* Opens its input and output and puts them in place of descriptors 0 to 2. The output goes to `log`
 * when no file was named. 0 or -errno, with the path in `path`. */
int shim_spec_files(const struct shim_spec *spec, const char *log, char path[static PATH_MAX]);
/* Whether it has a standard input. */
bool shim_spec_reads(const struct shim_spec *spec);
/* The words of the command, NULL-terminated; never freed. NULL: no memory. */
char **shim_spec_argv(const struct shim_spec *spec);
/* Adds the options (--env) that give a container or a pod carve's variables of the job, and a
 * sweep's parameters. The rest of the environment is the host's: the image has its own. */
void shim_spec_environment(struct words *words, const struct shim_spec *spec);
