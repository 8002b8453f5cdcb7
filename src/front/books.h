/* Charging the process's slot: reserve before the driver is called, give back when it refused or
 * when the memory is gone. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "front/process.h"
#include "front/small.h"

/* More than any GPU has; larger amounts are refused before they overflow. */
#define BOOKS_MOST (1ull << 46)

/* The memory that the driver takes for so many bytes: whole blocks. UINT64_MAX where that is more
 * than any has. */
static inline uint64_t books_blocks(uint64_t bytes)
{
	return bytes > BOOKS_MOST ? UINT64_MAX : ALIGN_UP(bytes, BLOCK_BYTES);
}

/* For a driver call that takes memory: _reserve before it; after it _cancel if the driver refused,
 * else _keep. For a call that gives it: _take before it; after it _drop, or _restore where the
 * driver did not free it. The slot counts the calls that are under way in between, when the
 * driver's figures and its own may differ. */

/* Reserves object->bytes on object->gpu, or what a small one needs. 0, or -ENOMEM with nothing
 * changed, which counts as refused by the slice. */
int books_reserve(struct process *p, struct object *object);
void books_cancel(struct process *p, const struct object *object);
/* The same for what was reserved for a pool or graph to grow by. True: it is leaving, and the
 * daemon is to be asked (grow_settle_exactly()). */
bool books_cancel_growing(struct process *p, const struct object *object);
/* For small.c, with the process's lock held: uncharges what the driver may have had for some time.
 */
void books_lessen_locked(struct process *p, uint32_t gpu, uint64_t bytes);
/* Likewise: what was given back, but the driver may keep. It stays charged. */
void books_leave_locked(struct process *p, uint32_t gpu, uint64_t bytes);
/* Where the daemon may have posted less for what the driver packs as it likes, that is leaving:
 * then what is charged is held again. */
void books_maybe_freed_leave(struct process *p);
/* Reserved memory may be elsewhere, until it is cancelled or dropped. */
void books_managed(struct process *p, struct object *object);
/* Whether the daemon can tell what the process holds of what it charged: nothing may be elsewhere
 * that it does not know of. */
bool books_figures_tell(struct process *p);
/* Books it by its handle. The object that had this handle before is gone without our seeing it, and
 * is dropped. -ENOMEM: it did not fit where it was expected to: free it, then books_cancel(). */
int books_keep(struct process *p, struct object *object);
/* Moves an object out; its amount stays charged. False: not one of ours, and no call is counted. */
bool books_take(struct process *p, enum object_kind kind, uint64_t handle, struct object *ret);
/* True: it is leaving, see below. */
bool books_drop(struct process *p, const struct object *object);
void books_restore(struct process *p, const struct object *object);

/* Instead of _drop: a stream frees it when it gets there. It stays charged until books_freed(), by
 * any thread, with the number that is returned. 0: there is no memory to remember it, and it was
 * dropped. */
uint64_t books_freeing(struct process *p, const struct object *object);
/* Does nothing where its context went before. freed: the stream got there; else that is not known.
 */
void books_freed(struct process *p, uint64_t number, bool freed);

/* A block is reserved for an array that is smaller. From now on the block is one of those that are
 * charged for such arrays together, and the object has none of its own. To be followed by _keep. */
void books_array_packed(struct process *p, struct object *array, uint64_t bytes);
/* How many blocks may be charged too many for such arrays, since the driver was asked last. */
uint32_t books_arrays_maybe_freed(struct process *p, uint32_t gpu);
/* None are for certain, and nobody is just asking. */
bool books_arrays_exact(struct process *p, uint32_t gpu);
/* The driver is to be asked what it holds; false: another thread does. Then _asked(): `over` bytes
 * are charged beyond that; sure: no more than those. */
bool books_arrays_ask(struct process *p, uint32_t gpu);
void books_arrays_asked(struct process *p, uint32_t gpu, uint64_t over, bool sure);

/* The driver may keep memory that is given back: others have it open, it is freed when a stream
 * gets there, or only the driver knows how much it is. This memory stays charged, and is *leaving*
 * until the daemon charges the rest of it in another place. So it is in the books at every moment.
 * An exported object that is dropped leaves by itself. */
void books_leave(struct process *p, uint32_t gpu, uint64_t bytes);
void books_leave_object(struct process *p, const struct object *object);
/* The driver need not have `bytes` of an object that is not booked yet, and the daemon cannot tell.
 * They are leaving, and the object is without them. But while something of the process's may be
 * elsewhere, they stay charged with it (an OBJECT_IMAGE: its `memory`) until nothing is. Call
 * _doubted() after it was booked with some, as that may have been so before. */
void books_doubt(struct process *p, struct object *object, uint64_t bytes);
void books_doubted(struct process *p);
/* How many bytes are leaving on a GPU. */
uint64_t books_leaving(struct process *p, uint32_t gpu);
/* Takes up what is leaving on a GPU, `most` bytes of it, to tell the daemon. 0: nothing is. Else to
 * be followed by books_leaving_end(): gone: the daemon has it, and it is uncharged; else it is
 * leaving as before. True: other threads are telling the daemon, too. */
uint64_t books_leaving_begin(struct process *p, uint32_t gpu, uint64_t most);
bool books_leaving_end(struct process *p, uint32_t gpu, uint64_t bytes, bool gone);
/* Around a driver call that may give back what others have, and what follows it, where this process
 * let others have something. From the call on until that is uncharged, it may be in another's
 * figure, and be charged twice. Returns whether books_release_end() is to follow. */
