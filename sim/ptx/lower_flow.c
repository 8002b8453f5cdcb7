/* Branches, calls, barriers and ends. */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/lower.h"

static void add_fixup(struct compiler *c, struct symbol *label)
{
	c->fixups = compile_grow(c, c->fixups, c->fixup_count, &c->fixup_room, sizeof(*c->fixups));
	c->fixups[c->fixup_count++] =
		(struct fixup){.insn = c->function->code_count - 1, .label = label};
}

static void lower_bra(struct compiler *c, int arg)
{
	const struct operand *target = &c->statement.operands[0];

	modifier_take(c, "uni");
	operands_expect(c, 1, 1);
	if (target->kind != OPERAND_SYMBOL || target->symbol->kind != SYMBOL_LABEL ||
	    target->offset || target->pair)
		lower_fail(c, "the target is no label");
	lower_emit(c, OP_bra)->reconverge = -1;
	add_fixup(c, target->symbol);
}

/* brx.idx index, list: the targets are fixed up in order, into insn.extra. */
static void lower_brx(struct compiler *c, int arg)
{
	const struct operand *operands = c->statement.operands;
	const struct symbol *list;
	struct insn *insn;
	value_ref index;

	modifier_take(c, "uni");
	if (!modifier_take(c, "idx"))
		lower_fail(c, "unsupported form");
	operands_expect(c, 2, 2);
	list = operands[1].symbol;
	if (operands[1].kind != OPERAND_SYMBOL || list->kind != SYMBOL_LABEL_LIST)
		lower_fail(c, "the targets are no list");
	index = lower_source(c, &operands[0], TYPE_U32);
	insn = lower_emit1(c, OP_brx, 0, index);
	insn->reconverge = -1;
	insn->src[1] = list->list->count;
	insn->extra = (uint32_t)c->module->extra_count;
	for (uint32_t i = 0; i < list->list->count; i++) {
		uint32_t none = UINT32_MAX;

		lower_extra(c, &none, 1);
		add_fixup(c, list->list->labels[i]);
	}
}

static void lower_simple(struct compiler *c, int arg)
{
	modifier_take(c, "uni");
	operands_expect(c, 0, arg == OP_nop ? 1 : 0);
	lower_emit(c, arg);
}

/* --- calls. insn.extra: the counts of returned values and arguments, then {in register, place,
 * size} of each. */

static void call_slot(struct compiler *c, const struct operand *operand, const struct slot *formal,
		      bool returned, uint32_t words[3])
{
	static const enum type types[] = {TYPE_NONE, TYPE_NONE, TYPE_B16,  TYPE_NONE, TYPE_B32,
					  TYPE_NONE, TYPE_NONE, TYPE_NONE, TYPE_B64};
	bool in_frame = operand->kind == OPERAND_SYMBOL && operand->symbol->kind == SYMBOL_FRAME;
	enum type type;

	if (in_frame) {
		words[0] = 0;
		words[1] = operand->symbol->place;
		words[2] = operand->symbol->size;
		if (formal && formal->size != words[2])
			lower_fail(c, "an argument of another size");
		return;
	}
	if (operand->kind == OPERAND_SYMBOL && operand->symbol->kind == SYMBOL_REGISTER)
		type = operand->symbol->type;
	else
		type = formal && formal->size < ARRAY_SIZE(types) ? types[formal->size] : TYPE_B32;
	if (type == TYPE_NONE || type == TYPE_PRED)
		lower_fail(c, "unsupported argument");
	words[0] = 1;
	words[1] = returned ? lower_dest(c, operand, type) : lower_source(c, operand, type);
	words[2] = type_size(type);
	if (formal && formal->size != words[2])
		lower_fail(c, "an argument of another size");
}

static uint32_t call_slots(struct compiler *c, const struct operand *returned,
			   const struct operand *arguments, const struct function *callee)
{
	uint32_t total = returned->element_count + arguments->element_count;
	uint32_t *words = compile_alloc(c, (2 + 3 * (size_t)total) * sizeof(*words)), *at = words;

	if (callee && (callee->return_count != returned->element_count ||
		       callee->param_count != arguments->element_count))
		lower_fail(c, "another number of arguments than the callee");
	*at++ = returned->element_count;
	*at++ = arguments->element_count;
	for (unsigned i = 0; i < returned->element_count; i++, at += 3)
		call_slot(c, &returned->elements[i], callee ? &callee->returns[i] : NULL, true, at);
	for (unsigned i = 0; i < arguments->element_count; i++, at += 3)
		call_slot(c, &arguments->elements[i], callee ? &callee->params[i] : NULL, false,
			  at);
	return lower_extra(c, words, 2 + 3 * (size_t)total);
}

