/* A process that stands for a container as long as that is there: it holds an ephemeral session,
 * gives it back, and outlives the runtime's client. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct client;
struct error;

/* A container runtime's program, and the options that each of its commands needs: NULL, or ended by
 * NULL. */
struct runtime {
	const char *program;
	char *const *options;
};

struct container_watch {
	struct runtime runtime;
	const char *cid_file; /* NULL: the container ends with its client */
	const char
		*pid_file; /* where the runtime writes the first process's ID; NULL: it does not */
	const char *dir;   /* removed at the end; kept where the container may be started again */
	const char *session;
	const json_t *before; /* the session as it was when the container was asked for */
	bool one_off;         /* it is released at the end */
	const struct client *client;
};

/* Starts it, registered with the daemon: before the calling process becomes the runtime's client,
 * whose end it sees. 0, or negative with *err set. */
int container_watch_start(const struct container_watch *watch, struct error *err);

/* The first line that a runtime's command prints, with these arguments (ended by NULL). False:
 * it failed. */
bool runtime_ask(const struct runtime *runtime, char *buf, size_t size,
		 const char *const *arguments);
/* The first line that such a command prints as an error. */
bool runtime_ask_error(const struct runtime *runtime, char *buf, size_t size,
		       const char *const *arguments);
/* Likewise all that it prints, as far as it fits. */
bool runtime_ask_all(const struct runtime *runtime, char *buf, size_t size,
		     const char *const *arguments);
