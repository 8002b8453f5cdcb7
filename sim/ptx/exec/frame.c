/* The frames of a warp and the ways its lanes have taken. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/exec/handlers.h"

static struct simt *top(const struct warp *warp)
{
	return &warp->simt[warp->simt_count - 1];
}

static bool simt_push(struct warp *warp, uint32_t pc, uint32_t mask, int32_t reconverge)
{
	if (warp->simt_count == warp->simt_room) {
		uint32_t room = MAX(2 * warp->simt_room, 64u);
		struct simt *grown = realloc(warp->simt, room * sizeof(*grown));

		if (!grown) {
			warp_out_of_memory(warp);
			return false;
		}
		warp->simt = grown;
		warp->simt_room = room;
	}
	warp->simt[warp->simt_count++] = (struct simt){pc, mask, reconverge, HOLD_NONE};
	return true;
}

/* Since Volta, lanes that wait at a join may run on while others of their warp poll or stand at a
 * barrier. Brings the nearest entry below the top that is not held to the top; false: there is none
 * in this frame. An entry that waits at a join for those above it parts with their lanes: both will
 * end where it would have ended. All entries above it run themselves: none of them waits for
 * another, because it would have been nearer. */
static bool hoist(struct warp *warp)
{
	uint32_t bottom = warp->frames[warp->frame_count - 1].simt_base;

	for (uint32_t k = warp->simt_count - 1; k-- > bottom;) {
		struct simt chosen = warp->simt[k];

		if (chosen.held)
			continue;
		for (uint32_t i = k + 1; i < warp->simt_count; i++) {
			chosen.mask &= ~warp->simt[i].mask;
			warp->simt[i].reconverge = chosen.reconverge;
			warp->simt[i - 1] = warp->simt[i];
		}
		warp->simt[warp->simt_count - 1] = chosen;
		if (chosen.mask)
			return true;
		warp->simt_count--;
	}
	return false;
}

static void release_held(struct warp *warp, enum hold hold)
{
	for (uint32_t i = 0; i < warp->simt_count; i++) {
		if (warp->simt[i].held == hold)
			warp->simt[i].held = HOLD_NONE;
	}
}

/* Brings an entry to the top that may run instead of it; those that poll when there is no other. */
static bool hoist_any(struct warp *warp)
{
	if (hoist(warp))
		return true;
	release_held(warp, HOLD_POLLING);
	return hoist(warp);
}

/* Goes on with the top entry. When that one stands at a barrier, others of the warp run first; when
 * none can, the warp has arrived with the lanes that have. */
static void resume(struct warp *warp)
{
	bool arrived = top(warp)->held == HOLD_BARRIER && !hoist_any(warp);

	if (arrived) {
		warp->gathered = 0;
		release_held(warp, HOLD_BARRIER);
	}
	top(warp)->held = HOLD_NONE;
	warp->pc = top(warp)->pc;
	warp->active = top(warp)->mask;
	if (arrived)
		warp_barrier_wait(warp);
}

static struct frame *frame_push(struct warp *warp, const struct function *function)
{
	size_t base = 0, needed;
	struct frame *frame;

	if (warp->frame_count == warp->frame_room) {
		uint32_t room = MAX(2 * warp->frame_room, 8u);
		struct frame *grown = realloc(warp->frames, room * sizeof(*grown));

		if (!grown)
			return NULL;
		warp->frames = grown;
		warp->frame_room = room;
	}
	if (warp->frame_count > 0) {
		const struct frame *caller = &warp->frames[warp->frame_count - 1];

		base = ALIGN_UP(caller->register_base + caller->function->register_bytes,
				(size_t)64);
	}
	needed = ALIGN_UP(base + function->register_bytes, (size_t)64);
	if (needed > warp->register_room) {
		size_t room = MAX(2 * warp->register_room, needed);
		unsigned char *grown = aligned_alloc(64, ALIGN_UP(room, (size_t)64));

		if (!grown)
			return NULL;
		memset(grown, 0, room);
		if (base > 0)
			memcpy(grown, warp->registers, base);
		free(warp->registers);
		warp->registers = grown;
		warp->register_room = room;
	}
	frame = &warp->frames[warp->frame_count++];
	*frame = (struct frame){
		.function = function, .register_base = base, .simt_base = warp->simt_count};
	warp->base[0] = warp->registers + base;
	return frame;
}

int warp_start(struct warp *warp, const struct function *kernel)
{
	warp->frame_count = warp->simt_count = 0;
	if (!frame_push(warp, kernel) || !simt_push(warp, kernel->entry, warp->lanes, -1))
		return -ENOMEM;
	warp->local_base = 0;
	resume(warp);
	return 0;
}

/* --- calls. insn->extra: counts of returned values and arguments, then {in register, place, size}
 * of each, see lower_flow.c. */

static unsigned char *slot_at(const struct warp *warp, bool in_register, uint32_t place,
			      uint32_t size, uint32_t local_base, const unsigned char *registers,
			      unsigned lane)
{
	if (!in_register)
		return warp->local + (size_t)lane * warp->launch->local_bytes + local_base + place;
	if (place & VALUE_CONSTANT)
		return warp->base[1] + (place & ~VALUE_CONSTANT) + (size_t)lane * size;
	return (unsigned char *)registers + place + (size_t)lane * size;
}

struct side {
	const unsigned char *registers;
	uint32_t local_base;
};

