#include "ptx/lower.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"

void lower_fail(struct compiler *c, const char *what)
{
	const struct token *name = &c->statement.name;

	compile_fail(c, -EINVAL, c->statement.line, "%s of instruction '%.*s'", what,
		     (int)MIN(name->length, (size_t)64), name->text);
}

/* --- modifiers */

bool modifier_take(struct compiler *c, const char *name)
{
	for (unsigned i = 0; i < c->statement.modifier_count; i++) {
		struct modifier *modifier = &c->statement.modifiers[i];

		if (!modifier->used && modifier->length == strlen(name) &&
		    memcmp(modifier->text, name, modifier->length) == 0) {
			modifier->used = true;
			return true;
		}
	}
	return false;
}

enum type modifier_type(struct compiler *c)
{
	for (unsigned i = 0; i < c->statement.modifier_count; i++) {
		struct modifier *modifier = &c->statement.modifiers[i];
		enum type type = type_parse(modifier->text, modifier->length);

		if (!modifier->used && type != TYPE_NONE) {
			modifier->used = true;
			return type;
		}
	}
	lower_fail(c, "missing or unsupported type");
}

int modifier_choose(struct compiler *c, const char *const *names)
{
	for (int i = 0; names[i]; i++) {
		if (modifier_take(c, names[i]))
			return i;
	}
	return -1;
}

uint32_t modifier_float_flags(struct compiler *c)
{
	static const char *const roundings[] = {"rn", "rz", "rm", "rp", NULL};
	static const char *const ignored[] = {"approx", "full", "noftz", NULL};
	int rounding = modifier_choose(c, roundings);
	uint32_t flags = rounding > 0 ? (uint32_t)rounding : 0;

	while (modifier_choose(c, ignored) >= 0)
		;
	if (modifier_take(c, "ftz"))
		flags |= FLAG_FTZ;
	if (modifier_take(c, "sat"))
		flags |= FLAG_SAT;
	if (modifier_take(c, "NaN"))
		flags |= FLAG_NAN;
	if (modifier_take(c, "relu"))
		flags |= FLAG_RELU;
	if (modifier_take(c, "xorsign"))
		flags |= FLAG_XORSIGN;
	if ((flags & FLAG_XORSIGN) && !modifier_take(c, "abs"))
		lower_fail(c, ".xorsign without .abs");
	return flags;
}

static void modifiers_done(struct compiler *c)
{
	const struct token *name = &c->statement.name;

	for (unsigned i = 0; i < c->statement.modifier_count; i++) {
		const struct modifier *modifier = &c->statement.modifiers[i];

		if (!modifier->used)
			compile_fail(
				c, -EINVAL, c->statement.line,
				"unknown or unsupported modifier '.%.*s' of instruction '%.*s'",
				(int)MIN(modifier->length, (size_t)64), modifier->text,
				(int)MIN(name->length, (size_t)64), name->text);
	}
}

void operands_expect(struct compiler *c, unsigned min, unsigned max)
{
	if (c->statement.operand_count < min || c->statement.operand_count > max)
		lower_fail(c, "wrong number of operands");
}

/* --- code */

struct insn *lower_emit(struct compiler *c, enum ptx_op op)
{
	struct function *function = c->function;
	struct insn *insn;

	function->code = compile_grow(c, function->code, function->code_count, &function->code_room,
				      sizeof(*function->code));
	insn = &function->code[function->code_count++];
	*insn = (struct insn){.op = (uint16_t)op, .guard = c->guard, .line = c->statement.line};
	return insn;
}

struct insn *lower_emit1(struct compiler *c, enum ptx_op op, value_ref dst, value_ref a)
{
	struct insn *insn = lower_emit(c, op);

	insn->dst = dst;
	insn->src[0] = a;
	return insn;
}

struct insn *lower_emit2(struct compiler *c, enum ptx_op op, value_ref dst, value_ref a,
			 value_ref b)
{
	struct insn *insn = lower_emit1(c, op, dst, a);

	insn->src[1] = b;
	return insn;
}

struct insn *lower_emit3(struct compiler *c, enum ptx_op op, value_ref dst, value_ref a,
			 value_ref b, value_ref d)
{
	struct insn *insn = lower_emit2(c, op, dst, a, b);

	insn->src[2] = d;
	return insn;
}

