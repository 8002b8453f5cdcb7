/* atom and red: real atomics on the host's memory, which other processes may share. */
#include <string.h>

#include "ptx/exec/handlers.h"
#include "ptx/exec/real.h"
#include "ptx/lower.h"

static uint64_t bits_of(const unsigned char *from, unsigned size)
{
	uint64_t bits = 0;

	memcpy(&bits, from, size);
	return bits;
}

static uint16_t half_step(unsigned op, uint16_t old, uint16_t operand, enum type type)
{
	const struct half_format *format = half_format(type);
	double a = half_to_double(old, format), b = half_to_double(operand, format);

	if (op == ATOM_ADD)
		return half_from_double(a + b, format, ROUND_NEAREST);
	if (a != a || b != b)
		return a != a ? operand : old;
	return (op == ATOM_MIN ? b < a : b > a) ? operand : old;
}

static uint64_t real_step(unsigned op, uint64_t old, uint64_t b, enum type type)
{
	switch (type) {
	case TYPE_F32: {
		float x = bits_f32((uint32_t)old), y = bits_f32((uint32_t)b);

		return f32_bits(op == ATOM_ADD   ? canonical_f32(x + y)
				: op == ATOM_MIN ? fminf(x, y)
						 : fmaxf(x, y));
	}
	case TYPE_F64: {
		double x = bits_f64(old), y = bits_f64(b);

		return f64_bits(op == ATOM_ADD ? x + y : op == ATOM_MIN ? fmin(x, y) : fmax(x, y));
	}
	case TYPE_F16X2:
	case TYPE_BF16X2:
		return half_step(op, (uint16_t)old, (uint16_t)b, type) |
		       (uint64_t)half_step(op, (uint16_t)(old >> 16), (uint16_t)(b >> 16), type)
			       << 16;
	default:
		return half_step(op, (uint16_t)old, (uint16_t)b, type);
	}
}

static bool is_less(uint64_t a, uint64_t b, enum type type)
{
	if (type == TYPE_S32)
		return (int32_t)a < (int32_t)b;
	if (type == TYPE_S64)
		return (int64_t)a < (int64_t)b;
	return a < b;
}

/* The value that the operation writes over `old`. */
static uint64_t step(unsigned op, uint64_t old, uint64_t b, uint64_t c, enum type type)
{
	bool real = type_is_float(type) || type_is_packed(type);

	if (real && (op == ATOM_ADD || op == ATOM_MIN || op == ATOM_MAX))
		return real_step(op, old, b, type);
	switch (op) {
	case ATOM_ADD:
		return old + b;
	case ATOM_MIN:
		return is_less(b, old, type) ? b : old;
	case ATOM_MAX:
		return is_less(old, b, type) ? b : old;
	case ATOM_AND:
		return old & b;
	case ATOM_OR:
		return old | b;
	case ATOM_XOR:
		return old ^ b;
	case ATOM_CAS:
		return old == b ? c : old;
	case ATOM_INC:
		return old >= b ? 0 : old + 1;
	case ATOM_DEC:
		return old == 0 || old > b ? b : old - 1;
	default: /* exch */
		return b;
	}
}

#define EXCHANGE(V, at)                                                                          \
	({                                                                                       \
		__auto_type word_ = (V *)(void *)(at);                                           \
		__auto_type old_ = __atomic_load_n(word_, __ATOMIC_RELAXED);                     \
		while (!__atomic_compare_exchange_n(word_, &old_, (V)step(op, old_, b, c, type), \
						    false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))  \
			;                                                                        \
		old_;                                                                            \
	})

static uint64_t lane_atom(const struct insn *insn, unsigned char *at, uint64_t b, uint64_t c)
{
	unsigned op = insn->flags >> ATOM_OP_SHIFT;
	enum type type = insn->type;

	switch (insn->size[0]) {
	case 2:
		return EXCHANGE(uint16_t, at);
	case 4:
		return EXCHANGE(uint32_t, at);
	default:
		return EXCHANGE(uint64_t, at);
	}
}

HANDLER(atom)
{
	const unsigned char *pb = value_at(warp, insn->src[1]), *pc = value_at(warp, insn->src[2]);
	unsigned size = insn->size[0];
	uint64_t first_place = 0, first_old = 0;
	bool first = true;

	warp->launch->result->memory_instructions++;
	LANES_OF(mask)
	{
		uint64_t address = lane_address(warp, insn, l), b, c, old;
		unsigned char *at;

		at = warp_resolve(warp, address, size, true, l);
		if (!at)
			return;
		b = bits_of(pb + (size_t)l * size, size);
		c = bits_of(pc + (size_t)l * size, size);
		old = lane_atom(insn, at, b, c);
		if (insn->dst)
			memcpy(warp->base[0] + insn->dst + (size_t)l * size, &old, size);
		if (first) {
			first_place = (uintptr_t)at;
			first_old = old;
			first = false;
		}
	}
	warp_polled_value(warp, first_place, first_old);
}
