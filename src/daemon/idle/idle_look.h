/* Each session's use of GPU time, by the driver, the leases and MIG. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/gpus.h"
#include "core/idle.h"

struct pool;
struct session;
struct sessions;

/* The processes that used a GPU since the look before, by the driver; of one GPU. */
struct idle_sheet {
	int error;   /* 0, or why the driver does not say */
	pid_t *pids; /* sorted; the sheet's */
	size_t count;
	bool unlisted; /* the GPU worked, and the driver names no process that did */
	uint64_t looked_ns, before_ns; /* CLOCK_MONOTONIC: this look, and the one before; 0: none */
};

/* GPUs (bits: positions in the pool) whose processes the driver has to be asked for. */
uint64_t idle_look_mask(const struct sessions *sessions);
/* Asks the driver about one GPU. Any thread, one at a time for a sheet. */
void idle_sheet_fill(const struct pool *pool, uint32_t position, struct idle_sheet *sheet);
void idle_sheet_clear(struct idle_sheet *sheet);
/* Looks what a session did since the look before. `sheets`: by position in the pool. Sets why
 * nobody can tell in the session. */
enum idle_look idle_look(struct session *session, const struct idle_sheet *sheets);
