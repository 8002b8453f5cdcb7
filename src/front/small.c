#include "front/small.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "front/books.h"

#define UNITS (uint32_t)(BLOCK_BYTES / SMALL_UNIT)
#define MAPS_AT_ONCE 128

static int charge_block(struct process *p, uint32_t gpu)
{
	return ledger_charge(&p->attachment.ledger, p->attachment.slot, gpu, BLOCK_BYTES);
}

static void uncharge_block(struct process *p, uint32_t gpu)
{
	if (p->gpu[gpu].small.uncovered)
		p->gpu[gpu].small.withheld++;
	else if (p->lessening)
		books_lessen_locked(p, gpu, BLOCK_BYTES);
	else
		ledger_uncharge(&p->attachment.ledger, p->attachment.slot, gpu, BLOCK_BYTES);
}

/* The driver may keep one that others have a handle to. */
static void block_given(struct process *p, const struct object *block)
{
	if (block->exported)
		books_leave_locked(p, block->gpu, BLOCK_BYTES);
	else
		uncharge_block(p, block->gpu);
}

/* For a call that reserved none and got one. */
static int charge_late(struct process *p, uint32_t gpu)
{
	struct small_calls *calls = &p->gpu[gpu].small;

	if (!calls->withheld)
		return charge_block(p, gpu);
	calls->withheld--;
	return 0;
}

static void uncovered_end(struct process *p, uint32_t gpu)
{
	struct small_calls *calls = &p->gpu[gpu].small;

	calls->on_any_room = false;
	if (--calls->uncovered)
		return;
	for (; calls->withheld; calls->withheld--)
		uncharge_block(p, gpu);
}

static struct small_map *map_new(struct process *p)
{
	if (!p->small_maps) {
		struct small_map *maps =
			mmap(NULL, MAPS_AT_ONCE * sizeof(*maps), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (maps == MAP_FAILED)
			return NULL;
		for (int i = 0; i < MAPS_AT_ONCE - 1; i++)
			maps[i].next = &maps[i + 1];
		p->small_maps = maps;
	}
	struct small_map *map = p->small_maps;
	p->small_maps = map->next;
	memset(map, 0, sizeof(*map));
	return map;
}

static void map_free(struct process *p, struct small_map *map)
{
	map->next = p->small_maps;
	p->small_maps = map;
}

static struct small_map *map_of(const struct object *block)
{
	return (struct small_map *)(uintptr_t)block->memory;
}

static uint64_t block_of(const struct object *object)
{
	return object->handle / BLOCK_BYTES;
}

static uint32_t first_unit(const struct object *object)
{
	return (uint32_t)(object->handle % BLOCK_BYTES / SMALL_UNIT);
}

static uint32_t end_unit(const struct object *object)
{
	return MIN(first_unit(object) + object->small / SMALL_UNIT, UNITS);
}

static inline struct object *find_block(struct process *p, const struct object *object)
{
	return table_find_again(&p->objects, OBJECT_BLOCK, block_of(object),
				&p->gpu[object->gpu].hot.number);
}

static void map_mark_long(struct small_map *map, uint32_t from, uint32_t to, bool taken)
{
	while (from < to) {
		uint32_t bit = from % 64, count = MIN(64 - bit, to - from);
		uint64_t bits = (count == 64 ? UINT64_MAX : (1ull << count) - 1) << bit;

		if (taken)
			map->taken[from / 64] |= bits;
		else
			map->taken[from / 64] &= ~bits;
		from += count;
	}
}

/* Sets or clears an object's place. */
static inline void map_mark(const struct object *block, const struct object *object, bool taken)
{
	struct small_map *map = map_of(block);
	uint32_t from = first_unit(object), to = end_unit(object);

	if (from / 64 != (to - 1) / 64)
		map_mark_long(map, from, to, taken);
	else if (taken)
		map->taken[from / 64] |= UINT64_MAX >> (64 - (to - from)) << from % 64;
	else
		map->taken[from / 64] &= ~(UINT64_MAX >> (64 - (to - from)) << from % 64);
}

static bool map_is_free(const struct small_map *map, const struct object *object)
{
	bool is_free = true;

	for (uint32_t i = first_unit(object); i < end_unit(object) && is_free; i++)
		is_free = !(map->taken[i / 64] >> i % 64 & 1);
	return is_free;
}

/* Whether so many units are free in a row. */
static bool map_has_run(const struct small_map *map, uint32_t units)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < UNITS && run < units; i++)
		run = map->taken[i / 64] >> i % 64 & 1 ? 0 : run + 1;
	return run >= units;
}

/* Slow: looks at every block. */
static bool some_block_has_room(struct process *p, const struct object *object)
{
	for (uint32_t i = 0; i < p->objects.numbers; i++) {
		const struct object *block = &p->objects.objects[i];

		if (block->kind == OBJECT_BLOCK && block->count && block->gpu == object->gpu &&
		    block->context == object->context &&
		    map_has_run(map_of(block), object->small / SMALL_UNIT))
			return true;
	}
	return false;
}

static int reserve_any_room(struct process *p, struct object *object)
{
	struct small_calls *calls = &p->gpu[object->gpu].small;

	if (calls->uncovered || calls->freeing)
		return -EAGAIN;
	if (!some_block_has_room(p, object))
		return -ENOMEM;
	calls->uncovered = 1;
	calls->on_any_room = true;
	return 0;
}

