/* Loads, stores and what concerns addresses. */
#include <string.h>

#include "base/macros.h"
#include "ptx/exec/handlers.h"

struct lanes {
	unsigned char *at[WARP_LANES];
};

/* The lanes' addresses, `base` added; also of lanes that are off. */
static void lane_addresses(const struct warp *warp, const struct insn *insn, uint64_t base,
			   uint64_t addresses[WARP_LANES])
{
	base += (uint64_t)insn->offset;
	if (insn->flags & FLAG_ADDRESS_32) {
		const uint32_t *from = SRC(uint32_t, 0);

		LANES addresses[l] = from[l] + base;
	} else {
		const uint64_t *from = SRC(uint64_t, 0);

		LANES addresses[l] = from[l] + base;
	}
}

/* Whether `size` bytes at each address lie in [start, start + bytes), aligned; of a power of two.
 */
static bool all_inside(const uint64_t addresses[WARP_LANES], uint32_t mask, uint64_t start,
		       uint64_t bytes, uint32_t size)
{
	uint64_t last = bytes - size, outside = 0;

	if (bytes < size)
		return false;
	LANES outside |= (mask >> l & 1) * (uint64_t)((addresses[l] - start > last) |
						      ((addresses[l] & (size - 1)) != 0));
	return outside == 0;
}

static bool resolve_each(struct warp *warp, const uint64_t addresses[WARP_LANES], uint32_t mask,
			 uint32_t size, bool write, struct lanes *lanes)
{
	LANES_OF(mask)
	{
		lanes->at[l] = warp_resolve(warp, addresses[l], size, write, l);
		if (!lanes->at[l])
			return false;
	}
	return true;
}

/* Lanes that are off may have any address: no pointer is formed by adding. */
static inline unsigned char *place(uintptr_t base, uint64_t address)
{
	return (unsigned char *)(base + (uintptr_t)address);
}

/* Mostly all lanes are in the range that was found last. */
static bool resolve_global(struct warp *warp, const struct insn *insn, uint32_t mask, uint32_t size,
			   bool write, struct lanes *lanes)
{
	const struct ptx_range *range = warp->launch->range;
	uint64_t addresses[WARP_LANES];

	launch_meet_when_due(warp->launch);
	lane_addresses(warp, insn, 0, addresses);
	if ((write && !range->writable) ||
	    !all_inside(addresses, mask, range->start, range->size, size))
		return resolve_each(warp, addresses, mask, size, write, lanes);
	LANES lanes->at[l] = place((uintptr_t)range->host - range->start, addresses[l]);
	return true;
}

static bool resolve_generic(struct warp *warp, const struct insn *insn, uint32_t mask,
			    uint32_t size, bool write, struct lanes *lanes)
{
	uint64_t addresses[WARP_LANES];

	lane_addresses(warp, insn, 0, addresses);
	return resolve_each(warp, addresses, mask, size, write, lanes);
}

/* The fault of the first lane that is misaligned or not in `limit` bytes. */
static bool fault_of(struct warp *warp, const uint64_t addresses[WARP_LANES], uint32_t mask,
		     uint64_t limit, uint32_t size)
{
	LANES_OF(mask)
	{
		uint64_t address = addresses[l];

		if (address & (size - 1)) {
			warp_fault(warp, PTX_FAULT_MISALIGNED_ADDRESS, address, l);
			break;
		}
		if (address > limit || size > limit - address) {
			warp_fault(warp, PTX_FAULT_ILLEGAL_ADDRESS, address, l);
			break;
		}
	}
	return false;
}

/* Local memory: each lane has its own; a frame's variables start at its base. */
static bool resolve_local(struct warp *warp, const struct insn *insn, uint32_t mask, uint32_t size,
			  struct lanes *lanes)
{
	uint32_t stride = warp->launch->local_bytes;
	uint64_t addresses[WARP_LANES];

	lane_addresses(warp, insn, insn->detail == SPACE_FRAME ? warp->local_base : 0, addresses);
	if (!all_inside(addresses, mask, 0, stride, size))
		return fault_of(warp, addresses, mask, stride, size);
	LANES lanes->at[l] = place((uintptr_t)warp->local + (size_t)l * stride, addresses[l]);
	return true;
}

