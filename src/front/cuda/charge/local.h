/* Local memory: what kernels' threads have of their own, stacks among it. A driver has as much of
 * it in a context as the threads that can run at a time need for the most demanding kernel so far.
 * It takes what is missing when one is launched. So what a function needs is asked for when the
 * program gets it, and reserved before it is launched in a context that has less. Launches are
 * looked at closer only while that may be. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cuda_abi.h"
#include "front/cuda/charge/implicit.h"
#include "front/cuda/charge/library_use.h"
#include "front/cuda/gate/gate.h"

/* The needs of a context. */
struct local_need {
	uint64_t context;
	int gpu;        /* the ledger's number of it; -1: none */
	uint64_t bytes; /* a thread */
};

/* One driver call that may make a context's local memory grow. Zeroed: it cannot. */
struct local_call {
	struct implicit implicit;
	struct local_need need;
	uint64_t first;
	bool grows; /* and no other of the process on this GPU at the same time */
	struct library_call library;
};

/* A module or library has gone, and its functions. */
void local_forget(uint64_t owner);
/* A context has been made, which has what all have at first; or one got more. */
void local_look_again(void);
/* Adds what a function, or without one a kernel, needs to what is needed on each GPU of the ledger.
 * context: in which it runs; NULL: the current one. */
void local_need_add(struct local_need *needs, CUfunction function, CUkernel kernel,
		    CUcontext context);
/* Some function of the process needs more than contexts have at first, or may. */
bool local_is_needed(const struct process *p);

/* CUDA_SUCCESS: call the driver, by TAKE() with what is being taken, then local_end().
 * CUDA_ERROR_OUT_OF_MEMORY: the slice has no room for it. */
CUresult local_begin(struct local_call *c, struct local_need need);
/* Returns `result`. surely: a driver that did not take it has it from before. */
CUresult local_end(struct local_call *c, CUresult result, bool surely);
/* The same for needs on several GPUs, by the ledger's number. */
struct local_calls {
	uint32_t count;
	struct local_call calls[LEDGER_GPUS_MAX];
};
CUresult local_begin_all(struct local_calls *c, const struct local_need *needs);
CUresult local_end_all(struct local_calls *c, CUresult result, bool surely);
/* The same for a kernel, and for its library's module (library_use.h). In a stream that captures,
 * it takes nothing yet. */
CUresult local_launch_begin(struct local_call *c, CUfunction function, CUstream stream);
CUresult local_launch_end(struct local_call *c, CUresult result);

/* Every launch of a kernel does this around the driver's call. It looks closer while some context
 * may have less than some function needs. */
#define LOCAL_LAUNCH(function, stream, call)                                                       \
	({                                                                                         \
		CUresult launched_;                                                                \
		if (!gate_is_watched()) {                                                          \
			launched_ = call;                                                          \
		} else {                                                                           \
			struct local_call local_;                                                  \
			launched_ = local_launch_begin(&local_, function, stream);                 \
			if (launched_ == CUDA_SUCCESS)                                             \
				launched_ = local_launch_end(&local_,                              \
							     TAKE(&local_.implicit.taking, call)); \
		}                                                                                  \
		launched_;                                                                         \
	})
