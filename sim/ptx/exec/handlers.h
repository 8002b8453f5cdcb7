/* How handlers are written. Those of PTX_ISA files are compiled twice on x86-64: for any processor
 * and for x86-64-v3; the others once. */
#pragma once

#include "ptx/exec/exec.h"

#define ISA_JOIN_(name, isa) name##_##isa
#define ISA_JOIN(name, isa) ISA_JOIN_(name, isa)
#ifdef PTX_ISA
#define ISA(name) ISA_JOIN(name, PTX_ISA)
#define X(name) void ISA(op_##name)(struct warp * warp, const struct insn *insn, uint32_t mask);
PTX_OPS_INT(X)
PTX_OPS_FLOAT(X)
PTX_OPS_MEMORY(X)
#undef X
#endif

#define X(name) void op_##name(struct warp *warp, const struct insn *insn, uint32_t mask);
PTX_OPS_WARP(X)
PTX_OPS_FLOW(X)
#undef X

#ifdef PTX_ISA
#define HANDLER(name) \
	void ISA(op_##name)(struct warp * warp, const struct insn *insn, uint32_t mask)
#else
#define HANDLER(name) void op_##name(struct warp *warp, const struct insn *insn, uint32_t mask)
#endif

/* Lanes do not depend on each other: an operand may be the destination, but then lane for lane. */
#ifdef __clang__
#define LANES \
	_Pragma("clang loop vectorize(assume_safety)") for (unsigned l = 0; l < WARP_LANES; l++)
#else
#define LANES _Pragma("GCC ivdep") for (unsigned l = 0; l < WARP_LANES; l++)
#endif
/* Only the lanes of a mask, one by one: what has side effects. */
#define LANES_OF(mask)                                                                            \
	for (uint32_t rest_ = (mask), l = 0; rest_ && (l = (uint32_t)__builtin_ctz(rest_), true); \
	     rest_ &= rest_ - 1)

static inline void *value_at(const struct warp *warp, value_ref ref)
{
	return warp->base[ref & VALUE_CONSTANT] + (ref & ~VALUE_CONSTANT);
}

#define SRC(type, index) ((const type *)value_at(warp, insn->src[index]))
#define DST(type) ((type *)(warp->base[0] + insn->dst))

/* Computes all lanes, also those that are off: expressions have no side effects. */
#define STORE_LANES(type, to, expression)                                   \
	do {                                                                \
		if (mask == UINT32_MAX) {                                   \
			LANES(to)[l] = (type)(expression);                  \
		} else {                                                    \
			LANES                                               \
			{                                                   \
				type value_ = (type)(expression);           \
				(to)[l] = mask >> l & 1 ? value_ : (to)[l]; \
			}                                                   \
		}                                                           \
	} while (0)

static inline void predicate_store(const struct warp *warp, value_ref ref, uint32_t mask,
				   uint32_t bits)
{
	uint32_t *to = (uint32_t *)(warp->base[0] + ref);

	*to = (*to & ~mask) | (bits & mask);
}
