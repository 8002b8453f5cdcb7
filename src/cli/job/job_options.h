/* Options that a job may have, from the command line into the fields of the daemon's API. */
#pragma once

#include <jansson.h>

struct cli;
struct error;

/* All options that `enqueue`, `job edit` and `job clone` share; of those that were given. 0, or
 * negative with *err. */
int job_options_read(const struct cli *cli, json_t *body, struct error *err);
/* Whether the image of --docker, where it is given, can be an image's name. 0, or negative with
 * *err.
 */
int job_image_check(const struct cli *cli, struct error *err);
/* The options that only a new job has: its environment, directory, array and sweep. */
int job_options_new(const struct cli *cli, json_t *body, struct error *err);
