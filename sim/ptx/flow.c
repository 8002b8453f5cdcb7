/* Ends a function: targets of branches, where diverged lanes join again, register pressure; then
 * moves its code into the module's. */
#include "ptx/flow.h"

#include <errno.h>

#include "base/macros.h"
#include "ptx/lower.h"

void flow_label(struct compiler *c)
{
	c->statement.line = c->token.line;
	lower_emit(c, OP_label);
}

static uint32_t label_index(struct compiler *c, const struct symbol *label)
{
	while (label->alias)
		label = label->alias;
	if (label->index == UINT32_MAX)
		compile_fail(c, -EINVAL, label->line, "label '%.*s' is nowhere",
			     (int)MIN(label->length, (size_t)200), label->name);
	return label->index;
}

static void resolve_targets(struct compiler *c)
{
	for (size_t i = 0; i < c->fixup_count; i++) {
		struct insn *insn = &c->function->code[c->fixups[i].insn];
		uint32_t index = label_index(c, c->fixups[i].label);

		if (insn->op == OP_brx) {
			uint32_t *targets = &c->module->extra[insn->extra];

			while (*targets != UINT32_MAX)
				targets++;
			*targets = index;
		} else {
			insn->target = index;
		}
	}
	c->fixup_count = 0;
}

/* A branch that may split the warp joins at its block's post-dominator. That one has two ways in,
 * so a label stands there. */
static void mark_joins(struct compiler *c, const struct graph *graph, const uint32_t *dominators)
{
	struct insn *code = c->function->code;

	for (uint32_t i = 0; i < graph->count; i++) {
		struct insn *last = &code[graph->blocks[i].end - 1];
		uint32_t join = dominators[i];

		if (last->op != OP_brx && !(last->op == OP_bra && last->guard))
			continue;
		last->reconverge = -1;
		if (join == BLOCK_NONE)
			continue;
		join = graph->blocks[join].start;
		if (code[join].op == OP_label || code[join].op == OP_join) {
			code[join].op = OP_join;
			last->reconverge = (int32_t)join;
		}
	}
}

static void move_code(struct compiler *c)
{
	struct function *function = c->function;
	struct ptx_module *module = c->module;
	uint32_t *moved = compile_scratch(c, (function->code_count + 1) * sizeof(*moved));
	uint32_t at = (uint32_t)module->code_count;

	for (size_t i = 0; i < function->code_count; i++) {
		moved[i] = at;
		if (function->code[i].op != OP_label && function->code[i].op != OP_nop)
			at++;
	}
	function->entry = (uint32_t)module->code_count;
	for (size_t i = 0; i < function->code_count; i++) {
		struct insn insn = function->code[i];

		if (insn.op == OP_label || insn.op == OP_nop)
			continue;
		if (insn.op == OP_bra)
			insn.target = moved[insn.target];
		for (uint32_t k = 0; insn.op == OP_brx && k < insn.src[1]; k++)
			module->extra[insn.extra + k] = moved[module->extra[insn.extra + k]];
		if ((insn.op == OP_bra || insn.op == OP_brx) && insn.reconverge >= 0)
			insn.reconverge = (int32_t)moved[insn.reconverge];
		module->code = compile_grow(c, module->code, module->code_count, &c->code_room,
					    sizeof(*module->code));
		module->code[module->code_count++] = insn;
	}
	function->code = NULL;
	function->code_count = function->code_room = 0;
}

void flow_finish(struct compiler *c)
{
	struct graph graph;

	c->guard = 0;
	c->statement.line = c->token.line;
	lower_emit(c, OP_ret);
	resolve_targets(c);
	graph_build(c, &graph);
	mark_joins(c, &graph, graph_postdominators(c, &graph));
	c->function->registers = graph_pressure(c, &graph);
	move_code(c);
	arena_free(&c->scratch);
	c->carry = 0;
}
