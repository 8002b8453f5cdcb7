/* Integer instructions. */
#include "ptx/lower.h"

static struct operand *operand(struct compiler *c, unsigned index)
{
	return &c->statement.operands[index];
}

/* d, a of one type. */
static void emit_unary(struct compiler *c, enum ptx_op op, enum type type)
{
	value_ref a;

	operands_expect(c, 2, 2);
	a = lower_source(c, operand(c, 1), type);
	lower_emit1(c, op, lower_dest(c, operand(c, 0), type), a);
}

static struct insn *emit_binary(struct compiler *c, enum ptx_op op, enum type dst, enum type type,
				enum type second)
{
	value_ref a, b;

	operands_expect(c, 3, 3);
	a = lower_source(c, operand(c, 1), type);
	b = lower_source(c, operand(c, 2), second);
	return lower_emit2(c, op, lower_dest(c, operand(c, 0), dst), a, b);
}

static struct insn *emit_ternary(struct compiler *c, enum ptx_op op, enum type dst, enum type type,
				 enum type third)
{
	value_ref a, b, d;

	operands_expect(c, 4, 4);
	a = lower_source(c, operand(c, 1), type);
	b = lower_source(c, operand(c, 2), type);
	d = lower_source(c, operand(c, 3), third);
	return lower_emit3(c, op, lower_dest(c, operand(c, 0), dst), a, b, d);
}

static bool is_real(enum type type)
{
	return type_is_float(type) || type_is_packed(type);
}

static value_ref carry(struct compiler *c)
{
	if (!c->carry)
		c->carry = register_make(c, TYPE_PRED);
	return c->carry;
}

static unsigned index_32_64(struct compiler *c, enum type type)
{
	unsigned index = index_b3(c, type);

	if (index == 0)
		lower_fail(c, "unsupported type");
	return index - 1;
}

enum {
	ARITH_ADD,
	ARITH_SUB,
	ARITH_ADDC,
	ARITH_SUBC,
};

/* add sub addc subc */
static void lower_add(struct compiler *c, int arg)
{
	bool subtract = arg == ARITH_SUB || arg == ARITH_SUBC;
	bool carries = arg == ARITH_ADDC || arg == ARITH_SUBC;
	bool cc = modifier_take(c, "cc");
	enum type type = modifier_type(c);
	struct insn *insn;

	if (is_real(type)) {
		lower_float_arith(c, type);
	} else if (cc || carries) {
		insn = emit_binary(c, OP_add_cc_u32 + (int)index_32_64(c, type), type, type, type);
		insn->src[2] = carry(c);
		insn->flags = (cc ? FLAG_CARRY_OUT : 0) | (carries ? FLAG_CARRY_IN : 0) |
			      (subtract ? FLAG_BORROW : 0);
	} else if (modifier_take(c, "sat")) {
		if (type != TYPE_S32)
			lower_fail(c, ".sat");
		emit_binary(c, subtract ? OP_sub_sat_s32 : OP_add_sat_s32, type, type, type);
	} else {
		emit_binary(c, (subtract ? OP_sub_b16 : OP_add_b16) + (int)index_b3(c, type), type,
			    type, type);
	}
}

static enum type wide_type(struct compiler *c, enum type type)
{
	switch (type) {
	case TYPE_U16:
		return TYPE_U32;
	case TYPE_S16:
		return TYPE_S32;
	case TYPE_U32:
		return TYPE_U64;
	case TYPE_S32:
		return TYPE_S64;
	default:
		lower_fail(c, "unsupported type");
	}
}

static void lower_mul(struct compiler *c, int arg)
{
	static const char *const parts[] = {"lo", "hi", "wide", NULL};
	int part = modifier_choose(c, parts);
	enum type type = modifier_type(c);

	if (is_real(type))
		lower_float_arith(c, type);
	else if (part == 0)
		emit_binary(c, OP_mul_lo_b16 + (int)index_b3(c, type), type, type, type);
	else if (part == 1)
		emit_binary(c, OP_mul_hi_u16 + (int)index_i6(c, type), type, type, type);
	else if (part == 2)
		emit_binary(c, OP_mul_wide_u16 + (int)index_i6(c, type), wide_type(c, type), type,
			    type);
	else
		lower_fail(c, "no .lo, .hi or .wide");
}

