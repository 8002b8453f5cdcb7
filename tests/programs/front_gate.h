/* Drives a session's gate as the daemon would, from a thread of front_host: through a list of
 * states, or at random. Says what it saw. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/gate.h"

struct front_gate {
	const struct ledger *ledger;
	/* "STATE[:MS],...": each state for that long, the last one for ever; after "@" from its
	 * place on again and again: "open:20,@closed:5,contended:5". "STATE:waiting" lasts until a
	 * thread waits at the gate. "random:SEED": at random. */
	const char *plan;
	int wake;               /* an eventfd */
	_Atomic uint32_t slots; /* in use: [1, slots] */
	_Atomic bool stop;
	pthread_t thread;
	/* The figures that it saw. */
	unsigned long closes;
	unsigned long drained;   /* closes after which all work was seen done */
	unsigned long given_up;  /* closes after which it was not, in time */
	unsigned long reopened;  /* drains that stalled while a thread waited at the gate */
	unsigned long leaked;    /* closed and drained, work was handed in all the same */
	uint32_t in_flight_most; /* launches that were in and not done, where it looked */
	uint64_t drain_ns_most;
	_Atomic uint64_t woken; /* what came by `wake` */
};

/* False: the plan cannot be read, or there is no thread. */
bool front_gate_start(struct front_gate *f);
/* Leaves the gate open. */
void front_gate_stop(struct front_gate *f);
/* Its line of JSON, without a line break. */
void front_gate_print(const struct front_gate *f);
