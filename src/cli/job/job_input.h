/* Standard input of `carve enqueue --wait`, on its way to the job: through a FIFO, which the job's
 * shim opens as the user. Both ends are held here, so that nothing is lost before the job starts or
 * between two attempts. Once this process is gone, the job reads the end of the file. */
#pragma once

#include <limits.h>
#include <poll.h>
#include <stddef.h>

struct job_input {
	char path[PATH_MAX]; /* the FIFO's path; "": nothing is passed on */
	int in, out;         /* its ends; `out` is -1 after the end of standard input */
	char part[PIPE_BUF];
	size_t from, held; /* bytes of `part` that the FIFO had no room for yet */
};

/* Makes the FIFO. Where there is no standard input (it is closed, or /dev/null) `path` is "".
 * Where the FIFO cannot be made, too, and a note says so. */
void job_input_begin(struct job_input *input);
/* The descriptor to wait for; fd -1: none. */
struct pollfd job_input_wanted(const struct job_input *input);
/* That is there. */
void job_input_pass(struct job_input *input);
void job_input_end(struct job_input *input);
