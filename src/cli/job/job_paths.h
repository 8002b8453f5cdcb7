/* Files that a job names, looked at when it is enqueued. */
#pragma once

#include <jansson.h>

struct error;

/* Refuses a request whose job could not open its files: 0, or negative with *err. Paths with %j, %a
 * or %x are not known yet, nor is what other jobs or the time make of others. So the input of a job
 * that begins later, after another one, is not looked at. As the user who asks; one thread. */
int job_paths_check(const json_t *body, struct error *err);
