/* Allocations smaller than a block. The driver packs them into blocks of 2 MiB, which it takes and
 * gives back whole; which block one is in shows in its address. So the charge is exactly the blocks
 * that hold live ones, however they are packed: what is reserved before the call is a block where
 * those there are cannot have room, and nothing where they can.
 *
 * An object is small if `small` is not 0: its bytes as the driver hands them out. All functions are
 * called with the process's lock held. */
#pragma once

#include <stdint.h>

#include "front/process.h"

/* The granularity of device memory, which cuMemGetAllocationGranularity tells. */
#define BLOCK_BYTES MIB(2)

/* 0 or -ENOMEM. */
int small_reserve(struct process *p, struct object *object);
/* The driver refused: undoes the reservation. */
void small_cancel(struct process *p, const struct object *object);
/* The driver gave object->handle. -ENOMEM: it took another block for it after all, and there is no
 * room for one; the reservation still stands. */
int small_keep(struct process *p, struct object *object);
/* One that was kept is freed. */
void small_drop(struct process *p, const struct object *object);
