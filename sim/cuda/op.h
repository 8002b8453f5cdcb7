/* The orders for a stream, and those of a graph's nodes: one description for both. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cuda_abi.h"

struct lane;

enum op_kind {
	OP_EMPTY,
	OP_KERNEL,
	OP_COPY,
	OP_SET,
	OP_HOST,
	OP_EVENT_RECORD,
	OP_EVENT_WAIT,
	OP_MEMOPS,
	OP_ALLOC, /* graphs alone have it */
	OP_FREE,
	OP_GRAPH, /* a child, or a launch */
};

struct op_kernel {
	CUfunction function;
	uint32_t grid[3], block[3];
	uint32_t shared_bytes;
	bool cooperative;
	void *params; /* owned; laid out as the kernel wants it */
	size_t param_bytes;
};

/* One side of a copy: memory seen by the device or by the CPU, or an array. */
struct op_copy_side {
	CUmemorytype type; /* HOST, DEVICE or ARRAY */
	uint64_t address;
	CUarray array;
	size_t x, y, z;     /* x in bytes */
	size_t pitch, rows; /* bytes a row, rows a layer */
};

struct op_copy {
	struct op_copy_side src, dst;
	size_t width, height, depth; /* width in bytes */
	void *staging;               /* owned: where src lies now, or NULL */
};

struct op_set {
	uint64_t address;
	size_t pitch;
	uint32_t value;
	uint32_t element;     /* 1, 2 or 4 bytes */
	size_t width, height; /* width in elements */
};

struct op_host {
	CUhostFn function; /* or: */
	CUstreamCallback callback;
	CUstream stream;
	void *data;
};

struct op_memops {
	CUstreamBatchMemOpParams *list; /* owned */
	unsigned int count;
};

struct op_memory {
	uint64_t address;
	uint64_t ticket; /* see cuMemFreeAsync */
	size_t size;
};

/* For an event that is shared with other processes: how many recordings must be over. 0: those that
 * there are when it runs. */
struct op_wait {
	CUevent event;
	uint64_t target;
};

struct graph_run;

struct op {
	enum op_kind kind;
	union {
		struct op_kernel kernel;
		struct op_copy copy;
		struct op_set set;
		struct op_host host;
		CUevent event;
		struct op_wait wait; /* begins with the event */
		struct op_memops memops;
		struct op_memory memory;
		struct graph_run *run; /* owned */
	};
};

/* Does it, on the lane's thread, and books its time there. Only errors that stick to the context
 * come back. */
CUresult op_run(struct lane *lane, struct op *op);
/* Frees what it owns. */
void op_release(struct op *op);
/* A deep copy. False: no memory. */
bool op_clone(const struct op *from, struct op *to);

CUresult op_kernel_run(struct lane *lane, struct op_kernel *kernel);
CUresult op_copy_run(struct lane *lane, struct op_copy *copy);
CUresult op_set_run(struct lane *lane, struct op_set *set);
/* Nothing in it waits. */
bool op_memops_only_write(const struct op_memops *memops);
CUresult op_memops_run(struct lane *lane, struct op_memops *memops);