/* mad.lo.cc, mad.hi.cc, madc */
static void lower_mad_carry(struct compiler *c, int part, enum type type, bool carries, bool cc)
{
	unsigned index = index_32_64(c, type);
	enum ptx_op op =
		part == 0 ? OP_mad_lo_cc_u32 + (int)index
			  : OP_mad_hi_cc_u32 + (int)(2 * index) + (type_is_signed(type) ? 1 : 0);
	struct insn *insn = emit_ternary(c, op, type, type, type);

	insn->src[3] = carry(c);
	insn->flags = (cc ? FLAG_CARRY_OUT : 0) | (carries ? FLAG_CARRY_IN : 0);
}

static void lower_mad(struct compiler *c, int arg)
{
	static const char *const parts[] = {"lo", "hi", "wide", NULL};
	int part = modifier_choose(c, parts);
	bool cc = modifier_take(c, "cc");
	enum type type = modifier_type(c);

	if (is_real(type)) {
		lower_float_arith(c, type);
	} else if (part < 0 || ((cc || arg) && part == 2)) {
		lower_fail(c, "no .lo, .hi or .wide");
	} else if (cc || arg) {
		lower_mad_carry(c, part, type, arg != 0, cc);
	} else if (part == 0) {
		emit_ternary(c, OP_mad_lo_b16 + (int)index_b3(c, type), type, type, type);
	} else if (part == 1 && modifier_take(c, "sat")) {
		if (type != TYPE_S32)
			lower_fail(c, ".sat");
		emit_ternary(c, OP_mad_hi_sat_s32, type, type, type);
	} else if (part == 1) {
		emit_ternary(c, OP_mad_hi_u16 + (int)index_i6(c, type), type, type, type);
	} else {
		enum type wide = wide_type(c, type);

		emit_ternary(c, OP_mad_wide_u16 + (int)index_i6(c, type), wide, type, wide);
	}
}

static void lower_mul24(struct compiler *c, int arg)
{
	static const char *const parts[] = {"lo", "hi", NULL};
	int part = modifier_choose(c, parts);
	enum type type = modifier_type(c);
	enum ptx_op op = OP_mul24_lo_u32 + 2 * part + (type == TYPE_S32 ? 1 : 0);
	value_ref a, b, d, product;

	if (part < 0 || (type != TYPE_U32 && type != TYPE_S32))
		lower_fail(c, "unsupported type or part");
	if (!arg) {
		emit_binary(c, op, type, type, type);
		return;
	}
	operands_expect(c, 4, 4);
	a = lower_source(c, operand(c, 1), type);
	b = lower_source(c, operand(c, 2), type);
	d = lower_source(c, operand(c, 3), type);
	product = register_make(c, type);
	lower_emit2(c, op, product, a, b);
	if (modifier_take(c, "sat")) {
		if (part != 1 || type != TYPE_S32)
			lower_fail(c, ".sat");
		lower_emit2(c, OP_add_sat_s32, lower_dest(c, operand(c, 0), type), product, d);
	} else {
		lower_emit2(c, OP_add_b32, lower_dest(c, operand(c, 0), type), product, d);
	}
}

/* d, a, b of u16 ... s64, or of floats. */
static void lower_i6(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);

	if (is_real(type))
		lower_float_arith(c, type);
	else
		emit_binary(c, arg + (int)index_i6(c, type), type, type, type);
}

static void lower_abs(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);

	if (is_real(type))
		lower_float_arith(c, type);
	else if (arg == OP_neg_b16)
		emit_unary(c, arg + (int)index_b3(c, type), type);
	else
		emit_unary(c, arg + (int)index_i6(c, type), type);
}

/* and or xor not cnot, predicates too */
static void lower_logic(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);
	enum ptx_op of_predicates = arg == OP_and_b16  ? OP_pred_and
				    : arg == OP_or_b16 ? OP_pred_or
						       : OP_pred_xor;
	value_ref a, b;

	if (type != TYPE_PRED) {
		emit_binary(c, arg + (int)index_b3(c, type), type, type, type);
		return;
	}
	operands_expect(c, 3, 3);
	a = lower_predicate(c, operand(c, 1));
	b = lower_predicate(c, operand(c, 2));
	lower_emit2(c, of_predicates, lower_predicate_dest(c, operand(c, 0)), a, b);
}

static void lower_not(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);
	value_ref a;

	if (type != TYPE_PRED || arg != OP_not_b16) {
		emit_unary(c, arg + (int)index_b3(c, type), type);
		return;
	}
	operands_expect(c, 2, 2);
	a = lower_predicate(c, operand(c, 1));
	lower_emit1(c, OP_pred_not, lower_predicate_dest(c, operand(c, 0)), a);
}

