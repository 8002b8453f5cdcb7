/* setp, set, selp, slct. */
#include "ptx/lower.h"

enum bool_op {
	BOOL_AND,
	BOOL_OR,
	BOOL_XOR,
};

static const char *const bool_names[] = {"and", "or", "xor", NULL};

static enum comparison take_comparison(struct compiler *c)
{
	static const struct {
		const char *name;
		enum comparison comparison;
	} names[] = {
		{"eq", COMPARE_EQ},   {"ne", COMPARE_NE},   {"lt", COMPARE_LT},
		{"le", COMPARE_LE},   {"gt", COMPARE_GT},   {"ge", COMPARE_GE},
		{"lo", COMPARE_LT},   {"ls", COMPARE_LE},   {"hi", COMPARE_GT},
		{"hs", COMPARE_GE},   {"num", COMPARE_NUM}, {"nan", COMPARE_NAN},
		{"equ", COMPARE_EQU}, {"neu", COMPARE_NEU}, {"ltu", COMPARE_LTU},
		{"leu", COMPARE_LEU}, {"gtu", COMPARE_GTU}, {"geu", COMPARE_GEU},
		{NULL, COMPARE_NONE},
	};

	for (size_t i = 0; names[i].name; i++) {
		if (modifier_take(c, names[i].name))
			return names[i].comparison;
	}
	lower_fail(c, "unknown comparison");
}

/* Emits the comparison of operands 1 and 2; of a packed type also of the upper
 * halves, into upper. */
static void emit_compare(struct compiler *c, enum comparison comparison, enum type type,
			 value_ref dst, value_ref upper)
{
	const struct operand *operands = c->statement.operands;
	uint32_t flags = modifier_take(c, "ftz") ? FLAG_FTZ : 0;
	value_ref a = lower_source(c, &operands[1], type);
	value_ref b = lower_source(c, &operands[2], type);
	struct insn *insn;
	int op;

	if (type_is_half(type))
		op = OP_half_setp;
	else if (type == TYPE_F32 || type == TYPE_F64)
		op = OP_feq_f32 + 2 * (int)comparison + (type == TYPE_F64 ? 1 : 0);
	else if (comparison > COMPARE_GE)
		lower_fail(c, "a comparison of floats");
	else
		op = OP_eq_u16 + 6 * (int)comparison + (int)index_i6(c, type);
	insn = lower_emit2(c, op, dst, a, b);
	insn->flags = flags;
	insn->type = (uint8_t)type;
	insn->detail = (uint8_t)comparison;
	insn->extra = upper;
}

static void emit_bool(struct compiler *c, int bool_op, value_ref dst, value_ref a, value_ref b)
{
	static const enum ptx_op ops[] = {OP_pred_and, OP_pred_or, OP_pred_xor};

	if (bool_op < 0)
		lower_emit1(c, OP_pred_mov, dst, a);
	else
		lower_emit2(c, ops[bool_op], dst, a, b);
}

/* setp.lt.and.s32 p|q, a, b, !c */
static void lower_setp(struct compiler *c, int arg)
{
	enum comparison comparison = take_comparison(c);
	int bool_op = modifier_choose(c, bool_names);
	enum type type = modifier_type(c);
	const struct operand *operands = c->statement.operands;
	value_ref p, q, t, u, other = 0;

	operands_expect(c, bool_op < 0 ? 3 : 4, bool_op < 0 ? 3 : 4);
	p = lower_predicate_dest(c, &operands[0]);
	q = lower_pair_dest(c, &operands[0]);
	if (bool_op < 0 && !operands[0].pair) {
		emit_compare(c, comparison, type, p, 0);
		return;
	}
	t = register_make(c, TYPE_PRED);
	u = register_make(c, TYPE_PRED);
	if (bool_op >= 0)
		other = lower_predicate(c, &operands[3]);
	emit_compare(c, comparison, type, t, u);
	if (!type_is_packed(type))
		lower_emit1(c, OP_pred_not, u, t);
	emit_bool(c, bool_op, p, t, other);
	if (operands[0].pair)
		emit_bool(c, bool_op, q, u, other);
}