static bool resolve_flat(struct warp *warp, const struct insn *insn, uint32_t mask, uint32_t size,
			 unsigned char *bytes, uint64_t limit, struct lanes *lanes)
{
	uint64_t addresses[WARP_LANES];

	lane_addresses(warp, insn, 0, addresses);
	if (!all_inside(addresses, mask, 0, limit, size))
		return fault_of(warp, addresses, mask, limit, size);
	LANES lanes->at[l] = place((uintptr_t)bytes, addresses[l]);
	return true;
}

/* Where the host keeps what the lanes address; false after a fault. `size` is a power of two. */
static bool resolve(struct warp *warp, const struct insn *insn, uint32_t mask, uint32_t size,
		    bool write, struct lanes *lanes)
{
	struct launch *launch = warp->launch;

	launch->result->memory_instructions++;
	switch (insn->detail) {
	case SPACE_GLOBAL:
		return resolve_global(warp, insn, mask, size, write, lanes);
	case SPACE_SHARED:
		return resolve_flat(warp, insn, mask, size, warp->block->shared,
				    launch->shared_bytes, lanes);
	case SPACE_PARAM:
		return resolve_flat(warp, insn, mask, size, launch->params, launch->param_bytes,
				    lanes);
	case SPACE_LOCAL:
	case SPACE_FRAME:
		return resolve_local(warp, insn, mask, size, lanes);
	default:
		return resolve_generic(warp, insn, mask, size, write, lanes);
	}
}

static bool is_private(const struct insn *insn)
{
	return insn->detail == SPACE_LOCAL || insn->detail == SPACE_FRAME;
}

