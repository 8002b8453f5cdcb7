/* The daemon that a launched command needs, as launch_run() looks after it. The caller fills in the
 * functions (client/daemon_watch.h has them), so that this folder needs no HTTP client. */
#pragma once

struct launch_daemon {
	void *context; /* handed to each of the functions; not owned */
	/* Starts the next daemon if none answers. Called in the command's process before it becomes
	 * the command. */
	void (*revive)(void *context);
	/* Begins and ends the watch, in the process that waits for the command. */
	void (*begin)(void *context);
	void (*end)(void *context);
	/* A descriptor to poll for POLLIN, which leads to ended(); -1: not at present. */
	int (*fd)(void *context);
	void (*ended)(void *context);
	/* A child of this process has ended; it may be one that ended() started. */
	void (*reap)(void *context);
};