int small_reserve(struct process *p, struct object *object)
{
	struct small_hot *hot = &p->gpu[object->gpu].hot;
	struct small_calls *calls = &p->gpu[object->gpu].small;
	uint32_t units = object->small / SMALL_UNIT;

	object->bytes = 0;
	if (hot->context == object->context && hot->units >= units && !calls->on_any_room) {
		hot->units -= units;
		calls->uncovered++;
		return 0;
	}
	if (charge_block(p, object->gpu) == 0) {
		object->bytes = BLOCK_BYTES;
		return 0;
	}
	return reserve_any_room(p, object);
}

void small_cancel(struct process *p, const struct object *object)
{
	if (object->bytes)
		uncharge_block(p, object->gpu);
	else
		uncovered_end(p, object->gpu);
}

/* It holds none any more. Only the last such one is kept in mind. */
static void block_emptied(struct process *p, const struct object *block)
{
	struct small_hot *hot = &p->gpu[block->gpu].hot;
	uint64_t before = hot->empty;
	struct object gone;

	hot->empty = block->handle;
	/* It may have been the one filled last. */
	hot->units = 0;
	if (!before || before == hot->empty)
		return;
	table_take(&p->objects, OBJECT_BLOCK, before, &gone);
	map_free(p, map_of(&gone));
}

/* Puts it into the books, with nothing in it. NULL: there is no memory for that. */
static __attribute__((noinline)) struct object *block_new(struct process *p,
							  const struct object *object)
{
	struct small_map *map = map_new(p);
	struct object block = {.kind = OBJECT_BLOCK,
			       .handle = block_of(object),
			       .memory = (uintptr_t)map,
			       .gpu = object->gpu};

	if (!map)
		return NULL;
	if (table_put(&p->objects, &block, NULL) < 0) {
		map_free(p, map);
		return NULL;
	}
	return find_block(p, object);
}

/* The driver took a block that held none. */
static int block_taken(struct process *p, struct object *block, const struct object *object,
		       uint64_t reserved)
{
	struct small_hot *hot = &p->gpu[object->gpu].hot;

	if (!block)
		block = block_new(p, object);
	if (!block)
		return -ENOMEM;
	if (!reserved && charge_late(p, object->gpu) < 0) {
		block_emptied(p, block);
		return -ENOMEM;
	}
	if (p->gpu[block->gpu].hot.empty == block->handle)
		p->gpu[block->gpu].hot.empty = 0;
	block->gpu = object->gpu;
	block->context = object->context;
	hot->context = object->context;
	hot->block = block->handle;
	hot->units = UNITS - end_unit(object);
	block->count = 1;
	map_mark(block, object, true);
	return 0;
}

/* The driver gave it a place where another one waits for its stream to free it: so that got there.
 * Slow: looks at every object. */
static __attribute__((noinline)) void displace(struct process *p, const struct object *block,
					       const struct object *object)
{
	for (uint32_t i = 0; i < p->objects.numbers; i++) {
		struct object old = p->objects.objects[i];

		if (old.kind != OBJECT_FREEING || !old.small || old.gpu != object->gpu)
			continue;
		old.handle = old.memory;
		if (block_of(&old) != block_of(object) || old.count ||
		    first_unit(&old) >= end_unit(object) || first_unit(object) >= end_unit(&old))
			continue;
		map_mark(block, &old, false);
		p->objects.objects[i].count = 1;
	}
}

/* It took a place in one that held some. */
static void block_joined(struct process *p, struct object *block, const struct object *object,
			 uint64_t reserved)
{
	struct small_hot *hot = &p->gpu[object->gpu].hot;

	block->count++;
	if (__builtin_expect(p->freeing_count != 0, 0) && !map_is_free(map_of(block), object))
		displace(p, block, object);
	map_mark(block, object, true);
	if (hot->block == block->handle && end_unit(object) > UNITS - hot->units)
		hot->units = 0; /* the driver put it where it was not promised */
	if (reserved)
		uncharge_block(p, object->gpu);
}

int small_keep(struct process *p, const struct object *object, uint64_t reserved)
{
	struct object *block = find_block(p, object);

	if (block && block->count)
		block_joined(p, block, object, reserved);
	else if (block_taken(p, block, object, reserved) < 0)
		return -ENOMEM;
	if (!reserved)
		uncovered_end(p, object->gpu);
	return 0;
}

void small_leave(struct process *p, const struct object *object)
{
	struct object *block = find_block(p, object);

	p->gpu[object->gpu].small.freeing++;
	if (block && (object->kind != OBJECT_FREEING || !object->count))
		map_mark(block, object, false);
}

bool small_stay(struct process *p, const struct object *object)
{
	struct object *block = find_block(p, object);

	p->gpu[object->gpu].small.freeing--;
	if (!block)
		return true;
	if (!map_is_free(map_of(block), object))
		return false;
	map_mark(block, object, true);
	return true;
}

void small_return(struct process *p, const struct object *object)
{
	struct object *block = find_block(p, object);

	p->gpu[object->gpu].small.freeing--;
	if (block)
		map_mark(block, object, true);
}

void small_drop(struct process *p, const struct object *object)
{
	struct object *block = find_block(p, object);

	p->gpu[object->gpu].small.freeing--;
	if (!block || !block->count || --block->count)
		return;
	block_given(p, block);
	block->exported = false;
	block_emptied(p, block);
}

void small_export(struct process *p, const struct object *object)
{
	struct object *block = find_block(p, object);

	if (block)
		block->exported = true;
}

void small_drop_block(struct process *p, const struct object *block)
{
	struct small_hot *hot = &p->gpu[block->gpu].hot;

	hot->units = 0;
	if (hot->empty == block->handle)
		hot->empty = 0;
	map_free(p, map_of(block));
	if (block->count)
		block_given(p, block);
}