/* After a load that may be part of a wait. */
static void polled(struct warp *warp, const struct insn *insn, uint32_t mask,
		   const struct lanes *lanes)
{
	const unsigned char *at = lanes->at[__builtin_ctz(mask)];
	uint64_t value = 0;

	memcpy(&value, at, MIN(insn->size[0], sizeof(value)));
	warp_polled_value(warp, (uintptr_t)at, value);
	if (insn->flags & FLAG_ACQUIRE)
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define LOAD(name, V)                                                                             \
	HANDLER(name)                                                                             \
	{                                                                                         \
		struct lanes lanes;                                                               \
		__auto_type d = DST(V);                                                           \
		if (!resolve(warp, insn, mask, sizeof(V), false, &lanes))                         \
			return;                                                                   \
		if (mask == UINT32_MAX)                                                           \
			LANES d[l] = __atomic_load_n((V *)(void *)lanes.at[l], __ATOMIC_RELAXED); \
		else                                                                              \
			LANES_OF(mask)                                                            \
		d[l] = __atomic_load_n((V *)(void *)lanes.at[l], __ATOMIC_RELAXED);               \
		if (insn->flags & FLAG_POLL)                                                      \
			polled(warp, insn, mask, &lanes);                                         \
	}
LOAD(ld_b32, uint32_t)
LOAD(ld_b64, uint64_t)

static inline void stored(struct warp *warp, const struct insn *insn)
{
	if (!is_private(insn)) {
		warp->spins = 0;
		warp->idle = false;
		warp->watches = false;
	}
}

#define STORE(name, V)                                                                 \
	HANDLER(name)                                                                  \
	{                                                                              \
		struct lanes lanes;                                                    \
		const V *from = SRC(V, 1);                                             \
		if (!resolve(warp, insn, mask, sizeof(V), true, &lanes))               \
			return;                                                        \
		if (insn->flags & FLAG_RELEASE)                                        \
			__atomic_thread_fence(__ATOMIC_SEQ_CST);                       \
		LANES_OF(mask)                                                         \
		__atomic_store_n((V *)(void *)lanes.at[l], from[l], __ATOMIC_RELAXED); \
		stored(warp, insn);                                                    \
	}
STORE(st_b32, uint32_t)
STORE(st_b64, uint64_t)

static uint64_t widen(uint64_t bits, unsigned size, bool is_signed)
{
	unsigned shift = 64 - 8 * size;

	return is_signed ? (uint64_t)((int64_t)(bits << shift) >> shift) : bits;
}

/* Vectors, and registers wider than the type: extra holds pairs of register and its size. */
HANDLER(ld_any)
{
	const uint32_t *elements = &warp->extra[insn->extra];
	unsigned size = insn->size[0], count = insn->size[1];
	struct lanes lanes;

	if (!resolve(warp, insn, mask, size * count, false, &lanes))
		return;
	LANES_OF(mask)
	{
		uint64_t bits[8] = {0};

		for (unsigned i = 0; i < count; i++)
			memcpy(&bits[i], lanes.at[l] + (size_t)i * size, size);
		for (unsigned i = 0; i < count; i++) {
			unsigned wide = elements[2 * i + 1];

			bits[i] = widen(bits[i], size, insn->flags & FLAG_SIGNED);
			memcpy(warp->base[0] + elements[(size_t)2 * i] + (size_t)l * wide, &bits[i],
			       wide);
		}
	}
	if (insn->flags & FLAG_POLL)
		polled(warp, insn, mask, &lanes);
}

HANDLER(st_any)
{
	const uint32_t *elements = &warp->extra[insn->extra];
	unsigned size = insn->size[0], count = insn->size[1];
	struct lanes lanes;

	if (!resolve(warp, insn, mask, size * count, true, &lanes))
		return;
	if (insn->flags & FLAG_RELEASE)
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	LANES_OF(mask)
	{
		for (unsigned i = 0; i < count; i++) {
			const unsigned char *from = value_at(warp, elements[(size_t)2 * i]);

			memcpy(lanes.at[l] + (size_t)i * size,
			       from + (size_t)l * elements[2 * i + 1], size);
		}
	}
	stored(warp, insn);
}

HANDLER(copy_async)
{
	struct insn source = *insn;
	struct lanes to, from;
	uint32_t size = insn->size[0];
	const uint32_t *bytes = SRC(uint32_t, 2);

	source.src[0] = insn->src[1];
	source.offset = (int32_t)insn->extra;
	source.detail = SPACE_GLOBAL;
	source.flags = insn->type;
	if (!resolve(warp, insn, mask, size, true, &to) ||
	    !resolve(warp, &source, mask, size, false, &from))
		return;
	LANES_OF(mask)
	{
		uint32_t copied = MIN(bytes[l], size);

		memset(to.at[l], 0, size);
		memcpy(to.at[l], from.at[l], copied);
	}
}

HANDLER(fence)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static enum insn_space address_space(const struct warp *warp, uint64_t address)
{
	uint64_t window = address & ~(PTX_WINDOW_SIZE - 1);

	if (window == PTX_WINDOW_SHARED)
		return SPACE_SHARED;
	if (window == PTX_WINDOW_LOCAL)
		return SPACE_LOCAL;
	if (window == PTX_WINDOW_PARAM)
		return SPACE_PARAM;
	for (size_t i = 0; i < warp->launch->module->placed_count; i++) {
		const struct variable *v = warp->launch->module->placed[i];

		if (v->space == VARIABLE_CONST && address - v->address < v->size)
			return SPACE_CONST;
	}
	return SPACE_GLOBAL;
}

HANDLER(isspacep)
{
	const uint64_t *pa = SRC(uint64_t, 0);
	uint32_t bits = 0;

	LANES_OF(mask)
	bits |= (uint32_t)(address_space(warp, pa[l]) == insn->detail) << l;
	predicate_store(warp, insn->dst, mask, bits);
}

/* The address of a variable in the frame's local memory. */
HANDLER(local_address)
{
	uint64_t address = warp->local_base + (uint64_t)insn->offset;

	if (insn->size[0] == 8) {
		uint64_t *d = DST(uint64_t);

		STORE_LANES(uint64_t, d, address);
	} else {
		uint32_t *d = DST(uint32_t);

		STORE_LANES(uint32_t, d, address);
	}
}
