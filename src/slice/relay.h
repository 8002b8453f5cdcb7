/* The process between the workload's command and the program that started carve. It hands on
 * signals and returns the command's status. */
#pragma once

#include <signal.h>
#include <sys/types.h>

struct error;

struct relay {
	int fd; /* signalfd of what is handed on, and SIGCHLD */
	/* Changed for this process; the command gets them back. */
	sigset_t mask;
	struct sigaction child;
};

/* For a program's start: it has the status of each child, whatever the program that started it
 * ignores. A command still gets the handling of SIGCHLD that was inherited. */
void relay_prepare(void);
/* Takes the signals, before the command exists: none is lost between. 0, or negative with *err set.
 */
int relay_begin(struct relay *ret, struct error *err);
/* Gives them back; in the command's process too, before it becomes the command. */
void relay_end(struct relay *relay);
/* Waits until the command ends. Returns the command's status, 128 + n if signal n ended it. */
int relay_wait(const struct relay *relay, pid_t command);
