/* Floating point instructions and conversions. */
#include "base/macros.h"
#include "ptx/lower.h"

#define NO_OP (-1)

/* The meaning of a name for f32 (the f64 operation follows it) and for the half-precision types.
 * `plain` rounds to nearest even without flags; `flags` reads insn.flags. */
static const struct float_rule {
	const char *name;
	int plain, flags; /* for f32 */
	bool f64;
	int half; /* enum half_op */
	unsigned sources;
} float_rules[] = {
	{"add", OP_fadd_f32, OP_fadd_f32_flags, true, HALF_ADD, 2},
	{"sub", OP_fsub_f32, OP_fsub_f32_flags, true, HALF_SUB, 2},
	{"mul", OP_fmul_f32, OP_fmul_f32_flags, true, HALF_MUL, 2},
	{"fma", OP_fma_f32, OP_fma_f32_flags, true, HALF_FMA, 3},
	{"mad", OP_fma_f32, OP_fma_f32_flags, true, HALF_FMA, 3},
	{"div", OP_fdiv_f32, OP_fdiv_f32_flags, true, NO_OP, 2},
	{"sqrt", OP_fsqrt_f32, OP_fsqrt_f32_flags, true, NO_OP, 1},
	{"rcp", OP_frcp_f32_flags, OP_frcp_f32_flags, true, NO_OP, 1},
	{"rsqrt", OP_frsqrt_f32_flags, OP_frsqrt_f32_flags, true, NO_OP, 1},
	{"min", OP_fmin_f32, OP_fmin_f32, true, HALF_MIN, 2},
	{"max", OP_fmax_f32, OP_fmax_f32, true, HALF_MAX, 2},
	{"abs", OP_fabs_f32, OP_fabs_f32, true, HALF_ABS, 1},
	{"neg", OP_fneg_f32, OP_fneg_f32, true, HALF_NEG, 1},
	{"copysign", OP_fcopysign_f32, OP_fcopysign_f32, true, NO_OP, 2},
	{"sin", OP_fsin_f32_flags, OP_fsin_f32_flags, false, NO_OP, 1},
	{"cos", OP_fcos_f32_flags, OP_fcos_f32_flags, false, NO_OP, 1},
	{"lg2", OP_flg2_f32_flags, OP_flg2_f32_flags, false, NO_OP, 1},
	{"ex2", OP_fex2_f32_flags, OP_fex2_f32_flags, false, HALF_EX2, 1},
	{"tanh", OP_ftanh_f32_flags, OP_ftanh_f32_flags, false, HALF_TANH, 1},
};

static const struct float_rule *float_rule_find(struct compiler *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(float_rules); i++) {
		if (token_is(&c->statement.name, float_rules[i].name))
			return &float_rules[i];
	}
	lower_fail(c, "unsupported type");
}

static enum ptx_op float_op(struct compiler *c, const struct float_rule *rule, enum type type,
			    uint32_t flags)
{
	int op = flags ? rule->flags : rule->plain;

	if (type_is_half(type)) {
		if (rule->half == NO_OP)
			lower_fail(c, "unsupported type");
		return OP_half;
	}
	if (type == TYPE_F64 && !rule->f64)
		lower_fail(c, "unsupported type");
	return op + (type == TYPE_F64 ? 1 : 0);
}

void lower_float_arith(struct compiler *c, enum type type)
{
	const struct float_rule *rule = float_rule_find(c);
	const struct operand *operands = c->statement.operands;
	uint32_t flags = modifier_float_flags(c);
	enum ptx_op op;
	struct insn *insn;
	value_ref refs[3] = {0};

	if (type != TYPE_F32 && type != TYPE_F64 && !type_is_half(type))
		lower_fail(c, "unsupported type");
	op = float_op(c, rule, type, flags);
	operands_expect(c, rule->sources + 1, rule->sources + 1);
	for (unsigned i = 0; i < rule->sources; i++)
		refs[i] = lower_source(c, &operands[i + 1], type);
	insn = lower_emit3(c, op, lower_dest(c, &operands[0], type), refs[0], refs[1], refs[2]);
	insn->flags = flags;
	insn->type = (uint8_t)type;
	insn->detail = (uint8_t)(type_is_half(type) ? rule->half : 0);
}

static void lower_float(struct compiler *c, int arg)
{
	lower_float_arith(c, modifier_type(c));
}

static void lower_testp(struct compiler *c, int arg)
{
	static const char *const tests[] = {"finite", "infinite",  "number", "notanumber",
					    "normal", "subnormal", NULL};
	int test = modifier_choose(c, tests);
	enum type type = modifier_type(c);
	struct insn *insn;
	value_ref a;

	operands_expect(c, 2, 2);
	if (test < 0 || (type != TYPE_F32 && type != TYPE_F64))
		lower_fail(c, "unsupported form");
	a = lower_source(c, &c->statement.operands[1], type);
	insn = lower_emit1(c, type == TYPE_F64 ? OP_ftestp_f64 : OP_ftestp_f32,
			   lower_predicate_dest(c, &c->statement.operands[0]), a);
	insn->detail = (uint8_t)test;
}

/* --- cvt */

static bool is_integer(enum type type)
{
	return !type_is_float(type) && !type_is_packed(type) && type != TYPE_PRED &&
	       type != TYPE_TF32;
}

/* Extension or truncation: the low bytes of the source, extended by its sign, in the destination's
 * register. Truncation to a narrower type than the register extends by that type's sign instead. */
