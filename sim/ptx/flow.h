/* The graph of a function's basic blocks. */
#pragma once

#include "ptx/compile.h"

#define BLOCK_NONE UINT32_MAX

struct block {
	uint32_t start, end; /* instructions [start, end) */
	uint32_t first_next; /* its first index in graph.next */
	uint32_t next_count; /* 0: it ends the function */
};

struct graph {
	struct block *blocks;
	uint32_t count;
	uint32_t *next; /* successors of the blocks, one after another */
	size_t next_count, next_room;
	uint32_t *block_of; /* by instruction */
};

/* Builds the graph of c->function, whose branches have their targets. */
void graph_build(struct compiler *c, struct graph *ret_graph);
/* The immediate post-dominator of each block; BLOCK_NONE: only the function's end. */
uint32_t *graph_postdominators(struct compiler *c, const struct graph *graph);
/* The most 32-bit registers that are live at once. */
uint32_t graph_pressure(struct compiler *c, const struct graph *graph);
