/* How far a reader of jobs' ends is, in a file: the number of the next end, and the ID of the
 * database whose numbers they are. One process at a time uses a file. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct error;

#define JOB_CURSOR_DATABASE_SIZE 64

struct job_cursor {
	int fd; /* locked; -1: there is no file, and nothing is kept */
	char path[PATH_MAX];
	char database[JOB_CURSOR_DATABASE_SIZE]; /* "": the file is new */
	uint64_t next;
};

/* `path` NULL: events.json in the user's state directory. 0, or negative with *err: another process
 * has the file, or what is in it was not written here. */
int job_cursor_open(struct job_cursor *ret, const char *path, struct error *err);
/* It is on the disk when this returns. 0, or negative with *err. */
int job_cursor_save(const struct job_cursor *cursor, struct error *err);
