/* Allocations smaller than a block. The driver packs those of a context into blocks of 2 MiB, which
 * it takes and gives back whole. The address of an allocation shows its block, and its place there.
 * So the charge is exactly the blocks that hold live ones, and the room in each is known.
 *
 * A block is reserved before the call, and returned if the driver did not need another one. It is
 * not reserved if the block that was filled last surely has room. If the slice has no room for a
 * block, the call is made only if some block has room that the driver may give to no other thread's
 * call. While a call without a block of its own is under way, no block is returned: should the
 * driver take one for it after all, it is paid for.
 *
 * A block in the books that holds none (count 0) is not charged.
 *
 * Why this stays, and not a sum of sizes: the driver takes whole blocks, so a sum charges too
 * little (one byte takes 2 MiB). A block for each allocation charges too much: a thousand small
 * arrays would fill a slice of 2 GiB, and the driver gives one block for them.
 *
 * An object is small if `small` is not 0: its bytes as the driver hands them out. All functions are
 * called with the process's lock held. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "front/table.h"

struct process;

/* The granularity of device memory, which cuMemGetAllocationGranularity tells. */
#define BLOCK_BYTES MIB(2)
/* The unit of addresses and sizes within a block. */
#define SMALL_UNIT 512u

/* The parts of a block that are taken, a bit a unit. */
struct small_map {
	union {
		uint64_t taken[BLOCK_BYTES / SMALL_UNIT / 64];
		struct small_map *next; /* the next one that is not in use */
	};
};

/* The block of a GPU that was filled last. */
struct small_hot {
	uint64_t context;
	uint64_t block;  /* its address in blocks */
	uint32_t units;  /* free at its end, and not yet promised to a call */
	uint32_t number; /* the number of the one looked for last: table_find_again() */
	/* The one that was emptied last, by its address: not charged, as the driver gave it back,
	 * but kept in the books, as it often comes again. 0: none. */
	uint64_t empty;
};

/* A GPU's calls under way that have not reserved a block. */
struct small_calls {
	uint32_t uncovered;
	bool on_any_room;  /* one of them counts on room anywhere, and is alone */
	uint32_t withheld; /* blocks to be returned when there are none */
	uint32_t freeing;  /* given to the driver to free: it may have done so already or not */
};

/* 0; -ENOMEM; -EAGAIN: not while another thread's call is under way. */
int small_reserve(struct process *p, struct object *object);
/* The driver refused: undoes the reservation. */
void small_cancel(struct process *p, const struct object *object);
/* The driver gave object->handle, for which `reserved` bytes are. -ENOMEM: it took another block
 * for it after all, and there is no room for one; the reservation still stands. */
int small_keep(struct process *p, const struct object *object, uint64_t reserved);
/* One that was kept is about to be freed: from now on, the driver may give its place to another. To
 * be followed by one of the next two. */
void small_leave(struct process *p, const struct object *object);
/* It was freed. */
void small_drop(struct process *p, const struct object *object);
/* It will be when a stream gets there, and has its place until then. False: that was so at once,
 * and another one has it. To be followed by small_leave() and small_drop() all the same. */
bool small_stay(struct process *p, const struct object *object);
/* It was not. */
void small_return(struct process *p, const struct object *object);
/* Others may have a handle to it, which is one to its block. */
void small_export(struct process *p, const struct object *object);
/* A block, moved out of the books, goes with its context, before or after those in it. */
void small_drop_block(struct process *p, const struct object *block);
