/* cvt, and arithmetic of the half-precision formats. */
#include "ptx/exec/handlers.h"
#include "ptx/exec/real.h"
#include "ptx/lower.h"

/* --- half precision: computed in double, where sums and products of halves lose nothing that
 * rounding to half would see, and rounded once */

static double flush_half(double value, const struct half_format *format)
{
	return fabs(value) < ldexp(1, format->exponent_min) ? copysign(0, value) : value;
}

static double half_pick(double a, double b, bool smaller, bool nan)
{
	if (a != a || b != b)
		return nan ? (double)NAN : a != a ? b : a;
	if (a == b)
		return (signbit(a) != 0) == smaller ? a : b;
	return (a < b) == smaller ? a : b;
}

static double half_compute(unsigned op, double a, double b, double c, uint32_t flags)
{
	bool nan = flags & FLAG_NAN;

	switch (op) {
	case HALF_ADD:
		return a + b;
	case HALF_SUB:
		return a - b;
	case HALF_MUL:
		return a * b;
	case HALF_FMA:
		return fma(a, b, c);
	case HALF_MIN:
	case HALF_MAX:
		if (flags & FLAG_XORSIGN)
			return copysign(half_pick(fabs(a), fabs(b), op == HALF_MIN, nan),
					signbit(a) != signbit(b) ? -1.0 : 1.0);
		return half_pick(a, b, op == HALF_MIN, nan);
	case HALF_EX2:
		return exp2(a);
	default:
		return tanh(a);
	}
}

static uint16_t half_op(const struct insn *insn, uint16_t a, uint16_t b, uint16_t c)
{
	const struct half_format *format = half_format(insn->type);
	uint32_t flags = insn->flags;
	double x[3] = {half_to_double(a, format), half_to_double(b, format),
		       half_to_double(c, format)};
	double result;

	if (insn->detail == HALF_NEG)
		return a ^ 0x8000;
	if (insn->detail == HALF_ABS)
		return a & 0x7fff;
	for (unsigned i = 0; (flags & FLAG_FTZ) && i < 3; i++)
		x[i] = flush_half(x[i], format);
	result = half_compute(insn->detail, x[0], x[1], x[2], flags);
	if (flags & FLAG_FTZ)
		result = flush_half(result, format);
	if (flags & FLAG_SAT)
		result = saturate_f64(result);
	if ((flags & FLAG_RELU) && result < 0)
		result = 0;
	return half_from_double(result, format, flags & FLAG_ROUND_MASK);
}

HANDLER(half)
{
	unsigned parts = type_is_packed(insn->type) ? 2 : 1;
	const uint16_t *pa = SRC(uint16_t, 0), *pb = SRC(uint16_t, 1), *pc = SRC(uint16_t, 2);
	uint16_t *d = DST(uint16_t);

	LANES_OF(mask)
	{
		for (unsigned i = l * parts; i < (l + 1) * parts; i++)
			d[i] = half_op(insn, pa[i], pb[i], pc[i]);
	}
}

static bool half_compare(unsigned comparison, double a, double b)
{
	bool numbers = a == a && b == b;

	switch (comparison) {
	case COMPARE_EQ:
		return a == b;
	case COMPARE_NE:
		return numbers && a != b;
	case COMPARE_LT:
		return a < b;
	case COMPARE_LE:
		return a <= b;
	case COMPARE_GT:
		return a > b;
	case COMPARE_GE:
		return a >= b;
	case COMPARE_NUM:
		return numbers;
	case COMPARE_NAN:
		return !numbers;
	default:
		/* The u forms: the plain one, or no number. */
		return !numbers || half_compare(comparison - COMPARE_EQU + COMPARE_EQ, a, b);
	}
}

