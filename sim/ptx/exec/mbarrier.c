/* mbarrier objects: 64 bits of shared memory that no other instruction is to look into. One thread
 * of the host runs all of a block, so nothing here is atomic. */
#include "base/macros.h"
#include "ptx/exec/handlers.h"
#include "ptx/lower.h"

#define COUNT_BITS 20
#define COUNT_MAX ((1u << COUNT_BITS) - 1)
#define BYTES_BITS 22

struct mbarrier {
	uint32_t pending;  /* arrivals that the phase still waits for */
	uint32_t expected; /* in each phase */
	int32_t bytes;     /* the tx-count: that the phase still waits for, may be negative */
	bool odd;          /* phase */
};

static struct mbarrier unpack(uint64_t bits)
{
	return (struct mbarrier){
		.pending = bits & COUNT_MAX,
		.expected = bits >> COUNT_BITS & COUNT_MAX,
		.bytes = (int32_t)((int64_t)(bits << (64 - 2 * COUNT_BITS - BYTES_BITS)) >>
				   (64 - BYTES_BITS)),
		.odd = bits >> 63,
	};
}

static uint64_t pack(const struct mbarrier *barrier)
{
	uint64_t bytes = (uint32_t)barrier->bytes & ((1u << BYTES_BITS) - 1);

	return barrier->pending | (uint64_t)barrier->expected << COUNT_BITS |
	       bytes << (2 * COUNT_BITS) | (uint64_t)barrier->odd << 63;
}

/* False: there are not so many to come. */
static bool arrive(struct mbarrier *barrier, uint32_t count, bool drops)
{
	if (count > barrier->pending)
		return false;
	barrier->pending -= count;
	if (drops)
		barrier->expected -= MIN(count, barrier->expected);
	return true;
}

static void end_phase(struct mbarrier *barrier)
{
	if (barrier->pending > 0 || barrier->bytes != 0)
		return;
	barrier->odd = !barrier->odd;
	barrier->pending = barrier->expected;
}

/* The state after an action. False: that is an error of the program. */
static bool change(struct mbarrier *barrier, enum mbarrier_action action, uint32_t value)
{
	bool drops = action == MBARRIER_DROP || action == MBARRIER_DROP_TX, fine = true;

	switch (action) {
	case MBARRIER_INIT:
		*barrier = (struct mbarrier){.pending = value, .expected = value};
		return value > 0 && value <= COUNT_MAX;
	case MBARRIER_INVAL:
		*barrier = (struct mbarrier){0};
		return true;
	case MBARRIER_EXPECT_TX:
		barrier->bytes += (int32_t)value;
		return true;
	case MBARRIER_COMPLETE_TX:
		barrier->bytes -= (int32_t)value;
		break;
	case MBARRIER_ARRIVE_TX:
	case MBARRIER_DROP_TX:
		barrier->bytes += (int32_t)value;
		fine = arrive(barrier, 1, drops);
		break;
	case MBARRIER_COPIED:
		return barrier->pending > 0;
	default:
		fine = arrive(barrier, value, drops);
	}
	end_phase(barrier);
	return fine;
}

static unsigned char *mbarrier_at(struct warp *warp, const struct insn *insn, unsigned l)
{
	uint64_t address = lane_address(warp, insn, l);

	if ((address & ~(PTX_WINDOW_SIZE - 1)) == PTX_WINDOW_SHARED)
		return warp_resolve(warp, address, sizeof(uint64_t), true, l);
	warp_fault(warp, PTX_FAULT_ILLEGAL_ADDRESS, address, l);
	return NULL;
}

/* Whether the phase is over that a state or a parity names: the one that runs, or the one before.
 */
static bool is_over(const struct warp *warp, const struct insn *insn, uint64_t bits, unsigned l)
{
	bool odd =
		insn->type == MBARRIER_TEST ? SRC(uint64_t, 1)[l] >> 63 : SRC(uint32_t, 1)[l] & 1;

	return unpack(bits).odd != odd;
}

static void test_lanes(struct warp *warp, const struct insn *insn, uint32_t mask)
{
	uint32_t over = 0;

	LANES_OF(mask)
	{
		const unsigned char *at = mbarrier_at(warp, insn, l);
		uint64_t bits;

		if (!at)
			return;
		memcpy(&bits, at, sizeof(bits));
		over |= (uint32_t)is_over(warp, insn, bits, l) << l;
		if (!(over >> l & 1))
			warp_polled_value(warp, (uintptr_t)at, bits);
	}
	predicate_store(warp, insn->dst, mask, over);
}

static void change_lanes(struct warp *warp, const struct insn *insn, uint32_t mask)
{
	uint64_t *d = DST(uint64_t);

	LANES_OF(mask)
	{
		unsigned char *at = mbarrier_at(warp, insn, l);
		struct mbarrier barrier;
		uint64_t bits;

		if (!at)
			return;
		memcpy(&bits, at, sizeof(bits));
		barrier = unpack(bits);
		d[l] = bits;
		if (!change(&barrier, insn->type, SRC(uint32_t, 1)[l])) {
			warp_fault(warp, PTX_FAULT_TRAP, 0, l);
			return;
		}
		bits = pack(&barrier);
		memcpy(at, &bits, sizeof(bits));
	}
	warp->spins = 0;
	warp->idle = false;
	warp->watches = false;
}

HANDLER(mbarrier)
{
	warp->launch->result->memory_instructions++;
	if (insn->type == MBARRIER_TEST || insn->type == MBARRIER_TEST_PARITY)
		test_lanes(warp, insn, mask);
	else
		change_lanes(warp, insn, mask);
}

HANDLER(mbarrier_pending)
{
	const uint64_t *state = SRC(uint64_t, 0);
	uint32_t *d = DST(uint32_t);

	STORE_LANES(uint32_t, d, unpack(state[l]).pending);
}