static void lower_shift(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);
	int index = arg == OP_shl_b16 ? (int)index_b3(c, type) : (int)index_i6(c, type);

	emit_binary(c, arg + index, type, type, TYPE_U32);
}

static void lower_shf(struct compiler *c, int arg)
{
	static const char *const sides[] = {"l", "r", NULL};
	static const char *const modes[] = {"clamp", "wrap", NULL};
	int side = modifier_choose(c, sides), mode = modifier_choose(c, modes);

	if (side < 0 || mode < 0 || modifier_type(c) != TYPE_B32)
		lower_fail(c, "unsupported form");
	emit_ternary(c, OP_shf_l_clamp + 2 * side + mode, TYPE_B32, TYPE_B32, TYPE_B32);
}

static void lower_bfe(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);
	int op = arg + 2 * (int)index_32_64(c, type) + (type_is_signed(type) ? 1 : 0);
	value_ref a, b, d;

	operands_expect(c, 4, 4);
	a = lower_source(c, operand(c, 1), type);
	b = lower_source(c, operand(c, 2), TYPE_U32);
	d = lower_source(c, operand(c, 3), TYPE_U32);
	lower_emit3(c, op, lower_dest(c, operand(c, 0), type), a, b, d);
}

static void lower_bfi(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);
	int op = arg + (int)index_32_64(c, type);
	struct insn *insn;
	value_ref a, b, place, length;

	operands_expect(c, 5, 5);
	a = lower_source(c, operand(c, 1), type);
	b = lower_source(c, operand(c, 2), type);
	place = lower_source(c, operand(c, 3), TYPE_U32);
	length = lower_source(c, operand(c, 4), TYPE_U32);
	insn = lower_emit3(c, op, lower_dest(c, operand(c, 0), type), a, b, place);
	insn->src[3] = length;
}

static void lower_bfind(struct compiler *c, int arg)
{
	bool amount = modifier_take(c, "shiftamt");
	enum type type = modifier_type(c);
	int op = (amount ? OP_bfind_amt_u32 : OP_bfind_u32) + 2 * (int)index_32_64(c, type) +
		 (type_is_signed(type) ? 1 : 0);
	value_ref a;

	operands_expect(c, 2, 2);
	a = lower_source(c, operand(c, 1), type);
	lower_emit1(c, op, lower_dest(c, operand(c, 0), TYPE_U32), a);
}

/* clz popc: d is u32 always. */
static void lower_count(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);
	int op = arg + (int)index_32_64(c, type);
	value_ref a;

	operands_expect(c, 2, 2);
	a = lower_source(c, operand(c, 1), type);
	lower_emit1(c, op, lower_dest(c, operand(c, 0), TYPE_U32), a);
}

static void lower_brev(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);

	emit_unary(c, arg + (int)index_32_64(c, type), type);
}

/* lop3.b32 d, a, b, c, table; lop3.or.b32 d|p, a, b, c, table, q */
static void lower_lop3(struct compiler *c, int arg)
{
	static const char *const combine[] = {"or", "and", NULL};
	int bool_op = modifier_choose(c, combine);
	value_ref a, b, d, dst;
	struct insn *insn;

	if (modifier_type(c) != TYPE_B32)
		lower_fail(c, "unsupported type");
	operands_expect(c, bool_op < 0 ? 5 : 6, bool_op < 0 ? 5 : 6);
	if (operand(c, 4)->kind != OPERAND_INT)
		lower_fail(c, "the table is no number");
	a = lower_source(c, operand(c, 1), TYPE_B32);
	b = lower_source(c, operand(c, 2), TYPE_B32);
	d = lower_source(c, operand(c, 3), TYPE_B32);
	dst = bool_op >= 0 && operand(c, 0)->kind == OPERAND_SINK
		      ? register_make(c, TYPE_B32)
		      : lower_dest(c, operand(c, 0), TYPE_B32);
	insn = lower_emit3(c, OP_lop3, dst, a, b, d);
	insn->detail = (uint8_t)operand(c, 4)->bits;
	if (bool_op >= 0) {
		value_ref q = lower_predicate(c, operand(c, 5)), t = register_make(c, TYPE_PRED);

		lower_emit2(c, OP_ne_u32, t, dst, constant_make(c, 0, 4));
		lower_emit2(c, bool_op ? OP_pred_and : OP_pred_or,
			    lower_pair_dest(c, operand(c, 0)), t, q);
	}
}

