/* Sets of nodes, in the order in which they came. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/cuda_abi.h"

struct node_set {
	CUgraphNode *nodes; /* malloc'ed */
	size_t count;
};

/* False: no memory, and the set is as before. */
bool nodes_set(struct node_set *set, const CUgraphNode *nodes, size_t count);
bool nodes_add(struct node_set *set, const CUgraphNode *nodes, size_t count);
