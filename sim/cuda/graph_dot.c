/* A graph's picture, in the language of Graphviz. */
#include <stdio.h>

#include "cuda/function.h"
#include "cuda/graph.h"
#include "cuda/handle.h"
#include "cuda/module.h"

static const char *type_name(CUgraphNodeType type)
{
	static const char *const names[] = {
		[CU_GRAPH_NODE_TYPE_KERNEL] = "kernel",
		[CU_GRAPH_NODE_TYPE_MEMCPY] = "memcpy",
		[CU_GRAPH_NODE_TYPE_MEMSET] = "memset",
		[CU_GRAPH_NODE_TYPE_HOST] = "host",
		[CU_GRAPH_NODE_TYPE_GRAPH] = "graph",
		[CU_GRAPH_NODE_TYPE_EMPTY] = "empty",
		[CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "event wait",
		[CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "event record",
		[CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "mem alloc",
		[CU_GRAPH_NODE_TYPE_MEM_FREE] = "mem free",
		[CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] = "batch mem op",
	};

	if ((size_t)type >= sizeof(names) / sizeof(names[0]) || !names[type])
		return "other";
	return names[type];
}

static void write_node(FILE *f, const struct CUgraphNode_st *node)
{
	const struct op_kernel *kernel = &node->op.kernel;

	fprintf(f, "\"node_%p\" [label=\"%s", (const void *)node, type_name(node->type));
	if (node->type == CU_GRAPH_NODE_TYPE_KERNEL && handle_is(kernel->function, HANDLE_FUNCTION))
		fprintf(f, "\\n%s\\n<<<(%u,%u,%u),(%u,%u,%u),%u>>>", kernel->function->info->name,
			kernel->grid[0], kernel->grid[1], kernel->grid[2], kernel->block[0],
			kernel->block[1], kernel->block[2], kernel->shared_bytes);
	fputs("\"];\n", f);
	for (size_t i = 0; i < node->dependency_count; i++)
		fprintf(f, "\"node_%p\" -> \"node_%p\";\n", (void *)node->dependencies[i],
			(const void *)node);
}

/* Children are drawn as boxes of their own, beside their node. NOLINTNEXTLINE(misc-no-recursion):
 * as deep as the program nested its graphs. */
static void write_nodes(FILE *f, const struct CUgraph_st *graph)
{
	for (size_t i = 0; i < graph->node_count; i++) {
		const struct CUgraphNode_st *node = graph->nodes[i];

		write_node(f, node);
		if (!node->child)
			continue;
		fprintf(f, "subgraph \"cluster_%p\" {\n", (void *)node->child);
		write_nodes(f, node->child);
		fputs("}\n", f);
	}
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
	API_BEGIN();
	if (!handle_is(graph, HANDLE_GRAPH) || !path)
		return CUDA_ERROR_INVALID_VALUE;
	FILE *f = fopen(path, "we");
	if (!f)
		return CUDA_ERROR_OPERATING_SYSTEM;
	pthread_mutex_lock(&driver.lock);
	fprintf(f, "digraph dot {\nsubgraph \"cluster_%p\" {\n", (void *)graph);
	write_nodes(f, graph);
	fputs("}\n}\n", f);
	pthread_mutex_unlock(&driver.lock);
	return fclose(f) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