/* The value that set writes for true. */
static uint64_t set_value(struct compiler *c, enum type type)
{
	switch (type) {
	case TYPE_F32:
		return 0x3f800000;
	case TYPE_F16:
	case TYPE_F16X2:
		return 0x3c00;
	case TYPE_BF16:
	case TYPE_BF16X2:
		return 0x3f80;
	case TYPE_U16:
	case TYPE_S16:
		return 0xffff;
	case TYPE_U32:
	case TYPE_S32:
		return 0xffffffff;
	default:
		lower_fail(c, "unsupported type");
	}
}

static void lower_set(struct compiler *c, int arg)
{
	enum comparison comparison = take_comparison(c);
	int bool_op = modifier_choose(c, bool_names);
	enum type dst = modifier_type(c), type = modifier_type(c);
	const struct operand *operands = c->statement.operands;
	bool packed = type_is_packed(type);
	uint64_t yes = set_value(c, dst);
	unsigned size = type_size(dst);
	value_ref t = register_make(c, TYPE_PRED), u = register_make(c, TYPE_PRED), d, zero;

	operands_expect(c, bool_op < 0 ? 3 : 4, bool_op < 0 ? 3 : 4);
	if (type_is_packed(dst) && !packed)
		lower_fail(c, "unsupported type");
	d = lower_dest(c, &operands[0], dst);
	zero = constant_make(c, 0, size);
	emit_compare(c, comparison, type, t, u);
	if (bool_op >= 0) {
		value_ref other = lower_predicate(c, &operands[3]);

		emit_bool(c, bool_op, t, t, other);
		emit_bool(c, bool_op, u, u, other);
	}
	if (packed) {
		value_ref low = register_make(c, TYPE_B32), high = register_make(c, TYPE_B32);

		if (size != 4)
			lower_fail(c, "unsupported type");
		lower_emit3(c, OP_selp_b32, low, constant_make(c, yes & 0xffff, 4), zero, t);
		lower_emit3(c, OP_selp_b32, high, constant_make(c, (yes & 0xffff) << 16, 4), zero,
			    u);
		lower_emit2(c, OP_or_b32, d, low, high);
	} else {
		lower_emit3(c, size == 2 ? OP_selp_b16 : OP_selp_b32, d,
			    constant_make(c, yes, size), zero, t);
	}
}

static enum ptx_op select_op(struct compiler *c, unsigned size)
{
	return lower_mov_op(c, size) - OP_mov_b16 + OP_selp_b16;
}

static void lower_selp(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);
	const struct operand *operands = c->statement.operands;
	value_ref a, b, p;

	operands_expect(c, 4, 4);
	if (type == TYPE_PRED)
		lower_fail(c, "unsupported type");
	a = lower_source(c, &operands[1], type);
	b = lower_source(c, &operands[2], type);
	p = lower_predicate(c, &operands[3]);
	lower_emit3(c, select_op(c, type_size(type)), lower_dest(c, &operands[0], type), a, b, p);
}

/* slct.u32.f32 d, a, b, c: c >= 0 ? a : b */
static void lower_slct(struct compiler *c, int arg)
{
	bool ftz = modifier_take(c, "ftz");
	enum type type = modifier_type(c), by = modifier_type(c);
	const struct operand *operands = c->statement.operands;
	value_ref p = register_make(c, TYPE_PRED), a, b, d;
	struct insn *insn;

	operands_expect(c, 4, 4);
	if (type == TYPE_PRED || (by != TYPE_S32 && by != TYPE_F32))
		lower_fail(c, "unsupported type");
	a = lower_source(c, &operands[1], type);
	b = lower_source(c, &operands[2], type);
	d = lower_source(c, &operands[3], by);
	insn = lower_emit2(c, by == TYPE_F32 ? OP_fge_f32 : OP_ge_s32, p, d,
			   constant_make(c, 0, 4));
	insn->flags = ftz ? FLAG_FTZ : 0;
	lower_emit3(c, select_op(c, type_size(type)), lower_dest(c, &operands[0], type), a, b, p);
}

const struct lower_rule lower_rules_compare[] = {
	{"setp", lower_setp, 0},
	{"set", lower_set, 0},
	{"selp", lower_selp, 0},
	{"slct", lower_slct, 0},
	{0},
};
