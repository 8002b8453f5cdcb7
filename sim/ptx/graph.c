/* Basic blocks and their immediate post-dominators, by the algorithm of Cooper, Harvey and Kennedy
 * ("A Simple, Fast Dominance Algorithm") on the reversed graph. */
#include <string.h>

#include "base/macros.h"
#include "ptx/flow.h"

static bool ends_block(const struct insn *insn)
{
	switch (insn->op) {
	case OP_bra:
	case OP_brx:
	case OP_ret:
	case OP_exit:
	case OP_trap:
		return true;
	default:
		return false;
	}
}

static void add_next(struct compiler *c, struct graph *graph, struct block *block, uint32_t next)
{
	graph->next = compile_grow(c, graph->next, graph->next_count, &graph->next_room,
				   sizeof(*graph->next));
	graph->next[graph->next_count++] = next;
	block->next_count++;
}

static void link_block(struct compiler *c, struct graph *graph, struct block *block)
{
	const struct insn *last = &c->function->code[block->end - 1];
	uint32_t following = block->end;
	bool falls = !ends_block(last) || last->guard;

	block->first_next = (uint32_t)graph->next_count;
	if (last->op == OP_bra)
		add_next(c, graph, block, graph->block_of[last->target]);
	for (uint32_t i = 0; last->op == OP_brx && i < last->src[1]; i++)
		add_next(c, graph, block, graph->block_of[c->module->extra[last->extra + i]]);
	if (falls && following < c->function->code_count)
		add_next(c, graph, block, graph->block_of[following]);
}

void graph_build(struct compiler *c, struct graph *ret_graph)
{
	const struct function *function = c->function;
	size_t count = function->code_count, room = 0;
	bool starts = true;

	*ret_graph = (struct graph){0};
	ret_graph->block_of = compile_scratch(c, count * sizeof(*ret_graph->block_of));
	for (size_t i = 0; i < count; i++) {
		if (starts || function->code[i].op == OP_label) {
			ret_graph->blocks = compile_grow(c, ret_graph->blocks, ret_graph->count,
							 &room, sizeof(*ret_graph->blocks));
			ret_graph->blocks[ret_graph->count++] =
				(struct block){(uint32_t)i, 0, 0, 0};
		}
		ret_graph->block_of[i] = ret_graph->count - 1;
		ret_graph->blocks[ret_graph->count - 1].end = (uint32_t)i + 1;
		starts = ends_block(&function->code[i]);
	}
	for (uint32_t i = 0; i < ret_graph->count; i++)
		link_block(c, ret_graph, &ret_graph->blocks[i]);
}

/* The reversed graph: before[first[b] ... first[b + 1]) are the blocks that lead to b; b == count
 * is the end. */
struct reversed {
	uint32_t *first, *before;
};

static struct reversed graph_reverse(struct compiler *c, const struct graph *graph)
{
	uint32_t n = graph->count;
	struct reversed r;

	r.first = compile_scratch(c, ((size_t)n + 3) * sizeof(*r.first));
	r.before = compile_scratch(c, (graph->next_count + n + 1) * sizeof(*r.before));
	/* Counted two places ahead, so that filling moves each start to where it belongs. */
	for (uint32_t b = 0; b < n; b++) {
		const struct block *block = &graph->blocks[b];

		for (uint32_t i = 0; i < block->next_count; i++)
			r.first[graph->next[block->first_next + i] + 2]++;
		if (block->next_count == 0)
			r.first[n + 2]++;
	}
	for (uint32_t i = 1; i < n + 3; i++)
		r.first[i] += r.first[i - 1];
	for (uint32_t b = 0; b < n; b++) {
		const struct block *block = &graph->blocks[b];

		for (uint32_t i = 0; i < block->next_count; i++)
			r.before[r.first[graph->next[block->first_next + i] + 1]++] = b;
		if (block->next_count == 0)
			r.before[r.first[n + 1]++] = b;
	}
	return r;
}

/* Numbers the nodes in postorder of a walk from the end; order[i] is the node numbered i. Returns
 * how many were reached. */
static uint32_t number_nodes(struct compiler *c, const struct reversed *r, uint32_t end,
			     uint32_t *number, uint32_t *order)
{
	uint32_t *stack = compile_scratch(c, ((size_t)end + 1) * sizeof(*stack));
	uint32_t *at = compile_scratch(c, ((size_t)end + 1) * sizeof(*at));
	bool *seen = compile_scratch(c, (size_t)end + 1);
	uint32_t depth = 1, numbered = 0;

	stack[0] = end;
	seen[end] = true;
	at[end] = r->first[end];
	while (depth > 0) {
		uint32_t node = stack[depth - 1], before;

		if (at[node] == r->first[node + 1]) {
			number[node] = numbered;
			order[numbered++] = node;
			depth--;
			continue;
		}
		before = r->before[at[node]++];
		if (!seen[before]) {
			seen[before] = true;
			at[before] = r->first[before];
			stack[depth++] = before;
		}
	}
	return numbered;
}

static uint32_t intersect(const uint32_t *dominator, const uint32_t *number, uint32_t a, uint32_t b)
{
	while (a != b) {
		while (number[a] < number[b])
			a = dominator[a];
		while (number[b] < number[a])
			b = dominator[b];
	}
	return a;
}

static uint32_t meet_next(const struct graph *graph, const uint32_t *dominator,
			  const uint32_t *number, uint32_t node)
{
	const struct block *block = &graph->blocks[node];
	uint32_t met = block->next_count == 0 ? graph->count : BLOCK_NONE;

	for (uint32_t i = 0; i < block->next_count; i++) {
		uint32_t next = graph->next[block->first_next + i];

		if (dominator[next] == BLOCK_NONE)
			continue;
		met = met == BLOCK_NONE ? next : intersect(dominator, number, met, next);
	}
	return met;
}

uint32_t *graph_postdominators(struct compiler *c, const struct graph *graph)
{
	uint32_t end = graph->count, reached;
	struct reversed reversed = graph_reverse(c, graph);
	uint32_t *number = compile_scratch(c, ((size_t)end + 1) * sizeof(*number));
	uint32_t *order = compile_scratch(c, ((size_t)end + 1) * sizeof(*order));
	uint32_t *dominator = compile_scratch(c, ((size_t)end + 1) * sizeof(*dominator));
	bool changed = true;

	reached = number_nodes(c, &reversed, end, number, order);
	for (uint32_t i = 0; i < end; i++)
		dominator[i] = BLOCK_NONE;
	dominator[end] = end;
	while (changed) {
		changed = false;
		for (uint32_t i = reached - 1; i-- > 0;) {
			uint32_t met = meet_next(graph, dominator, number, order[i]);

			if (dominator[order[i]] != met) {
				dominator[order[i]] = met;
				changed = true;
			}
		}
	}
	for (uint32_t i = 0; i < end; i++) {
		if (dominator[i] == end)
			dominator[i] = BLOCK_NONE;
	}
	return dominator;
}
