/* Asynchronous work. A lane is what stands behind a stream. It has pieces of work that run one
 * after another, on a thread of their own, and the queue of the host's that models their time.
 *
 * A piece of work is executed (its memory written) as soon as those before it on the lane have been
 * and its dependencies are complete. It is complete when, besides, the GPU's modelled time for all
 * its items is over. All that wait, wait for a fence.
 *
 * Thread-safe. Fences and lanes are reference-counted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cuda_abi.h"
#include "cuda/driver.h"

/* Playing so many bytes of a copy or a fill takes no time worth waiting for (lane_expect). */
#define PLAYED_AT_ONCE 65536u

struct lane;
struct fence;
struct ptx_spare;

/* A lane's thread knows this of the GPU's clock without asking. All that it handed in is done then,
 * at once, and until `sure_until` the lane has the GPU for itself for certain. */
struct lane_clock {
	bool known;
	uint64_t at, sure_until;
};

struct work {
	struct work *next;
	/* Runs on the lane's thread; submits items for the time it takes with lane_submit(). */
	CUresult (*run)(struct lane *lane, void *data);
	void (*release)(void *data); /* may be NULL */
	void *data;
	struct fence *fence;
	bool strict; /* waits for the modelled time of what was before it: others look at it */
	bool prompt; /* strict, but the GPU has done it as soon as it is there */
	size_t dependency_count;
	struct fence *dependencies[]; /* references; complete before it runs */
};

/* A lane on a device for a context; NULL: no memory, or too many lanes. Starts no thread yet. */
struct lane *lane_create(struct device *device, CUcontext ctx);
/* No more work; what is queued still runs. Drops the caller's reference. */
void lane_close(struct lane *lane);
/* Waits until the lane's thread has ended; work that has not begun is dropped. */
void lane_abort(struct lane *lane);
struct device *lane_device(const struct lane *lane);
CUcontext lane_context(const struct lane *lane);
/* On the lane's thread: what its kernels leave each other. */
struct ptx_spare **lane_spare(struct lane *lane);

/* NULL: no memory. Takes over `data` only on success. */
struct work *work_create(CUresult (*run)(struct lane *, void *), void (*release)(void *),
			 void *data, size_t dependency_count);
/* Appends it; takes the work over. Returns a reference to its fence. */
struct fence *lane_enqueue(struct lane *lane, struct work *work);
/* The fence of the last work appended, a new reference; NULL: never had any, or all is done. */
struct fence *lane_last(struct lane *lane);

/* Items of modelled time for the lane's queue; from its thread only. queue is filled in. */
void lane_submit(struct lane *lane, struct wire_item item);
/* On the lane's thread: what comes next is being played, and its items follow. The GPU's clock
 * stands still for it, so it takes no time however long playing it takes. */
void lane_expect(struct lane *lane);
/* On the lane's thread, before it waits for anything but its own items: nothing follows at once. */
void lane_expect_nothing(struct lane *lane);
/* Between these two, one piece of work submits several items: more follow after each. They nest. */
void lane_sequence_begin(struct lane *lane);
void lane_sequence_end(struct lane *lane);
/* Waits until all items submitted so far are done. Returns when that was, by the GPU's own clock,
 * and until when the lane has the GPU for itself for certain. */
uint64_t lane_wait_done(struct lane *lane, uint64_t *ret_sure_until);

/* On the lane's thread: the same without waiting, where that is known. */
const struct lane_clock *lane_clock(const struct lane *lane);
/* On the lane's thread, now and then while something takes long to play: what was submitted is not
 * kept back for long. */
void lane_hand_in(struct lane *lane);

struct fence *fence_ref(struct fence *fence);
void fence_unref(struct fence *fence); /* NULL is allowed */
bool fence_done(struct fence *fence);
/* Is it of work of this lane? */
bool fence_is_of(const struct fence *fence, const struct lane *lane);
/* The calling thread sleeps until it is complete. */
void fence_wait(struct fence *fence);
/* True once nobody wants the lane's results any more, or the host is gone, without which what it
 * plays may never end. */
bool lane_is_aborting(const struct lane *lane);