uint32_t lower_extra(struct compiler *c, const uint32_t *words, size_t count)
{
	struct ptx_module *module = c->module;
	uint32_t index = (uint32_t)module->extra_count;

	for (size_t i = 0; i < count; i++) {
		module->extra = compile_grow(c, module->extra, module->extra_count,
					     &module->extra_room, sizeof(*module->extra));
		module->extra[module->extra_count++] = words[i];
	}
	return index;
}

enum ptx_op lower_mov_op(struct compiler *c, unsigned size)
{
	if (size == 8)
		return OP_mov_b64;
	if (size == 4)
		return OP_mov_b32;
	if (size != 2)
		lower_fail(c, "unsupported size");
	return OP_mov_b16;
}

/* --- operands */

static void check_register(struct compiler *c, const struct symbol *symbol, enum type type,
			   bool wide)
{
	bool fits = wide ? type_size(symbol->type) >= type_size(type)
			 : type_size(symbol->type) == type_size(type);

	if ((symbol->type == TYPE_PRED) != (type == TYPE_PRED) || !fits)
		lower_fail(c, "an operand has the wrong type");
}

static uint64_t double_bits(double number, enum type type)
{
	uint64_t bits = 0;
	float single = (float)number;

	if (type == TYPE_F64)
		memcpy(&bits, &number, 8);
	else
		memcpy(&bits, &single, 4);
	return bits;
}

static value_ref lower_number(struct compiler *c, const struct operand *operand, enum type type)
{
	unsigned size = type_size(type);

	if (type == TYPE_PRED)
		return constant_make(c, operand->bits ? UINT32_MAX : 0, 0);
	if (operand->kind == OPERAND_INT) {
		if (type == TYPE_F32 || type == TYPE_F64)
			lower_fail(c, "an integer where a float is wanted");
		return constant_make(c, operand->bits, size);
	}
	if (type == TYPE_F32 || type == TYPE_F64) {
		if (type == TYPE_F32 && operand->single)
			return constant_make(c, operand->bits, 4);
		return constant_make(c, double_bits(operand->number, type), size);
	}
	/* mov.b32 %r, 0f3F800000 */
	if (size == 4)
		return constant_make(c, double_bits(operand->number, TYPE_F32), 4);
	if (size == 8)
		return constant_make(c, double_bits(operand->number, TYPE_F64), 8);
	lower_fail(c, "a float where an integer is wanted");
}

static value_ref lower_special(struct compiler *c, const struct operand *operand, enum type type)
{
	value_ref ref = register_make(c, type);
	struct insn *insn = lower_emit1(c, OP_sreg, ref, 0);

	if (type == TYPE_PRED || type_size(type) < 2)
		lower_fail(c, "an operand has the wrong type");
	insn->detail = (uint8_t)operand->special;
	insn->size[0] = (uint8_t)type_size(type);
	return ref;
}

/* The address of something, as a value. */
static value_ref lower_address_value(struct compiler *c, const struct operand *operand,
				     enum type type)
{
	const struct symbol *symbol = operand->symbol;
	unsigned size = type_size(type);
	value_ref ref;

	if (size < 4 || type == TYPE_PRED)
		lower_fail(c, "an operand has the wrong type");
	switch (symbol->kind) {
	case SYMBOL_VARIABLE:
	case SYMBOL_FUNCTION:
		return constant_address(c, symbol, operand->offset, size);
	case SYMBOL_KERNEL_PARAM:
		return constant_make(c, symbol->place + (uint64_t)operand->offset, size);
	case SYMBOL_FRAME: {
		struct insn *insn;

		ref = register_make(c, type);
		insn = lower_emit1(c, OP_local_address, ref, 0);
		insn->offset = symbol->place + operand->offset;
		insn->size[0] = (uint8_t)size;
		return ref;
	}
	default:
		lower_fail(c, "an operand has the wrong type");
	}
}

