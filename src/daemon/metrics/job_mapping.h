/* Files that tell dcgm-exporter (its option --hpc-job-mapping-dir) which sessions are on which GPU.
 * Each GPU with sessions has a file that is called by its index, with one session ID a line. The
 * thread pool writes the files, one change at a time, as a disk may be slow. Loop thread. */
#pragma once

#include <stdbool.h>
#include <uv.h>

struct job_mapping;
struct sessions;

/* NULL: no memory. `sessions` is lent, and its pool has to be ready. */
struct job_mapping *job_mapping_new(const struct sessions *sessions);
/* Each second: has the files written where sessions have changed. `dir` is "" where there are to be
 * none; then, and where it is another than before, files in the old directory are removed. */
void job_mapping_tick(struct job_mapping *mapping, const char *dir);
/* Whether the last change could not be written. */
bool job_mapping_failed(const struct job_mapping *mapping);
/* Once the loop has ended. Files stay, as sessions do. Takes NULL. */
void job_mapping_free(struct job_mapping *mapping);
