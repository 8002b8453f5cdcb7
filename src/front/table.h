/* The objects that this process allocated, by handle: an open-addressing hash table in memory of
 * its own (mmap), because the front must not call a program's malloc. Constant time however many
 * are live. Not thread-safe: the caller serialises. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Handles of different kinds may have the same value. */
enum object_kind {
	OBJECT_NONE = 0, /* an empty place */
	OBJECT_LINEAR,   /* by its device pointer; 0 bytes: a piece of a pool, which pays */
	OBJECT_BLOCK,    /* a block of small ones: by its address in blocks */
	OBJECT_ARRAY,
	OBJECT_MIPMAP,
	OBJECT_PHYSICAL,   /* memory of cuMemCreate: by a number of ours */
	OBJECT_HANDLE,     /* to one: by the driver's handle */
	OBJECT_MAPPING,    /* a mapping of one: by its address; bytes is its length */
	OBJECT_POOL,       /* count 0: others pay, memory 1: each piece of it is charged */
	OBJECT_GRAPH_POOL, /* the memory of graphs on a device: by the device */
	OBJECT_CONTEXT,
	OBJECT_GRAPH, /* executable, with memory nodes; bytes is what those ask for */
	OBJECT_IMAGE, /* a module or library: by its handle; what its image says that it takes */
	/* A limit of a context: by a number of ours; memory is its first value, count by how much
	 * more the highest is that it took memory for. */
	OBJECT_LIMIT,
	/* An object that needs more local memory than contexts have at first. Its `memory` is how
	 * much a thread needs, or UINT64_MAX where that is to be asked. Its `context` is its module
	 * or library. */
	OBJECT_FUNCTION,
	OBJECT_KERNEL,
	OBJECT_GRAPH_LOCAL, /* the same of an executable graph in a context: by it and the GPU */
	/* A library; count: the KiB that its modules surely take. The next three go with their
	 * library, or the context. */
	OBJECT_LIBRARY,
	OBJECT_LIBRARY_CODE,   /* count: the KiB of its code and small variables */
	OBJECT_LIBRARY_IN,     /* it is in a context, by a number of both; memory: the library;
				* count: 0, or those KiB, if it need not have been used there */
	OBJECT_LIBRARY_KERNEL, /* a kernel of it */
	/* Linear memory that a stream frees when it gets there: by a number of ours; memory is its
	 * device pointer. */
	OBJECT_FREEING,
};

struct object {
	uint64_t handle;
	uint64_t bytes;   /* charged for it alone */
	uint64_t context; /* it goes when this goes; 0: with the process */
	/* It depends on the kind:
	 *   a mapping            the number of its OBJECT_PHYSICAL
	 *   a block              its small_map
	 *   a growing one        the number of the latest look at it
	 *   a piece of a pool    that pool
	 *   a small array        its bytes
	 *   OBJECT_PHYSICAL      if it is marked: the number of its marks
	 *   OBJECT_IMAGE         the bytes of which it is not known now whether they are held */
	uint64_t memory;
	uint32_t small; /* not 0: bytes in a block shared with others, see small.h */
	/* References, where the kind has them; a graph's epoch; of a mapping its number; of an
	 * OBJECT_FREEING whether its place in its block is another's already. */
	uint32_t count;
	uint16_t kind; /* enum object_kind */
	uint16_t gpu;
	/* Others may have a handle to it, by which the driver keeps it when it is given back here.
	 */
	bool exported;
	bool marked;   /* by a descriptor that is marked: proto/mark.h */
	bool managed;  /* may be elsewhere than on the device */
	bool unlisted; /* so may this, but the daemon knows of it (ledger_managed_unlisted()) */
};

/* Zeroed: empty. Its memory stays until the process ends. */
struct table {
	uint64_t *places;
	struct object *objects; /* kind OBJECT_NONE: not used now */
	size_t size;            /* places: a power of two, or 0 */
	size_t used;
	uint32_t numbers; /* objects that were ever used */
	uint32_t unused;  /* the number of one that is not used now; 0: there is none */
};

/* 0 or -ENOMEM. Replaces an object of the same kind and handle, which is returned in *ret_old (may
 * be NULL); its kind is OBJECT_NONE where there was none. */
int table_put(struct table *t, const struct object *object, struct object *ret_old);
/* NULL: not there. Valid until the next put or take. */
struct object *table_find(const struct table *t, enum object_kind kind, uint64_t handle);
struct object *table_find_anew(const struct table *t, enum object_kind kind, uint64_t handle,
			       uint32_t *ret_number);
/* The same, looking first where the last one was that was found with this *number (0: none). */
static inline struct object *table_find_again(const struct table *t, enum object_kind kind,
					      uint64_t handle, uint32_t *number)
{
	if (*number && *number <= t->numbers) {
		struct object *object = &t->objects[*number - 1];

		if (object->kind == kind && object->handle == handle)
			return object;
	}
	return table_find_anew(t, kind, handle, number);
}
/* The object of that kind with `at` within its bytes; NULL: none. Slow: looks at all. */
struct object *table_find_around(const struct table *t, enum object_kind kind, uint64_t at);
/* The handles of those of that kind and `memory`, as many as there is room for. Returns how many
 * there are. Slow. */
size_t table_list(const struct table *t, enum object_kind kind, uint64_t memory, uint64_t *handles,
		  size_t room);
/* Moves it out. False: not there. */
bool table_take(struct table *t, enum object_kind kind, uint64_t handle, struct object *ret);
/* Moves out the next object of that context; *cursor begins at 0. False: none left. */
bool table_take_of_context(struct table *t, uint64_t context, size_t *cursor, struct object *ret);
