/* The state of a pool's memory: whether there is a place in it for more.
 *
 * Why this stays: a slice that is full still has the free parts of its pools' memory. Without this
 * file, a program that frees and allocates in a pool near its limit is refused memory that it
 * holds already. */
#pragma once

#include <stdbool.h>

#include "base/cuda_abi.h"
#include "front/process.h"

/* The pool gave this. It is booked as linear memory that costs nothing. */
void piece_note(struct process *p, CUmemoryPool pool, CUdeviceptr ptr);
/* Whether the pool has that many bytes free in one piece, in memory that it keeps anyway since
 * other parts of it are allocated. Nothing may be allocated from it meanwhile, nor be on its way to
 * be freed. Slow: asks the driver about every allocation. False, too, where that cannot be told. */
bool piece_fits(struct process *p, CUmemoryPool pool, uint64_t bytes);