static void lower_prmt(struct compiler *c, int arg)
{
	static const char *const modes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16", NULL};
	int mode = modifier_choose(c, modes);

	if (modifier_type(c) != TYPE_B32)
		lower_fail(c, "unsupported type");
	emit_ternary(c, OP_prmt + mode + 1, TYPE_B32, TYPE_B32, TYPE_B32);
}

static void lower_dp(struct compiler *c, int arg)
{
	static const char *const parts[] = {"lo", "hi", NULL};
	int part = arg == OP_dp4a ? 0 : modifier_choose(c, parts);
	enum type a = modifier_type(c), b = modifier_type(c);
	enum type sum = a == TYPE_S32 || b == TYPE_S32 ? TYPE_S32 : TYPE_U32;
	struct insn *insn;

	if (part < 0 || type_size(a) != 4 || type_size(b) != 4)
		lower_fail(c, "unsupported type or part");
	insn = emit_ternary(c, arg + part, sum, TYPE_B32, sum);
	insn->flags = (a == TYPE_S32 ? 1 : 0) | (b == TYPE_S32 ? 2 : 0);
}

static void lower_sad(struct compiler *c, int arg)
{
	enum type type = modifier_type(c);

	emit_ternary(c, arg + (int)index_i6(c, type), type, type, type);
}

static void lower_szext(struct compiler *c, int arg)
{
	static const char *const modes[] = {"clamp", "wrap", NULL};
	int mode = modifier_choose(c, modes);
	enum type type = modifier_type(c);
	struct insn *insn;

	if (mode < 0 || type_size(type) != 4)
		lower_fail(c, "unsupported form");
	if (arg == OP_bmsk_wrap) {
		emit_binary(c, mode ? OP_bmsk_wrap : OP_bmsk_clamp, type, TYPE_U32, TYPE_U32);
		return;
	}
	insn = emit_binary(c, arg + (type == TYPE_S32 ? 1 : 0), type, type, TYPE_U32);
	insn->detail = (uint8_t)mode;
}

static void lower_fns(struct compiler *c, int arg)
{
	if (modifier_type(c) != TYPE_B32)
		lower_fail(c, "unsupported type");
	emit_ternary(c, OP_fns, TYPE_B32, TYPE_B32, TYPE_S32);
}

const struct lower_rule lower_rules_int[] = {
	{"add", lower_add, ARITH_ADD},
	{"sub", lower_add, ARITH_SUB},
	{"addc", lower_add, ARITH_ADDC},
	{"subc", lower_add, ARITH_SUBC},
	{"mul", lower_mul, 0},
	{"mad", lower_mad, 0},
	{"madc", lower_mad, 1},
	{"mul24", lower_mul24, 0},
	{"mad24", lower_mul24, 1},
	{"div", lower_i6, OP_div_u16},
	{"rem", lower_i6, OP_rem_u16},
	{"min", lower_i6, OP_min_u16},
	{"max", lower_i6, OP_max_u16},
	{"abs", lower_abs, OP_abs_u16},
	{"neg", lower_abs, OP_neg_b16},
	{"and", lower_logic, OP_and_b16},
	{"or", lower_logic, OP_or_b16},
	{"xor", lower_logic, OP_xor_b16},
	{"not", lower_not, OP_not_b16},
	{"cnot", lower_not, OP_cnot_b16},
	{"shl", lower_shift, OP_shl_b16},
	{"shr", lower_shift, OP_shr_u16},
	{"shf", lower_shf, 0},
	{"bfe", lower_bfe, OP_bfe_u32},
	{"bfi", lower_bfi, OP_bfi_b32},
	{"bfind", lower_bfind, 0},
	{"clz", lower_count, OP_clz_b32},
	{"popc", lower_count, OP_popc_b32},
	{"brev", lower_brev, OP_brev_b32},
	{"lop3", lower_lop3, 0},
	{"prmt", lower_prmt, 0},
	{"dp4a", lower_dp, OP_dp4a},
	{"dp2a", lower_dp, OP_dp2a_lo},
	{"sad", lower_sad, OP_sad_u16},
	{"szext", lower_szext, OP_szext_u32},
	{"bmsk", lower_szext, OP_bmsk_wrap},
	{"fns", lower_fns, 0},
	{0},
};
