/* Memory that the driver takes and gives back by itself: pools, and the memory of graphs. Calls
 * that may make it grow don't say by how much. So an upper bound is reserved before, and settled
 * after them against what the driver then holds. A decrease is settled whenever there may have been
 * one. */
#pragma once

#include "base/cuda_abi.h"
#include "front/cuda/charge/charge.h"

/* Some graph of the process may have memory nodes. Read by assembly. */
extern __attribute__((visibility("hidden"))) _Atomic bool graphs_have_memory;

/* Starts booking one: kind OBJECT_POOL by the pool, OBJECT_GRAPH_POOL by the device. Does nothing
 * where it is booked already. */
void grow_track(struct process *p, enum object_kind kind, uint64_t handle, int gpu);

/* One driver call that may make it grow. */
struct growing {
	struct taking taking;
	enum object_kind kind;
	uint64_t handle;
	bool alone;
};

/* Reserves the most that a need of `bytes` can make it grow by. CUDA_SUCCESS: call the driver, then
 * grow_end(). CUDA_ERROR_OUT_OF_MEMORY does not count as refused yet. */
CUresult grow_begin(struct growing *g, struct process *p, enum object_kind kind, uint64_t handle,
		    int gpu, uint64_t bytes);
/* The same without a reservation, for a call that will not make it grow if no other of its kind is
 * under way. Waits, half a second at most, for those that are, and makes others wait. */
CUresult grow_begin_alone(struct growing *g, struct process *p, enum object_kind kind,
			  uint64_t handle, int gpu);
/* Books what is held now. False: it grew beyond what was reserved and the slice has no room for
 * that. */
bool grow_end(struct growing *g);
/* Waits until what was freed in the order of streams is free. False: it cannot, or may not, as
 * captures are going on. */
bool grow_quiesce(void);
/* The memory that is allocated from a pool; 0 where the driver does not say. */
uint64_t grow_pool_used(CUmemoryPool pool);

/* Memory may have been freed in one: look again at each synchronisation, until nothing is free in
 * it. */
void grow_expect_less(struct process *p);
static inline bool grow_is_not_revalidated(const struct process *p)
{
	return atomic_load_explicit(&p->growing_not_revalidated, memory_order_relaxed);
}
/* Books what the driver holds now, where less was expected. */
void grow_settle(struct process *p);
/* Around a driver call that gives back the free memory of some pools. Until their sizes were read
 * again, the driver may hold less than is booked. NULL: there are none, and nothing is to be ended.
 */
struct process *grow_waits_begin(void);
void grow_waits_end(struct process *waiting);
/* The same around a call that waits for work; after it their sizes are read. Returns `result`. */
CUresult grow_waited(struct process *waiting, CUresult result);
#define WAITED(call)                                  \
	struct process *waiting = grow_waits_begin(); \
	return grow_waited(waiting, call)
/* Books what the driver holds now, in all. */
void grow_settle_all(struct process *p);
/* Has the daemon post the memory that this process holds beyond its charges, and take over the
 * memory that is leaving on that GPU (books.h; -1: on none). Memory that was charged for pools and
 * is gone would make that amount too small. So the pools are booked before, and looked at
 * afterwards. Returns the bytes that are charged on the GPU beyond the driver's figure, as far as
 * that is sure. */
uint64_t grow_settle_exactly(struct process *p, int gpu);
/* The same within a driver call that is counted (books_call_begin(), a taking or giving that has
 * not ended). Other threads' questions need not wait for its end. The value of *ret_sure (may be
 * NULL) says that there is not more charged, which cannot be told while other threads' calls are
 * under way. */
uint64_t grow_settle_in_call(struct process *p, int gpu, bool *ret_sure);
/* Gives back what is charged too much for small arrays on a GPU, if that may be many blocks.
 * in_call: see grow_settle_in_call(). */
void grow_settle_arrays(struct process *p, int gpu, bool in_call);
/* The same if it may be any, also where another thread is about to; as far as that can be told. */
void grow_exact_arrays(struct process *p, int gpu, bool in_call);
/* Settles after a call of contexts. contexts: their learned cost may be too much; see
 * process_settle(). */
void grow_settle_contexts(struct process *p, int gpu, bool contexts, bool in_call);
/* Imported memory was given back. Where its exporter did so before, it was posted for this process,
 * and is the slice's again at once, not only when the daemon looks next. */
void grow_import_closed(struct process *p);
/* The same for all GPUs where something is leaving. */
void grow_settle_leaving(struct process *p);
/* Books what the driver holds now in one. */
void grow_settle_one(struct process *p, enum object_kind kind, uint64_t handle);
/* Has the driver give back what is free in those on a GPU, and the daemon take over what is leaving
 * there; settles small arrays there. */
void grow_trim(struct process *p, int gpu);
