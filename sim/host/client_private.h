/* Declarations that the files of the client library share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "host/client.h"

/* It is in a page of its own that fork zeroes in the child. That tells a child from its parent,
 * also where it has that one's PID by now. A child that shares the memory (CLONE_VM) has another
 * PID. */
struct client_guard {
	pid_t parent;
};

struct client {
	struct client_guard *guard;
	int socket;
	atomic_bool broken;      /* the host is gone, or spoke nonsense */
	_Atomic uint64_t looked; /* when client_check() last looked for its hanging up, ns */
	int pid;
	pthread_mutex_t
		lock; /* one request and its reply at a time; nothing is called with it held */
	const struct wire_host *host;
	const struct wire_progress *progress; /* role CUDA only */
	pthread_mutex_t queue_lock;           /* guards queue_taken */
	uint64_t queue_taken[WIRE_QUEUES_MAX / 64];
	_Atomic uint64_t submitted[WIRE_QUEUES_MAX];
};

/* Sends a message that has no reply. 0 or -errno. */
int client_send(struct client *c, const void *message, size_t size);
