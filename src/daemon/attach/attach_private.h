/* The inside of attach.h: what its files have of each other. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/host/arrivals.h"
#include "daemon/host/budget.h"
#include "daemon/host/fair.h"
#include "daemon/host/peer.h"
#include "daemon/settle/settle.h"
#include "proto/attach.h"

struct session;
struct sessions;

struct attach_connection {
	struct attach_connection *next, *previous;
	struct attach_server *server;
	uv_poll_t poll;
	int fd;
	struct peer peer;
	uid_t owner;             /* to whom it counts (budget.h) */
	struct process *process; /* NULL: it has no slot */
	uint64_t heard_ns;
	uint64_t binding; /* its cgroup gets a limit, then it is answered; 0: no */
	char binding_session[LEDGER_SESSION_SIZE]; /* it gets a slot of that one then; "": none */
	/* The warden looks at its mount namespace, for this request (privileges.h); 0: it does not.
	 */
	uint64_t naming;
	struct attach_request named;
	uint64_t settle_sample; /* number of the sample that it waits for; 0: none */
	unsigned settle_tries;
	uint64_t settle_leaving;
	uint32_t settle_gpu; /* the GPU whose excess the reply tells, plus 1; 0: none */
	/* CLOCK_MONOTONIC, since when it waits for what ending processes hold, or for the sample
	 * (0: none) that shows what others do; 0: it does not. */
	uint64_t sweep_ns;
	uint64_t sweep_sample;
	char entering[LEDGER_SESSION_SIZE]; /* the session that it waits for a slot of; "": none */
	struct fair_work turn;              /* its messages are read in its user's turn */
};

struct attach_server {
	struct sessions *sessions;
	struct fair *turns; /* those of HTTP, too */
	uint64_t heard_ns;  /* CLOCK_MONOTONIC, when anybody last said something */
	uint64_t bindings;  /* so many were begun */
	struct arrivals arrivals;
	struct attach_connection *connections;
	struct budget budget;
};

/* A connection of this peer. The descriptor becomes the connection's. 0 or -errno; -EMFILE: its
 * user has too many (attach_server.c). */
int attach_connection_open(struct attach_server *server, int *fd, const struct peer *peer,
			   struct attach_connection **ret);
void attach_connection_close(struct attach_connection *c);

/* A message of `size` bytes. False: the connection is to be closed (attach.c; likewise of those
 * below, which are what messages ask for). */
bool attach_handle(struct attach_connection *c, const struct attach_request *request, size_t size);
/* A slot of the session. */
bool attach_workload(struct attach_connection *c, struct session *s);
/* gpu: a position in the session, plus 1; 0: none is meant. leaving: of that one, in bytes. */
bool attach_settle(struct attach_connection *c, enum settle_why why, uint32_t gpu,
		   uint64_t leaving);
/* An answer when the memory of processes that are ending is back. */
bool attach_sweep(struct attach_connection *c);
/* The warden has not said in time what mount namespace the process is in: it may ask again. */
void attach_naming_end(struct attach_connection *c);
/* Binding `number` is done (daemon/settle/cgroups.h). `context`: the server. */
void attach_bound(void *context, uint64_t number, const char *refusal);
