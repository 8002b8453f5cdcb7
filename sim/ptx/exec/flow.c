/* Branches, calls, barriers and ends, as handlers. */
#include <string.h>

#include "ptx/exec/handlers.h"
#include "ptx/lower.h"

HANDLER(nop)
{
}

HANDLER(label)
{
}

HANDLER(join)
{
	warp_join(warp, warp->pc - 1);
}

HANDLER(bra)
{
	uint32_t pcs[2] = {warp->pc, insn->target}, masks[2] = {warp->active & ~mask, mask};

	if (masks[0] == 0)
		warp->pc = insn->target;
	else
		warp_split(warp, insn->reconverge, pcs, masks, 2);
}

/* extra: the targets, src[1] of them. */
HANDLER(brx)
{
	const uint32_t *index = SRC(uint32_t, 0);
	uint32_t pcs[WARP_LANES + 1], masks[WARP_LANES + 1], left = mask;
	unsigned count = 0;

	if (warp->active & ~mask) {
		pcs[count] = warp->pc;
		masks[count++] = warp->active & ~mask;
	}
	while (left) {
		unsigned lane = (unsigned)__builtin_ctz(left);
		uint32_t same = 0;

		if (index[lane] >= insn->src[1]) {
			warp_fault(warp, PTX_FAULT_TRAP, 0, lane);
			return;
		}
		LANES_OF(left)
		same |= (uint32_t)(index[l] == index[lane]) << l;
		pcs[count] = warp->extra[insn->extra + index[lane]];
		masks[count++] = same;
		left &= ~same;
	}
	if (count == 1)
		warp->pc = pcs[0];
	else
		warp_split(warp, insn->reconverge, pcs, masks, count);
}

static void call_intrinsic(struct warp *warp, const struct insn *insn,
			   const struct function *callee, uint32_t mask)
{
	const struct ptx_callbacks *callbacks = warp->launch->given->callbacks;
	void *user = warp->launch->given->user;

	switch (callee->intrinsic) {
	case INTRINSIC_VPRINTF:
		warp_print(warp, insn, mask);
		break;
	case INTRINSIC_MALLOC:
		LANES_OF(mask)
		{
			uint64_t size = call_argument(warp, insn, 0, l);

			call_return(warp, insn,
				    callbacks->heap_alloc ? callbacks->heap_alloc(user, size) : 0,
				    l);
		}
		break;
	case INTRINSIC_FREE:
		LANES_OF(mask)
		{
			uint64_t address = call_argument(warp, insn, 0, l);

			if (address && callbacks->heap_free)
				callbacks->heap_free(user, address);
		}
		break;
	default:
		warp_fault(warp, PTX_FAULT_ASSERT, 0, (unsigned)__builtin_ctz(mask));
		break;
	}
}

static void call_function(struct warp *warp, const struct insn *insn, const struct function *callee,
			  uint32_t mask)
{
	if (callee->is_defined)
		warp_call(warp, insn, callee, mask);
	else
		call_intrinsic(warp, insn, callee, mask);
}

HANDLER(call)
{
	call_function(warp, insn, insn->callee, mask);
}

/* Whether the callee takes what the call gives; any function may be pointed to. */
static bool call_fits(const struct warp *warp, const struct insn *insn,
		      const struct function *callee)
{
	const uint32_t *words = &warp->extra[insn->extra];
	const uint32_t *at = words + 2;

	if (callee->is_entry || words[0] != callee->return_count || words[1] != callee->param_count)
		return false;
	for (uint32_t i = 0; i < callee->return_count; i++, at += 3) {
		if (callee->returns[i].size != at[2])
			return false;
	}
	for (uint32_t i = 0; i < callee->param_count; i++, at += 3) {
		if (callee->params[i].size != at[2])
			return false;
	}
	return true;
}

static const struct function *function_at(const struct warp *warp, uint64_t address)
{
	const struct ptx_module *module = warp->launch->module;
	uint64_t number = (address - PTX_WINDOW_CODE) / 16;

	if (address < PTX_WINDOW_CODE || address % 16 || number == 0 ||
	    number > module->function_count)
		return NULL;
	return module->by_number[number]->definition;
}

/* Lanes may call different functions: those of the first lane's go, and the others find the call
 * again when they come back. */
