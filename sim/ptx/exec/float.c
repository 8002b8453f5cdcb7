/* f32 and f64 operations. Compiled with -ffp-contract=off: a product is rounded before it is added
 * unless the instruction is fma. */
#include "ptx/exec/handlers.h"
#include "ptx/exec/real.h"
#include "ptx/lower.h"

#define APPLY_FLAGS(suffix, value_)                 \
	({                                          \
		__auto_type v_ = (value_);          \
		if (flags & FLAG_FTZ)               \
			v_ = flush_##suffix(v_);    \
		if (flags & FLAG_SAT)               \
			v_ = saturate_##suffix(v_); \
		v_;                                 \
	})
#define OPERAND(suffix, array)                             \
	({                                                 \
		__auto_type v_ = (array)[l];               \
		flags &FLAG_FTZ ? flush_##suffix(v_) : v_; \
	})

/* name_T without flags, and name_T_flags. `fma_` and its like are resolved by the type's suffix. */
#define PLAIN(name, V, suffix, sources, expression)                    \
	HANDLER(name##_##suffix)                                       \
	{                                                              \
		const V *pa = SRC(V, 0), *pb = SRC(V, (sources) > 1),  \
			*pc = SRC(V, (sources) > 2 ? 2 : 0);           \
		__auto_type to = DST(V);                               \
		STORE_LANES(V, to, ({                                  \
				    V a = pa[l], b = pb[l], c = pc[l]; \
				    (void)b;                           \
				    (void)c;                           \
				    canonical_##suffix(expression);    \
			    }));                                       \
	}
/* The host's rounding is set by a call before the loads and reset by one after the stores, so that
 * the compiler cannot move the arithmetic out from between them. */
#define FLAGGED(name, V, suffix, sources, expression)                                  \
	HANDLER(name##_##suffix##_flags)                                               \
	{                                                                              \
		const V *pa = SRC(V, 0), *pb = SRC(V, (sources) > 1),                  \
			*pc = SRC(V, (sources) > 2 ? 2 : 0);                           \
		uint32_t flags = insn->flags;                                          \
		__auto_type to = DST(V);                                               \
		round_host(flags);                                                     \
		LANES_OF(mask)                                                         \
		{                                                                      \
			V a = OPERAND(suffix, pa), b = OPERAND(suffix, pb);            \
			V c = OPERAND(suffix, pc);                                     \
			(void)b;                                                       \
			(void)c;                                                       \
			to[l] = canonical_##suffix(APPLY_FLAGS(suffix, (expression))); \
		}                                                                      \
		round_host(ROUND_NEAREST);                                             \
	}
#define BOTH(name, sources, of_f32, of_f64)        \
	PLAIN(name, float, f32, sources, of_f32)   \
	PLAIN(name, double, f64, sources, of_f64)  \
	FLAGGED(name, float, f32, sources, of_f32) \
	FLAGGED(name, double, f64, sources, of_f64)

BOTH(fadd, 2, a + b, a + b)
BOTH(fsub, 2, a - b, a - b)
BOTH(fmul, 2, a *b, a *b)
BOTH(fma, 3, fmaf(a, b, c), fma(a, b, c))
BOTH(fdiv, 2, a / b, a / b)
BOTH(fsqrt, 1, sqrtf(a), sqrt(a))
FLAGGED(frcp, float, f32, 1, 1 / a)
FLAGGED(frcp, double, f64, 1, 1 / a)
FLAGGED(frsqrt, float, f32, 1, (float)(1 / sqrt((double)a)))
FLAGGED(frsqrt, double, f64, 1, 1 / sqrt(a))
FLAGGED(fsin, float, f32, 1, sinf(a))
FLAGGED(fcos, float, f32, 1, cosf(a))
FLAGGED(flg2, float, f32, 1, log2f(a))
FLAGGED(fex2, float, f32, 1, exp2f(a))
FLAGGED(ftanh, float, f32, 1, tanhf(a))

/* --- signs: bits only, also of NaN */

HANDLER(fneg_f32)
{
	const uint32_t *pa = SRC(uint32_t, 0);
	uint32_t *d = DST(uint32_t);
	bool ftz = insn->flags & FLAG_FTZ;

	STORE_LANES(uint32_t, d, (ftz ? f32_bits(flush_f32(bits_f32(pa[l]))) : pa[l]) ^ 1u << 31);
}

HANDLER(fabs_f32)
{
	const uint32_t *pa = SRC(uint32_t, 0);
	uint32_t *d = DST(uint32_t);
	bool ftz = insn->flags & FLAG_FTZ;

	STORE_LANES(uint32_t, d, (ftz ? f32_bits(flush_f32(bits_f32(pa[l]))) : pa[l]) & 0x7fffffff);
}

HANDLER(fneg_f64)
{
	const uint64_t *pa = SRC(uint64_t, 0);
	uint64_t *d = DST(uint64_t);

	STORE_LANES(uint64_t, d, pa[l] ^ 1ULL << 63);
}

HANDLER(fabs_f64)
{
	const uint64_t *pa = SRC(uint64_t, 0);
	uint64_t *d = DST(uint64_t);

	STORE_LANES(uint64_t, d, pa[l] & ~(1ULL << 63));
}

/* copysign d, a, b: the sign of a, the magnitude of b. */
HANDLER(fcopysign_f32)
{
	const uint32_t *pa = SRC(uint32_t, 0), *pb = SRC(uint32_t, 1);
	uint32_t *d = DST(uint32_t);

	STORE_LANES(uint32_t, d, (pa[l] & 1u << 31) | (pb[l] & 0x7fffffff));
}

HANDLER(fcopysign_f64)
{
	const uint64_t *pa = SRC(uint64_t, 0), *pb = SRC(uint64_t, 1);
	uint64_t *d = DST(uint64_t);

	STORE_LANES(uint64_t, d, (pa[l] & 1ULL << 63) | (pb[l] & ~(1ULL << 63)));
}

/* --- minimum and maximum: of a number and no number the number, unless .NaN; -0 < +0 */

#define PICK(name, V, suffix, first_if)                                                       \
	static inline V name##_of_##suffix(V a, V b, uint32_t flags)                          \
	{                                                                                     \
		bool negative = signbit(a) != signbit(b);                                     \
		V result;                                                                     \
		if (flags & FLAG_FTZ) {                                                       \
			a = flush_##suffix(a);                                                \
			b = flush_##suffix(b);                                                \
		}                                                                             \
		if (flags & FLAG_XORSIGN) {                                                   \
			a = (V)fabs(a);                                                       \
			b = (V)fabs(b);                                                       \
		}                                                                             \
		if (a != a || b != b) {                                                       \
			if ((flags & FLAG_NAN) || (a != a && b != b))                         \
				return (V)bits_##suffix(sizeof(V) == 4 ? NAN_BITS_F32         \
								       : 0x7fffffffffffffff); \
			result = a != a ? b : a;                                              \
		} else if (a == b) {                                                          \
			result = (signbit(a) != 0) == (first_if(0, 1)) ? a : b;               \
		} else {                                                                      \
			result = first_if(a, b) ? a : b;                                      \
		}                                                                             \
		if (flags & FLAG_XORSIGN)                                                     \
			result = negative ? -result : result;                                 \
		return result;                                                                \
	}                                                                                     \
	HANDLER(f##name##_##suffix)                                                           \
	{                                                                                     \
		const V *pa = SRC(V, 0), *pb = SRC(V, 1);                                     \
		uint32_t flags = insn->flags;                                                 \
		__auto_type d = DST(V);                                                       \
		STORE_LANES(V, d, name##_of_##suffix(pa[l], pb[l], flags));                   \
	}
#define LESS(a, b) ((a) < (b))
#define MORE(a, b) ((a) > (b))
PICK(min, float, f32, LESS)
PICK(max, float, f32, MORE)
PICK(min, double, f64, LESS)
PICK(max, double, f64, MORE)

static bool test_class(int class, unsigned test)
{
	switch (test) {
	case TESTP_FINITE:
		return class != FP_NAN && class != FP_INFINITE;
	case TESTP_INFINITE:
		return class == FP_INFINITE;
	case TESTP_NUMBER:
		return class != FP_NAN;
	case TESTP_NOTANUMBER:
		return class == FP_NAN;
	case TESTP_NORMAL:
		return class == FP_NORMAL || class == FP_ZERO; /* zero counts as normal */
	default:
		return class == FP_SUBNORMAL;
	}
}

#define TESTP(V, suffix)                                                            \
	HANDLER(ftestp_##suffix)                                                    \
	{                                                                           \
		const V *pa = SRC(V, 0);                                            \
		uint32_t bits = 0;                                                  \
		LANES_OF(mask)                                                      \
		bits |= (uint32_t)test_class(fpclassify(pa[l]), insn->detail) << l; \
		predicate_store(warp, insn->dst, mask, bits);                       \
	}
TESTP(float, f32)
TESTP(double, f64)

/* --- comparisons; those ending in u hold for no number too */

#define COMPARE(name, V, suffix, expression)                                            \
	HANDLER(f##name##_##suffix)                                                     \
	{                                                                               \
		const V *pa = SRC(V, 0), *pb = SRC(V, 1);                               \
		uint32_t bits = 0, flags = insn->flags;                                 \
		if (flags & FLAG_FTZ) {                                                 \
			for (unsigned l = 0; l < WARP_LANES; l++) {                     \
				V a = flush_##suffix(pa[l]), b = flush_##suffix(pb[l]); \
				bits |= (uint32_t)(expression) << l;                    \
			}                                                               \
		} else {                                                                \
			for (unsigned l = 0; l < WARP_LANES; l++) {                     \
				V a = pa[l], b = pb[l];                                 \
				bits |= (uint32_t)(expression) << l;                    \
			}                                                               \
		}                                                                       \
		predicate_store(warp, insn->dst, mask, bits);                           \
	}
#define COMPARE_BOTH(name, expression) \
	COMPARE(name, float, f32, expression) COMPARE(name, double, f64, expression)
#define NONE_IS_NAN (a == a && b == b)

COMPARE_BOTH(eq, a == b)
COMPARE_BOTH(ne, NONE_IS_NAN &&a != b)
COMPARE_BOTH(lt, a < b)
COMPARE_BOTH(le, a <= b)
COMPARE_BOTH(gt, a > b)
COMPARE_BOTH(ge, a >= b)
COMPARE_BOTH(num, NONE_IS_NAN)
COMPARE_BOTH(nan, !NONE_IS_NAN)
COMPARE_BOTH(equ, !(NONE_IS_NAN && a != b))
COMPARE_BOTH(neu, a != b)
COMPARE_BOTH(ltu, !(a >= b))
COMPARE_BOTH(leu, !(a > b))
COMPARE_BOTH(gtu, !(a <= b))
COMPARE_BOTH(geu, !(a < b))
