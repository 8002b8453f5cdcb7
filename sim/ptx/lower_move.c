/* mov, cvta, isspacep and what packs and unpacks vectors. */
#include "ptx/lower.h"

/* mov.b64 d, {a, b}: the elements share the destination's bits, the first one lowest. */
static void lower_pack(struct compiler *c, const struct operand *vector,
		       const struct operand *scalar, enum type type, bool pack)
{
	unsigned count = vector->element_count, size;
	uint32_t words[ELEMENTS_MAX];
	static const enum type element_types[] = {TYPE_NONE, TYPE_B8,   TYPE_B16,  TYPE_NONE,
						  TYPE_B32,  TYPE_NONE, TYPE_NONE, TYPE_NONE};
	struct insn *insn;
	value_ref whole;
	uint32_t extra;

	if ((count != 2 && count != 4) || type == TYPE_PRED || type_size(type) / count < 2)
		lower_fail(c, "unsupported vector");
	size = type_size(type) / count;
	for (unsigned i = 0; i < count; i++)
		words[i] = pack ? lower_source(c, &vector->elements[i], element_types[size])
				: lower_dest(c, &vector->elements[i], element_types[size]);
	whole = pack ? lower_dest(c, scalar, type) : lower_source(c, scalar, type);
	extra = lower_extra(c, words, count);
	insn = pack ? lower_emit1(c, OP_pack, whole, 0) : lower_emit1(c, OP_unpack, 0, whole);
	insn->extra = extra;
	insn->detail = (uint8_t)count;
	insn->size[0] = (uint8_t)type_size(type);
	insn->size[1] = (uint8_t)size;
}

static void lower_mov(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);
	const struct operand *operands = c->statement.operands;
	value_ref a;

	operands_expect(c, 2, 2);
	if (operands[1].kind == OPERAND_VECTOR) {
		lower_pack(c, &operands[1], &operands[0], type, true);
		return;
	}
	if (operands[0].kind == OPERAND_VECTOR) {
		lower_pack(c, &operands[0], &operands[1], type, false);
		return;
	}
	if (type == TYPE_PRED) {
		a = lower_predicate(c, &operands[1]);
		lower_emit1(c, OP_pred_mov, lower_predicate_dest(c, &operands[0]), a);
		return;
	}
	a = lower_source(c, &operands[1], type);
	lower_emit1(c, lower_mov_op(c, type_size(type)), lower_dest(c, &operands[0], type), a);
}

static const char *const space_names[] = {"global",      "const",        "shared",
					  "shared::cta", "local",        "shared::cluster",
					  "param",       "param::entry", NULL};

static enum insn_space take_space(struct compiler *c)
{
	static const enum insn_space spaces[] = {SPACE_GLOBAL, SPACE_CONST, SPACE_SHARED,
						 SPACE_SHARED, SPACE_LOCAL, SPACE_SHARED,
						 SPACE_PARAM,  SPACE_PARAM};
	int index = modifier_choose(c, space_names);

	if (index < 0)
		lower_fail(c, "unknown state space");
	/* A parameter of a device function lies in its frame's local memory. */
	if (spaces[index] == SPACE_PARAM && !c->function->is_entry)
		return SPACE_LOCAL;
	return spaces[index];
}

static uint64_t space_window(enum insn_space space)
{
	switch (space) {
	case SPACE_SHARED:
		return PTX_WINDOW_SHARED;
	case SPACE_LOCAL:
		return PTX_WINDOW_LOCAL;
	case SPACE_PARAM:
		return PTX_WINDOW_PARAM;
	default:
		return 0;
	}
}

static void lower_cvta(struct compiler *c, int arg)
{
	bool from_generic = modifier_take(c, "to");
	enum insn_space space = take_space(c);
	enum type type = modifier_type(c);
	const struct operand *operands = c->statement.operands;
	uint64_t window = space_window(space);
	value_ref a, d;

	operands_expect(c, 2, 2);
	if (type != TYPE_U64)
		lower_fail(c, "unsupported type");
	a = lower_source(c, &operands[1], type);
	d = lower_dest(c, &operands[0], type);
	if (window == 0)
		lower_emit1(c, OP_mov_b64, d, a);
	else
		lower_emit2(c, OP_add_b64, d, a,
			    constant_make(c, from_generic ? 0 - window : window, 8));
}

static void lower_isspacep(struct compiler *c, int arg)
{
	enum insn_space space = take_space(c);
	const struct operand *operands = c->statement.operands;
	struct insn *insn;
	value_ref a;

	operands_expect(c, 2, 2);
	a = lower_source(c, &operands[1], TYPE_U64);
	insn = lower_emit1(c, OP_isspacep, lower_predicate_dest(c, &operands[0]), a);
	insn->detail = (uint8_t)space;
}

const struct lower_rule lower_rules_move[] = {
	{"mov", lower_mov, 0},
	{"cvta", lower_cvta, 0},
	{"isspacep", lower_isspacep, 0},
	{0},
};
