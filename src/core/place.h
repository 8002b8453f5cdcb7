/* Placement: which GPUs a request lands on and how much it is granted. Pure: plain structs in,
 * plain structs out, no clock, no I/O, no allocation. All sizes in bytes, shares in millionths
 * (SHARE_ONE).
 *
 * Among the GPUs that can fulfil a request in full, the policy chooses:
 *
 * 1. memory. PLACE_PACK takes the GPU with the fewest bytes left afterwards, so that big requests
 *    find big holes. PLACE_SPREAD takes the GPU of which the largest part is left afterwards.
 * 2. Where that is equal: the time that is left to promise, of GPUs whose time is shared. PACK
 * takes the least, SPREAD the most.
 * 3. Where that is equal, too: the GPU time that was used lately (core/busy.h), of GPUs whose time
 * is not shared. Both take the least.
 * 4. The lower index.
 *
 * Remainders by the 93% rule are taken where no GPU has all of it, the largest first in either
 * policy; then steps 2 to 4 follow. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The percentage of the request that a remainder must hold to be granted instead
 * (docs/man/carve.1). */
#define PLACE_TOLERANCE_PERCENT 93u
/* The driver, or a desktop, may hold so much of a GPU for ever: a percentage of what the GPU can
 * grant. */
#define PLACE_RESIDENT_PERCENT 1u
/* GPUs of one session, at most (what a ledger has room for). */
#define PLACE_GPUS_MAX 64u

enum place_policy {
	PLACE_PACK,   /* the fullest GPU, so that others stay empty for requests of whole GPUs */
	PLACE_SPREAD, /* the emptiest GPU, so that sessions share a GPU as late as possible */
};

struct place_gpu {
	uint64_t total;    /* the driver's figure */
	uint64_t reserved; /* the part of it that the driver keeps for itself */
	uint64_t outside;  /* held by programs outside carve */
	uint64_t promised; /* sum of the slices on it, whole */
	uint64_t context;  /* cost of one CUDA context; 0: not known */
	uint32_t sessions; /* slices on it */
	uint64_t share;    /* sum of the compute requests on it */
	bool shared_time;  /* in a time-slicing mode: compute is promised too, at most SHARE_ONE */
	uint32_t busy;     /* busy_percent(): the part of its time that was used lately */
	bool offered;      /* false: not ours to give (another daemon's, lost, failing) */
	bool drained;      /* an administrator gives out nothing new of it until it is resumed */
};

enum place_kind {
	PLACE_BYTES,    /* `bytes` on each GPU */
	PLACE_FRACTION, /* `share` of what each GPU can grant when empty */
	PLACE_WHOLE,    /* whole, empty GPUs */
	PLACE_PROFILE,  /* MIG instances of a profile: not decided here, see mig.h */
};

struct place_request {
	enum place_kind kind;
	uint64_t bytes;
	uint32_t share;         /* PLACE_FRACTION: of the memory */
	uint32_t compute;       /* compute request, see place_compute() */
	uint32_t count;         /* GPUs, 1 to PLACE_GPUS_MAX */
	const uint8_t *allowed; /* one flag a GPU; NULL: all */
	bool strict;            /* no tolerance */
	/* A strict fraction, or whole GPU, may lack what programs outside carve hold there, up to
	 * PLACE_RESIDENT_PERCENT. To wait for that may be to wait for ever. */
	bool lacks_resident;
};

struct place_grant {
	uint32_t gpu; /* index into the array of GPUs */
	uint64_t bytes;
	uint64_t requested; /* in bytes of this GPU */
};

struct place_result {
	struct place_grant grant[PLACE_GPUS_MAX];
	uint32_t count;
	bool tolerance_applied;
};

/* Why one GPU does not fulfil a request. */
enum place_reason {
	PLACE_FITS,
	PLACE_NOT_OFFERED,
	PLACE_NOT_ALLOWED, /* not in `allowed` */
	PLACE_TOO_SMALL,   /* the slice would not hold one context */
	PLACE_DRAINED,
	PLACE_NOT_EMPTY, /* a whole GPU was asked */
	PLACE_NO_MEMORY,
	PLACE_NO_COMPUTE,
};

/* The memory that an empty GPU can grant: the base of fractions. */
uint64_t place_capacity(const struct place_gpu *gpu);
/* The memory that the GPU can grant now. */
uint64_t place_available(const struct place_gpu *gpu);
/* The request's size on this GPU, in bytes. */
uint64_t place_requested(const struct place_gpu *gpu, const struct place_request *request);
/* The share of a GPU's time that the request is for: a whole GPU is all of its time. Promised on
 * GPUs with shared_time; elsewhere it is kept for the day when time is shared there. */
uint32_t place_compute(const struct place_request *request);
/* Whether GPU number `index` can fulfil the request in full, and if not, why. */
enum place_reason place_check(const struct place_gpu *gpus, size_t index,
			      const struct place_request *request);

/* Decides. 0; -ENOSPC: not now (or never: see place_possible); -EDOM: every GPU that is offered and
 * allowed would get a slice too small for one context. */
int place_decide(enum place_policy policy, const struct place_gpu *gpus, size_t gpu_count,
		 const struct place_request *request, struct place_result *ret);
/* Whether the request would be granted if nobody else held anything on these GPUs, and none were
 * drained. */
bool place_possible(const struct place_gpu *gpus, size_t gpu_count,
		    const struct place_request *request);
