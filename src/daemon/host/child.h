/* A short-lived child process whose output is read: carved runs itself, or another carved, to find
 * something out. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define CHILD_TEXT_SIZE 512u

struct child;
/* It has ended, and all that it wrote is in `text`. May free or start it again. */
typedef void (*child_cb)(struct child *child);

struct child {
	uv_process_t process;
	uv_pipe_t output;
	uv_timer_t timer;
	unsigned open_handles;
	pid_t pid;      /* 0: it could not be started */
	int64_t status; /* its exit status, or the signal that ended it; CHILD_TIMEOUT */
	char text[CHILD_TEXT_SIZE]; /* the beginning of its standard output, terminated */
	size_t length;
	child_cb on_end;
	void *arg; /* the owner's */
};

#define CHILD_TIMEOUT INT64_MAX

/* Starts it; after `timeout_ms` it is killed. Where that fails (-errno) on_end is called all the
 * same, later, with the reason in `text` and a status of 1. `argv` is only read. */
int child_start(struct child *child, uv_loop_t *loop, const char *program, char **argv,
		unsigned timeout_ms, child_cb on_end);
/* The path of a program of carve's own: beside this one, as in the build tree, or where it is
 * installed. 0 or -errno; -ENOENT: it cannot be run. */
int child_program(const char *name, char ret[static PATH_MAX]);
/* Kills it, if it runs; on_end follows. */
void child_kill(struct child *child);