/* The lower halves' result goes to dst, the upper ones' to extra. */
HANDLER(half_setp)
{
	const struct half_format *format = half_format(insn->type);
	unsigned parts = type_is_packed(insn->type) ? 2 : 1;
	const uint16_t *pa = SRC(uint16_t, 0), *pb = SRC(uint16_t, 1);
	uint32_t bits[2] = {0};

	LANES_OF(mask)
	{
		for (unsigned i = 0; i < parts; i++) {
			double a = half_to_double(pa[l * parts + i], format);
			double b = half_to_double(pb[l * parts + i], format);

			if (insn->flags & FLAG_FTZ) {
				a = flush_half(a, format);
				b = flush_half(b, format);
			}
			bits[i] |= (uint32_t)half_compare(insn->detail, a, b) << l;
		}
	}
	predicate_store(warp, insn->dst, mask, bits[0]);
	if (parts == 2)
		predicate_store(warp, insn->extra, mask, bits[1]);
}

/* --- cvt */

/* A lane's value on its way: an integer, or a real that holds every source exactly. */
struct number {
	bool real;
	double r;
	__int128 i;
};

static struct number load_number(const void *from, unsigned size, unsigned lane, enum type type,
				 uint32_t flags)
{
	struct number n = {.real = true};
	uint64_t bits = 0;

	memcpy(&bits, (const unsigned char *)from + (size_t)lane * size, size);
	switch (type) {
	case TYPE_F64:
		n.r = bits_f64(bits);
		return n;
	case TYPE_F32:
		n.r = flags & FLAG_FTZ ? flush_f32(bits_f32((uint32_t)bits))
				       : bits_f32((uint32_t)bits);
		return n;
	case TYPE_F16:
	case TYPE_BF16:
		n.r = half_to_double((uint16_t)bits, half_format(type));
		return n;
	default:
		break;
	}
	n.real = false;
	if (type_is_signed(type))
		n.i = (int64_t)(bits << (64 - 8 * type_size(type))) >> (64 - 8 * type_size(type));
	else
		n.i = bits << (64 - 8 * type_size(type)) >> (64 - 8 * type_size(type));
	return n;
}

static double round_integral(double value, uint32_t rounding)
{
	switch (rounding & FLAG_ROUND_MASK) {
	case ROUND_ZERO:
		return trunc(value);
	case ROUND_DOWN:
		return floor(value);
	case ROUND_UP:
		return ceil(value);
	default:
		return nearbyint(value); /* the host rounds to nearest even */
	}
}

static __int128 integer_limit(enum type type, bool upper)
{
	unsigned bits = 8 * type_size(type);

	if (type_is_signed(type))
		return upper ? ((__int128)1 << (bits - 1)) - 1 : -((__int128)1 << (bits - 1));
	return upper ? ((__int128)1 << bits) - 1 : 0;
}

/* Reals always saturate; no number gives 0, or the top bit where f64 or 64 bits are involved. */
static uint64_t to_integer(struct number n, enum type dst, enum type src, uint32_t flags)
{
	__int128 low = integer_limit(dst, false), high = integer_limit(dst, true);

	if (!n.real) {
		if (flags & FLAG_SAT)
			n.i = n.i < low ? low : n.i > high ? high : n.i;
		return (uint64_t)n.i;
	}
	if (n.r != n.r) {
		bool wide = src == TYPE_F64 || type_size(dst) == 8;

		return wide ? 1ULL << (8 * type_size(dst) - 1) : 0;
	}
	n.r = round_integral(n.r, flags);
	if (n.r <= (double)low)
		return (uint64_t)low;
	if (n.r >= (double)high)
		return (uint64_t)high;
	return (uint64_t)(__int128)n.r;
}

/* volatile: the conversions must happen where the host's rounding is set. */
static double round_to_f64(struct number n)
{
	volatile int64_t i = (int64_t)n.i;
	volatile uint64_t u = (uint64_t)n.i;

	if (n.real)
		return n.r;
	return n.i < 0 ? (double)i : (double)u;
}

static float round_to_f32(struct number n)
{
	volatile int64_t i = (int64_t)n.i;
	volatile uint64_t u = (uint64_t)n.i;
	volatile double r = n.r;

	if (n.real)
		return (float)r;
	return n.i < 0 ? (float)i : (float)u;
}

