/* Graphs: nodes (an op each) and edges; executable graphs made of them; the memory that nodes
 * allocate. All under driver.lock unless said otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cuda/op.h"
#include "cuda/work.h"

struct graph_memory;

struct CUgraphNode_st {
	CUgraph graph;
	CUgraphNodeType type;
	unsigned int id;             /* within its graph */
	struct op op;                /* OP_EMPTY for a child graph */
	CUgraph child;               /* a child graph node's; owned */
	struct graph_memory *memory; /* an alloc node's */
	CUgraphNode origin;          /* a clone's node: the node that it was cloned from */
	size_t dependency_count;
	CUgraphNode *dependencies;
	void **param_pointers; /* a kernel node's, for cuGraphKernelNodeGetParams */
	size_t mark;           /* scratch of walks over the graph */
};

struct graph_user_object {
	CUuserObject object;
	unsigned int refs;
};

struct CUgraph_st {
	unsigned int id;        /* as those of executable graphs, unique in the process */
	unsigned int next_node; /* id of the node that is added next */
	size_t node_count, node_room;
	CUgraphNode *nodes; /* in the order of their creation */
	CUgraph origin;     /* a clone's original */
	bool is_child;      /* owned by a node */
	size_t object_count;
	struct graph_user_object *objects;
};

/* Graphs and nodes by themselves; no lock is taken. */
CUgraph graph_new(void);
/* The next id of a graph, executable or not: from 1 on. Thread-safe. */
unsigned int graph_next_id(void);
void graph_free(CUgraph graph);
/* Takes over what the op owns, always. NULL: no memory. */
CUgraphNode graph_node_add(CUgraph graph, CUgraphNodeType type, struct op *op,
			   const CUgraphNode *dependencies, size_t count);
bool graph_dependency_add(CUgraphNode node, CUgraphNode dependency);
/* NULL: no memory, or it has memory nodes, which cannot be cloned (*ret_result says). */
CUgraph graph_clone(CUgraph graph, CUresult *ret_result);
/* Nodes so that each comes after those it depends on, malloc'ed; NULL: a cycle, or no memory. */
CUgraphNode *graph_order(CUgraph graph);
CUgraphNodeType graph_type_of_op(const struct op *op);
/* Takes the node out of its graph, with all edges, and frees it. */
void graph_node_remove(CUgraphNode node);
bool graph_has_node(CUgraph graph, CUgraphNode node);

/* One launch of an executable graph: its ops as they were when it was launched. */
struct graph_run;
CUresult graph_run(struct lane *lane, struct graph_run *run);
void graph_run_ref(struct graph_run *run);
void graph_run_unref(struct graph_run *run);

/* The memory of an alloc node: its address is there from the beginning, what is behind it from the
 * first launch on. These take their own lock. NULL: no addresses left. */
struct graph_memory *graph_memory_create(struct device *device, size_t bytes);
/* It belongs to its node, to the executable graphs made of it and to their launches; what is
 * allocated when the last of them goes stays until it is freed. NULL is allowed. */
struct graph_memory *graph_memory_ref(struct graph_memory *memory);
void graph_memory_unref(struct graph_memory *memory);
uint64_t graph_memory_address(const struct graph_memory *memory);
size_t graph_memory_size(const struct graph_memory *memory);
struct device *graph_memory_device(const struct graph_memory *memory);
/* Puts device memory behind it. */
CUresult graph_memory_back(struct graph_memory *memory);
/* It is allocated, as programs see it. */
void graph_memory_use(struct graph_memory *memory);
bool graph_memory_is_used(const struct graph_memory *memory);
/* It is allocated, or freed. False: it was so already, or there is none at that address. */
bool graph_memory_use_at(uint64_t address, bool use);
bool graph_memory_is_used_at(uint64_t address);
