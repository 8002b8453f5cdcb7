/* The structure of graphs. */
#include "cuda/graph.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/handle.h"
#include "cuda/user_object.h"

unsigned int graph_next_id(void)
{
	static _Atomic unsigned int latest;

	return ++latest;
}

CUgraph graph_new(void)
{
	CUgraph graph = calloc(1, sizeof(*graph));

	if (graph)
		graph->id = graph_next_id();
	if (graph && !handle_add(graph, HANDLE_GRAPH)) {
		free(graph);
		graph = NULL;
	}
	return graph;
}

static void node_free(CUgraphNode node)
{
	handle_remove(node);
	op_release(&node->op);
	graph_free(node->child);
	graph_memory_unref(node->memory);
	free(node->dependencies);
	free(node->param_pointers);
	free(node);
}

void graph_free(CUgraph graph)
{
	if (!graph)
		return;
	handle_remove(graph);
	for (size_t i = 0; i < graph->node_count; i++)
		node_free(graph->nodes[i]);
	user_objects_release(graph->objects, graph->object_count);
	free(graph->nodes);
	free(graph);
}

bool graph_dependency_add(CUgraphNode node, CUgraphNode dependency)
{
	for (size_t i = 0; i < node->dependency_count; i++)
		if (node->dependencies[i] == dependency)
			return true;
	CUgraphNode *grown =
		realloc(node->dependencies, (node->dependency_count + 1) * sizeof(CUgraphNode));
	if (!grown)
		return false;
	node->dependencies = grown;
	node->dependencies[node->dependency_count++] = dependency;
	return true;
}

static bool graph_append(CUgraph graph, CUgraphNode node)
{
	if (graph->node_count == graph->node_room) {
		size_t room = graph->node_room * 2 + 16;
		CUgraphNode *grown = realloc(graph->nodes, room * sizeof(CUgraphNode));

		if (!grown)
			return false;
		graph->nodes = grown;
		graph->node_room = room;
	}
	graph->nodes[graph->node_count++] = node;
	return true;
}

CUgraphNode graph_node_add(CUgraph graph, CUgraphNodeType type, struct op *op,
			   const CUgraphNode *dependencies, size_t count)
{
	CUgraphNode node = calloc(1, sizeof(*node));
	bool ok = node != NULL;

	if (!ok) {
		op_release(op);
		return NULL;
	}
	node->graph = graph;
	node->type = type;
	node->id = graph->next_node++;
	node->op = *op;
	for (size_t i = 0; i < count && ok; i++)
		ok = graph_dependency_add(node, dependencies[i]);
	if (ok && handle_add(node, HANDLE_NODE) && graph_append(graph, node))
		return node;
	node_free(node);
	return NULL;
}

void graph_node_remove(CUgraphNode node)
{
	CUgraph graph = node->graph;
	size_t kept = 0;

	for (size_t i = 0; i < graph->node_count; i++) {
		CUgraphNode other = graph->nodes[i];

		if (other == node)
			continue;
		graph->nodes[kept++] = other;
		for (size_t k = 0; k < other->dependency_count; k++) {
			if (other->dependencies[k] != node)
				continue;
			other->dependencies[k] = other->dependencies[--other->dependency_count];
			break;
		}
	}
	graph->node_count = kept;
	node_free(node);
}

bool graph_has_node(CUgraph graph, CUgraphNode node)
{
	return handle_is(node, HANDLE_NODE) && node->graph == graph;
}

CUgraphNodeType graph_type_of_op(const struct op *op)
{
	switch (op->kind) {
	case OP_KERNEL:
		return CU_GRAPH_NODE_TYPE_KERNEL;
	case OP_COPY:
		return CU_GRAPH_NODE_TYPE_MEMCPY;
	case OP_SET:
		return CU_GRAPH_NODE_TYPE_MEMSET;
	case OP_HOST:
		return CU_GRAPH_NODE_TYPE_HOST;
	case OP_EVENT_RECORD:
		return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
	case OP_EVENT_WAIT:
		return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
	case OP_MEMOPS:
		return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	case OP_ALLOC:
		return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	case OP_FREE:
		return CU_GRAPH_NODE_TYPE_MEM_FREE;
	case OP_GRAPH:
		return CU_GRAPH_NODE_TYPE_GRAPH;
	case OP_EMPTY:
		break;
	}
	return CU_GRAPH_NODE_TYPE_EMPTY;
}

/* Clones a node without its edges. */
static CUgraphNode node_clone(CUgraph graph, CUgraphNode from, CUresult *ret_result)
{
	struct op op;

	*ret_result = CUDA_ERROR_NOT_SUPPORTED;
	if (from->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || from->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return NULL;
	*ret_result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!op_clone(&from->op, &op))
		return NULL;
	CUgraphNode node = graph_node_add(graph, from->type, &op, NULL, 0);
	if (!node)
		return NULL;
	node->origin = from;
	if (from->child) {
		node->child = graph_clone(from->child, ret_result);
		if (!node->child)
			return NULL;
		node->child->is_child = true;
	}
	return node;
}

CUgraph graph_clone(CUgraph graph, CUresult *ret_result)
{
	CUgraph clone = graph_new();
	bool ok = clone && user_objects_share(graph->objects, graph->object_count, &clone->objects,
					      &clone->object_count);

	*ret_result = CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < graph->node_count && ok; i++) {
		graph->nodes[i]->mark = i;
		ok = node_clone(clone, graph->nodes[i], ret_result) != NULL;
	}
	for (size_t i = 0; i < graph->node_count && ok; i++) {
		CUgraphNode from = graph->nodes[i];

		for (size_t k = 0; k < from->dependency_count && ok; k++)
			ok = graph_dependency_add(clone->nodes[i],
						  clone->nodes[from->dependencies[k]->mark]);
	}
	if (!ok) {
		graph_free(clone);
		return NULL;
	}
	clone->origin = graph;
	*ret_result = CUDA_SUCCESS;
	return clone;
}

static bool is_placed(const struct CUgraphNode_st *node)
{
	for (size_t i = 0; i < node->dependency_count; i++)
		if (!node->dependencies[i]->mark)
			return false;
	return true;
}

CUgraphNode *graph_order(CUgraph graph)
{
	CUgraphNode *order = malloc((graph->node_count + 1) * sizeof(CUgraphNode));
	size_t count = 0, before;

	if (!order)
		return NULL;
	for (size_t i = 0; i < graph->node_count; i++)
		graph->nodes[i]->mark = 0;
	/* Mostly nodes are created after those they depend on, and one pass does. */
	do {
		before = count;
		for (size_t i = 0; i < graph->node_count; i++) {
			CUgraphNode node = graph->nodes[i];

			if (node->mark || !is_placed(node))
				continue;
			node->mark = 1;
			order[count++] = node;
		}
	} while (count > before && count < graph->node_count);
	if (count == graph->node_count)
		return order;
	free(order);
	return NULL;
}
