/* Graphs as programs see and change their structure. */
#include <stdlib.h>

#include "base/macros.h"
#include "cuda/graph.h"
#include "cuda/handle.h"

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	API_BEGIN();
	if (!graph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = graph_new();
	return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	API_BEGIN();
	if (!handle_is(graph, HANDLE_GRAPH) || graph->is_child)
		return CUDA_ERROR_INVALID_VALUE;
	graph_free(graph);
	return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
	CUresult result;

	API_BEGIN();
	if (!clone || !handle_is(graph, HANDLE_GRAPH))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	CUgraph made = graph_clone(graph, &result);
	pthread_mutex_unlock(&driver.lock);
	if (made)
		*clone = made;
	return result;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode node, CUgraph clone)
{
	API_BEGIN();
	if (!found || !handle_is(clone, HANDLE_GRAPH))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < clone->node_count; i++) {
		if (clone->nodes[i]->origin != node)
			continue;
		*found = clone->nodes[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetId(CUgraph graph, unsigned int *id)
{
	API_BEGIN();
	if (!handle_is(graph, HANDLE_GRAPH) || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = graph->id;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode node, CUgraph *graph)
{
	API_BEGIN();
	if (!handle_is(node, HANDLE_NODE) || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = node->graph;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetLocalId(CUgraphNode node, unsigned int *id)
{
	API_BEGIN();
	if (!handle_is(node, HANDLE_NODE) || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = node->id;
	return CUDA_SUCCESS;
}

/* Unique in the process: the graph's id and the node's within it. */
CUresult cuGraphNodeGetToolsId(CUgraphNode node, unsigned long long *id)
{
	API_BEGIN();
	if (!handle_is(node, HANDLE_NODE) || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = (unsigned long long)node->graph->id << 32 | node->id;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	API_BEGIN();
	if (!handle_is(node, HANDLE_NODE) || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->type;
	return CUDA_SUCCESS;
}

/* The protocol of all lists: without a place, how many there are; with one, as many as fit, and
 * NULLs in what is left over. */
struct list {
	CUgraphNode *nodes;
	size_t room, count;
};

static void list_put(struct list *list, CUgraphNode node)
{
	if (list->nodes && list->count < list->room)
		list->nodes[list->count] = node;
	list->count++;
}

static CUresult list_end(struct list *list, size_t *count)
{
	if (list->nodes) {
		for (size_t i = list->count; i < list->room; i++)
			list->nodes[i] = NULL;
		list->count = MIN(list->count, list->room);
	}
	*count = list->count;
	return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	API_BEGIN();
	if (!handle_is(graph, HANDLE_GRAPH) || !count)
		return CUDA_ERROR_INVALID_VALUE;
	struct list list = {nodes, *count, 0};
	for (size_t i = 0; i < graph->node_count; i++)
		list_put(&list, graph->nodes[i]);
	return list_end(&list, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	API_BEGIN();
	if (!handle_is(graph, HANDLE_GRAPH) || !count)
		return CUDA_ERROR_INVALID_VALUE;
	struct list list = {nodes, *count, 0};
	for (size_t i = 0; i < graph->node_count; i++)
		if (!graph->nodes[i]->dependency_count)
			list_put(&list, graph->nodes[i]);
	return list_end(&list, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	API_BEGIN();
	if (!handle_is(node, HANDLE_NODE) || !count)
		return CUDA_ERROR_INVALID_VALUE;
	struct list list = {nodes, *count, 0};
	for (size_t i = 0; i < node->dependency_count; i++)
		list_put(&list, node->dependencies[i]);
	return list_end(&list, count);
}

static bool depends_on(const struct CUgraphNode_st *node, CUgraphNode on)
{
	for (size_t i = 0; i < node->dependency_count; i++)
		if (node->dependencies[i] == on)
			return true;
	return false;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	API_BEGIN();
	if (!handle_is(node, HANDLE_NODE) || !count)
		return CUDA_ERROR_INVALID_VALUE;
	struct list list = {nodes, *count, 0};
	for (size_t i = 0; i < node->graph->node_count; i++)
		if (depends_on(node->graph->nodes[i], node))
			list_put(&list, node->graph->nodes[i]);
	return list_end(&list, count);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	API_BEGIN();
	if (!handle_is(graph, HANDLE_GRAPH) || !count || !from != !to)
		return CUDA_ERROR_INVALID_VALUE;
	struct list sources = {from, *count, 0}, targets = {to, *count, 0};
	for (size_t i = 0; i < graph->node_count; i++) {
		CUgraphNode node = graph->nodes[i];

		for (size_t k = 0; k < node->dependency_count; k++) {
			list_put(&sources, node->dependencies[k]);
			list_put(&targets, node);
		}
	}
	list_end(&sources, count);
	return list_end(&targets, count);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				size_t count)
{
	bool ok = true;

	API_BEGIN();
	if (!handle_is(graph, HANDLE_GRAPH) || (count && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (!graph_has_node(graph, from[i]) || !graph_has_node(graph, to[i]) ||
		    from[i] == to[i] || depends_on(to[i], from[i]))
			return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	for (size_t i = 0; i < count && ok; i++)
		ok = graph_dependency_add(to[i], from[i]);
	pthread_mutex_unlock(&driver.lock);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void dependency_remove(CUgraphNode node, CUgraphNode dependency)
{
	for (size_t i = 0; i < node->dependency_count; i++) {
		if (node->dependencies[i] != dependency)
			continue;
		node->dependencies[i] = node->dependencies[--node->dependency_count];
		return;
	}
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				   size_t count)
{
	API_BEGIN();
	if (!handle_is(graph, HANDLE_GRAPH) || (count && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (!graph_has_node(graph, to[i]) || !depends_on(to[i], from[i]))
			return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver.lock);
	for (size_t i = 0; i < count; i++)
		dependency_remove(to[i], from[i]);
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
	API_BEGIN();
	if (!handle_is(node, HANDLE_NODE))
		return CUDA_ERROR_INVALID_VALUE;
	if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&driver.lock);
	graph_node_remove(node);
	pthread_mutex_unlock(&driver.lock);
	return CUDA_SUCCESS;
}

/* The forms with edge data: all edges here are of the default kind. */
static void edges_fill(CUgraphEdgeData *edges, size_t count)
{
	for (size_t i = 0; edges && i < count; i++)
		edges[i] = (CUgraphEdgeData){0};
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
			    CUgraphEdgeData *edges, size_t *count)
{
	CUresult result = cuGraphGetEdges(graph, from, to, count);

	if (result == CUDA_SUCCESS && from)
		edges_fill(edges, *count);
	return result;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges,
				       size_t *count)
{
	CUresult result = cuGraphNodeGetDependencies(node, nodes, count);

	if (result == CUDA_SUCCESS && nodes)
		edges_fill(edges, *count);
	return result;
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes,
					 CUgraphEdgeData *edges, size_t *count)
{
	CUresult result = cuGraphNodeGetDependentNodes(node, nodes, count);

	if (result == CUDA_SUCCESS && nodes)
		edges_fill(edges, *count);
	return result;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				   const CUgraphEdgeData *edges, size_t count)
{
	return cuGraphAddDependencies(graph, from, to, count);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *edges, size_t count)
{
	return cuGraphRemoveDependencies(graph, from, to, count);
}