bool books_release_begin(struct process *p);
/* Around a question to the daemon and what is uncharged by its answer. Meanwhile an excess charge
 * is not taken off what the daemon has posted: it would be missing there when the excess goes.
 * Likewise to be followed by books_release_end(). */
void books_over_begin(struct process *p);
void books_release_end(struct process *p);

/* The charge becomes `to` bytes instead of `from`. 0, or -ENOMEM with nothing changed, which
 * cannot happen where `to` is not more. */
int books_resize(struct process *p, uint32_t gpu, uint64_t from, uint64_t to);
/* One look at what a growing object holds, begun before the driver is asked. */
struct look {
	enum object_kind kind;
	uint64_t handle;
	bool in_call; /* a call that may make it grow is under way, and holds a reserve */
	bool last;    /* is not begun anew where a later one overtook it */
	uint64_t number;
};

void books_look_begin(struct process *p, struct look *look);
/* It holds `bytes`. Growth is paid from *reserve, which is charged already, and then charged.
 * Growth of other calls under way is theirs to pay. Returns 0; -ENOMEM with as much booked as could
 * be paid; -EAGAIN: a later look was booked already, begin anew. */
int books_look_end(struct process *p, const struct look *look, uint64_t bytes, uint64_t *reserve);
/* Books an object outside of any call, as it is; books_look() finds a copy of one. Linear
 * memory that had that handle before is dropped. */
void books_note(struct process *p, const struct object *object);
bool books_look(struct process *p, enum object_kind kind, uint64_t handle, struct object *ret);
/* The handles of those of that kind and `memory`, as table_list(). */
size_t books_list(struct process *p, enum object_kind kind, uint64_t memory, uint64_t *handles,
		  size_t room);
/* How many pieces of pools were freed so far. False: one is being freed right now. */
bool books_pieces_quiet(struct process *p, uint64_t *ret_freed);
/* Forgets a growing object that has no bytes of its own. */
void books_forget(struct process *p, enum object_kind kind, uint64_t handle);
/* Around the driver's call that destroys a pool. The pool is out of the books before it, as its
 * handle may be another one's afterwards, or say nothing, while what is in it is held still. It
 * stays charged (*ret; kind OBJECT_NONE: it was not booked). Then it was destroyed, of which `keep`
 * bytes stay charged as long as something may be elsewhere, and the rest is leaving; or was not. */
void books_pool_ending(struct process *p, uint64_t handle, struct object *ret);
void books_pool_ended(struct process *p, const struct object *pool, uint64_t keep);
void books_pool_restore(struct process *p, const struct object *pool);
/* One reference less; without the last the object is moved out, its amount still charged. *ret is
 * the object as it is then. False: not one of ours. */
bool books_unreference(struct process *p, enum object_kind kind, uint64_t handle,
		       struct object *ret);
/* Moves out an object outside of any call. False: not one of ours. */
bool books_remove(struct process *p, enum object_kind kind, uint64_t handle, struct object *ret);
/* Marks an object as exported. False: not one of ours. */
bool books_export(struct process *p, enum object_kind kind, uint64_t handle);
/* The process is about to open memory of others, which is in its figure when they give that up. May
 * be called with NULL. */
void books_import(struct process *p);
/* The number of the latest mapping. */
uint32_t books_mappings(struct process *p);
/* A descriptor of an OBJECT_PHYSICAL, which others may open, was given out: marks that, for the
 * daemon. False: not one of ours, or no file that can be marked. */
bool books_describe(struct process *p, uint64_t memory, int fd);
/* Books a mapping, and gives it a number. The object that had this address before, and is gone
 * without our having seen it, is moved out. Its kind is OBJECT_NONE where there was none. In
 * *ret_unmaps is how often books_unmapped() was called so far. */
void books_mapped(struct process *p, struct object *mapping, struct object *ret_old,
		  uint32_t *ret_unmaps);
uint32_t books_unmaps(struct process *p);
void books_unmapped(struct process *p);
/* Moves out the mapping at an address, if its number is not above `latest`. False: there is none.
 */
bool books_unmap(struct process *p, uint64_t address, uint32_t latest, struct object *ret);
/* The mapping that an address lies in. Slow. False: none. */
bool books_look_mapping(struct process *p, uint64_t address, struct object *ret);
/* Memory that the driver holds for graphs may go from one to another from here on: it was trimmed,
 * or graphs run beside each other. */
void books_graphs_changed(struct process *p);
/* Whether an executable graph still has all the memory that it had when it was launched last. */
bool books_graph_has_memory(struct process *p, uint64_t exec, uint64_t stream);
/* It was launched, and has. */
void books_graph_launched(struct process *p, uint64_t exec, uint64_t stream);
/* Within a call that is counted: until _end() it waits for the daemon's word, and changes nothing.
 * books_leaving_begin() says so by itself. */
void books_waiting_begin(struct process *p);
void books_waiting_end(struct process *p);
/* A driver call that gives memory begins and ends, where none of the above counts it. */
void books_call_begin(struct process *p);
void books_call_end(struct process *p);
/* The same for a call that is a question to the daemon, which does not wait until others stand
 * still. */
void books_question_begin(struct process *p);
/* For people: the slice refused an allocation of so many bytes. */
void books_count_refused(struct process *p, uint32_t gpu, uint64_t bytes);
/* Changes how often an object is referred to, and returns that; 0: not one of ours. */
uint32_t books_reference(struct process *p, enum object_kind kind, uint64_t handle, int change);
/* Drops everything that belonged to a context. */
void books_drop_context(struct process *p, uint64_t context);

/* The slice on a GPU: its limit, and what is free of it. */
uint64_t books_limit(const struct process *p, uint32_t gpu);
uint64_t books_free(const struct process *p, uint32_t gpu);
