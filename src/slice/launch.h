/* Runs the workload's command as a child and stands between it and who started carve. */
#pragma once

#include <stdbool.h>

#include "slice/isolation.h"

struct driver_libs;
struct error;
struct places;

struct launch {
	char **argv;         /* NULL-terminated */
	const char *session; /* ID of the slice */
	const char *stamp;   /* the session's (ATTACH_ENV_STAMP) */
	const char *attach;  /* the attach socket's path */
	bool registers;      /* the daemon is told of the command; not inside a slice */
	enum isolation isolation;
	bool isolation_asked; /* by the user; else what fails makes it ISOLATION_PRELOAD */
	bool verbose;         /* says so, then */
	/* Called once the command runs; NULL: nobody waits for that. */
	void (*started)(void *arg);
	void *started_arg;
	const struct places *places;
	const struct driver_libs *driver;
};

/* Whether a command that is a path can be there, before a slice is asked for. 0, or negative with
 * *err set as launch_run() would set it. */
int launch_check(const char *command, struct error *err);
/* Runs it to its end, passing signals on. Returns its status (128 + n where signal n ended it), or
 * negative with *err set where it could not be started: EXIT_CODE_NOT_FOUND,
 * EXIT_CODE_NOT_EXECUTABLE or EXIT_CODE_RUN_FAILED. */
int launch_run(const struct launch *launch, struct error *err);