HANDLER(call_indirect)
{
	const uint64_t *pointer = SRC(uint64_t, 0);
	unsigned lane = (unsigned)__builtin_ctz(mask);
	const struct function *callee = function_at(warp, pointer[lane]);
	uint32_t same = 0;

	LANES_OF(mask)
	same |= (uint32_t)(pointer[l] == pointer[lane]) << l;
	if (!callee || !call_fits(warp, insn, callee)) {
		warp_fault(warp, PTX_FAULT_ILLEGAL_CALL, pointer[lane], lane);
		return;
	}
	if (same != warp->active) {
		/* The caller's entry is split for good: its lanes join where it would have ended.
		 */
		uint32_t again = warp->pc - 1, next = warp->pc;
		uint32_t pcs[3] = {next, again, next},
			 masks[3] = {warp->active & ~mask, mask & ~same, same};
		unsigned first = masks[0] ? 0 : 1, last = 3;

		if (masks[1] == 0) {
			masks[1] = masks[0];
			pcs[1] = next;
			first = 1;
		}
		warp_split(warp, -1, pcs + first, masks + first, last - first);
	}
	call_function(warp, insn, callee, same);
}

HANDLER(ret)
{
	warp_return(warp, mask);
}

HANDLER(exit)
{
	warp_exit(warp, mask);
}

HANDLER(trap)
{
	warp_fault(warp, PTX_FAULT_TRAP, 0, (unsigned)__builtin_ctz(mask));
}

HANDLER(nanosleep)
{
	uint32_t ns = SRC(uint32_t, 0)[__builtin_ctz(mask)];

	warp->wake = launch_elapsed(warp->launch) + ns;
	warp->state = WARP_SLEEPING;
	warp->stop = true;
}

/* --- barriers */

/* Gives the waiting warps what bar.red computed, and lets them go. */
static void barrier_release(struct block *block, uint32_t number)
{
	struct barrier *barrier = &block->barriers[number];

	for (uint32_t i = 0; i < block->launch->warps_per_block; i++) {
		struct warp *warp = &block->warps[i];
		const struct insn *insn = warp->barrier_insn;
		uint32_t mask = warp->barrier_mask;

		if (warp->state != WARP_BARRIER || warp->barrier != number)
			continue;
		warp->state = WARP_READY;
		if (!insn)
			continue;
		if (insn->detail == REDUCE_POPC) {
			uint32_t *d = DST(uint32_t);

			STORE_LANES(uint32_t, d, barrier->popc);
		} else {
			predicate_store(warp, insn->dst, mask,
					insn->detail == REDUCE_AND ? barrier->all : barrier->any);
		}
	}
	*barrier = (struct barrier){.all = UINT32_MAX};
}

static void barrier_check(struct block *block, uint32_t number)
{
	const struct barrier *barrier = &block->barriers[number];
	uint32_t expected = barrier->expected ? barrier->expected : block->warps_left;

	if (barrier->arrived > 0 && barrier->arrived >= expected)
		barrier_release(block, number);
}

void block_warp_done(struct block *block)
{
	block->warps_left--;
	for (uint32_t i = 0; i <= BARRIER_COUNT; i++)
		barrier_check(block, i);
}

void warp_barrier_wait(struct warp *warp)
{
	warp->block->barriers[warp->barrier].arrived++;
	warp->state = WARP_BARRIER;
	warp->stop = true;
	barrier_check(warp->block, warp->barrier);
}

/* The barrier that an instruction names, with the threads it expects; NULL and a fault: no such
 * one. */
static struct barrier *barrier_find(struct warp *warp, const struct insn *insn, uint32_t mask)
{
	unsigned lane = (unsigned)__builtin_ctz(mask);
	uint32_t number = SRC(uint32_t, 0)[lane], threads = 0;

	if (insn->src[1] != VALUE_NONE)
		threads = SRC(uint32_t, 1)[lane];
	if (number > BARRIER_COUNT || threads % WARP_LANES) {
		warp_fault(warp, PTX_FAULT_TRAP, 0, lane);
		return NULL;
	}
	warp->block->barriers[number].expected = threads / WARP_LANES;
	warp->barrier = number;
	return &warp->block->barriers[number];
}

HANDLER(bar_sync)
{
	if (!barrier_find(warp, insn, mask))
		return;
	warp->barrier_insn = NULL;
	if (warp_gather(warp, mask))
		warp_barrier_wait(warp);
}

HANDLER(bar_arrive)
{
	struct barrier *barrier = barrier_find(warp, insn, mask);

	if (!barrier)
		return;
	barrier->arrived++;
	barrier_check(warp->block, warp->barrier);
}

HANDLER(bar_red)
{
	struct barrier *barrier = barrier_find(warp, insn, mask);
	uint32_t bits = *SRC(uint32_t, 2) & mask;

	if (!barrier)
		return;
	barrier->popc += (uint32_t)__builtin_popcount(bits);
	barrier->all = barrier->all && bits == mask ? UINT32_MAX : 0;
	barrier->any = barrier->any || bits ? UINT32_MAX : 0;
	if (warp->gathered == 0)
		warp->barrier_mask = 0;
	warp->barrier_mask |= mask;
	warp->barrier_insn = insn;
	if (warp_gather(warp, mask))
		warp_barrier_wait(warp);
}