static void copy_slots(const struct warp *warp, const uint32_t *actual, const struct slot *formal,
		       uint32_t count, struct side caller, struct side callee, bool back,
		       uint32_t mask)
{
	for (uint32_t i = 0; i < count; i++, actual += 3) {
		uint32_t size = actual[2];

		LANES_OF(mask)
		{
			unsigned char *outer = slot_at(warp, actual[0], actual[1], size,
						       caller.local_base, caller.registers, l);
			unsigned char *inner =
				slot_at(warp, formal[i].in_register, formal[i].place, size,
					callee.local_base, callee.registers, l);

			if (back)
				memcpy(outer, inner, size);
			else
				memcpy(inner, outer, size);
		}
	}
}

static uint32_t frame_size(const struct function *function)
{
	return ALIGN_UP(MAX(function->local_bytes, 16u), 16u);
}

void warp_call(struct warp *warp, const struct insn *insn, const struct function *callee,
	       uint32_t mask)
{
	const struct function *caller = warp->frames[warp->frame_count - 1].function;
	const uint32_t *words = &warp->extra[insn->extra];
	uint32_t outer_base = warp->local_base;
	size_t outer_registers = warp->frames[warp->frame_count - 1].register_base;
	struct frame *frame;
	uint32_t base = outer_base + frame_size(caller);

	if (base + frame_size(callee) > warp->launch->local_bytes) {
		warp_fault(warp, PTX_FAULT_STACK, PTX_WINDOW_LOCAL + base,
			   (unsigned)__builtin_ctz(mask));
		return;
	}
	top(warp)->pc = warp->pc;
	frame = frame_push(warp, callee);
	if (!frame || !simt_push(warp, callee->entry, mask, -1)) {
		warp_out_of_memory(warp);
		return;
	}
	frame->call = insn;
	frame->return_pc = warp->pc;
	frame->local_base = warp->local_base = base;
	copy_slots(warp, words + 2 + (size_t)3 * words[0], callee->params, words[1],
		   (struct side){warp->registers + outer_registers, outer_base},
		   (struct side){warp->base[0], base}, false, mask);
	resume(warp);
}

/* The frame's lanes have all returned or exited. */
static void frame_leave(struct warp *warp)
{
	struct frame left = warp->frames[--warp->frame_count];
	const struct frame *caller = &warp->frames[warp->frame_count - 1];
	const uint32_t *words = &warp->extra[left.call->extra];

	warp->base[0] = warp->registers + caller->register_base;
	warp->local_base = caller->local_base;
	copy_slots(warp, words + 2, left.function->returns, words[0],
		   (struct side){warp->base[0], caller->local_base},
		   (struct side){warp->registers + left.register_base, left.local_base}, true,
		   left.returned);
	top(warp)->pc = left.return_pc;
}

/* Lanes were taken out of entries: finds who runs next. */
static void settle(struct warp *warp)
{
	for (;;) {
		uint32_t bottom = warp->frames[warp->frame_count - 1].simt_base;

		while (warp->simt_count > bottom && top(warp)->mask == 0)
			warp->simt_count--;
		if (warp->simt_count > bottom) {
			resume(warp);
			return;
		}
		if (warp->frame_count == 1)
			break;
		frame_leave(warp);
	}
	warp->state = WARP_DONE;
	warp->stop = true;
}

void warp_exit(struct warp *warp, uint32_t mask)
{
	top(warp)->pc = warp->pc;
	for (uint32_t i = 0; i < warp->simt_count; i++)
		warp->simt[i].mask &= ~mask;
	warp->live &= ~mask;
	settle(warp);
}

void warp_return(struct warp *warp, uint32_t mask)
{
	struct frame *frame = &warp->frames[warp->frame_count - 1];

	if (warp->frame_count == 1) {
		warp_exit(warp, mask);
		return;
	}
	top(warp)->pc = warp->pc;
	for (uint32_t i = frame->simt_base; i < warp->simt_count; i++)
		warp->simt[i].mask &= ~mask;
	frame->returned |= mask;
	settle(warp);
}

void warp_split(struct warp *warp, int32_t reconverge, const uint32_t *pcs, const uint32_t *masks,
		unsigned count)
{
	struct simt *entry = top(warp);
	int32_t until = entry->reconverge;

	/* The entry stays and waits at the join, unless it would end there anyway: then the one
	 * below is waiting already. */
	if (reconverge >= 0 && until != reconverge) {
		entry->pc = (uint32_t)reconverge;
		until = reconverge;
	} else {
		warp->simt_count--;
	}
	for (unsigned i = 0; i < count; i++) {
		if (until >= 0 && pcs[i] == (uint32_t)until)
			continue;
		if (!simt_push(warp, pcs[i], masks[i], until))
			return;
	}
	resume(warp);
}

void warp_join(struct warp *warp, uint32_t join)
{
	while (top(warp)->reconverge == (int32_t)join) {
		warp->simt_count--;
		resume(warp);
		if (warp->pc != join)
			return;
	}
	warp->pc = join + 1;
}

void warp_rotate(struct warp *warp)
{
	top(warp)->pc = warp->pc;
	top(warp)->held = HOLD_POLLING;
	hoist_any(warp);
	top(warp)->held = HOLD_NONE;
	resume(warp);
}

bool warp_gather(struct warp *warp, uint32_t mask)
{
	uint32_t passing = warp->active & ~mask;
	uint32_t pcs[2] = {warp->pc, warp->pc}, masks[2] = {mask, passing};

	warp->gathered |= mask;
	if ((warp->gathered & warp->live) == warp->live) {
		warp->gathered = 0;
		release_held(warp, HOLD_BARRIER);
		return true;
	}
	if (passing) {
		warp_split(warp, -1, pcs, masks, 2);
		warp->simt[warp->simt_count - 2].held = HOLD_BARRIER;
	} else {
		top(warp)->pc = warp->pc;
		top(warp)->held = HOLD_BARRIER;
		resume(warp);
	}
	return false;
}
