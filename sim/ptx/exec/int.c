/* Integer operations. */
#include <string.h>

#include "ptx/exec/handlers.h"

/* Inside the expressions: a, b, c are the operands, `value` their type, `wide` twice as wide, BITS
 * the width. */
#define UNARY(name, V, W, expression)                \
	HANDLER(name)                                \
	{                                            \
		typedef V value;                     \
		const value *pa = SRC(value, 0);     \
		value *d = DST(value);               \
		STORE_LANES(value, d, ({             \
				    value a = pa[l]; \
				    (expression);    \
			    }));                     \
	}
#define BINARY(name, V, W, expression)                                \
	HANDLER(name)                                                 \
	{                                                             \
		typedef V value;                                      \
		typedef W wide __attribute__((unused));               \
		const value *pa = SRC(value, 0), *pb = SRC(value, 1); \
		value *d = DST(value);                                \
		STORE_LANES(value, d, ({                              \
				    value a = pa[l], b = pb[l];       \
				    (expression);                     \
			    }));                                      \
	}
#define TERNARY(name, V, W, expression)                                                    \
	HANDLER(name)                                                                      \
	{                                                                                  \
		typedef V value;                                                           \
		typedef W wide __attribute__((unused));                                    \
		const value *pa = SRC(value, 0), *pb = SRC(value, 1), *pc = SRC(value, 2); \
		value *d = DST(value);                                                     \
		STORE_LANES(value, d, ({                                                   \
				    value a = pa[l], b = pb[l], c = pc[l];                 \
				    (expression);                                          \
			    }));                                                           \
	}
/* The second operand is u32. */
#define SHIFT(name, V, W, expression)                   \
	HANDLER(name)                                   \
	{                                               \
		typedef V value;                        \
		const value *pa = SRC(value, 0);        \
		const uint32_t *pb = SRC(uint32_t, 1);  \
		value *d = DST(value);                  \
		STORE_LANES(value, d, ({                \
				    value a = pa[l];    \
				    uint32_t b = pb[l]; \
				    (expression);       \
			    }));                        \
	}
#define COMPARE(name, V, W, expression)                               \
	HANDLER(name)                                                 \
	{                                                             \
		typedef V value;                                      \
		const value *pa = SRC(value, 0), *pb = SRC(value, 1); \
		uint32_t bits = 0;                                    \
		for (unsigned l = 0; l < WARP_LANES; l++) {           \
			value a = pa[l], b = pb[l];                   \
			bits |= (uint32_t)(expression) << l;          \
		}                                                     \
		predicate_store(warp, insn->dst, mask, bits);         \
	}