static value_ref lower_value(struct compiler *c, const struct operand *operand, enum type type,
			     bool wide, unsigned *ret_size)
{
	*ret_size = type_size(type);
	if (operand->negated || operand->pair)
		lower_fail(c, "an operand has the wrong type");
	switch (operand->kind) {
	case OPERAND_SYMBOL:
		if (operand->symbol->kind != SYMBOL_REGISTER)
			return lower_address_value(c, operand, type);
		check_register(c, operand->symbol, type, wide);
		if (operand->offset)
			lower_fail(c, "an offset of a register");
		*ret_size = type_size(operand->symbol->type);
		return operand->symbol->place;
	case OPERAND_SPECIAL:
		if (wide)
			*ret_size = special_size(operand->special);
		return lower_special(c, operand,
				     wide && *ret_size == 8   ? TYPE_B64
				     : wide && *ret_size == 4 ? TYPE_B32
							      : type);
	case OPERAND_INT:
	case OPERAND_FLOAT:
		return lower_number(c, operand, type);
	default:
		lower_fail(c, "an operand has the wrong type");
	}
}

value_ref lower_source(struct compiler *c, const struct operand *operand, enum type type)
{
	unsigned size;

	return lower_value(c, operand, type, false, &size);
}

value_ref lower_source_wide(struct compiler *c, const struct operand *operand, enum type type,
			    unsigned *ret_size)
{
	return lower_value(c, operand, type, true, ret_size);
}

static value_ref lower_target(struct compiler *c, const struct operand *operand, enum type type,
			      bool wide, unsigned *ret_size)
{
	*ret_size = type_size(type);
	if (operand->kind == OPERAND_SINK)
		return 0;
	if (operand->kind != OPERAND_SYMBOL || operand->symbol->kind != SYMBOL_REGISTER ||
	    operand->negated || operand->offset)
		lower_fail(c, "the destination is no register");
	check_register(c, operand->symbol, type, wide);
	*ret_size = type_size(operand->symbol->type);
	return operand->symbol->place;
}

value_ref lower_dest_wide(struct compiler *c, const struct operand *operand, enum type type,
			  unsigned *ret_size)
{
	if (operand->pair)
		lower_fail(c, "the destination is a pair");
	return lower_target(c, operand, type, true, ret_size);
}

value_ref lower_dest(struct compiler *c, const struct operand *operand, enum type type)
{
	unsigned size;

	return lower_target(c, operand, type, false, &size);
}

value_ref lower_predicate(struct compiler *c, const struct operand *operand)
{
	struct operand plain = *operand;
	value_ref ref, negated;

	plain.negated = false;
	ref = lower_source(c, &plain, TYPE_PRED);
	if (!operand->negated)
		return ref;
	negated = register_make(c, TYPE_PRED);
	lower_emit1(c, OP_pred_not, negated, ref);
	return negated;
}

value_ref lower_predicate_dest(struct compiler *c, const struct operand *operand)
{
	return lower_dest(c, operand, TYPE_PRED);
}

value_ref lower_pair_dest(struct compiler *c, const struct operand *operand)
{
	return operand->pair ? lower_dest(c, operand->pair, TYPE_PRED) : 0;
}

unsigned index_b3(struct compiler *c, enum type type)
{
	switch (type) {
	case TYPE_B16:
	case TYPE_U16:
	case TYPE_S16:
		return 0;
	case TYPE_B32:
	case TYPE_U32:
	case TYPE_S32:
		return 1;
	case TYPE_B64:
	case TYPE_U64:
	case TYPE_S64:
		return 2;
	default:
		lower_fail(c, "unsupported type");
	}
}

unsigned index_i6(struct compiler *c, enum type type)
{
	return 2 * index_b3(c, type) + (type_is_signed(type) ? 1 : 0);
}

/* --- one instruction */

static const struct lower_rule *rule_find(const struct token *name)
{
	static const struct lower_rule *const groups[] = {
		lower_rules_int,  lower_rules_float,    lower_rules_compare,
		lower_rules_move, lower_rules_memory,   lower_rules_flow,
		lower_rules_warp, lower_rules_mbarrier, lower_rules_wmma,
	};

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		for (const struct lower_rule *rule = groups[i]; rule->name; rule++) {
			if (token_is(name, rule->name))
				return rule;
		}
	}
	return NULL;
}

bool lower_knows(const struct token *name)
{
	return rule_find(name) != NULL;
}

void lower_statement(struct compiler *c)
{
	const struct lower_rule *rule = rule_find(&c->statement.name);

	rule->lower(c, rule->arg);
	modifiers_done(c);
}
