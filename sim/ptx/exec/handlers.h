/* How handlers are written. Those of PTX_ISA files are compiled twice on x86-64: for any processor
 * and for x86-64-v3; the others once. */
#pragma once

#include <string.h>

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

#define LANES for (unsigned l = 0; l < WARP_LANES; l++)
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

/* The generic address that a memory instruction has in one lane. */
static inline uint64_t lane_address(const struct warp *warp, const struct insn *insn, unsigned lane)
{
	uint64_t base =
		insn->flags & FLAG_ADDRESS_32 ? SRC(uint32_t, 0)[lane] : SRC(uint64_t, 0)[lane];

	base += (uint64_t)insn->offset;
	switch (insn->detail) {
	case SPACE_SHARED:
		return base + PTX_WINDOW_SHARED;
	case SPACE_LOCAL:
		return base + PTX_WINDOW_LOCAL;
	case SPACE_FRAME:
		return base + PTX_WINDOW_LOCAL + warp->local_base;
	default:
		return base;
	}
}

#define BLEND(V)                                  \
	for (unsigned l = 0; l < WARP_LANES; l++) \
		((V *)to)[l] = mask >> l & 1 ? ((const V *)from)[l] : ((V *)to)[l];

/* Writes the lanes of `mask` to a register of `size` bytes. */
static inline void lanes_store(void *restrict to, const void *restrict from, size_t size,
			       uint32_t mask)
{
	if (mask == UINT32_MAX) {
		memcpy(to, from, size * WARP_LANES);
	} else if (size == 8) {
		BLEND(uint64_t)
	} else if (size == 4) {
		BLEND(uint32_t)
	} else {
		BLEND(uint16_t)
	}
}

/* Computes all lanes, also those that are off: expressions have no side effects. The result goes
 * through an array of its own, because the destination may be an operand too. */
#define STORE_LANES(type, to, expression)                      \
	do {                                                   \
		type results_[WARP_LANES];                     \
		LANES results_[l] = (type)(expression);        \
		lanes_store(to, results_, sizeof(type), mask); \
	} while (0)

static inline void predicate_store(const struct warp *warp, value_ref ref, uint32_t mask,
				   uint32_t bits)
{
	uint32_t *to = (uint32_t *)(warp->base[0] + ref);

	*to = (*to & ~mask) | (bits & mask);
}