#define B3(kind, name, expression)                               \
	kind(name##_b16, uint16_t, uint32_t, expression)         \
		kind(name##_b32, uint32_t, uint64_t, expression) \
			kind(name##_b64, uint64_t, unsigned __int128, expression)
#define U3(kind, name, expression)                               \
	kind(name##_u16, uint16_t, uint32_t, expression)         \
		kind(name##_u32, uint32_t, uint64_t, expression) \
			kind(name##_u64, uint64_t, unsigned __int128, expression)
#define S3(kind, name, expression)                             \
	kind(name##_s16, int16_t, int32_t, expression)         \
		kind(name##_s32, int32_t, int64_t, expression) \
			kind(name##_s64, int64_t, __int128, expression)
#define I6(kind, name, expression) U3(kind, name, expression) S3(kind, name, expression)
#define BITS ((unsigned)(8 * sizeof(value)))
#define LOWEST ((value)((uint64_t)1 << (BITS - 1)))

B3(UNARY, mov, a)
B3(BINARY, add, a + b)
B3(BINARY, sub, a - b)
B3(BINARY, mul_lo, 1u * a * b)
B3(TERNARY, mad_lo, 1u * a * b + c)
B3(BINARY, and, a &b)
B3(BINARY, or, a | b)
B3(BINARY, xor, a ^ b)
B3(UNARY, not, ~a)
B3(UNARY, cnot, a == 0)
B3(UNARY, neg, 0u - a)
B3(SHIFT, shl, b < BITS ? (value)(a + 0ull) << (b & (BITS - 1)) : 0)

U3(SHIFT, shr, b < BITS ? a >> (b & (BITS - 1)) : 0)
S3(SHIFT, shr, a >> (b < BITS ? b : BITS - 1))
I6(BINARY, mul_hi, (wide)a *(wide)b >> BITS)
U3(TERNARY, mad_hi, ((wide)a * b >> BITS) + c)
S3(TERNARY, mad_hi, (uint64_t)((wide)a *(wide)b >> BITS) + (uint64_t)c)
U3(BINARY, div, b ? a / (b ? b : 1) : (value)-1)
S3(BINARY, div,
   b == 0    ? (value)-1
   : b == -1 ? (value)(0 - (uint64_t)a)
	     : a / (b == 0 || b == -1 ? 1 : b))
U3(BINARY, rem, b ? a % (b ? b : 1) : a)
S3(BINARY, rem, b == 0 ? a : b == -1 ? 0 : a % (b == 0 || b == -1 ? 1 : b))
I6(BINARY, min, a < b ? a : b)
I6(BINARY, max, a > b ? a : b)
U3(UNARY, abs, a)
S3(UNARY, abs, a < 0 ? (value)(0 - (uint64_t)a) : a)
I6(TERNARY, sad, (a < b ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b) + (uint64_t)c)

I6(COMPARE, eq, a == b)
I6(COMPARE, ne, a != b)
I6(COMPARE, lt, a < b)
I6(COMPARE, le, a <= b)
I6(COMPARE, gt, a > b)
I6(COMPARE, ge, a >= b)

#define SELECT(name, V, W, expression)                         \
	HANDLER(name)                                          \
	{                                                      \
		const V *pa = SRC(V, 0), *pb = SRC(V, 1);      \
		uint32_t p = *SRC(uint32_t, 2);                \
		__auto_type d = DST(V);                        \
		STORE_LANES(V, d, p >> l & 1 ? pa[l] : pb[l]); \
	}
B3(SELECT, selp, )

/* Products twice as wide as their factors. */
#define WIDE(suffix, V, D, U)                                        \
	HANDLER(mul_wide_##suffix)                                   \
	{                                                            \
		const V *pa = SRC(V, 0), *pb = SRC(V, 1);            \
		__auto_type d = DST(D);                              \
		STORE_LANES(D, d, (D)pa[l] * (D)pb[l]);              \
	}                                                            \
	HANDLER(mad_wide_##suffix)                                   \
	{                                                            \
		const V *pa = SRC(V, 0), *pb = SRC(V, 1);            \
		const U *pc = SRC(U, 2);                             \
		__auto_type d = DST(U);                              \
		STORE_LANES(U, d, (U)((D)pa[l] * (D)pb[l]) + pc[l]); \
	}
WIDE(u16, uint16_t, uint32_t, uint32_t)
WIDE(s16, int16_t, int32_t, uint32_t)
WIDE(u32, uint32_t, uint64_t, uint64_t)
WIDE(s32, int32_t, int64_t, uint64_t)

static inline int32_t saturate(int64_t v)
{
	return (int32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}

BINARY(add_sat_s32, int32_t, int64_t, saturate((wide)a + b))
BINARY(sub_sat_s32, int32_t, int64_t, saturate((wide)a - b))
TERNARY(mad_hi_sat_s32, int32_t, int64_t, saturate(((wide)a * b >> 32) + c))

/* --- carries. src[2] (add) or src[3] (mad) is the carry's predicate, the frame's own. */

static void carry_store(struct warp *warp, const struct insn *insn, value_ref ref, uint32_t mask,
			uint32_t bits)
{
	if (insn->flags & FLAG_CARRY_OUT)
		predicate_store(warp, ref, mask, bits);
}

#define ADD_CC(suffix, V, W)                                                                \
	HANDLER(add_cc_##suffix)                                                            \
	{                                                                                   \
		const V *pa = SRC(V, 0), *pb = SRC(V, 1);                                   \
		uint32_t in = insn->flags & FLAG_CARRY_IN ? *SRC(uint32_t, 2) : 0, out = 0; \
		bool borrow = insn->flags & FLAG_BORROW;                                    \
		__auto_type d = DST(V);                                                     \
		LANES_OF(mask)                                                              \
		{                                                                           \
			W carry = in >> l & 1, a = pa[l], b = pb[l];                        \
			W sum = borrow ? a - b - carry : a + b + carry;                     \
			d[l] = (V)sum;                                                      \
			out |= (uint32_t)(sum >> (8 * sizeof(V)) & 1) << l;                 \
		}                                                                           \
		carry_store(warp, insn, insn->src[2], mask, out);                           \
	}
ADD_CC(u32, uint32_t, uint64_t)
ADD_CC(u64, uint64_t, unsigned __int128)

#define MAD_CC(name, V, U, W, UW, shift)                                                          \
	HANDLER(name)                                                                             \
	{                                                                                         \
		const V *pa = SRC(V, 0), *pb = SRC(V, 1);                                         \
		const U *pc = SRC(U, 2);                                                          \
		uint32_t in = insn->flags & FLAG_CARRY_IN ? *SRC(uint32_t, 3) : 0, out = 0;       \
		__auto_type d = DST(U);                                                           \
		LANES_OF(mask)                                                                    \
		{                                                                                 \
			UW sum = (UW)(U)((W)pa[l] * (W)pb[l] >> (shift)) + pc[l] + (in >> l & 1); \
			d[l] = (U)sum;                                                            \
			out |= (uint32_t)(sum >> (8 * sizeof(U)) & 1) << l;                       \
		}                                                                                 \
		carry_store(warp, insn, insn->src[3], mask, out);                                 \
	}
typedef unsigned __int128 u128;
MAD_CC(mad_lo_cc_u32, uint32_t, uint32_t, uint64_t, uint64_t, 0)
MAD_CC(mad_lo_cc_u64, uint64_t, uint64_t, u128, u128, 0)
MAD_CC(mad_hi_cc_u32, uint32_t, uint32_t, uint64_t, uint64_t, 32)
MAD_CC(mad_hi_cc_s32, int32_t, uint32_t, int64_t, uint64_t, 32)
MAD_CC(mad_hi_cc_u64, uint64_t, uint64_t, u128, u128, 64)
MAD_CC(mad_hi_cc_s64, int64_t, uint64_t, __int128, u128, 64)

/* --- 24 bits */

static inline int64_t sign24(uint32_t v)
{
	return (int32_t)(v << 8) >> 8;
}

BINARY(mul24_lo_u32, uint32_t, uint64_t, (wide)(a & 0xffffff) * (b & 0xffffff))
BINARY(mul24_hi_u32, uint32_t, uint64_t, (wide)(a & 0xffffff) * (b & 0xffffff) >> 16)
BINARY(mul24_lo_s32, uint32_t, uint64_t, (wide)(sign24(a) * sign24(b)))
BINARY(mul24_hi_s32, uint32_t, uint64_t, (wide)(sign24(a) * sign24(b)) >> 16)

/* --- bit fields */

#define FIELD(suffix, V, U, is_signed)                                                  \
	static inline V field_##suffix(V a, uint32_t position, uint32_t length)         \
	{                                                                               \
		const unsigned bits = 8 * sizeof(V);                                    \
		unsigned last;                                                          \
		U kept, sign = 0;                                                       \
		position &= 0xff;                                                       \
		length &= 0xff;                                                         \
		if (length == 0)                                                        \
			return 0;                                                       \
		last = position + length - 1 < bits ? position + length - 1 : bits - 1; \
		if (is_signed)                                                          \
			sign = (U)a >> last & 1 ? ~(U)0 : 0;                            \
		if (position >= bits)                                                   \
			return (V)sign;                                                 \
		kept = last - position + 1;                                             \
		if (kept >= bits)                                                       \
			return a;                                                       \
		return (V)(((U)a >> position & (((U)1 << kept) - 1)) | sign << kept);   \
	}                                                                               \
	HANDLER(bfe_##suffix)                                                           \
	{                                                                               \
		const V *pa = SRC(V, 0);                                                \
		const uint32_t *pb = SRC(uint32_t, 1), *pc = SRC(uint32_t, 2);          \
		__auto_type d = DST(V);                                                 \
		STORE_LANES(V, d, field_##suffix(pa[l], pb[l], pc[l]));                 \
	}
FIELD(u32, uint32_t, uint32_t, false)
FIELD(s32, int32_t, uint32_t, true)
FIELD(u64, uint64_t, uint64_t, false)
FIELD(s64, int64_t, uint64_t, true)

#define INSERT(suffix, U)                                                             \
	static inline U insert_##suffix(U a, U b, uint32_t position, uint32_t length) \
	{                                                                             \
		const unsigned bits = 8 * sizeof(U);                                  \
		U ones;                                                               \
		position &= 0xff;                                                     \
		length &= 0xff;                                                       \
		if (position >= bits || length == 0)                                  \
			return b;                                                     \
		ones = (length >= bits ? ~(U)0 : ((U)1 << length) - 1) << position;   \
		return (b & ~ones) | (a << position & ones);                          \
	}                                                                             \
	HANDLER(bfi_##suffix)                                                         \
	{                                                                             \
		const U *pa = SRC(U, 0), *pb = SRC(U, 1);                             \
		const uint32_t *pc = SRC(uint32_t, 2), *pd = SRC(uint32_t, 3);        \
		__auto_type d = DST(U);                                               \
		STORE_LANES(U, d, insert_##suffix(pa[l], pb[l], pc[l], pd[l]));       \
	}
INSERT(b32, uint32_t)
INSERT(b64, uint64_t)

/* Place of the highest bit that is not the sign; UINT32_MAX: none. */
#define FIND(suffix, V, U, is_signed, clz)                             \
	static inline uint32_t find_##suffix(V v, bool amount)         \
	{                                                              \
		const unsigned bits = 8 * sizeof(U);                   \
		U a = (U)v;                                            \
		uint32_t place;                                        \
		if ((is_signed) && a >> (bits - 1))                    \
			a = ~a;                                        \
		if (a == 0)                                            \
			return UINT32_MAX;                             \
		place = bits - 1 - (unsigned)clz(a);                   \
		return amount ? bits - 1 - place : place;              \
	}                                                              \
	HANDLER(bfind_##suffix)                                        \
	{                                                              \
		const V *pa = SRC(V, 0);                               \
		uint32_t *d = DST(uint32_t);                           \
		STORE_LANES(uint32_t, d, find_##suffix(pa[l], false)); \
	}                                                              \
	HANDLER(bfind_amt_##suffix)                                    \
	{                                                              \
		const V *pa = SRC(V, 0);                               \
		uint32_t *d = DST(uint32_t);                           \
		STORE_LANES(uint32_t, d, find_##suffix(pa[l], true));  \
	}
FIND(u32, uint32_t, uint32_t, false, __builtin_clz)
FIND(s32, int32_t, uint32_t, true, __builtin_clz)
FIND(u64, uint64_t, uint64_t, false, __builtin_clzll)
FIND(s64, int64_t, uint64_t, true, __builtin_clzll)

static inline uint32_t reverse32(uint32_t v)
{
	v = (v & 0x55555555) << 1 | (v >> 1 & 0x55555555);
	v = (v & 0x33333333) << 2 | (v >> 2 & 0x33333333);
	v = (v & 0x0f0f0f0f) << 4 | (v >> 4 & 0x0f0f0f0f);
	return __builtin_bswap32(v);
}

UNARY(brev_b32, uint32_t, uint64_t, reverse32(a))
UNARY(brev_b64, uint64_t, uint64_t,
      (uint64_t)reverse32((uint32_t)a) << 32 | reverse32((uint32_t)(a >> 32)))
UNARY(clz_b32, uint32_t, uint64_t, a ? __builtin_clz(a ? a : 1) : 32)
UNARY(popc_b32, uint32_t, uint64_t, __builtin_popcount(a))

HANDLER(clz_b64)
{
	const uint64_t *pa = SRC(uint64_t, 0);
	uint32_t *d = DST(uint32_t);

	STORE_LANES(uint32_t, d, pa[l] ? __builtin_clzll(pa[l] ? pa[l] : 1) : 64);
}

HANDLER(popc_b64)
{
	const uint64_t *pa = SRC(uint64_t, 0);
	uint32_t *d = DST(uint32_t);

	STORE_LANES(uint32_t, d, __builtin_popcountll(pa[l]));
}

/* Funnel shifts: b is the upper half. */
static inline uint32_t funnel(uint32_t a, uint32_t b, unsigned shift, bool left)
{
	uint64_t both = (uint64_t)b << 32 | a;

	return left ? (uint32_t)(both << shift >> 32) : (uint32_t)(both >> shift);
}

TERNARY(shf_l_clamp, uint32_t, uint64_t, funnel(a, b, c < 32 ? c : 32, true))
TERNARY(shf_l_wrap, uint32_t, uint64_t, funnel(a, b, c & 31, true))
TERNARY(shf_r_clamp, uint32_t, uint64_t, funnel(a, b, c < 32 ? c : 32, false))
TERNARY(shf_r_wrap, uint32_t, uint64_t, funnel(a, b, c & 31, false))

static inline uint32_t shifted_ones(uint32_t position, uint32_t length)
{
	uint64_t ones = length < 32 ? ((uint64_t)1 << length) - 1 : UINT32_MAX;

	return position < 32 ? (uint32_t)(ones << position) : 0;
}

BINARY(bmsk_clamp, uint32_t, uint64_t, shifted_ones(a, b))
BINARY(bmsk_wrap, uint32_t, uint64_t, shifted_ones(a & 31, b & 31))

HANDLER(szext_u32)
{
	const uint32_t *pa = SRC(uint32_t, 0), *pb = SRC(uint32_t, 1);
	uint32_t *d = DST(uint32_t);
	bool wrap = insn->detail;

	STORE_LANES(uint32_t, d, pa[l] & shifted_ones(0, wrap ? pb[l] & 31 : pb[l]));
}

HANDLER(szext_s32)
{
	const uint32_t *pa = SRC(uint32_t, 0), *pb = SRC(uint32_t, 1);
	int32_t *d = DST(int32_t);
	bool wrap = insn->detail;

	STORE_LANES(int32_t, d,
		    field_s32((int32_t)pa[l], 0,
			      wrap         ? pb[l] & 31
			      : pb[l] < 32 ? pb[l]
					   : 32));
}

static inline uint32_t find_nth(uint32_t bits, uint32_t base, int32_t offset)
{
	int64_t step = offset < 0 ? -1 : 1, left = (int64_t)offset * step;

	if (offset == 0)
		return base < 32 && bits >> base & 1 ? base : UINT32_MAX;
	for (int64_t at = base; at >= 0 && at < 32; at += step) {
		if ((bits >> at & 1) && --left == 0)
			return (uint32_t)at;
	}
	return UINT32_MAX;
}

TERNARY(fns, uint32_t, uint64_t, find_nth(a, b, (int32_t)c))

/* --- logic of three and bytes */

HANDLER(lop3)
{
	const uint32_t *pa = SRC(uint32_t, 0), *pb = SRC(uint32_t, 1), *pc = SRC(uint32_t, 2);
	uint32_t *d = DST(uint32_t), terms[8];

	for (unsigned i = 0; i < 8; i++)
		terms[i] = insn->detail >> i & 1 ? UINT32_MAX : 0;
	STORE_LANES(uint32_t, d, ({
			    uint32_t a = pa[l], b = pb[l], c = pc[l];
			    uint32_t high = (b & ((c & terms[7]) | (~c & terms[6]))) |
					    (~b & ((c & terms[5]) | (~c & terms[4])));
			    uint32_t low = (b & ((c & terms[3]) | (~c & terms[2]))) |
					   (~b & ((c & terms[1]) | (~c & terms[0])));
			    (a & high) | (~a & low);
		    }));
}

static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
	uint64_t bytes = (uint64_t)b << 32 | a;
	uint32_t result = 0;

	for (unsigned i = 0; i < 4; i++, selector >>= 4) {
		uint32_t byte = (uint32_t)(bytes >> (8 * (selector & 7))) & 0xff;

		if (selector & 8)
			byte = byte & 0x80 ? 0xff : 0;
		result |= byte << (8 * i);
	}
	return result;
}

TERNARY(prmt, uint32_t, uint64_t, permute(a, b, c))
#define PERMUTE(name, s0, s1, s2, s3)                                                  \
	HANDLER(prmt_##name)                                                           \
	{                                                                              \
		static const uint16_t selectors[] = {s0, s1, s2, s3};                  \
		const uint32_t *pa = SRC(uint32_t, 0), *pb = SRC(uint32_t, 1);         \
		const uint32_t *pc = SRC(uint32_t, 2);                                 \
		uint32_t *d = DST(uint32_t);                                           \
		STORE_LANES(uint32_t, d, permute(pa[l], pb[l], selectors[pc[l] & 3])); \
	}
PERMUTE(f4e, 0x3210, 0x4321, 0x5432, 0x6543)
PERMUTE(b4e, 0x5670, 0x6701, 0x7012, 0x0123)
PERMUTE(rc8, 0x0000, 0x1111, 0x2222, 0x3333)
PERMUTE(ecl, 0x3210, 0x3211, 0x3222, 0x3333)
PERMUTE(ecr, 0x0000, 0x1110, 0x2210, 0x3210)
PERMUTE(rc16, 0x1010, 0x3232, 0x1010, 0x3232)

/* --- dot products; flags: 1 a is signed, 2 b is */

static inline int64_t part(uint32_t v, unsigned at, unsigned bits, bool is_signed)
{
	uint32_t field = v >> at << (32 - bits);

	return is_signed ? (int32_t)field >> (32 - bits) : (int64_t)(field >> (32 - bits));
}

HANDLER(dp4a)
{
	const uint32_t *pa = SRC(uint32_t, 0), *pb = SRC(uint32_t, 1), *pc = SRC(uint32_t, 2);
	uint32_t *d = DST(uint32_t);

	LANES_OF(mask)
	{
		uint32_t sum = pc[l];

		for (unsigned i = 0; i < 32; i += 8)
			sum += (uint32_t)(part(pa[l], i, 8, insn->flags & 1) *
					  part(pb[l], i, 8, insn->flags & 2));
		d[l] = sum;
	}
}

static void dot2(struct warp *warp, const struct insn *insn, uint32_t mask, unsigned first)
{
	const uint32_t *pa = SRC(uint32_t, 0), *pb = SRC(uint32_t, 1), *pc = SRC(uint32_t, 2);
	uint32_t *d = DST(uint32_t);

	LANES_OF(mask)
	{
		uint32_t sum = pc[l];

		for (unsigned i = 0; i < 2; i++)
			sum += (uint32_t)(part(pa[l], 16 * i, 16, insn->flags & 1) *
					  part(pb[l], first + 8 * i, 8, insn->flags & 2));
		d[l] = sum;
	}
}

HANDLER(dp2a_lo)
{
	dot2(warp, insn, mask, 0);
}

HANDLER(dp2a_hi)
{
	dot2(warp, insn, mask, 16);
}

/* --- predicates */

HANDLER(pred_mov)
{
	predicate_store(warp, insn->dst, mask, *SRC(uint32_t, 0));
}

HANDLER(pred_not)
{
	predicate_store(warp, insn->dst, mask, ~*SRC(uint32_t, 0));
}

HANDLER(pred_and)
{
	predicate_store(warp, insn->dst, mask, *SRC(uint32_t, 0) & *SRC(uint32_t, 1));
}

HANDLER(pred_or)
{
	predicate_store(warp, insn->dst, mask, *SRC(uint32_t, 0) | *SRC(uint32_t, 1));
}

HANDLER(pred_xor)
{
	predicate_store(warp, insn->dst, mask, *SRC(uint32_t, 0) ^ *SRC(uint32_t, 1));
}

/* --- vectors: size[0] bytes of the whole, size[1] of each of `detail` elements */

static uint64_t load_bits(const unsigned char *from, unsigned size)
{
	uint64_t bits = 0;

	memcpy(&bits, from, size);
	return bits;
}

HANDLER(pack)
{
	const uint32_t *elements = &warp->extra[insn->extra];
	unsigned whole = insn->size[0], size = insn->size[1];

	LANES_OF(mask)
	{
		uint64_t bits = 0;

		for (unsigned i = 0; i < insn->detail; i++) {
			const unsigned char *from = value_at(warp, elements[i]);

			bits |= load_bits(from + (size_t)l * size, size) << (8 * size * i);
		}
		memcpy(warp->base[0] + insn->dst + (size_t)l * whole, &bits, whole);
	}
}

HANDLER(unpack)
{
	const uint32_t *elements = &warp->extra[insn->extra];
	unsigned whole = insn->size[0], size = insn->size[1];
	const unsigned char *from = value_at(warp, insn->src[0]);

	LANES_OF(mask)
	{
		uint64_t bits = load_bits(from + (size_t)l * whole, whole);

		for (unsigned i = 0; i < insn->detail; i++, bits >>= 8 * size)
			memcpy(warp->base[0] + elements[i] + (size_t)l * size, &bits, size);
	}
}

/* --- extension and truncation, from registers of size[1] bytes */

#define EXTEND(bits, D, suffix, S)                             \
	HANDLER(ext##bits##_##suffix)                          \
	{                                                      \
		__auto_type d = DST(D);                        \
		if (insn->size[1] == 8) {                      \
			const uint64_t *pa = SRC(uint64_t, 0); \
			STORE_LANES(D, d, (D)(S)pa[l]);        \
		} else if (insn->size[1] == 4) {               \
			const uint32_t *pa = SRC(uint32_t, 0); \
			STORE_LANES(D, d, (D)(S)pa[l]);        \
		} else {                                       \
			const uint16_t *pa = SRC(uint16_t, 0); \
			STORE_LANES(D, d, (D)(S)pa[l]);        \
		}                                              \
	}
#define EXTEND_TO(bits, D)             \
	EXTEND(bits, D, u8, uint8_t)   \
	EXTEND(bits, D, s8, int8_t)    \
	EXTEND(bits, D, u16, uint16_t) \
	EXTEND(bits, D, s16, int16_t)  \
	EXTEND(bits, D, u32, uint32_t) \
	EXTEND(bits, D, s32, int32_t)  \
	EXTEND(bits, D, u64, uint64_t) \
	EXTEND(bits, D, s64, int64_t)
EXTEND_TO(16, uint16_t)
EXTEND_TO(32, uint32_t)
EXTEND_TO(64, uint64_t)