static void lower_call(struct compiler *c, int arg)
{
	const struct operand *operands = c->statement.operands, *target = &operands[1];
	struct function *callee = NULL;
	struct insn *insn;
	uint32_t extra;
	value_ref pointer = 0;

	modifier_take(c, "uni");
	if (target->kind != OPERAND_SYMBOL || target->offset)
		lower_fail(c, "the callee is no function");
	if (target->symbol->kind == SYMBOL_FUNCTION) {
		callee = target->symbol->function;
		if (callee->is_entry)
			lower_fail(c, "the callee is a kernel");
		callee->called = true;
		function_refer(c, callee, true, false);
	} else {
		pointer = lower_source(c, target, TYPE_B64);
		c->function->calls_pointers = true;
	}
	extra = call_slots(c, &operands[0], &operands[2], callee);
	insn = lower_emit1(c, callee ? OP_call : OP_call_indirect, 0, pointer);
	insn->extra = extra;
	if (callee)
		insn->callee = callee;
}

/* --- barriers: src[0] is the barrier, src[1] the threads (VALUE_NONE: all) */

static void lower_barrier_red(struct compiler *c, value_ref barrier)
{
	static const char *const ops[] = {"popc", "and", "or", NULL};
	const struct operand *operands = c->statement.operands;
	unsigned last = c->statement.operand_count - 1;
	int op = modifier_choose(c, ops);
	enum type type = modifier_type(c);
	value_ref threads = VALUE_NONE, predicate, dst;
	struct insn *insn;

	operands_expect(c, 3, 4);
	if (op < 0 || type != (op == REDUCE_POPC ? TYPE_U32 : TYPE_PRED))
		lower_fail(c, "unsupported operation or type");
	if (last == 3)
		threads = lower_source(c, &operands[2], TYPE_U32);
	predicate = lower_predicate(c, &operands[last]);
	dst = lower_dest(c, &operands[0], type);
	insn = lower_emit3(c, OP_bar_red, dst, barrier, threads, predicate);
	insn->detail = (uint8_t)op;
}

static void lower_cluster_barrier(struct compiler *c)
{
	static const char *const order[] = {"aligned", "acquire", "release", "relaxed", NULL};
	bool wait = modifier_take(c, "wait");

	if (!wait && !modifier_take(c, "arrive"))
		lower_fail(c, "unsupported form");
	while (modifier_choose(c, order) >= 0)
		;
	operands_expect(c, 0, 0);
	/* A cluster is one block: its arrival says nothing that the wait does not. */
	if (wait)
		lower_emit2(c, OP_bar_sync, 0, constant_make(c, BARRIER_COUNT, 4), VALUE_NONE);
	else
		lower_emit(c, OP_fence);
}

static void lower_bar(struct compiler *c, int arg)
{
	static const char *const forms[] = {"sync", "arrive", "red", NULL};
	const struct operand *operands = c->statement.operands;
	value_ref barrier, threads = VALUE_NONE;
	int form;

	if (modifier_take(c, "cluster")) {
		lower_cluster_barrier(c);
		return;
	}
	modifier_take(c, "cta");
	modifier_take(c, "aligned");
	if (modifier_take(c, "warp")) {
		modifier_take(c, "sync");
		operands_expect(c, 1, 1);
		lower_source(c, &operands[0], TYPE_B32);
		lower_emit(c, OP_fence);
		return;
	}
	form = modifier_choose(c, forms);
	operands_expect(c, 1, 4);
	if (form == 2) {
		lower_barrier_red(c, lower_source(c, &operands[1], TYPE_U32));
		return;
	}
	operands_expect(c, form == 1 ? 2 : 1, 2);
	if (form < 0)
		lower_fail(c, "unsupported form");
	barrier = lower_source(c, &operands[0], TYPE_U32);
	if (c->statement.operand_count == 2)
		threads = lower_source(c, &operands[1], TYPE_U32);
	lower_emit2(c, form == 0 ? OP_bar_sync : OP_bar_arrive, 0, barrier, threads);
}

static void lower_nanosleep(struct compiler *c, int arg)
{
	value_ref ns;

	if (modifier_type(c) != TYPE_U32)
		lower_fail(c, "unsupported type");
	operands_expect(c, 1, 1);
	ns = lower_source(c, &c->statement.operands[0], TYPE_U32);
	lower_emit1(c, OP_nanosleep, 0, ns);
}

/* Hints to the hardware. */
static void lower_hint(struct compiler *c, int arg)
{
	for (unsigned i = 0; i < c->statement.modifier_count; i++)
		c->statement.modifiers[i].used = true;
	operands_expect(c, 0, 1);
	lower_emit(c, OP_nop);
}

const struct lower_rule lower_rules_flow[] = {
	{"bra", lower_bra, 0},
	{"brx", lower_brx, 0},
	{"call", lower_call, 0},
	{"ret", lower_simple, OP_ret},
	{"exit", lower_simple, OP_exit},
	{"trap", lower_simple, OP_trap},
	{"brkpt", lower_simple, OP_trap},
	{"pmevent", lower_simple, OP_nop},
	{"bar", lower_bar, 0},
	{"barrier", lower_bar, 0},
	{"nanosleep", lower_nanosleep, 0},
	{"setmaxnreg", lower_hint, 0},
	{"griddepcontrol", lower_hint, 0},
	{0},
};
