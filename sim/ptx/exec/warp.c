/* Instructions that the lanes of a warp do together, and special registers. */
#include "base/macros.h"
#include "ptx/exec/handlers.h"
#include "ptx/lower.h"

/* The lane that lane `l` reads, and whether it is in the segment; c holds the segment's mask and
 * its clamp. */
static unsigned shuffle_source(unsigned mode, unsigned l, uint32_t b, uint32_t c, bool *ret_inside)
{
	unsigned clamp = c & 31, segment = c >> 8 & 31, first = l & segment;
	unsigned last = first | (clamp & ~segment);
	int64_t source;

	b &= 31;
	switch (mode) {
	case SHUFFLE_UP:
		source = (int64_t)l - b;
		*ret_inside = source >= (int64_t)last;
		break;
	case SHUFFLE_DOWN:
		source = (int64_t)l + b;
		*ret_inside = source <= (int64_t)last;
		break;
	case SHUFFLE_BFLY:
		source = l ^ b;
		*ret_inside = source <= (int64_t)last;
		break;
	default:
		source = first | (b & ~segment);
		*ret_inside = source <= (int64_t)last;
		break;
	}
	return *ret_inside ? (unsigned)source & 31 : l;
}

HANDLER(shfl)
{
	const uint32_t *pa = SRC(uint32_t, 0), *pb = SRC(uint32_t, 1), *pc = SRC(uint32_t, 2);
	uint32_t *d = DST(uint32_t), values[WARP_LANES], bits = 0;

	for (unsigned l = 0; l < WARP_LANES; l++) {
		bool inside;

		values[l] = pa[shuffle_source(insn->detail, l, pb[l], pc[l], &inside)];
		bits |= (uint32_t)inside << l;
	}
	STORE_LANES(uint32_t, d, values[l]);
	predicate_store(warp, insn->extra, mask, bits);
}

/* Lanes that name the same members do one thing together: those of a part of a warp, beside those
 * of another. The registers that a group writes are its own lanes' alone. */
static uint32_t group_next(const uint32_t *members, uint32_t rest)
{
	uint32_t first = members[__builtin_ctz(rest)], group = 0;

	LANES group |= (uint32_t)(members[l] == first) << l;
	return group & rest;
}

#define GROUPED(name)                                                                           \
	static inline void name##_group(const struct warp *warp, const struct insn *insn,       \
					uint32_t mask);                                         \
	HANDLER(name)                                                                           \
	{                                                                                       \
		const uint32_t *members = insn->src[1] == VALUE_NONE ? NULL : SRC(uint32_t, 1); \
		uint32_t group;                                                                 \
                                                                                                \
		for (uint32_t rest = mask; rest; rest &= ~group) {                              \
			group = members ? group_next(members, rest) : rest;                     \
			name##_group(warp, insn, group);                                        \
		}                                                                               \
	}                                                                                       \
	static inline void name##_group(const struct warp *warp, const struct insn *insn,       \
					uint32_t mask)

GROUPED(vote_all)
{
	predicate_store(warp, insn->dst, mask, (*SRC(uint32_t, 0) & mask) == mask ? UINT32_MAX : 0);
}

GROUPED(vote_any)
{
	predicate_store(warp, insn->dst, mask, *SRC(uint32_t, 0) & mask ? UINT32_MAX : 0);
}

GROUPED(vote_uni)
{
	uint32_t votes = *SRC(uint32_t, 0) & mask;

	predicate_store(warp, insn->dst, mask, votes == mask || votes == 0 ? UINT32_MAX : 0);
}

GROUPED(vote_ballot)
{
	uint32_t votes = *SRC(uint32_t, 0) & mask, *d = DST(uint32_t);

	STORE_LANES(uint32_t, d, votes);
}

static uint64_t match_value(const struct warp *warp, const struct insn *insn, unsigned lane)
{
	return insn->size[1] == 8 ? SRC(uint64_t, 0)[lane] : SRC(uint32_t, 0)[lane];
}

GROUPED(match_any)
{
	uint32_t same[WARP_LANES] = {0}, *d = DST(uint32_t);

	LANES_OF(mask)
	{
		for (unsigned i = 0; i < WARP_LANES; i++) {
			if (mask >> i & 1 &&
			    match_value(warp, insn, i) == match_value(warp, insn, l))
				same[l] |= 1u << i;
		}
	}
	STORE_LANES(uint32_t, d, same[l]);
}

GROUPED(match_all)
{
	uint64_t first = match_value(warp, insn, (unsigned)__builtin_ctz(mask));
	uint32_t *d = DST(uint32_t);
	bool all = true;

	LANES_OF(mask)
	all = all && match_value(warp, insn, l) == first;
	STORE_LANES(uint32_t, d, all ? mask : 0);
	predicate_store(warp, insn->extra, mask, all ? UINT32_MAX : 0);
}

HANDLER(activemask)
{
	uint32_t *d = DST(uint32_t);

	STORE_LANES(uint32_t, d, warp->active);
}

GROUPED(elect)
{
	uint32_t leader = (uint32_t)__builtin_ctz(mask), *d = DST(uint32_t);

	STORE_LANES(uint32_t, d, leader);
	predicate_store(warp, insn->extra, mask, 1u << leader);
}

