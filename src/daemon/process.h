/* Attached processes: a slot of a session's ledger each, from the attach until the driver has its
 * memory back. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/peer.h"

struct attach_connection;
struct node;
struct session;

struct process {
	struct process *next; /* session->processes */
	struct session *session;
	struct process_id id;
	uint32_t slot;
	struct process_watch *watch; /* NULL once it is dead */
	/* The connection it attached by; NULL once that ended, or where another daemon had it.
	 * Forked children hold it as they hold the driver's descriptors. */
	struct attach_connection *connection;
	bool dead;
	bool left;            /* lives, and its connection ended: it may be another program now */
	uint64_t dead_ns;     /* CLOCK_MONOTONIC */
	uint64_t reap_sample; /* number of the first sample that can show its memory gone */
	/* What the slot said when the running sample started: figures compare only if it stood
	 * still. */
	uint32_t seen_begun, seen_done;
	struct process_gpu {
		int64_t seen_used;
		int64_t floor; /* settled is never set below it; see settle_one() */
	} gpu[];
};

/* Gives a living process a slot. 0; -ENOSPC no slot left, -ESRCH it has ended, or -errno. */
int process_attach(struct session *session, struct process_id id,
		   struct attach_connection *connection, struct process **ret);
/* Takes up a slot that is in use in a ledger taken back; `alive`: the process that it names may
 * still live. 0 or -errno. */
int process_resume(struct session *session, uint32_t slot, bool alive);
/* Whether it was handed the session's wake descriptor (proto/attach.h) by this daemon. */
void process_hears(struct process *process, bool hears);
/* Forgets it, leaving the slot as it is. */
void process_free(struct process *process);
/* The connection it attached by has ended. */
void process_disconnected(struct process *process);

/* Compares this process's slot with the newest sample, where it stood still since that started.
 * `in_flight`: how many of its calls may be under way (1: the one that asks). False: it did not. */
bool process_settle(struct process *process, uint32_t in_flight, bool asked);

/* Called when a sample starts and when it is in. */
void processes_sampling(struct node *node);
void processes_sampled(struct node *node);
/* Bits of the pool's GPUs that this session is on. */
uint64_t session_gpu_mask(const struct session *session);
