#include "front/small.h"

#include <errno.h>

#include "base/macros.h"

static int charge_block(struct process *p, uint32_t gpu)
{
	return ledger_charge(&p->attachment.ledger, p->attachment.slot, gpu, BLOCK_BYTES);
}

static void uncharge_block(struct process *p, uint32_t gpu)
{
	ledger_uncharge(&p->attachment.ledger, p->attachment.slot, gpu, BLOCK_BYTES);
}

static uint64_t block_of(const struct object *object)
{
	return object->handle / BLOCK_BYTES;
}

int small_reserve(struct process *p, struct object *object)
{
	uint64_t *room = &p->gpu[object->gpu].small_room;

	object->bytes = 0;
	if (*room >= object->small) {
		*room -= object->small;
		return 0;
	}
	if (charge_block(p, object->gpu) < 0)
		return -ENOMEM;
	object->bytes = BLOCK_BYTES;
	return 0;
}

void small_cancel(struct process *p, const struct object *object)
{
	if (object->bytes)
		uncharge_block(p, object->gpu);
	else
		p->gpu[object->gpu].small_room += object->small;
}

static int keep_in_new_block(struct process *p, struct object *object)
{
	uint64_t *room = &p->gpu[object->gpu].small_room;
	struct object block = {
		.kind = OBJECT_BLOCK, .handle = block_of(object), .gpu = object->gpu, .count = 1};

	if (!object->bytes && charge_block(p, object->gpu) < 0)
		return -ENOMEM;
	if (table_put(&p->objects, &block) < 0) {
		if (!object->bytes)
			uncharge_block(p, object->gpu);
		return -ENOMEM;
	}
	if (!object->bytes)
		*room += object->small;
	*room += BLOCK_BYTES - object->small;
	return 0;
}

int small_keep(struct process *p, struct object *object)
{
	struct object *block = table_find(&p->objects, OBJECT_BLOCK, block_of(object));
	uint64_t *room = &p->gpu[object->gpu].small_room;

	if (!block) {
		if (keep_in_new_block(p, object) < 0)
			return -ENOMEM;
	} else {
		block->count++;
		if (object->bytes) {
			uncharge_block(p, object->gpu);
			/* It fitted where it was not expected to: others' frees made room
			 * meanwhile. */
			*room -= MIN(*room, object->small);
		}
	}
	object->bytes = 0;
	return 0;
}

void small_drop(struct process *p, const struct object *object)
{
	struct object *block = table_find(&p->objects, OBJECT_BLOCK, block_of(object));
	uint64_t *room = &p->gpu[object->gpu].small_room;

	if (!block)
		return;
	*room += object->small;
	if (--block->count)
		return;
	*room -= MIN(*room, BLOCK_BYTES);
	table_take(&p->objects, OBJECT_BLOCK, block_of(object), &(struct object){0});
	uncharge_block(p, object->gpu);
}
