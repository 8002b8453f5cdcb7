/* The part of a job's request that a list of jobs shows. The request is stored as the JSON text
 * that is shown, and an argument list may have thousands of words. So it is copied member by member
 * and never parsed. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The text of a JSON object for the text of a request, which json_dumps() wrote: without the
 * environment, which may have secrets, and without what the command's shell had. A sweep's job
 * is shown with the values that the job of this index has (proto/shim_sweep.h). malloc'ed;
 * NULL: out of memory, or the text is no object. */
char *job_asked_text(const char *text, int64_t index);

/* The number of values in a JSON text of this size, all levels together, at most: a bound for the
 * time that it takes to parse it. */
size_t job_asked_values(const char *text, size_t size);