static uint32_t reduce(unsigned op, uint32_t a, uint32_t b, bool is_signed)
{
	bool less = is_signed ? (int32_t)a < (int32_t)b : a < b;

	switch (op) {
	case REDUCE_AND:
		return a & b;
	case REDUCE_OR:
		return a | b;
	case REDUCE_XOR:
		return a ^ b;
	case REDUCE_MIN:
		return less ? a : b;
	case REDUCE_MAX:
		return less ? b : a;
	default:
		return a + b;
	}
}

GROUPED(redux)
{
	const uint32_t *pa = SRC(uint32_t, 0);
	uint32_t *d = DST(uint32_t), total = pa[__builtin_ctz(mask)];
	bool is_signed = insn->type == TYPE_S32;

	LANES_OF(mask & (mask - 1))
	total = reduce(insn->detail, total, pa[l], is_signed);
	STORE_LANES(uint32_t, d, total);
}

/* --- special registers */

static uint64_t clock_ticks(struct warp *warp)
{
	const struct ptx_launch *given = warp->launch->given;
	uint64_t khz = given->clock_khz ? given->clock_khz : 1000000;
	unsigned __int128 ns = launch_now(warp->launch) - warp->launch->started;

	warp_polled(warp, 1);
	return (uint64_t)(ns * khz / 1000000);
}

static uint64_t timer(struct warp *warp)
{
	warp_polled(warp, 1);
	return launch_now(warp->launch);
}

/* Those that are the same for all lanes. */
static uint64_t uniform(struct warp *warp, unsigned special)
{
	const struct launch *launch = warp->launch;
	const struct ptx_launch *given = launch->given;
	const struct block *block = warp->block;
	uint32_t sms = MAX(given->sm_count, 1u);

	switch (special) {
	case SPECIAL_NTID_X:
	case SPECIAL_NTID_Y:
	case SPECIAL_NTID_Z:
		return given->block[special - SPECIAL_NTID_X];
	case SPECIAL_CTAID_X:
	case SPECIAL_CTAID_Y:
	case SPECIAL_CTAID_Z:
		return block->id[special - SPECIAL_CTAID_X];
	case SPECIAL_NCTAID_X:
	case SPECIAL_NCTAID_Y:
	case SPECIAL_NCTAID_Z:
		return given->grid[special - SPECIAL_NCTAID_X];
	case SPECIAL_ONE:
		return 1;
	case SPECIAL_WARPID:
		return warp->number;
	case SPECIAL_NWARPID:
		return launch->warps_per_block;
	case SPECIAL_SMID:
		return (block->id[0] + (uint64_t)block->id[1] * given->grid[0] +
			(uint64_t)block->id[2] * given->grid[0] * given->grid[1]) %
		       sms;
	case SPECIAL_NSMID:
		return sms;
	case SPECIAL_GRIDID:
		return given->grid_id;
	case SPECIAL_CLOCK:
	case SPECIAL_CLOCK64:
		return clock_ticks(warp);
	case SPECIAL_CLOCK_HI:
		return clock_ticks(warp) >> 32;
	case SPECIAL_TIMER:
	case SPECIAL_TIMER_LO:
		return timer(warp);
	case SPECIAL_TIMER_HI:
		return timer(warp) >> 32;
	case SPECIAL_DYNAMIC_SHARED:
		return given->shared_bytes;
	case SPECIAL_TOTAL_SHARED:
		return launch->shared_bytes;
	case SPECIAL_WORKSPACE_HI:
		return given->cooperative ? PTX_WINDOW_GRID >> 32 : 0;
	case SPECIAL_WORKSPACE_LO:
		return given->cooperative ? PTX_WINDOW_GRID & UINT32_MAX : 0;
	default:
		return 0;
	}
}

static uint32_t lane_mask(unsigned special, unsigned lane)
{
	uint32_t below = (1u << lane) - 1;

	switch (special) {
	case SPECIAL_LANEMASK_EQ:
		return 1u << lane;
	case SPECIAL_LANEMASK_LT:
		return below;
	case SPECIAL_LANEMASK_LE:
		return below | 1u << lane;
	case SPECIAL_LANEMASK_GE:
		return ~below;
	default:
		return ~below & ~(1u << lane);
	}
}

static void special_lanes(struct warp *warp, unsigned special, uint64_t values[WARP_LANES])
{
	uint64_t same;

	if (special <= SPECIAL_TID_Z) {
		for (unsigned l = 0; l < WARP_LANES; l++)
			values[l] = warp->tid[special][l];
	} else if (special == SPECIAL_LANEID) {
		for (unsigned l = 0; l < WARP_LANES; l++)
			values[l] = l;
	} else if (special >= SPECIAL_LANEMASK_EQ && special <= SPECIAL_LANEMASK_GT) {
		for (unsigned l = 0; l < WARP_LANES; l++)
			values[l] = lane_mask(special, l);
	} else {
		same = uniform(warp, special);
		for (unsigned l = 0; l < WARP_LANES; l++)
			values[l] = same;
	}
}

HANDLER(sreg)
{
	uint64_t values[WARP_LANES];

	special_lanes(warp, insn->detail, values);
	if (insn->size[0] == 8) {
		uint64_t *d = DST(uint64_t);

		STORE_LANES(uint64_t, d, values[l]);
	} else if (insn->size[0] == 4) {
		uint32_t *d = DST(uint32_t);

		STORE_LANES(uint32_t, d, values[l]);
	} else {
		uint16_t *d = DST(uint16_t);

		STORE_LANES(uint16_t, d, values[l]);
	}
}
