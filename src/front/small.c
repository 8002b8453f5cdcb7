#include "front/small.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "front/process.h"

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
	else
		ledger_uncharge(&p->attachment.ledger, p->attachment.slot, gpu, BLOCK_BYTES);
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

/* Sets or clears [from, to). */
static void map_mark(struct small_map *map, uint32_t from, uint32_t to, bool taken)
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

		if (block->kind == OBJECT_BLOCK && block->gpu == object->gpu &&
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

static int keep_in_new_block(struct process *p, const struct object *object)
{
	struct small_map *map = map_new(p);
	struct object block = {.kind = OBJECT_BLOCK,
			       .handle = block_of(object),
			       .context = object->context,
			       .memory = (uintptr_t)map,
			       .gpu = object->gpu,
			       .count = 1};

	if (!map)
		return -ENOMEM;
	if (!object->bytes && charge_late(p, object->gpu) < 0) {
		map_free(p, map);
		return -ENOMEM;
	}
	if (table_put(&p->objects, &block, NULL) < 0) {
		if (!object->bytes)
			uncharge_block(p, object->gpu);
		map_free(p, map);
		return -ENOMEM;
	}
	map_mark(map, first_unit(object), end_unit(object), true);
	p->gpu[object->gpu].hot =
		(struct small_hot){object->context, block_of(object), UNITS - end_unit(object)};
	return 0;
}

int small_keep(struct process *p, struct object *object)
{
	struct object *block = table_find(&p->objects, OBJECT_BLOCK, block_of(object));
	struct small_hot *hot = &p->gpu[object->gpu].hot;
	bool covered = object->bytes;

	if (!block) {
		if (keep_in_new_block(p, object) < 0)
			return -ENOMEM;
	} else {
		block->count++;
		map_mark(map_of(block), first_unit(object), end_unit(object), true);
		if (hot->block == block->handle && end_unit(object) > UNITS - hot->units)
			hot->units = 0; /* the driver put it where it was not promised */
		if (object->bytes)
			uncharge_block(p, object->gpu);
	}
	if (!covered)
		uncovered_end(p, object->gpu);
	object->bytes = 0;
	return 0;
}

void small_leave(struct process *p, const struct object *object)
{
	struct object *block = table_find(&p->objects, OBJECT_BLOCK, block_of(object));

	p->gpu[object->gpu].small.freeing++;
	if (block)
		map_mark(map_of(block), first_unit(object), end_unit(object), false);
}

void small_return(struct process *p, const struct object *object)
{
	struct object *block = table_find(&p->objects, OBJECT_BLOCK, block_of(object));

	p->gpu[object->gpu].small.freeing--;
	if (block)
		map_mark(map_of(block), first_unit(object), end_unit(object), true);
}

void small_drop(struct process *p, const struct object *object)
{
	struct object *block = table_find(&p->objects, OBJECT_BLOCK, block_of(object));
	struct object gone;

	p->gpu[object->gpu].small.freeing--;
	if (!block || --block->count)
		return;
	table_take(&p->objects, OBJECT_BLOCK, block_of(object), &gone);
	small_drop_block(p, &gone);
}

void small_drop_block(struct process *p, const struct object *block)
{
	/* It may have been the one filled last. */
	p->gpu[block->gpu].hot.units = 0;
	map_free(p, map_of(block));
	uncharge_block(p, block->gpu);
}