/* f32 with 10 bits of fraction. */
static uint32_t to_tf32(float value, uint32_t rounding)
{
	uint32_t bits = f32_bits(value);

	if (value != value || isinf(value))
		return value != value ? NAN_BITS_F32 : bits;
	if (rounding == ROUND_ZERO)
		return bits & ~0x1fffu;
	if (rounding == ROUND_AWAY)
		return (bits + 0x1000) & ~0x1fffu;
	return (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
}

static uint64_t to_real(struct number n, enum type dst, uint32_t flags)
{
	uint32_t rounding = flags & FLAG_ROUND_MASK;
	float single;
	double wide;

	if (n.real && (flags & FLAG_INTEGRAL)) {
		n.r = copysign(round_integral(n.r, rounding), n.r);
		rounding = ROUND_NEAREST;
	}
	if (n.real && (flags & FLAG_SAT))
		n.r = saturate_f64(n.r);
	if (n.real && (flags & FLAG_RELU) && n.r < 0)
		n.r = 0;
	if (dst == TYPE_F16 || dst == TYPE_BF16)
		return half_from_double(round_to_f64(n), half_format(dst), rounding);
	round_host(rounding);
	single = round_to_f32(n);
	wide = round_to_f64(n);
	round_host(ROUND_NEAREST);
	if (dst == TYPE_F64)
		return f64_bits(wide);
	if (flags & FLAG_FTZ)
		single = flush_f32(single);
	if (dst == TYPE_TF32)
		return to_tf32(single, rounding);
	return f32_bits(canonical_f32(single));
}

static bool is_real(enum type type)
{
	return type_is_float(type) || type == TYPE_TF32;
}

/* The destination's register may be wider than its type: signed types extend their sign. */
static uint64_t extend(uint64_t bits, enum type type)
{
	unsigned shift = 64 - 8 * type_size(type);

	if (type_is_signed(type))
		return (uint64_t)((int64_t)(bits << shift) >> shift);
	return bits << shift >> shift;
}

HANDLER(cvt)
{
	enum type dst = insn->type, src = insn->detail;
	const void *from = value_at(warp, insn->src[0]);
	unsigned char *to = warp->base[0] + insn->dst;

	LANES_OF(mask)
	{
		struct number n = load_number(from, insn->size[1], l, src, insn->flags);
		uint64_t bits = is_real(dst) ? to_real(n, dst, insn->flags)
					     : to_integer(n, dst, src, insn->flags);

		bits = extend(bits, dst);
		memcpy(to + (size_t)l * insn->size[0], &bits, insn->size[0]);
	}
}

HANDLER(cvt_pack_half)
{
	const float *pa = SRC(float, 0), *pb = SRC(float, 1);
	uint32_t *d = DST(uint32_t);
	enum type part = insn->type == TYPE_F16X2 ? TYPE_F16 : TYPE_BF16;

	LANES_OF(mask)
	{
		struct number high = {.real = true, .r = pa[l]}, low = {.real = true, .r = pb[l]};

		d[l] = (uint32_t)(to_real(high, part, insn->flags) << 16 |
				  to_real(low, part, insn->flags));
	}
}

/* --- the common ones, lane-parallel */

#define QUICK(name, D, S, expression)             \
	HANDLER(name)                             \
	{                                         \
		const S *pa = SRC(S, 0);          \
		__auto_type d = DST(D);           \
		STORE_LANES(D, d, ({              \
				    S a = pa[l];  \
				    (expression); \
			    }));                  \
	}

QUICK(cvt_f64_f32, double, float, (double)a)
QUICK(cvt_f32_f64, float, double, canonical_f32((float)a))
QUICK(cvt_f32_s32, float, int32_t, (float)a)
QUICK(cvt_f32_u32, float, uint32_t, (float)a)
QUICK(cvt_f64_s32, double, int32_t, (double)a)
QUICK(cvt_f64_u32, double, uint32_t, (double)a)
/* Saturating; no number gives 0. */
QUICK(cvt_s32_f32, int32_t, float,
      a >= 0x1p31f    ? INT32_MAX
      : a > -0x1p31f  ? (int32_t)a
      : a <= -0x1p31f ? INT32_MIN
		      : 0)
QUICK(cvt_u32_f32, uint32_t, float, a >= 0x1p32f ? UINT32_MAX : a > 0 ? (uint32_t)a : 0)
