/* Memory that the driver takes as a side effect: modules, libraries, limits of a context, launches.
 * The part of it that is known beforehand is reserved as for any allocation, and stays charged
 * until it is given back. Memory that the driver takes beyond that (or less), the daemon posts from
 * the driver's figure for this process. It does so where the device's free memory fell over the
 * call. A call that then passes the limit is undone and refused. If it fell by more than the slice
 * has left, the call is undone first, and how much that gives back says whether it was this call's.
 * So nothing is posted that others in the slice would be refused for. Another process's allocation
 * in the same moment costs one question to the daemon, or a second call, no more. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "front/cuda/charge/charge.h"
#include "front/cuda/charge/image.h"

/* The number of times that a call is made whose memory cannot be told from others'. */
#define IMPLICIT_TRIES 3

/* One such call. */
struct implicit {
	struct process *process; /* NULL: there is nothing to compare */
	int gpu;
	size_t free_before, free_after;
	struct taking
		taking;  /* the part that was known beforehand; without a process: nothing was */
	uint64_t surely; /* the part of it that is sure; a driver that takes it at the first use
			    finds it reserved */
	bool keeps;      /* the rest, too, where it cannot be told what the driver took */
};

/* The free memory on the current context's GPU, by the driver. 0: it does not say. */
size_t implicit_driver_free(void);
/* The current context, by which books go; 0: none. */
uint64_t implicit_context(void);
/* On the current context's GPU. CUDA_ERROR_OUT_OF_MEMORY: what it surely takes does not fit. Else
 * to be followed by the driver's call, which goes by TAKE(), and implicit_done(). */
CUresult implicit_begin(struct implicit *i, enum object_kind kind, struct image_memory e);
/* The same in a context on a GPU (-1: none of the slice). */
CUresult implicit_begin_in(struct implicit *i, struct process *p, int gpu, uint64_t context,
			   enum object_kind kind, struct image_memory e);
/* After a call that succeeded. True: it fitted. last: what the daemon says is taken for it. */
bool implicit_end(struct implicit *i, bool last);
/* It was undone, and the books follow. False: it may have been others' memory; try it again. */
bool implicit_refused(const struct implicit *i, bool last);
/* The end of every call that implicit_begin() let through; while it is under way, the daemon posts
 * nothing of its own accord. The reservation is booked by that number, or given back. */
CUresult implicit_done(struct implicit *i, CUresult result, uint64_t number);

/* The frame of every call that takes such memory, around the driver's. It has the answer where
 * there is no room, the way to undo the call, and the number by which it is booked. */
#define TAKING(kind, expected, refused, call, undo, number)           \
	for (int attempt_ = 1;; attempt_++) {                         \
		const bool last_ = attempt_ == IMPLICIT_TRIES;        \
		struct implicit i;                                    \
		CUresult result = implicit_begin(&i, kind, expected); \
		if (result != CUDA_SUCCESS)                           \
			return refused;                               \
		result = TAKE(&i.taking, call);                       \
		if (result != CUDA_SUCCESS)                           \
			return implicit_done(&i, result, 0);          \
		if (implicit_end(&i, last_))                          \
			return implicit_done(&i, result, number);     \
		undo;                                                 \
		bool refused_ = implicit_refused(&i, last_);          \
		implicit_done(&i, CUDA_ERROR_OUT_OF_MEMORY, 0);       \
		if (refused_)                                         \
			return CUDA_ERROR_OUT_OF_MEMORY;              \
	}
