/* Libraries (cuLibrary*) become a module in each context that uses them, at the latest when a
 * variable or a function of them is asked for there, or launched. The memory that the image says it
 * takes is reserved for the context that is current when it is loaded (cuda/module.c), if there is
 * room. For each other context it is reserved before that gets its own. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cuda_abi.h"
#include "front/cuda/charge/implicit.h"

/* One driver call that may make a library's module in the current context. Zeroed: it cannot. */
struct library_call {
	struct implicit implicit;
	uint64_t number;
	struct object before; /* its record in the context, if `again` */
	bool takes, again;
};

/* The memory of a library that was just loaded, in the current context. */
enum library_part {
	LIBRARY_NOWHERE,  /* nothing is reserved: its first use takes all of it */
	LIBRARY_RESERVED, /* its sure part is reserved, and the driver need not have it yet
			   */
	LIBRARY_TAKEN,    /* the driver has all of it */
};
void library_loaded(uint64_t library, struct image_memory image, enum library_part part);
/* It got a kernel. */
void library_got(uint64_t library, uint64_t kernel);
/* CUDA_SUCCESS: call the driver, by TAKE() with what is being taken, then library_end().
 * CUDA_ERROR_OUT_OF_MEMORY: the slice has no room for it. */
CUresult library_begin(struct library_call *c, uint64_t library);
/* The same for a launch of a kernel, if that is what it is. */
CUresult library_launch_begin(struct library_call *c, uint64_t function);
/* Returns `result`. */
CUresult library_end(struct library_call *c, CUresult result);
/* The kernel's library is in the current context, as far as is known, so that asking about the
 * kernel takes nothing. */
bool library_is_there(uint64_t kernel);
/* Some context of the process may get more of a library by a launch. */
bool library_is_missing(struct process *p, const uint64_t *contexts, size_t count);

/* Something is charged for one that need not have been used in its context yet. */
bool library_is_unused(struct process *p);

/* Around the driver's call that unloads it, which gives back what all contexts have of it. */
#define LIBRARY_CONTEXTS_MOST 32
struct library_unloading {
	size_t count;
	struct giving giving[LIBRARY_CONTEXTS_MOST];
};
void library_unload_begin(struct library_unloading *u, uint64_t library, bool in_call);
void library_unload_end(struct library_unloading *u, CUresult result);
