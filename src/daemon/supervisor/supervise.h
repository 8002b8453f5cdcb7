/* carve's own supervisor, where systemd does not run carved. It is the process that `carved`
 * becomes, and starts the daemon, its *worker*, as a child. It holds what has to outlive the
 * worker: the lock and the name of the runtime directory, the listening sockets, and the
 * descriptors that the worker stores. A worker that ends is started again, whatever ended it;
 * only one that ends with status 0 has ended for good. */
#pragma once

#include <stdbool.h>

#include "daemon/host/runtime.h"

struct error;
struct warden;
struct worker_preparation;

struct supervise {
	struct runtime *runtime;    /* chosen */
	struct runtime_start start; /* the options, for the next supervisor */
	char **argv;  /* as the supervisor was started; the worker is started like it */
	int ready_fd; /* gets one byte when the first worker serves; -1: none */
	int words_fd; /* gets the words of a first worker that cannot serve; -1: none */
	/* Called once the directory is there: leaves the terminal. 0 or -errno. NULL: stays. */
	int (*begin)(const struct runtime *runtime);
	/* Called before each start of a worker where root started the daemon, for the warden that
	 * this process hosts: prepare_ask() of daemon/prepare.h, and prepare() once that has its
	 * answer. NULL: nothing is to be prepared. */
	int (*ask)(struct supervise *supervise, struct worker_preparation *ret, struct error *err);
	int (*prepare)(struct supervise *supervise, int link_fd,
		       struct worker_preparation *preparation, struct error *err);
	void *arg;             /* those functions' */
	struct warden *warden; /* NULL: this process hosts none */
};

/* Supervises until the worker has ended for good. runtime_continue() was called. The exit code,
 * perhaps with *err. Closes ready_fd and words_fd when they are of no use any more. */
int supervise_run(struct supervise *given, struct error *err);