static void lower_extend(struct compiler *c, enum type dst, enum type src)
{
	const struct operand *operands = c->statement.operands;
	enum type kept = type_size(dst) < type_size(src) ? dst : src;
	unsigned dst_size, src_size, index;
	struct insn *insn;
	value_ref a = lower_source_wide(c, &operands[1], src, &src_size);
	value_ref d = lower_dest_wide(c, &operands[0], dst, &dst_size);
	enum ptx_op family;

	/* cvt.u32.s8 of a 64-bit register: extend to 32 bits first, zeros above. */
	if (type_is_signed(kept) && !type_is_signed(dst) && dst_size > type_size(dst) &&
	    type_size(dst) > type_size(kept)) {
		value_ref narrow = register_make(c, dst);

		insn = lower_emit1(c,
				   dst_size == 8 && type_size(dst) == 4 ? OP_ext32_u8 : OP_ext16_u8,
				   narrow, a);
		insn->op += (uint16_t)(2 * (unsigned)__builtin_ctz(type_size(kept)) + 1);
		insn->size[1] = (uint8_t)src_size;
		a = narrow;
		src_size = MAX(type_size(dst), 2u);
		kept = dst;
	}
	family = dst_size == 8 ? OP_ext64_u8 : dst_size == 4 ? OP_ext32_u8 : OP_ext16_u8;
	index = 2 * (unsigned)__builtin_ctz(type_size(kept)) + (type_is_signed(kept) ? 1 : 0);
	insn = lower_emit1(c, family + (int)index, d, a);
	insn->size[1] = (uint8_t)src_size;
}

/* The common conversions that have an operation of their own. */
static int quick_conversion(enum type dst, enum type src, uint32_t flags)
{
	static const struct {
		enum type dst, src;
		uint32_t flags;
		enum ptx_op op;
	} quick[] = {
		{TYPE_F64, TYPE_F32, 0, OP_cvt_f64_f32},
		{TYPE_F32, TYPE_F64, 0, OP_cvt_f32_f64},
		{TYPE_F32, TYPE_S32, 0, OP_cvt_f32_s32},
		{TYPE_F32, TYPE_U32, 0, OP_cvt_f32_u32},
		{TYPE_F64, TYPE_S32, 0, OP_cvt_f64_s32},
		{TYPE_F64, TYPE_U32, 0, OP_cvt_f64_u32},
		{TYPE_S32, TYPE_F32, FLAG_INTEGRAL | ROUND_ZERO, OP_cvt_s32_f32},
		{TYPE_U32, TYPE_F32, FLAG_INTEGRAL | ROUND_ZERO, OP_cvt_u32_f32},
	};

	for (size_t i = 0; i < ARRAY_SIZE(quick); i++) {
		if (quick[i].dst == dst && quick[i].src == src && quick[i].flags == flags)
			return quick[i].op;
	}
	return -1;
}

static uint32_t conversion_flags(struct compiler *c)
{
	static const char *const integral[] = {"rni", "rzi", "rmi", "rpi", NULL};
	int rounding = modifier_choose(c, integral);
	uint32_t flags = 0;

	if (rounding >= 0)
		flags = FLAG_INTEGRAL | (uint32_t)rounding;
	else if (modifier_take(c, "rna"))
		flags = ROUND_AWAY;
	return flags | modifier_float_flags(c);
}

/* cvt.rn.f16x2.f32 d, a, b: a is the upper half. */
static void lower_cvt_pack(struct compiler *c, enum type dst, enum type src, uint32_t flags)
{
	const struct operand *operands = c->statement.operands;
	struct insn *insn;
	value_ref a, b;

	operands_expect(c, 3, 3);
	if (src != TYPE_F32)
		lower_fail(c, "unsupported type");
	a = lower_source(c, &operands[1], src);
	b = lower_source(c, &operands[2], src);
	insn = lower_emit2(c, OP_cvt_pack_half, lower_dest(c, &operands[0], dst), a, b);
	insn->flags = flags;
	insn->type = (uint8_t)dst;
}

static void lower_cvt(struct compiler *c, int arg)
{
	uint32_t flags = conversion_flags(c);
	enum type dst = modifier_type(c), src = modifier_type(c);
	const struct operand *operands = c->statement.operands;
	unsigned dst_size, src_size;
	struct insn *insn;
	value_ref a, d;
	int quick;

	if (type_is_packed(dst)) {
		lower_cvt_pack(c, dst, src, flags);
		return;
	}
	operands_expect(c, 2, 2);
	if (dst == TYPE_PRED || src == TYPE_PRED || type_is_packed(src) || src == TYPE_TF32)
		lower_fail(c, "unsupported type");
	if (is_integer(dst) && is_integer(src) && !(flags & FLAG_SAT)) {
		lower_extend(c, dst, src);
		return;
	}
	a = lower_source_wide(c, &operands[1], src, &src_size);
	d = lower_dest_wide(c, &operands[0], dst, &dst_size);
	quick = quick_conversion(dst, src, flags);
	if (dst_size != type_size(dst) || src_size != type_size(src))
		quick = -1;
	insn = lower_emit1(c, quick >= 0 ? (enum ptx_op)quick : OP_cvt, d, a);
	insn->flags = flags;
	insn->type = (uint8_t)dst;
	insn->detail = (uint8_t)src;
	insn->size[0] = (uint8_t)dst_size;
	insn->size[1] = (uint8_t)src_size;
}

const struct lower_rule lower_rules_float[] = {
	{"fma", lower_float, 0},
	{"sqrt", lower_float, 0},
	{"rcp", lower_float, 0},
	{"rsqrt", lower_float, 0},
	{"sin", lower_float, 0},
	{"cos", lower_float, 0},
	{"lg2", lower_float, 0},
	{"ex2", lower_float, 0},
	{"tanh", lower_float, 0},
	{"testp", lower_testp, 0},
	{"copysign", lower_float, 0},
	{"cvt", lower_cvt, 0},
	{0},
};
