/* Faults on demand: what was ordered, and whether a call is to be hit. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/wire.h"

#define FAULTS_MAX 64u

struct fault {
	struct wire_fault_set set;
	uint64_t until; /* model time; UINT64_MAX: for ever */
	uint32_t skipped, hits;
};

struct faults {
	struct fault list[FAULTS_MAX];
	uint32_t count;
	bool changed; /* something came or went; whoever shows faults to clients resets it */
};

/* Arms or clears. -ENOSPC: too many; -EINVAL. */
int faults_set(struct faults *f, const struct wire_fault_set *set, uint64_t now);
/* Whether this call is hit: if so, *ret_error and *ret_delay_ns say how. Counts it. `call` may be
 * NULL. */
bool faults_take(struct faults *f, enum wire_fault fault, wire_device device, pid_t pid,
		 const char *call, uint64_t now, int32_t *ret_error, uint64_t *ret_delay_ns);
/* Likewise, with the whole order. */
bool faults_hit(struct faults *f, enum wire_fault fault, wire_device device, pid_t pid,
		const char *call, uint64_t now, struct wire_fault_set *ret);
/* Whether a fault of a kind that tells a state, and whose `pid` is not a caller's, is armed for the
 * device; *ret_pid is that, 0 for none. */
bool faults_state(const struct faults *f, enum wire_fault fault, wire_device device,
		  int32_t *ret_pid);
/* Forgets what is over. */
void faults_expire(struct faults *f, uint64_t now);
/* Bits (1 << enum wire_fault) of what is armed. */
uint32_t faults_armed(const struct faults *f);
/* Whether one of this kind is armed for everything that happens on a GPU. */
bool faults_on_gpu(const struct faults *f, enum wire_fault fault, uint32_t gpu);
/* When the next one is over; UINT64_MAX: none ends by itself. */
uint64_t faults_wake(const struct faults *f);
