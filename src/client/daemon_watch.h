/* Keeps the user's own daemon running while a command runs, as a service manager does with the
 * system's: without one, what the command starts later could not attach. */
#pragma once

#include <sys/types.h>

#include "slice/launch_daemon.h"

struct client;

#define DAEMON_WATCH_STARTS 3

struct daemon_watch {
	const struct client *client; /* NULL: there is nothing to watch */
	int fd;                      /* pidfd of the daemon, or -1 */
	pid_t starter;               /* starts the next daemon; 0: none does */
	long long starts_ms[DAEMON_WATCH_STARTS];
	unsigned
		count; /* the number of starts so far; the next one's time goes to count % STARTS */
};

/* Watches the daemon of `client` (which must outlive it; NULL: none), if it is the user's own.
 * Costs no CPU time. Children of this process may be started meanwhile; their SIGCHLD must lead to
 * daemon_watch_reap(). */
void daemon_watch_begin(struct daemon_watch *ret, const struct client *client);
/* To be polled for POLLIN, which leads to daemon_watch_ended(); -1: not at present. */
int daemon_watch_fd(const struct daemon_watch *watch);
/* The daemon has ended: starts the next one, in a process of its own, so that this returns at once.
 * Gives up, without a word, after a few starts within ten seconds. */
void daemon_watch_ended(struct daemon_watch *watch);
/* A child has ended, perhaps the one that started the daemon. */
void daemon_watch_reap(struct daemon_watch *watch);
void daemon_watch_end(struct daemon_watch *watch);
/* The same for a command that launch_run() starts: begins with `client`, which must not be NULL.
 * `watch` is overwritten, and must outlive the value that is returned. */
struct launch_daemon daemon_watch_for_launch(struct daemon_watch *watch,
					     const struct client *client);
