/* The files that a job's output is in. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

bool job_has_ended(const json_t *job);
/* The output of an attempt (0: of the last one); `suffix` is SHIM_LOG or SHIM_ERR. 0, or negative
 * with *err: there was no such attempt. */
int job_log_path(const json_t *job, uint64_t attempt, const char *suffix, char buf[static PATH_MAX],
		 struct error *err);
/* The job's user says where its output goes, and root may ask for it: to open a device has effects,
 * and to open a pipe waits. A descriptor, or -errno (-EMEDIUMTYPE: it is no plain file; -EPERM: it
 * is neither the job's user's, nor is the job the caller's own). */
int job_log_open(const char *path);
/* Whether the output is another user's and goes to this user's terminal, which it might move or
 * colour. A file or a pipe gets it as it is. */
bool job_log_is_escaped(const char *path);
/* Writes a part of the output to standard output or error. 0, or negative with *err. */
int job_log_write(int to, const char *part, size_t size, struct error *err);
