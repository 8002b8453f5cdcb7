/* wmma: matrices that the lanes of a warp hold and multiply together. */
#include "base/macros.h"
#include "ptx/lower.h"

static void take_shape(struct compiler *c, struct wmma *w)
{
	static const struct {
		const char *name;
		uint32_t m, n, k;
	} shapes[] = {
		{"m16n16k16", 16, 16, 16}, {"m8n32k16", 8, 32, 16}, {"m32n8k16", 32, 8, 16},
		{"m16n16k8", 16, 16, 8},   {"m8n8k4", 8, 8, 4},
	};

	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		if (!modifier_take(c, shapes[i].name))
			continue;
		w->m = shapes[i].m;
		w->n = shapes[i].n;
		w->k = shapes[i].k;
		return;
	}
	lower_fail(c, "unsupported shape");
}

/* How many 32-bit registers (of f64: 64-bit ones) a lane has of a matrix. */
static unsigned fragment_registers(const struct wmma *w, enum wmma_matrix matrix, enum type type)
{
	uint32_t rows = matrix == WMMA_B ? w->k : w->m, columns = matrix == WMMA_A ? w->k : w->n;

	/* The ISA has two of each element for these. */
	if (type == TYPE_F16 && matrix != WMMA_C)
		return 8;
	return rows * columns / WARP_LANES * type_size(type) / (type == TYPE_F64 ? 8 : 4);
}

static bool type_fits(const struct wmma *w, enum wmma_matrix matrix, enum type type)
{
	bool is_sum = matrix == WMMA_C;

	switch (type) {
	case TYPE_F16:
		return w->k == 16;
	case TYPE_BF16:
	case TYPE_U8:
	case TYPE_S8:
		return !is_sum && w->k == 16;
	case TYPE_TF32:
		return !is_sum && w->k == 8;
	case TYPE_F32:
		return is_sum && w->k >= 8;
	case TYPE_S32:
		return is_sum && w->k == 16;
	case TYPE_F64:
		return w->k == 4;
	default:
		return false;
	}
}

static uint32_t *add_fragment(struct compiler *c, const struct wmma *w,
			      const struct operand *vector, enum wmma_matrix matrix, enum type type,
			      bool written, uint32_t *at)
{
	enum type type_of_register = type == TYPE_F64   ? TYPE_F64
				     : type == TYPE_F32 ? TYPE_F32
							: TYPE_B32;
	const struct operand *elements = vector->elements;
	unsigned count = vector->element_count;

	if (!type_fits(w, matrix, type))
		lower_fail(c, "unsupported type");
	if (vector->kind != OPERAND_VECTOR) {
		elements = vector;
		count = 1;
	}
	if (count != fragment_registers(w, matrix, type))
		lower_fail(c, "a vector of another length");
	for (unsigned i = 0; i < count; i++)
		*at++ = written ? lower_dest(c, &elements[i], type_of_register)
				: lower_source(c, &elements[i], type_of_register);
	return at;
}

static void emit_words(struct compiler *c, struct insn *insn, const struct wmma *w,
		       const uint32_t *end)
{
	insn->extra = lower_extra(c, (const uint32_t *)w, (size_t)(end - (const uint32_t *)w));
}

/* wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {...}, [p], stride; store.d has [p] first. */
static void lower_move_matrix(struct compiler *c, bool store)
{
	const char *const names[] = {"a", "b", store ? "d" : "c", NULL};
	const struct operand *operands = c->statement.operands;
	struct wmma w = {0};
	uint32_t *end = w.refs;
	int matrix = modifier_choose(c, names);
	struct address address;
	enum insn_space space;
	value_ref stride;
	struct insn *insn;

	if (matrix < 0 || (store && matrix != WMMA_C))
		lower_fail(c, "unsupported form");
	w.by_column = modifier_take(c, "col");
	if (!w.by_column && !modifier_take(c, "row"))
		lower_fail(c, "unsupported form");
	take_shape(c, &w);
	space = modifier_space(c);
	w.matrix = (uint32_t)matrix;
	w.type_in = w.type_c = w.type_d = modifier_type(c);
	operands_expect(c, 2, 3);
	end = add_fragment(c, &w, &operands[store ? 1 : 0], w.matrix, w.type_in, !store, end);
	*(store ? &w.read : &w.written) = (uint32_t)(end - w.refs);
	stride = c->statement.operand_count == 3
			 ? lower_source(c, &operands[2], TYPE_U32)
			 : constant_make(c,
					 w.by_column ? (matrix == WMMA_B ? w.k : w.m)
						     : (matrix == WMMA_A ? w.k : w.n),
					 4);
	address = lower_address(c, &operands[store ? 0 : 1], space);
	insn = lower_emit(c, store ? OP_wmma_store : OP_wmma_load);
	insn_address(insn, &address, 0);
	insn->src[1] = stride;
	emit_words(c, insn, &w, end);
}

/* wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32, of other inputs than f16 .s32.u8.u8.s32 */
static void lower_multiply(struct compiler *c)
{
	const struct operand *operands = c->statement.operands;
	struct wmma w = {0};
	uint32_t *end = w.refs;
	enum type second, types = TYPE_F16;
	struct insn *insn;

	for (unsigned i = 0; i < 2; i++) {
		if (!modifier_take(c, "row") && !modifier_take(c, "col"))
			lower_fail(c, "unsupported form");
	}
	take_shape(c, &w);
	w.saturates = modifier_take(c, "satfinite");
	modifier_take(c, "rn");
	w.type_d = modifier_type(c);
	second = modifier_type(c);
	w.type_c = second;
	if (w.type_d != TYPE_F16 &&
	    (w.type_d != TYPE_F32 || (second != TYPE_F16 && second != TYPE_F32))) {
		types = second;
		if (modifier_type(c) != second)
			lower_fail(c, "unsupported types");
		w.type_c = modifier_type(c);
		if (w.type_c != w.type_d)
			lower_fail(c, "unsupported types");
	}
	w.type_in = types;
	operands_expect(c, 4, 4);
	end = add_fragment(c, &w, &operands[0], WMMA_C, w.type_d, true, end);
	w.written = (uint32_t)(end - w.refs);
	end = add_fragment(c, &w, &operands[1], WMMA_A, types, false, end);
	end = add_fragment(c, &w, &operands[2], WMMA_B, types, false, end);
	w.a_registers = fragment_registers(&w, WMMA_A, types);
	w.b_registers = fragment_registers(&w, WMMA_B, types);
	end = add_fragment(c, &w, &operands[3], WMMA_C, w.type_c, false, end);
	w.read = (uint32_t)(end - w.refs) - w.written;
	insn = lower_emit(c, OP_wmma_mma);
	emit_words(c, insn, &w, end);
}

static void lower_wmma(struct compiler *c, int arg)
{
	static const char *const forms[] = {"load", "store", "mma", NULL};
	int form = modifier_choose(c, forms);

	if (form < 0 || !modifier_take(c, "sync") || !modifier_take(c, "aligned"))
		lower_fail(c, "unsupported form");
	if (form == 2)
		lower_multiply(c);
	else
		lower_move_matrix(c, form == 1);
}

const struct lower_rule lower_rules_wmma[] = {
	{"wmma", lower_wmma, 0},
	{0},
};
